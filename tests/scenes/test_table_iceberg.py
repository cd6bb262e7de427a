"""Iceberg tables over sealed files: they show what the archive serves, each file once, whatever happens on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, LongType, NestedField, StringType
from requests.exceptions import Timeout

from tests.kit.aged import Stage, age
from tests.kit.archiveedits import Edits
from tests.kit.assemble import KEYS
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.hiding import hide_rows
from tests.kit.merging import merge_all
from tests.kit.oddrecords import OddRecord
from tests.kit.sealing import after_midnight, all_rows, seal_all
from tests.kit.storedrows import expected_row
from tests.kit.tables import Shelf
from tiered import crashpoint
from tiered.archive.state.view import ArchiveState
from tiered.crashpoint import TablePoint
from tiered.errors import Refused
from tiered.table import iceberg, keeping
from tiered.table.iceberg import COMMIT, PROPERTIES
from tiered.table.names import hashed_name, table_name
from tiered.table.orders import EMBEDDED, KeptTables


class Died(BaseException):
    """The process, at a crash point."""


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Two days of two topics, sealed; no test edits it."""
    with scene(tmp_path_factory.mktemp("aged")) as made:
        age(made, Stage.SEALED)
        yield made


@pytest.fixture
def shelf(aged: Scene, tmp_path: Path) -> Shelf:
    return Shelf(aged, tmp_path)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Shelf]:
    """One whose archive may be edited."""
    with scene(tmp_path) as made:
        age(made, Stage.SEALED)
        yield Shelf(made, tmp_path)


def archived(made: Scene, topic: str) -> dict[tuple[int, int], bytes]:
    """Records of a topic as the archive serves them."""
    return {
        (queue.queue_id, offset): raw
        for (queue, _, closed_by), rows in all_rows(made).items() if queue.topic == topic and closed_by is None
        for offset, raw, _ in rows
    }  # fmt: skip


def same(shelf: Shelf, topic: str, name: str | None = None) -> None:
    """A table's rows are the topic's messages, in every column."""
    expected = archived(shelf.scene, topic)
    rows = [row for row in shelf.rows(name or topic) if row["topic"] == topic]
    assert len(rows) == len(expected) > 10
    for row in rows:
        place = row["queue_id"], row["queue_offset"]
        record, _ = row.pop("record"), row.pop("commit_seq")
        assert record is None
        row["properties"] = dict(row["properties"])
        assert row == expected_row(OddRecord(expected[place], *place), topic)


def snapshots(shelf: Shelf, name: str = "Orders") -> int:
    return len(shelf.table(name).snapshots())


def die_at(point: TablePoint, times: int = 1) -> None:
    left = [times]

    def hook(reached: object) -> None:
        if reached is point:
            left[0] -= 1
            if not left[0]:
                raise Died

    crashpoint.install(hook)


@pytest.fixture(autouse=True)
def _no_hook() -> Iterator[None]:
    yield
    crashpoint.install(None)


def test_a_table_for_each_topic_shows_its_messages_and_a_second_round_does_nothing(shelf: Shelf) -> None:
    done = shelf.bring()
    assert done.troubles == ()
    assert [(s.name, s.topic, s.added, s.lag_commits, s.partial) for s in done.states] == [
        ("queues.Orders", "Orders", 2, 0, 0), ("queues.Payments", "Payments", 2, 0, 0),
    ]  # fmt: skip
    for topic in ("Orders", "Payments"):
        same(shelf, topic)
    head = shelf.scene.state.head()
    assert head is not None
    assert shelf.table("Orders").current_snapshot().summary[COMMIT] == str(head.seq)
    before = snapshots(shelf)
    assert [(s.added, s.removed, s.lag_commits) for s in shelf.bring().states] == [(0, 0, 0)] * 2
    assert [s.lag_commits for s in shelf.keeper().look(shelf.scene.state).states] == [0, 0]
    assert snapshots(shelf) == before
    assert {k: v for k, v in shelf.table("Orders").properties.items() if k in PROPERTIES} == {
        k: v for k, v in PROPERTIES.items() if k != "format-version"
    }


