"""Which tables are kept, as the bucket has it; and the task that brings them up to date, whatever their catalogs do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from random import Random

import pytest
from prometheus_client import generate_latest

from tests.kit.aged import Stage, age
from tests.kit.assemble import KEYS, memory
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import AtOnceTurn
from tests.kit.tables import Shelf
from tiered.archive.standing import TABLE, put_order
from tiered.clock import ManualClock
from tiered.errors import Conflict, Corrupt, Invalid, NotFound, Unavailable
from tiered.metrics import Metrics
from tiered.table import catalog as catalogs
from tiered.table.catalog import open_catalog, seconds_of
from tiered.table.glue import bounded
from tiered.table.iceberg import TableState
from tiered.table.keeping import NOT_ASKED, TableKeeper, Tabling
from tiered.table.orders import (
    EMBEDDED,
    KeptTables,
    add_tables,
    check_tables,
    drop_tables,
    read_tables,
    tables_in_force,
)
from tiered.table.progress import TablesProgress

ARCHIVE = b"archive-archive-"
TABLES = KeptTables("https://catalog:8181", {"warehouse": "s3://w"}, "a.b", "all", ("Orders*", "%RETRY%g"))


@pytest.mark.parametrize(
    "uri", ["http://h:8181/a@b", "s3://bucket/x:y@z", "https://h/v1/oauth/tokens", "postgresql://me@h/db"]
)
def test_what_is_no_password(uri: str) -> None:
    check_tables(KeptTables(uri, {"uri": uri}, "a"))


def test_tables_are_kept_from_the_moment_they_are_ordered_until_they_are_dropped() -> None:
    provider, chance = memory(), Random(1)
    made = add_tables(provider, KEYS, ARCHIVE, TABLES, 77, chance.randbytes)
    plain = KeptTables(EMBEDDED, {}, "a.b")
    add_tables(provider, KEYS, ARCHIVE, plain, 78, chance.randbytes)
    assert [stored.tables for stored in tables_in_force(provider, KEYS, ARCHIVE)] == [TABLES, plain]
    assert read_tables(provider, KEYS, ARCHIVE)[0] == made
    with pytest.raises(Conflict, match="kept already"):
        add_tables(provider, KEYS, ARCHIVE, KeptTables(EMBEDDED, {}, "a.b", "other"), 79, chance.randbytes)
    with pytest.raises(NotFound, match="several catalogs"):
        drop_tables(provider, KEYS, ARCHIVE, "a.b")
    drop_tables(provider, KEYS, ARCHIVE, TABLES.name)
    assert [stored.dropped for stored in read_tables(provider, KEYS, ARCHIVE)] == [True, False]
    drop_tables(provider, KEYS, ARCHIVE, "a.b")
    assert tables_in_force(provider, KEYS, ARCHIVE) == []
    with pytest.raises(NotFound, match="no tables of this name"):
        drop_tables(provider, KEYS, ARCHIVE, "a.b")
    add_tables(provider, KEYS, ARCHIVE, TABLES, 80, chance.randbytes)
    assert [stored.tables for stored in tables_in_force(provider, KEYS, ARCHIVE)] == [TABLES]


def test_an_order_that_cannot_be_read_is_said() -> None:
    provider, chance = memory(), Random(1)
    add_tables(provider, KEYS, ARCHIVE, TABLES, 77, chance.randbytes)
    (stored,) = provider.list(KEYS.key("table/"))
    data = bytearray(provider.get(stored.key).data)
    data[40] ^= 1
    provider.put(stored.key, [data], create_only=False)
    with pytest.raises(Corrupt, match="no table is kept up to date while that is so"):
        tables_in_force(provider, KEYS, ARCHIVE)


@pytest.mark.parametrize(
    "wrong",
    [
        KeptTables(EMBEDDED, {"s3.secret-access-key": "x"}, "a"),
        KeptTables("postgresql://me:hush@h/db", {}, "a"),
        KeptTables("mine", {"uri": "postgresql://h/db?user=me&password=hush"}, "a"),
        KeptTables(EMBEDDED, {}, ""),
        KeptTables(EMBEDDED, {}, "a", "", ("",)),
        KeptTables(EMBEDDED, {}, "x/y"),
        KeptTables(EMBEDDED, {}, "a..b"),
        *(
            KeptTables(EMBEDDED, {}, "a", name)
            for name in ("../../../../esc", "..", "x/y", "a.b", "a\n", " ")
        ),
    ],
)
def test_wrong_orders_are_refused(wrong: KeptTables) -> None:
    provider = memory()
    with pytest.raises(Invalid):
        add_tables(provider, KEYS, ARCHIVE, wrong, 1, Random(1).randbytes)
    assert list(provider.list(KEYS.key("table/"))) == []


def test_which_topics_are_shown(tmp_path: Path) -> None:
    def shows(topic: str, *patterns: str) -> bool:
        settings = Shelf(None, tmp_path).settings  # type: ignore[arg-type]
        return TableKeeper(settings, KEYS, ARCHIVE, KeptTables(EMBEDDED, {}, "a", "", patterns)).shows(topic)

    assert shows("Orders", "*")
    assert shows("%RETRY%g", "*")
    assert not shows("Orders", "Pay*")
    assert shows("Payments", "Orders", "Pay*")
    assert not shows("SCHEDULE_TOPIC_XXXX", "*")
    assert not shows("!off-queue", "*")
    assert shows("SCHEDULE_TOPIC_XXXX", "SCHEDULE_TOPIC_XXXX")


@pytest.fixture
def aged(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        age(made, Stage.SEALED)
        yield made


def order(made: Scene, kept: KeptTables) -> None:
    archive_id = made.daemon.log.reader.identity.archive_id
    add_tables(made.provider, KEYS, archive_id, kept, 1, Random(len(kept.namespace)).randbytes)


def test_the_task_brings_all_tables_up_to_date_and_says_which_catalog_is_away(
    aged: Scene, tmp_path: Path
) -> None:
    shelf = Shelf(aged, tmp_path)
    shelf.lay_out()
    task, turn = Tabling(aged.daemon.log, aged.clock, shelf.settings), AtOnceTurn(aged.daemon)
    assert task.due(aged.clock.monotonic())
    assert (task.plan().jobs, task.plan().said) == (0, "no table is kept")
    assert task.run_once(turn).figures == {}
    assert not task.due(aged.clock.monotonic())
    aged.clock.advance(shelf.settings.tables.interval_ms / 1000)
    assert task.due(aged.clock.monotonic())
    order(aged, KeptTables("http://127.0.0.1:9", {}, "away"))
    order(aged, shelf.kept)
    plan = task.plan()
    assert plan.jobs == 1
    assert "2 of 2 tables are behind" in plan.said
    assert "http://127.0.0.1:9:away: the catalog of a table cannot do its work now" in plan.said
    assert [(found["topic"], found["added_files"]) for found in plan.rows] == [("Orders", 2), ("Payments", 2)]
    done = task.run_once(turn)
    assert (done.more, done.figures) == (False, {"added_files": 4})
    assert done.trouble is not None
    assert done.trouble.startswith("http://127.0.0.1:9:away: ")
    aged.clock.advance(7)
    assert {row["table"]: (row["lag_commits"], row["behind_seconds"]) for row in task.progress.figures()} == {
        "away": (0, 7.0), f"{shelf.kept.namespace}.Orders": (0, 7.0), f"{shelf.kept.namespace}.Payments": (0, 7.0),
    }  # fmt: skip
    task.run_once(turn)
    behind = {row["table"]: row["behind_seconds"] for row in task.progress.figures()}
    assert sorted(behind.values()) == [0.0, 0.0, 7.0], "the round before brought those that could be reached"
    assert behind["away"] == 7.0
    archive_id = aged.daemon.log.reader.identity.archive_id
    drop_tables(aged.provider, KEYS, archive_id, "away")
    assert (task.run_once(turn).trouble, task.plan().said) == (None, "0 of 2 tables are behind")


@pytest.mark.parametrize(
    "wrong", [KeptTables(EMBEDDED, {}, "bad", "../../../../esc"), KeptTables(EMBEDDED, {}, "x/../../y")]
)
def test_an_order_of_the_bucket_with_a_name_that_leads_elsewhere_is_said_and_not_followed(
    aged: Scene, tmp_path: Path, wrong: KeptTables
) -> None:
    """Another program, or an older one, put it; others are followed."""
    shelf = Shelf(aged, tmp_path)
    shelf.lay_out()
    archive_id = aged.daemon.log.reader.identity.archive_id
    fields = {"created_ms": 1, **asdict(wrong)}
    put_order(aged.provider, KEYS, archive_id, TABLE, b"0123456789abcdef", fields)
    order(aged, shelf.kept)
    task = Tabling(aged.daemon.log, aged.clock, shelf.settings)
    assert wrong.name in task.plan().said
    done = task.run_once(AtOnceTurn(aged.daemon))
    assert done.trouble is not None
    assert done.trouble.startswith(f"{wrong.name}: ")
    assert repr(wrong.table or wrong.namespace) in done.trouble
    assert "tiered table disable ends an order" in done.trouble
    assert done.figures == {"added_files": 4}, "of the other order alone"
    found = {path.name for path in tmp_path.rglob("*") if path.is_dir()}
    assert found.isdisjoint({"esc", "x", "y", "bad"})
    drop_tables(aged.provider, KEYS, archive_id, wrong.name)
    assert task.run_once(AtOnceTurn(aged.daemon)).trouble is None


def test_without_pyiceberg_the_task_says_what_to_install(
    aged: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(aged, tmp_path)
    task = Tabling(aged.daemon.log, aged.clock, shelf.settings)
    monkeypatch.setattr(catalogs, "find_spec", lambda name: None)
    assert task.run_once(AtOnceTurn(aged.daemon)).trouble is None, "nobody asked for a table"
    order(aged, shelf.kept)
    trouble = task.run_once(AtOnceTurn(aged.daemon)).trouble
    assert trouble is not None
    assert "pip install 'rocketmq-tiered[iceberg]'" in trouble


def test_a_rest_catalog_that_has_gone_silent_is_not_waited_for_for_ever() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        late = threading.Timer(
            5.0, silent.shutdown, (socket.SHUT_RDWR,)
        )  # so that one who waits for ever fails
        late.start()
        with pytest.raises(Unavailable, match="cannot do its work now") as found:
            open_catalog(KeptTables(uri, {"tiered.timeout-seconds": "0.2"}, "a"), {}, "")
        late.cancel()
    assert "imed out" in str(found.value.fields["found"])


@contextmanager
def silent_server() -> Iterator[tuple[str, list[socket.socket]]]:
    """A server that takes connections and says nothing, and the connections."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        asked = list[socket.socket]()

        def take() -> None:
            with suppress(OSError):
                while True:
                    asked.append(listening.accept()[0])

        taker = threading.Thread(target=take)
        taker.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            taker.join()
            for each in asked:
                each.close()


