"""The consume-queue index, fed from drafts and from the broker's log, is RocketMQ's own, whatever was lost meanwhile."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.kit import golden
from tests.kit.assemble import Assembly, assemble, memory
from tiered.clock import ManualClock
from tiered.consumequeue.layout import IndexedRange, stamp_of
from tiered.consumequeue.lookup import ConsumeQueueIndex
from tiered.crashpoint import MetadataPoint
from tiered.metadata.base import RedoStore
from tiered.metadata.memory import MemoryRedoStore
from tiered.metadata.open import open_redo
from tiered.write.draft import Draft
from tiered.write.indexing import IndexFeed

Units = dict[int, tuple[int, int, int, int]]
CACHE_BYTES = 1 << 20


@dataclass
class Fed:
    """A golden broker's store, archived in flushes of some messages, and an index fed from it."""

    store_dir: Path
    drafts: list[Draft] = field(default_factory=list)
    index: RedoStore = field(default_factory=MemoryRedoStore)

    def archive(self, count: int = 37) -> Assembly:
        return self._open(count)

    def _open(self, count: int) -> Assembly:
        clock = ManualClock()
        self.assembly = assemble(
            self.store_dir,
            memory(clock),
            clock,
            dispatch={"group_commit_count": count},
            drafted=self.drafts.append,
        )
        self.assembly.settle()
        return self.assembly

    def feed(self, buffer_rows: int = 1 << 20, lost: Sequence[tuple[int, int]] = ()) -> IndexFeed:
        return IndexFeed(
            self.index,
            self.assembly.source,
            buffer_rows=buffer_rows,
            max_record_bytes=1 << 22,
            excluded=lambda t: False,
            lost=lambda lineage: lost if lineage == 1 else (),
        )

    def units(self, topic: str = "Orders", queues: int = 4) -> dict[tuple[str, int], Units]:
        index = ConsumeQueueIndex(self.index)
        return {
            (topic, queue): {
                offset: unit
                for rows in index.rows(topic, queue, 0, 1 << 60)
                for offset, *unit in zip(
                    *(c.tolist() for c in (rows.offset, rows.physical, rows.size, rows.tags_code, rows.time)),
                    strict=True,
                )
            }
            for queue in range(queues)
        }  # type: ignore[return-value]


def run(feed: IndexFeed) -> None:
    while feed.step():
        pass
    feed.flush()


def as_lists(units: dict[tuple[str, int], Units]) -> dict[tuple[str, int], dict[int, list[int]]]:
    return {queue: {offset: list(unit) for offset, unit in found.items()} for queue, found in units.items()}


@pytest.fixture
def fed(tmp_path: Path) -> Fed:
    return Fed(golden.unpack(golden.ROCKS, tmp_path) / "queues")


@pytest.fixture
def told(fed: Fed) -> dict[tuple[str, int], dict[int, list[int]]]:
    """RocketMQ's own consume queue in RocksDB."""
    found = as_lists(golden.rocks_queues(fed.store_dir))
    assert sum(map(len, found.values())) == 300
    return found


def test_fed_by_drafts_it_is_what_rocketmq_wrote(fed: Fed, told: object) -> None:
    fed.archive()
    feed = fed.feed()
    for draft in fed.drafts:
        feed.submitted(draft)
    assert len(fed.drafts) > 5
    run(feed)
    assert as_lists(fed.units()) == told
    covered = ConsumeQueueIndex(fed.index).coverage()
    assert covered == IndexedRange(1, 0, int(fed.drafts[-1].next_offset))


@pytest.mark.parametrize("kept", [1, 3])
def test_what_no_draft_tells_is_read_from_the_log(fed: Fed, told: object, kept: int) -> None:
    fed.archive()
    feed = fed.feed(buffer_rows=1 if kept == 1 else 1 << 20)
    for draft in fed.drafts if kept == 1 else fed.drafts[::3] + fed.drafts[-1:]:
        feed.submitted(draft)
    run(feed)
    assert as_lists(fed.units()) == told


def test_a_broker_that_lost_its_tail_is_indexed_from_there_anew(fed: Fed, told: object) -> None:
    fed.archive()
    feed = fed.feed()
    for draft in fed.drafts:
        feed.submitted(draft)
    run(feed)
    for draft in fed.drafts[4:]:
        feed.submitted(draft)
    feed.step()
    cut = ConsumeQueueIndex(fed.index).coverage()
    assert cut is not None
    assert cut.end == fed.drafts[4].extent.start
    assert sum(map(len, fed.units().values())) == sum(d.messages for d in fed.drafts[:4])
    run(feed)
    assert as_lists(fed.units()) == told


def test_where_the_log_is_gone_it_begins_anew_and_says_so(fed: Fed, caplog: pytest.LogCaptureFixture) -> None:
    fed.archive()
    feed = fed.feed()
    feed.submitted(fed.drafts[0])
    run(feed)
    fed.assembly.source.copy = _gone  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        for draft in fed.drafts[2:]:
            feed.submitted(draft)
        run(feed)
    assert "begins anew" in caplog.text
    covered = ConsumeQueueIndex(fed.index).coverage()
    assert covered is not None
    assert covered.begin == fed.drafts[2].extent.start
    found = sorted(unit[0] for units in fed.units().values() for unit in units.values())
    assert found[0] >= covered.begin


