"""The data source over archives of every age: the same rows at each stage. No JVM."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.datasource import InputPartition

from tests.kit.aged import Stage, age, saved
from tests.kit.archiveedits import Edits
from tests.kit.fetchscene import scene
from tests.kit.merging import merge_all
from tests.kit.sealing import after_midnight, seal_all
from tests.kit.sparkaged import CHOICES, STAGES, SYSTEM, aged_archives, aged_rows
from tests.kit.sparkedits import World, places, read
from tests.kit.sparkscene import by_place, scan
from tiered.codec.format.sections import SectionKind
from tiered.errors import Corrupt
from tiered.model import MessageQueue
from tiered_spark import plan_keys
from tiered_spark import snapshot as snapshot_module
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader, MetadataReader
from tiered_spark.options import parse_options
from tiered_spark.sealedfiles import SealedFiles, sealed_files
from tiered_spark.snapshot import Snapshot, open_snapshots
from tiered_spark.stream import MessageStreamReader
from tiered_spark.wanted import Wanted, first_wish

pytestmark = pytest.mark.spark

AGED = [stage for stage in STAGES if stage is not Stage.FRESH]
HEADERS = (
    "topic,queue_id,queue_offset,store_timestamp,tags,sys_flag,physical_offset,body_crc,body_size,record"
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> dict[Stage, str]:
    plan_keys._objects.cache_clear()
    return aged_archives(tmp_path_factory.mktemp("aged"))


@pytest.mark.parametrize("stage", AGED)
@pytest.mark.parametrize("small", ["", "65536"])
def test_every_row_and_column(archives: dict[Stage, str], stage: Stage, small: str) -> None:
    options = {**SYSTEM, **({"partitionBytes": small} if small else {})}
    rows = by_place(scan({"archive": archives[stage], **options}))
    assert rows == aged_rows(archives, stage, **SYSTEM)


@pytest.mark.parametrize("merged", [False, True])
def test_blocks_that_need_a_dictionary(tmp_path: Path, merged: bool) -> None:
    """Many quiet queues, archived with dictionaries and without: the same rows."""
    found = []
    for size in (0, 1024):
        own = tmp_path / str(size)
        with scene(own, dictionary_bytes=size) as made:
            for number in range(300):
                made.broker.send("Quiet", number % 150, b'{"order":%d,"state":"created"}' % (number * 7919))
            made.daemon.settle(2.0)
            if merged:
                merge_all(made.daemon, dictionary_bytes=size)
            kept = [o for o in made.state.objects() if o.references and SectionKind.DICTIONARY in o.sections]
            assert bool(kept) is bool(size)
            archive = saved(made, own / "archive")
        found.append(by_place(scan({"archive": archive})))
        assert len(found[-1]) == 300
    assert found[0] == found[1]


@pytest.mark.parametrize("stage", AGED)
def test_columns_that_need_no_record(archives: dict[Stage, str], stage: Stage) -> None:
    """With the place of each record, by which it is found again."""
    rows = by_place(scan({"archive": archives[stage], "columns": HEADERS}))
    places = {tuple(row.pop("record").values()) for row in rows.values()}
    assert len(places) == len(rows)
    assert rows == aged_rows(archives, stage, columns=HEADERS.removesuffix(",record"))


@pytest.mark.parametrize("stage", [Stage.SEALED, Stage.MIXED])
@pytest.mark.parametrize("options", CHOICES, ids=lambda options: "-".join(options))
def test_options_choose_the_same_rows(
    archives: dict[Stage, str], stage: Stage, options: dict[str, str]
) -> None:
    wanted = aged_rows(archives, stage, **options)
    assert wanted
    assert by_place(scan({"archive": archives[stage], **options})) == wanted


def test_files_that_cannot_hold_a_key_are_left_out_by_the_plan(archives: dict[Stage, str]) -> None:
    for key, planned in (("no such key", 0), ("u7", 1)):
        options = parse_options({"archive": archives[Stage.SEALED], "keys": key})
        portions = [
            portion
            for partition in MessageReader(options, message_schema()).partitions()
            for portion in partition.portions  # type: ignore[attr-defined]
        ]
        assert len(portions) == planned, key


def test_of_a_sealed_file_the_plan_names_the_rows_that_have_a_key(archives: dict[Stage, str]) -> None:
    for keys in (("u7",), ("k3", "u7"), ("k3", "no such key")):
        rows = aged_rows(archives, Stage.SEALED, keys=",".join(keys)).values()
        found: dict[tuple[str, int], set[int]] = {}
        for row in rows:
            found.setdefault((row["topic"], row["queue_id"]), set()).add(row["queue_offset"])
        planned = planned_offsets(archives[Stage.SEALED], ",".join(keys))
        assert planned, keys
        for queue, start, end in planned:
            mine = sorted(offset for offset in found[queue] if start <= offset < end)
            assert (start, end) == (mine[0], mine[-1] + 1), keys
        named = {(queue, offset) for queue, offsets in found.items() for offset in offsets}
        assert named == {(q, o) for q, o in named if any(q == p and a <= o < b for p, a, b in planned)}


def planned_offsets(url: str, keys: str) -> set[tuple[tuple[str, int], int, int]]:
    """Queue and offsets [start, end) of each run that is planned."""
    reader = MessageReader(parse_options({"archive": url, "keys": keys}), message_schema())
    runs = [
        piece.run
        for partition in reader.partitions()
        for portion in partition.portions  # type: ignore[attr-defined]
        for piece in portion.pieces
    ]
    return {((run.queue.topic, run.queue.queue_id), run.start, run.end) for run in runs}


def test_tasks_find_keys_in_sealed_files_by_themselves(
    archives: dict[Stage, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there was too much for the plan."""
    monkeypatch.setattr(plan_keys, "MAX_FILTERS", 0)
    for keys in ("u7", "k3,u7"):
        assert by_place(scan({"archive": archives[Stage.SEALED], "keys": keys})) == aged_rows(
            archives, Stage.SEALED, keys=keys
        )