def test_duckdb_reads_the_files_of_a_table_by_their_folders(shelf: Shelf) -> None:
    shelf.bring()
    with duckdb.connect() as engine:
        pattern = f"{shelf.directory}/archive/*/*/segment/topic=Orders/*/*.parquet"
        found = engine.execute(
            f"select queue_id, queue_offset, topic from read_parquet('{pattern}', hive_partitioning = false)"
        ).fetchall()
    assert {(q, o) for q, o, _ in found} == archived(shelf.scene, "Orders").keys()


def test_one_table_of_all_topics(shelf: Shelf) -> None:
    shelf.kept = KeptTables(EMBEDDED, {}, "queues", table="messages")
    (state,) = shelf.bring().states
    assert (state.name, state.files) == ("queues.messages", 4)
    for topic in ("Orders", "Payments"):
        same(shelf, topic, "messages")


def test_a_look_changes_nothing(shelf: Shelf) -> None:
    shelf.lay_out()
    states = shelf.keeper().look(shelf.scene.state).states
    assert [(s.added, s.commit, s.lag_commits > 0) for s in states] == [(2, None, True)] * 2
    assert not shelf.catalog().list_namespaces()


def test_files_that_retention_took_go_and_those_it_cut_are_said_to_be_cut(own: Shelf) -> None:
    own.bring()
    queues = {q.queue: q for q in own.scene.state.queues() if q.queue.topic == "Orders"}
    edits = Edits(own.scene)
    edits.trim(ORDERS, queues[ORDERS].min_offset + 1)
    done = own.bring()
    assert [(s.topic, s.removed, s.partial) for s in done.states] == [("Orders", 0, 1), ("Payments", 0, 0)]
    assert len(own.rows("Orders")) == len(archived(own.scene, "Orders")) + 1, "whole files, as the page says"
    for queue, state in queues.items():
        edits.trim(queue, state.max_offset)
    done = own.bring()
    assert [(s.topic, s.files, s.removed) for s in done.states] == [("Orders", 0, 2), ("Payments", 2, 0)]
    assert own.rows("Orders") == []


@pytest.mark.parametrize("lower", [False, True])
def test_files_of_a_topic_that_is_forgotten_go_though_no_round_saw_it_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lower: bool
) -> None:
    """The catalog was away meanwhile, or nobody worked at tables. Tables of others in the namespace stay as they are."""
    if lower:
        opened = keeping.open_catalog
        monkeypatch.setattr(keeping, "open_catalog", lambda *where: LowerCase(opened(*where)))
    name = "orders" if lower else "Orders"
    with scene(tmp_path, forgets=True) as made:
        age(made, Stage.SEALED)
        own = Shelf(made, tmp_path)
        own.bring()
        own.catalog().create_table(
            ("queues", "foreign"), Schema(NestedField(1, "a", LongType(), required=False))
        )
        before = own.table("foreign").metadata
        gone = [queue for queue in made.state.queues() if queue.queue.topic == "Orders"]
        for queue in gone:
            Edits(made).trim(queue.queue, queue.max_offset)
        for queue in gone:
            Edits(made).forget(queue.queue)
        assert own.keeper().look(made.state).states[0].removed == 2
        done = own.bring()
        assert done.troubles == ()
        assert [(s.topic, s.files, s.removed) for s in done.states] == [("Orders", 0, 2), ("Payments", 2, 0)]
        assert own.rows(name) == []
        assert own.table("foreign").metadata == before
        own.kept = KeptTables(EMBEDDED, {}, "queues", topics=("Pay*",))
        assert [s.topic for s in own.bring().states] == ["Payments"]