def _gone(start: int, end: int) -> bytearray:
    from tiered.errors import NotFound

    raise NotFound("these bytes of the commitlog are not there")


def test_a_recorded_gap_is_stepped_over(fed: Fed, told: dict[tuple[str, int], dict[int, list[int]]]) -> None:
    """What is in no archive either is nothing that the index lacks."""
    fed.archive()
    first, lost, *behind = fed.drafts
    feed = fed.feed(lost=[(0, 0), (int(lost.extent.start), int(lost.next_offset))])
    feed.submitted(first)
    run(feed)
    fed.assembly.source.copy = _gone  # type: ignore[method-assign]
    for draft in behind:
        feed.submitted(draft)
    run(feed)
    assert ConsumeQueueIndex(fed.index).coverage() == IndexedRange(1, 0, int(fed.drafts[-1].next_offset))
    inside = range(int(lost.extent.start), int(lost.next_offset))
    assert as_lists(fed.units()) == {
        queue: {offset: unit for offset, unit in units.items() if unit[0] not in inside}
        for queue, units in told.items()
    }
    assert feed.begun_anew == 0


def test_what_the_broker_deleted_is_lacking_and_no_more_than_that(fed: Fed) -> None:
    """It begins anew with the oldest file that leads to what comes, not with what comes."""
    fed.archive()
    feed = fed.feed()
    feed.submitted(fed.drafts[0])
    run(feed)
    (only,) = fed.assembly.source.files()
    begin = fed.drafts[2].extent.start
    fed.assembly.source.files = lambda: [replace(only, base=begin)]  # type: ignore[method-assign]
    feed.submitted(fed.drafts[5])
    run(feed)
    covered = ConsumeQueueIndex(fed.index).coverage()
    assert covered == IndexedRange(1, int(begin), int(fed.drafts[5].next_offset))
    assert sum(map(len, fed.units().values())) == sum(draft.messages for draft in fed.drafts[2:6])
    assert feed.begun_anew == 1


def test_another_lineage_begins_anew(fed: Fed, told: object) -> None:
    fed.archive()
    feed = fed.feed()
    writer = feed._writer
    writer.begin(7, 123)
    writer.flush()
    for draft in fed.drafts:
        feed.submitted(draft)
    run(feed)
    assert as_lists(fed.units()) == told


def test_an_index_that_names_no_range_is_made_again(
    fed: Fed, told: object, caplog: pytest.LogCaptureFixture
) -> None:
    fed.archive()
    fed.index.put_many([(b"h", b"nonsense")], applied=b"nonsense")
    with caplog.at_level(logging.WARNING):
        feed = fed.feed()
    assert "made again" in caplog.text
    for draft in fed.drafts:
        feed.submitted(draft)
    run(feed)
    assert as_lists(fed.units()) == told


def test_a_chunk_that_is_damaged_makes_it_anew(fed: Fed, told: object) -> None:
    fed.archive()
    feed = fed.feed()
    feed.submitted(fed.drafts[0])
    run(feed)
    for key, _ in list(fed.index.iterate(b"c")):
        fed.index.put_many([(key, b"\0")])
    for draft in fed.drafts[1:]:
        feed.submitted(draft)
    run(feed)
    assert ConsumeQueueIndex(fed.index).coverage() is None
    feed.submitted(fed.drafts[-1])
    run(feed)
    assert as_lists(fed.units()) == told


_KILLED = """
import os, signal, sys
from pathlib import Path
from tests.unit.test_consumequeue_feed import CACHE_BYTES, Fed
from tiered import crashpoint
from tiered.consumequeue.layout import stamp_of
from tiered.metadata.open import open_redo
store, index, point, times = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
fed = Fed(store, index=open_redo("rocksdb", index, CACHE_BYTES, stamp=stamp_of(bytes(16))))
fed.archive()
left = [times]
def die(at):
    if int(at) == point:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)
crashpoint.install(die)
feed = fed.feed()
for number, draft in enumerate(fed.drafts):
    feed.submitted(draft)
    while feed.step():
        pass
    feed._writer.spill()
    if number % 3 == 2:
        feed.flush()
"""


@pytest.mark.parametrize(
    ("point", "times"),
    [
        (MetadataPoint.AFTER_REDO_WRITE, 5),
        (MetadataPoint.BEFORE_REDO_FLUSH, 2),
        (MetadataPoint.AFTER_REDO_FLUSH, 2),
    ],
)
def test_killed_between_its_flushes_it_is_brought_up_to_date_from_the_log(
    fed: Fed, told: object, tmp_path: Path, point: MetadataPoint, times: int
) -> None:
    command = [sys.executable, "-c", _KILLED, fed.store_dir, tmp_path / "index", str(int(point)), str(times)]
    assert subprocess.run(command, check=False, env=os.environ).returncode == -9
    fed.index = open_redo("rocksdb", tmp_path / "index", CACHE_BYTES, stamp=stamp_of(bytes(16)))
    left = ConsumeQueueIndex(fed.index).coverage()
    fed.archive()
    assert left is None or left.end < fed.drafts[-1].next_offset
    feed = fed.feed()
    feed.submitted(fed.drafts[-1])
    run(feed)
    assert as_lists(fed.units()) == told
    fed.index.close()
