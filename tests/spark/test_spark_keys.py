"""A search for keys: what its plan leaves out, what plan and tasks ask the store for. No JVM."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kit import golden
from tests.kit.fetchscene import Scene, scene
from tests.kit.sparkscene import archive, rows_of, scan
from tiered.archive.state.values import ObjectState
from tiered.codec.format.sections import SectionKind
from tiered.errors import Corrupt, Invalid
from tiered.model import OFF_QUEUE_TOPIC
from tiered_spark import plan_keys, snapshot
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader
from tiered_spark.keptfolds import KeptFolds
from tiered_spark.options import parse_options
from tiered_spark.plan import ScanPartition
from tiered_spark.snapshot import open_snapshots
from tiered_spark.tables import METADATA

pytestmark = pytest.mark.spark

OBJECTS, EACH = 12, 50
SOURCE = {"archive": "memory://x", "columns": "topic,queue_offset,unique_key,keys"}


@pytest.fixture
def crafted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Twelve objects of two topics, in memory: ``U0`` … and a key that every tenth message has."""
    with scene(tmp_path) as made:
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: made.provider)
        monkeypatch.setattr(snapshot, "folds", KeptFolds())
        plan_keys._objects.cache_clear()
        for number in range(OBJECTS * EACH):
            made.broker.send(
                topic=("Orders", "Payments")[number % 2], body=random.Random(number).randbytes(400),
                properties={"UNIQ_KEY": f"U{number}", "KEYS": f"k{number} tenth" if number % 10 == 0 else f"k{number}"},
            )  # fmt: skip
            if number % EACH == EACH - 1:
                made.daemon.settle()
        assert len(list(made.state.objects())) == OBJECTS
        yield made
        plan_keys._objects.cache_clear()


Seen = list[tuple[str, int, int]]


def search(made: Scene, **options: str) -> tuple[list[dict[str, Any]], list[ScanPartition], Seen, Seen]:
    """Rows, partitions, and what plan and tasks asked of objects."""
    parsed = parse_options({**SOURCE, **options})
    reader = MessageReader(parsed, message_schema(tuple(parsed.columns.split(","))))
    made.provider.gets.clear()
    parts = [part for part in reader.partitions() if isinstance(part, ScanPartition)]
    planned = [get for get in made.provider.gets if "/data/" in get[0]]
    made.provider.gets.clear()
    batches = [batch for part in parts for batch in reader.read(part)]
    read = [get for get in made.provider.gets if "/data/" in get[0]]
    return rows_of(pa.Table.from_batches(batches)) if batches else [], parts, planned, read


def filters_of(made: Scene) -> dict[tuple[str, int, int], ObjectState]:
    """Where each object's key filter lies."""
    items = made.objects()
    return {
        (items.key_of(item), *item.sections[SectionKind.KEY_FILTER][:2]): item
        for item in made.state.objects()
    }


def planned_objects(parts: list[ScanPartition]) -> int:
    return len({portion.object.object_id for part in parts for portion in part.portions})


def test_tasks_touch_only_objects_that_hold_the_key(crafted: Scene) -> None:
    filters = filters_of(crafted)
    rows, parts, planned, read = search(crafted, keys="U101")
    assert [row["unique_key"] for row in rows] == ["U101"]
    assert planned_objects(parts) == 1
    assert {get for get in planned if get in filters} == set(filters), "each filter once"
    assert len(planned) <= OBJECTS + 4 * 2, (
        "an index and its entries where a filter let pass what is not there"
    )
    assert len({key for key, _, _ in read}) == 1
    assert len(read) <= 5, "filter, block table, index, entries, block"
    rows, parts, planned, read = search(crafted, keys="k333,U7")
    assert {row["unique_key"] for row in rows} == {"U333", "U7"}
    assert planned_objects(parts) == 2
    assert not [get for get in planned if get in filters], "filters are kept for the next plan"
    rows, parts, _, read = search(crafted, keys="absent")
    assert (rows, parts, read) == ([], [], [])