def glue(endpoint: str, **more: str) -> dict[str, str]:
    return {"glue.endpoint": endpoint, "glue.region": "eu-west-1", "tiered.timeout-seconds": "0.3", **more}


@pytest.mark.parametrize(("more", "tries"), [({}, 3), ({"glue.max-retries": "1"}, 2)])
def test_a_glue_catalog_that_is_away_is_asked_a_few_times_and_its_other_tables_do_not_wait(
    aged: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], tries: int
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "me")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    shelf = Shelf(aged, tmp_path)
    with silent_server() as (endpoint, asked):
        for namespace in ("a", "bb"):
            order(aged, KeptTables("glue", glue(endpoint, **more), namespace))
        order(aged, shelf.kept)
        shelf.lay_out()
        task = Tabling(aged.daemon.log, aged.clock, shelf.settings)
        done = task.run_once(AtOnceTurn(aged.daemon))
        assert len(asked) == tries, "of the first namespace alone"
        assert done.trouble is not None
        assert "the catalog of a table cannot do its work now" in done.trouble
        assert done.trouble.count(NOT_ASKED) == 1
        assert done.figures["added_files"] > 0, "others are brought up to date"
        assert NOT_ASKED in task.plan().said


def test_by_default_no_request_to_a_catalog_takes_half_a_minute() -> None:
    made = bounded({}, seconds_of({}))
    config = made["botocore_session"].get_default_client_config()
    tries = 1 + made["glue.max-retries"]
    assert (config.connect_timeout, tries * config.read_timeout) == (config.read_timeout, 20.0)
    assert seconds_of({}) < 30