@pytest.mark.parametrize("forgets", [False, True])
def test_tables_of_others_cost_nothing_before_a_topic_is_forgotten_and_hold_no_other_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    with scene(tmp_path, forgets=forgets) as made:
        age(made, Stage.SEALED)
        own = Shelf(made, tmp_path)
        own.bring()
        own.catalog().create_table(
            ("queues", "foreign"), Schema(NestedField(1, "a", LongType(), required=False))
        )
        if forgets:
            gone = [queue for queue in made.state.queues() if queue.queue.topic == "Orders"]
            for queue in gone:
                Edits(made).trim(queue.queue, queue.max_offset)
            for queue in gone:
                Edits(made).forget(queue.queue)
        opened, asked = keeping.open_catalog, list[str]()
        monkeypatch.setattr(keeping, "open_catalog", lambda *where: Slow(opened(*where), "foreign", asked))
        done = own.bring()
        assert done.troubles == ()
        assert "Payments" in [s.topic for s in done.states]
        assert asked == ["foreign"] * forgets


class Slow:
    """A catalog that does not answer for one table, and notes that it was asked."""

    def __init__(self, inner: Any, name: str, asked: list[str]) -> None:
        self._inner, self._name, self._asked = inner, name, asked

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def load_table(self, identifier: tuple[str, ...]) -> Any:
        if identifier[-1] == self._name:
            self._asked.append(self._name)
            raise Timeout("no answer")
        return self._inner.load_table(identifier)