def test_keys_with_commas_are_a_json_list(crafted: Scene) -> None:
    crafted.broker.send(topic="Orders", properties={"UNIQ_KEY": "A,1"})
    crafted.daemon.settle()
    rows, parts, _, _ = search(crafted, keys='["A,1", "U599"]')
    assert [row["unique_key"] for row in rows] == ["U599", "A,1"]
    assert planned_objects(parts) == 2
    with pytest.raises(Invalid, match=r"the option keys is wrong.*JSON list"):
        search(crafted, keys="[A,1")


def test_a_key_that_all_objects_have(crafted: Scene) -> None:
    rows, parts, _, _ = search(crafted, keys="tenth")
    assert len(rows) == OBJECTS * EACH // 10
    assert planned_objects(parts) == OBJECTS


@pytest.mark.parametrize("limit", ["MAX_FILTERS", "MAX_LOOKS", "MAX_FILTER_BYTES"])
def test_many_filters_are_left_to_tasks(
    crafted: Scene, limit: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plan_keys, limit, 5)
    with caplog.at_level("INFO", "tiered.spark"):
        rows, parts, planned, read = search(crafted, keys="U101")
    assert [row["unique_key"] for row in rows] == ["U101"]
    assert (planned_objects(parts), planned) == (OBJECTS, [])
    assert len({key for key, _, _ in read}) == OBJECTS
    assert f"left to tasks: objects={OBJECTS}" in caplog.text


def test_what_planning_left_out_is_told(crafted: Scene, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "tiered.spark"):
        search(crafted, keys="U101")
    assert f"objects={OBJECTS} without={OBJECTS - 1} requests=" in caplog.text
    names = METADATA["plan"].schema.names
    for options, pruned in (({"keys": "U101"}, OBJECTS - 1), ({}, 0)):
        parsed = parse_options({"archive": "memory://x", **options})
        (row,) = METADATA["plan"].rows(open_snapshots(parsed)[0], parsed)
        told = dict(zip(names, row, strict=True))
        assert (told["objects"], told["objects_pruned"]) == (OBJECTS, pruned)
        assert told["runs_pruned"] == 2 * pruned


def test_a_damaged_filter_fails_or_leaves_its_object_out(crafted: Scene) -> None:
    filters = filters_of(crafted)
    (bad,) = [
        at
        for at, item in filters.items()
        if item.ref.commit_seq == min(i.ref.commit_seq for i in filters.values())
    ]

    def spoil(key: str, start: int, data: bytes) -> bytes:
        return bytes([data[0] ^ 1]) + bytes(data[1:]) if (key, start, len(data)) == bad else data

    crafted.provider.spoil = spoil
    with pytest.raises(Corrupt, match="key filter"):
        search(crafted, keys="U599")
    rows, parts, _, _ = search(crafted, keys="tenth,U599", onDamage="skip")
    numbers = {int(row["unique_key"][1:]) for row in rows}
    assert numbers == {*range(EACH, OBJECTS * EACH, 10), 599}
    assert planned_objects(parts) == OBJECTS, "the damaged one stays in the plan, for its task to say so"


def test_keys_of_the_past(crafted: Scene) -> None:
    head = crafted.state.head()
    assert head is not None
    crafted.broker.send(topic="Orders", properties={"UNIQ_KEY": "late"})
    crafted.daemon.settle()
    past = str(head.seq)
    assert [len(search(crafted, keys="late", **o)[0]) for o in ({}, {"asOfCommit": past})] == [1, 0]  # type: ignore[arg-type]
    assert [len(search(crafted, keys="U3", **o)[0]) for o in ({}, {"asOfCommit": past})] == [1, 1]  # type: ignore[arg-type]


def commits_read(made: Scene, **options: str) -> tuple[list[str], int]:
    """The unique keys that a search found, and how many commits its plan read."""
    parsed = parse_options({**SOURCE, **options})
    reader = MessageReader(parsed, message_schema(tuple(parsed.columns.split(","))))
    made.provider.gets.clear()
    parts = reader.partitions()
    read = sum("/commit/" in key for key, _, _ in made.provider.gets)
    batches = [batch for part in parts for batch in reader.read(part)]
    return [row["unique_key"] for batch in batches for row in batch.to_pylist()], read


