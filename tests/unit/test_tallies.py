"""What the records of all queues say together, beside the same read queue by queue."""

from __future__ import annotations

import pytest

from tests.kit.histories import ARCHIVE_ID, open_epoch
from tiered.archive.fold.apply import apply
from tiered.archive.state import tallies
from tiered.archive.state.layers import store_changes
from tiered.archive.state.listing import list_topics
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows, batch
from tiered.metadata.memory import MemoryStore

_WRITER = b"w" * 16
TOPICS = ("A", "A\0", "AA", "B", "\u00e9")
QUEUES = 3


class Archive:
    """A fold of a message in each queue of ``TOPICS``, a commit a queue's generation."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.state = ArchiveState(self.store)
        self.seq = 0
        self.physical = 0
        self.commit(open_epoch(1, _WRITER, 1))
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                self.begin(topic, queue_id, 1)

    def commit(self, *edits: EditBatch) -> None:
        def name(seq: int) -> bytes:
            return bytes(16) if seq < 0 else b"commit" + (seq + 1).to_bytes(10, "big")

        made = Commit(self.seq, 1, ARCHIVE_ID, name(self.seq), name(self.seq - 1), _WRITER, edits)
        store_changes(self.store, [apply(self.store, made)])
        self.seq += 1

    def begin(self, topic: str, queue_id: int, generation: int) -> None:
        """A generation with a run of two messages of 100 bytes."""
        start, self.physical = self.physical, self.physical + 100
        self.commit(
            batch(
                EditKind.ADD_OBJECT, key=f"data/0000000001-00000000-0000-4000-8000-{self.seq:012d}", object_id=b"o" * 16,
                level=0, length=1000, sections=Rows([{1: [0, 10, 1]}]),
            ),
            batch(
                EditKind.NEW_GENERATION, topic=topic, queue_id=queue_id, generation=generation, lineage=1,
                first_queue_offset=0, physical_offset=start,
            ),
            batch(
                EditKind.APPEND_RUN, topic=topic, queue_id=queue_id, generation=generation, first_queue_offset=0, rows=2,
                queue_offsets=2, first_flat_offset=0, bytes=100, min_store_time=1, max_store_time=2, object=0, first_row=0,
                first_block=0, block_count=1, physical_start=start, physical_end=self.physical,
            ),
            batch(EditKind.PROGRESS, lineage=1, physical_offset=self.physical, mark_crc=7, crc_from=0),
        )  # fmt: skip

    def trim(self, topic: str, generation: int) -> None:
        """All messages of a generation of a topic's queues go."""
        for queue_id in range(QUEUES):
            self.commit(
                batch(
                    EditKind.TRIM_QUEUE, topic=topic, queue_id=queue_id, generation=generation, first_offset=2
                )
            )  # fmt: skip


@pytest.mark.parametrize("at_once", [2, 8192])
def test_sums_over_all_queues_are_those_of_each(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(tallies, "RECORDS_AT_ONCE", at_once)
    archive = Archive()
    each = list(archive.state.queues())
    assert tallies.totals(archive.store) == tallies.Totals(
        len(each), *(sum(getattr(queue, name) for queue in each) for name in ("messages", "bytes", "runs"))
    )
    state, view = archive.state, archive.store
    archive.begin("B", 1, 2)
    assert tallies.message_count(view) == sum(queue.messages for queue in state.queues()) == 30
    assert [tallies.topic_bytes(view, topic) for topic in TOPICS] == [300, 300, 300, 400, 300]
    assert tallies.kept_topics(view) == set(TOPICS)
    archive.trim("A\0", 1)
    archive.trim("B", 1)
    assert tallies.message_count(view) == 20
    assert tallies.topic_bytes(view, "A\0") == 0
    assert tallies.kept_topics(view) == {"A", "AA", "B", "\u00e9"}, "of B a later generation"
    assert [found.topic for found in list_topics(view)] == list(TOPICS), "known, though nothing is left"