def test_files_that_went_go_where_a_catalog_keeps_names_in_lower_case(
    own: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.bring()
    for queue in list(own.scene.state.queues()):
        if queue.queue.topic == "Orders":
            Edits(own.scene).trim(queue.queue, queue.max_offset)
    monkeypatch.setattr(keeping, "_names", lambda catalog, namespace: {"orders", "payments"})
    assert [(s.topic, s.files, s.removed) for s in own.bring().states] == [
        ("Orders", 0, 2),
        ("Payments", 2, 0),
    ]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", list(TablePoint))
def test_killed_anywhere_the_next_round_brings_it_to_an_end(
    shelf: Shelf, point: TablePoint, times: int
) -> None:
    """Also between the batches of one table, and between a table and the next."""
    shelf.batch_files = 1
    die_at(point, times)
    with pytest.raises(Died):
        shelf.bring()
    crashpoint.install(None)
    tables = shelf.catalog().list_tables("queues")
    assert ("queues", "Orders") in tables
    done = shelf.bring()
    assert done.troubles == ()
    assert [(s.files, s.lag_commits) for s in done.states] == [(2, 0)] * 2
    for topic in ("Orders", "Payments"):
        same(shelf, topic)
        assert len(set(shelf.files(topic))) == len(shelf.files(topic)) == 2


def test_another_process_that_is_faster_does_not_double_a_file(shelf: Shelf) -> None:
    shelf.lay_out()
    raced: list[object] = []

    def hook(point: object) -> None:
        if point is TablePoint.BEFORE_TABLE and not raced:
            raced.append(point)
            assert shelf.keeper().bring(shelf.scene.state, 0, lambda: None).troubles == ()

    crashpoint.install(hook)
    done = shelf.bring()
    assert raced
    assert done.troubles == ()
    assert len(set(shelf.files("Orders"))) == len(shelf.files("Orders")) == 2
    same(shelf, "Orders")


def test_a_process_that_knows_less_leaves_a_table_alone(own: Shelf) -> None:
    old = ArchiveState(own.scene.daemon.log.store.snapshot())
    own.bring()
    for queue in list(own.scene.state.queues()):
        if queue.queue.topic == "Orders":
            Edits(own.scene).trim(queue.queue, queue.max_offset)
    own.bring()
    before = snapshots(own)
    done = own.bring(old)
    assert own.rows("Orders") == [], "what retention took does not come back"
    assert all("left alone" in trouble for trouble in done.troubles)
    assert len(done.troubles) == 1
    assert snapshots(own) == before
    for told in (done, own.keeper().look(old)):
        assert [(s.added, s.removed) for s in told.states] == [(0, 0)] * 2, (
            "nothing was done, and nothing will be"
        )


def test_a_table_that_is_lost_is_made_anew(shelf: Shelf) -> None:
    shelf.bring()
    shelf.catalog().drop_table(("queues", "Orders"))
    assert [s.added for s in shelf.bring().states] == [2, 0]
    same(shelf, "Orders")


def test_a_file_that_is_in_a_table_twice_is_in_it_once_again(shelf: Shelf) -> None:
    shelf.bring()
    table = shelf.table("Orders")
    table.add_files([shelf.files("Orders")[0]], check_duplicate_files=False)
    assert len(shelf.files("Orders")) == 3
    shelf.bring()
    assert len(set(shelf.files("Orders"))) == len(shelf.files("Orders")) == 2
    same(shelf, "Orders")


def test_a_table_of_somebody_else_is_refused_and_stays_as_it_was(shelf: Shelf) -> None:
    catalog = shelf.catalog()
    catalog.create_namespace("queues")
    import pyarrow as pa

    catalog.create_table(("queues", "Orders"), pa.schema([("a", pa.int64())]))
    before = shelf.table("Orders").metadata
    done = shelf.bring()
    assert [s.topic for s in done.states] == ["Payments"], "the other one is kept all the same"
    assert "belongs to somebody else" in done.troubles[0]
    assert shelf.table("Orders").metadata == before


def test_a_table_of_another_topic_or_a_newer_program_is_refused(shelf: Shelf) -> None:
    shelf.bring()
    for name, value, said in (
        ("tiered.topic", "Other", "somebody else"),
        ("tiered.format", "2", "newer program"),
    ):
        before = shelf.table("Orders").properties[name]
        with shelf.table("Orders").transaction() as change:
            change.set_properties({name: value})
        done = shelf.bring()
        assert said in done.troubles[0]
        with shelf.table("Orders").transaction() as change:
            change.set_properties({name: before})
    assert shelf.bring().troubles == ()


def test_a_table_that_another_program_wrote_to_is_refused(shelf: Shelf) -> None:
    shelf.bring()
    copy = shelf.directory / "compacted.parquet"
    copy.write_bytes(Path(shelf.files("Orders")[0].removeprefix("file://")).read_bytes())
    shelf.table("Orders").add_files([f"file://{copy}"])
    done = shelf.bring()
    assert "another program writes" in done.troubles[0]
    shelf.catalog().drop_table(("queues", "Orders"))
    assert shelf.bring().troubles == ()
    same(shelf, "Orders")


def left_alone(shelf: Shelf, said: str, *also: str) -> None:
    """A look and a round refuse ``Orders`` and name it, the other table goes on; dropped, it is made anew."""
    before = shelf.table("Orders").metadata
    for done in (shelf.keeper().look(shelf.scene.state), shelf.bring()):
        assert [s.topic for s in done.states] == ["Payments"]
        (trouble,) = done.troubles
        for each in (said, "queues.Orders", *also):
            assert each in trouble
    assert shelf.table("Orders").metadata == before
    shelf.catalog().drop_table(("queues", "Orders"))
    assert shelf.bring().troubles == ()
    same(shelf, "Orders")


@pytest.mark.parametrize("equality", [False, True])
def test_a_table_in_which_another_program_hides_rows_is_refused(shelf: Shelf, equality: bool) -> None:
    """Merge-on-read: the data files are as they were, and other files say which of their rows no longer count."""
    shelf.bring()
    rows = len(shelf.rows("Orders"))
    hidden = hide_rows(shelf.table("Orders"), shelf.directory / "hidden.parquet", equality=equality)
    if not equality:  # which pyiceberg does not read
        assert len(shelf.rows("Orders")) == rows - 1
    left_alone(shelf, "another program writes", hidden)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda columns: columns.delete_column("body"), "no column 'body'"),
        (lambda columns: columns.rename_column("body", "payload"), "column 'payload'"),
        (lambda columns: columns.add_column("mine", StringType()), "column 'mine'"),
        (lambda columns: columns.update_column("queue_id", LongType()), "column 'queue_id' of another type"),
    ],
)
def test_a_table_whose_columns_another_program_changed_is_refused(
    shelf: Shelf, change: Callable[[Any], object], said: str
) -> None:
    shelf.bring()
    with shelf.table("Orders").update_schema() as columns:
        change(columns)
    left_alone(shelf, "another program changed the columns", said)