def test_the_next_search_reads_what_was_committed_since(crafted: Scene) -> None:
    found, read = commits_read(crafted, keys="U5")
    assert (found, read >= OBJECTS) == (["U5"], True)
    found, again = commits_read(crafted, keys="U7,late")
    assert (found, again < OBJECTS // 2) == (["U7"], True), again
    head = crafted.state.head()
    assert head is not None
    assert commits_read(crafted, keys="U9", asOfCommit=str(head.seq)) == (["U9"], again), "the end as it is"
    crafted.broker.send(topic="Orders", properties={"UNIQ_KEY": "late"})
    crafted.daemon.settle()
    assert commits_read(crafted, keys="late")[0] == ["late"]
    assert commits_read(crafted, keys="late", asOfCommit=str(head.seq))[0] == []
    assert commits_read(crafted, keys="late", topics="Payments")[0] == [], "another fold"


@pytest.mark.parametrize("store", ["another", "the same, filled anew"])
def test_a_search_of_another_archive_in_the_same_place(
    crafted: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    assert commits_read(crafted, keys="U5")[0] == ["U5"]
    with scene(tmp_path / "other") as other:
        other.broker.send(topic="Orders", properties={"UNIQ_KEY": "elsewhere"})
        other.daemon.settle()
        if store == "another":
            monkeypatch.setattr(snapshot, "shared_provider", lambda url: other.provider)
        else:
            for item in list(crafted.provider.list("")):
                crafted.provider.delete(item.key)
            for item in list(other.provider.list("")):
                crafted.provider.put(item.key, [other.provider.get(item.key).data])
        plan_keys._objects.cache_clear()
        for _ in range(2):
            assert commits_read(other, keys="elsewhere,U5")[0] == ["elsewhere"]


def test_few_folds_are_kept(crafted: Scene) -> None:
    for topics in ("Orders", "Payments", "*"):
        commits_read(crafted, keys="U5", topics=topics)
    assert [name[3] for name in snapshot.folds._readers] == [("Payments",), ("*",)]


def test_keys_off_queue(crafted: Scene) -> None:
    """Prepared and rollback records lie together under another name; their keys are indexed under their own topics."""
    for number in range(300):
        crafted.broker.send(
            topic=("Half", "Back", "Done")[number // 100], sys_flag=(0x4, 0xC, 0)[number // 100],
            body=random.Random(number).randbytes(500),
            properties={"UNIQ_KEY": f"V{number}", "KEYS": f"v{number % 50} all"},
        )  # fmt: skip
    crafted.daemon.settle()
    system = {"includeSystemTopics": "true"}
    rows = scan({**SOURCE, **system})
    assert sum(row["topic"] == OFF_QUEUE_TOPIC for row in rows) == 200
    for keys in ({"v7"}, {"V150"}, {"v7", "V299", "absent"}, {"all"}, {"U11", "V99"}):
        wanted = [row for row in rows if keys & {*row["keys"], row["unique_key"]}]
        assert search(crafted, keys=",".join(keys), **system)[0] == wanted
        assert wanted


@pytest.mark.parametrize("store", golden.STORES)
def test_keys_of_a_store_of_rocketmq(store: str, tmp_path: Path) -> None:
    """Every way to ask finds what the plain filter finds."""
    root = golden.unpack(store, tmp_path) / golden.STORE_DIRS[store][0]
    source = {
        "archive": archive(root, tmp_path, dispatch__block_bytes=65536),
        "columns": "topic,queue_id,queue_offset,unique_key,keys", "includeSystemTopics": "true",
    }  # fmt: skip
    rows = scan(source)
    by_topic = {row["topic"]: row for row in rows if row["unique_key"] or row["keys"]}
    for row in by_topic.values():
        for key in {row["unique_key"], *row["keys"][:1]} - {None, ""}:
            if "," not in key:
                wanted = [r for r in rows if key == r["unique_key"] or key in r["keys"]]
                assert scan({**source, "keys": key}) == wanted, (row["topic"], key)
    assert by_topic