def test_a_table_that_does_not_move_is_told_by_commits_and_by_time() -> None:
    clock, metrics = ManualClock(), Metrics()
    progress = TablesProgress(clock)
    progress.count(10, [TableState("t.a", "a", 3, 10), TableState("t.b", "b", 2, 9, partial=1)], [])
    clock.advance(100)
    progress.count(25, [TableState("t.b", "b", 2, 25, partial=1)], ["t.a"])
    clock.advance(5)
    found = {row["table"]: row for row in progress.figures()}
    assert (found["t.a"]["lag_commits"], found["t.a"]["behind_seconds"]) == (15, 105.0)
    assert (found["t.b"]["lag_commits"], found["t.b"]["behind_seconds"]) == (0, 5.0)
    progress.count(30, [], ["t"])
    found = {row["table"]: row for row in progress.figures()}
    assert [found[name]["lag_commits"] for name in ("t.a", "t.b")] == [20, 5]
    metrics.tables(progress.figures())
    text = generate_latest(metrics.registry).decode()
    assert 'tiered_table_lag_commits{table="t.a"} 20.0' in text
    assert 'tiered_table_behind_seconds{table="t.a"} 105.0' in text
    assert 'tiered_table_partial_files{table="t.b"} 1.0' in text
    progress.count(30, [TableState("t.b", "b", 2, 30)], [])
    metrics.tables(progress.figures())
    assert 't.a"' not in generate_latest(metrics.registry).decode(), "an order that was dropped"