def test_a_table_whose_column_was_dropped_and_given_again_is_refused(shelf: Shelf) -> None:
    """Under the old name, and with nothing in it."""
    shelf.bring()
    with shelf.table("Orders").update_schema() as columns:
        columns.delete_column("body")
    with shelf.table("Orders").update_schema() as columns:
        columns.add_column("body", BinaryType())
    left_alone(shelf, "another program changed the columns", "column 'body' made anew")


def test_columns_that_an_older_program_did_not_have_are_added(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = iceberg._schema()
    older = Schema(*(field for field in whole.fields if field.name not in ("tags", "body")))
    monkeypatch.setattr(iceberg, "_schema", lambda: older)
    shelf.bring()  # makes the table, and has no files of so few columns
    assert len(shelf.table("Orders").schema().fields) == len(whole.fields) - 2
    monkeypatch.setattr(iceberg, "_schema", lambda: whole)
    for _ in range(2):
        assert shelf.keeper().look(shelf.scene.state).troubles == ()
        assert shelf.bring().troubles == ()
    same(shelf, "Orders")


def test_properties_that_somebody_changed_are_put_back(shelf: Shelf) -> None:
    shelf.bring()
    with shelf.table("Orders").transaction() as change:
        change.set_properties({"gc.enabled": "true", "commit.retry.num-retries": "4", "comment": "ours"})
    shelf.bring()
    found = shelf.table("Orders").properties
    assert (found["gc.enabled"], found["commit.retry.num-retries"], found["comment"]) == (
        "false",
        "0",
        "ours",
    )


def test_a_file_that_is_gone_is_told_and_the_others_are_shown(shelf: Shelf) -> None:
    shelf.lay_out()
    gone = min((shelf.directory / "archive").rglob("topic=Orders/**/*.parquet"))
    gone.unlink()
    done = shelf.keeper().bring(shelf.scene.state, 0, lambda: None)
    assert [(s.topic, s.files, s.absent, s.lag_commits > 0) for s in done.states] == [
        ("Orders", 1, 1, True), ("Payments", 2, 0, False),
    ]  # fmt: skip
    assert "1 sealed files are not there" in done.troubles[0]
    before = snapshots(shelf)
    shelf.keeper().bring(shelf.scene.state, 0, lambda: None)
    assert snapshots(shelf) == before, "no commit of nothing, however often it looks"
    assert shelf.bring().troubles == ()
    same(shelf, "Orders")


def test_old_snapshots_and_their_manifests_go(shelf: Shelf) -> None:
    shelf.batch_files = 1
    shelf.bring()
    assert snapshots(shelf) == 1, "of two commits: the clock of these rounds is far ahead"
    metadata = Path(shelf.table("Orders").location().removeprefix("file://")) / "metadata"
    manifests = list(metadata.glob("*.avro"))
    assert len(manifests) == 3, "two manifests and their list"
    same(shelf, "Orders")


@pytest.mark.parametrize(
    ("topic", "name"),
    [("Orders", "Orders"), ("a_1", "a_1"), ("%RETRY%g", "_RETRY_g_"), ("a.b", "a_b_"), ("Ä", "__"), ("x" * 127, "x" * 80)],
)  # fmt: skip
def test_names_of_tables(topic: str, name: str) -> None:
    found = table_name(topic)
    assert found.startswith(name)
    assert (found == topic) == (found == name)
    assert len(found) <= 100


def seal_topics(made: Scene, names: Iterable[str]) -> None:
    """Twelve messages of each, of a day that is sealed."""
    for name in names:
        for number in range(12):
            made.broker.send(name, 0, b"%d" % number * 9)
    made.daemon.settle()
    merge_all(made.daemon)
    after_midnight(made)
    seal_all(made.daemon)


def test_topics_whose_names_hurt(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        names = [
            "%RETRY%group",
            "a-b|c",
            "x" * 127,
            "語" * 42,
            "a.b.c",
            "select",
            "table",
            "null",
            "42",
            "Twin",
            "twin",
            'it\'s "so"',
        ]
        seal_topics(made, names)
        shelf = Shelf(made, tmp_path)
        assert shelf.bring().troubles == ()
        for name in names:
            same(shelf, name, table_name(name))


def test_a_topic_that_is_called_as_the_table_of_another_has_a_table_too(tmp_path: Path) -> None:
    called = table_name("a.b")
    with scene(tmp_path) as made:
        seal_topics(made, ("a.b", called))
        shelf = Shelf(made, tmp_path)
        for _ in range(2):
            assert shelf.bring().troubles == ()
            same(shelf, "a.b", called)
            same(shelf, called, hashed_name(called))
        for name in (called, hashed_name(called)):
            shelf.catalog().drop_table(("queues", name))
        shelf.kept = KeptTables(EMBEDDED, {}, "queues", topics=(called,))
        assert shelf.bring().troubles == ()
        shelf.kept = KeptTables(EMBEDDED, {}, "queues")
        (trouble,) = shelf.bring().troubles
        assert "belongs to somebody else" in trouble
        same(shelf, called, called)


class LowerCase:
    """A catalog that keeps names in lower case, as Glue and Hive do: whoever asks for another spelling gets the same table."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._inner, name)
        if name not in ("load_table", "table_exists", "create_table"):
            return asked
        return lambda identifier, *args, **kw: asked(tuple(part.lower() for part in identifier), *args, **kw)


def test_twins_where_a_catalog_keeps_names_in_lower_case(own: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are shown, under names that stay, whichever is there in a later round."""
    made = own.scene
    for number in range(12):
        made.broker.send("ORDERS", 0, b"%d" % number * 9)
    made.daemon.settle()
    merge_all(made.daemon)
    after_midnight(made, days=9)
    seal_all(made.daemon)
    opened = keeping.open_catalog
    monkeypatch.setattr(keeping, "open_catalog", lambda *where: LowerCase(opened(*where)))
    looked = own.keeper().look(made.state)
    assert looked.troubles == ()
    for _ in range(2):
        assert own.bring().troubles == ()
        same(own, "ORDERS", "orders")  # upper case sorts first
        same(own, "Orders", hashed_name("Orders").lower())
    assert own.keeper().look(made.state).troubles == ()
    names = {name for _, name in own.catalog().list_tables("queues")}
    assert names == {"orders", hashed_name("Orders").lower(), "payments"}
    for queue in list(made.state.queues()):
        if queue.queue.topic != "Payments":
            Edits(made).trim(queue.queue, queue.max_offset)
    assert own.bring().troubles == ()
    assert own.rows("orders") == own.rows(hashed_name("Orders").lower()) == []


def test_without_a_place_that_engines_reach(shelf: Shelf) -> None:
    from tiered.errors import Invalid
    from tiered.settings import Store
    from tiered.table.place import file_access, files_location

    assert (
        files_location("s3://bucket/some/root?endpoint=http://h:1", KEYS.root)
        == f"s3://bucket/some/root/{KEYS.root}"
    )
    assert files_location("file:///a%20b/c/", KEYS.root) == f"file:///a b/c/{KEYS.root}"
    for wrong in ("memory://x", "fsspec+gs://bucket/x", "file:///a%3Fb"):
        with pytest.raises(Invalid, match="engines do not reach"):
            files_location(wrong, KEYS.root)
    store = Store(access_key_id="id", secret_access_key="s")
    assert file_access("s3://b/x?endpoint=http://h:1", store) == {
        "s3.endpoint": "http://h:1", "s3.region": "us-east-1", "s3.access-key-id": "id", "s3.secret-access-key": "s",
        "s3.connect-timeout": "5.0", "s3.request-timeout": "20.0",
    }  # fmt: skip
    assert file_access("file:///x", store) == {}


def test_the_embedded_catalog_needs_a_directory(shelf: Shelf) -> None:
    from tiered.table.catalog import open_catalog

    with pytest.raises(Refused, match="state directory"):
        open_catalog(shelf.kept, {}, "")