def test_what_is_not_sealed_yet(archives: dict[Stage, str]) -> None:
    """The option by which a frame reads only that."""
    assert scan({"archive": archives[Stage.SEALED], "sealed": "false"}) == []
    rows = by_place(scan({"archive": archives[Stage.MIXED], "sealed": "false"}))
    assert rows
    assert rows.items() < aged_rows(archives, Stage.MIXED).items()


def test_tables_about_the_archive_are_of_the_queues_that_are_asked_for(archives: dict[Stage, str]) -> None:
    def rows(table: str, **more: str) -> list[dict[str, Any]]:
        options = parse_options({"archive": archives[Stage.MIXED], "table": table, **more})
        reader = MetadataReader(options)
        found = [row for batch in reader.read(InputPartition(None)) for row in batch.to_pylist()]
        return sorted(found, key=repr)

    for table in ("queues", "blocks"):
        mine = [row for row in rows(table) if row["queue_id"] == 1]
        assert {row["topic"] for row in mine} == {"Orders", "Payments"}
        assert rows(table, queueIds="1") == mine
        assert rows(table, queueIds="1", topics="Orders") == [row for row in mine if row["topic"] == "Orders"]
    unsealed = [row for row in rows("blocks") if "/segment/" not in row["key"]]
    assert 0 < len(unsealed) < len(rows("blocks"))
    assert rows("blocks", sealed="false") == unsealed


def test_a_stream_reads_sealed_files_by_commit(archives: dict[Stage, str]) -> None:
    """Each row in the batch of the commit that appended it, though all of them lie in sealed files by now."""
    seen, sizes = [], []
    options = parse_options(
        {"archive": archives[Stage.SEALED], "columns": "topic,queue_id,queue_offset,body"}, stream=True
    )
    reader = MessageStreamReader(options, message_schema(("topic", "queue_id", "queue_offset", "body")))
    start = reader.initialOffset()
    (place,) = start
    last = reader.latestOffset(start, reader.getDefaultReadLimit())[place]
    while start[place] < last:
        end = {place: start[place] + 1}
        rows = read(reader, reader.partitions(start, end))
        sizes.append(len(rows))
        seen += rows
        start = end
    wanted = aged_rows(archives, Stage.SEALED, columns="topic,queue_id,queue_offset,body")
    assert by_place(seen) == wanted
    assert sum(size > 0 for size in sizes) >= 8


def test_a_file_whose_last_rows_are_dead_is_cut(tmp_path: Path) -> None:
    """Live runs that lie back to back from the first row on do not say that nothing follows them: the footer does."""
    last = MessageQueue("Orders", 1)
    with scene(tmp_path) as made:
        age(made, Stage.SEALED)
        (first, *_) = Edits(made).runs(last)
        Edits(made).trim(last, first.end)
        item = made.state.object(first.object)
        assert item is not None
        options = parse_options({"archive": saved(made, tmp_path / "archive")})
    (snapshot,) = open_snapshots(options)
    files = sealed_files(snapshot, options, first_wish(options))
    assert files.cut == (item.path,)
    assert set(files.parts["queue_id"].tolist()) == {0}
    assert len(files.whole) == 3
    assert (
        sealed_files(
            snapshot, parse_options({"archive": "-", "queueIds": "7"}), Wanted(queue_ids=frozenset({7}))
        ).cut
        == ()
    )


def test_what_was_proven_of_an_archive_says_nothing_of_its_copy(
    archives: dict[Stage, str], tmp_path: Path
) -> None:
    """A copy of a directory has the times of its files, too."""

    def files_of(url: str) -> SealedFiles:
        options = parse_options({"archive": url})
        (snapshot,) = open_snapshots(options)
        return sealed_files(snapshot, options, first_wish(options))

    url = archives[Stage.SEALED]
    copy = tmp_path / "copy"
    shutil.copytree(url.removeprefix("file://"), copy)
    damaged = min(copy.glob("*/*/segment/topic=Orders/*/*"))
    told, data = damaged.stat(), bytearray(damaged.read_bytes())
    data[-100] ^= 1
    damaged.write_bytes(data)
    os.utime(damaged, ns=(told.st_atime_ns, told.st_mtime_ns))
    assert files_of(url).whole
    with pytest.raises(Corrupt, match=damaged.name):
        files_of(f"file://{copy}")


class Sealing(World):
    """Histories in which days are sealed, too."""

    def merge(self) -> bool:
        """Not by hand: level 2 is Parquet here."""
        return False

    def seal(self) -> bool:
        before = self.scene.state.head()
        after_midnight(self.scene)
        seal_all(self.scene.daemon)
        return self.scene.state.head() != before


def by_engine(snapshot: Snapshot, files: SealedFiles) -> list[tuple[Any, ...]]:
    """Rows as an engine that is told of these files and parts sees them."""
    found = []
    for path in (*files.whole, *files.cut):
        data = snapshot.reader.provider.get(snapshot.view.keys.key(path)).data
        rows = pq.read_table(
            pa.BufferReader(data), columns=["topic", "queue_id", "queue_offset", "physical_offset"]
        )
        parts = files.parts[files.parts["file"] == files.cut.index(path)] if path in files.cut else None
        for number, row in enumerate(rows.to_pylist()):
            shown = (
                1
                if parts is None
                else sum(
                    part["queue_id"] == row["queue_id"]
                    and part["first_row"] <= number < part["end_row"]
                    and part["first_offset"] <= row["queue_offset"] <= part["last_offset"]
                    for part in parts
                )
            )
            found += [tuple(row.values())] * int(shown)
    return found


@pytest.mark.parametrize("seed", range(6))
def test_files_and_the_source_give_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """After any history of flushes, merges, seals, trims, and tails that the broker lost."""
    with scene(tmp_path) as made:
        monkeypatch.setattr(snapshot_module, "shared_provider", lambda url: made.provider)
        world = Sealing(made, random.Random(seed))
        for _ in range(14):
            world.step("flush", "flush", "trim", "compact", "lose", "seal", "seal")
        world.flush()
        options = parse_options({"archive": "memory://x"})
        (found,) = open_snapshots(options)
        files = sealed_files(found, options, first_wish(options))
        rest = places(scan({"archive": "memory://x", "sealed": "false"}))
        assert sorted([*by_engine(found, files), *rest]) == world.rows()
        assert files.whole or files.cut or not world.done["seal"]
