"""Random lives of a store (append, roll, delete, tear, complete, corrupt) read in random steps equal what was written."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.brokerlog import BrokerLog
from tiered.clock import ManualClock
from tiered.model import PhysicalOffset
from tiered.settings import Hold, Source
from tiered.source.base import ReadStatus
from tiered.source.local import LocalCommitLog

FILE_BYTES = 1024

Op = tuple[str, int, int]

OPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 400), st.integers(1, 4)),
        st.tuples(st.just("tear"), st.integers(0, 300), st.integers(1, 90)),
        st.tuples(st.just("delete"), st.just(0), st.just(0)),
        st.tuples(st.just("corrupt"), st.integers(8, 200), st.just(0)),
        st.tuples(st.just("read"), st.integers(1, 2000), st.integers(1, 5)),
        st.tuples(st.just("restart"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


class Reader:
    """Follows the log and remembers every byte it was given, and every gap."""

    def __init__(self, store: Path, clock: ManualClock, *, holding: bool) -> None:
        self.settings = Source(store_dir=str(store), corrupt_wait_ms=1000)
        self.clock = clock
        self.holding = holding
        self.position = PhysicalOffset(0)
        self.found: dict[int, bytes] = {}
        self.gaps: list[tuple[int, int]] = []
        self.source = self._open()

    def _open(self) -> LocalCommitLog:
        return LocalCommitLog(self.settings, Hold(), self.clock, disk_usage=lambda _: 1.0)

    def restart(self) -> None:
        self.source.close()
        self.source = self._open()

    def step(self, max_bytes: int, max_records: int) -> bool:
        """One read; false if there was nothing."""
        if self.holding:
            self.source.hold()
        chunk = self.source.read(self.position, max_bytes=max_bytes, max_records=max_records)
        if chunk.status is ReadStatus.IDLE:
            return False
        assert chunk.start == self.position < chunk.next_offset
        if chunk.status is ReadStatus.GAP:
            self.gaps.append((chunk.start, chunk.next_offset))
        else:
            self._take(chunk.start, chunk.end, chunk.starts.tolist(), chunk.sizes.tolist(), max_bytes)
        self.position = chunk.next_offset
        return True

    def _take(self, start: int, end: int, starts: list[int], sizes: list[int], max_bytes: int) -> None:
        data = self.source.copy(PhysicalOffset(start), PhysicalOffset(end))
        assert sum(sizes) == len(data)
        assert len(data) <= max_bytes or len(sizes) == 1
        for at, size in zip(starts, sizes, strict=True):
            self.found[start + at] = bytes(data[at : at + size])
        self.source.release(PhysicalOffset(end))

    def drain(self) -> None:
        idle = 0
        while idle < 4:
            idle = 0 if self.step(1 << 20, 1000) else idle + 1
            self.clock.advance(2.5)


@contextmanager
def fresh_store() -> Iterator[Path]:
    directory = tempfile.mkdtemp()
    try:
        yield Path(directory) / "store"
    finally:
        shutil.rmtree(directory)


class History:
    """What was done to the store, and what a reader may and must get."""

    def __init__(self, store: Path, reader: Reader) -> None:
        self.log = BrokerLog(store, file_bytes=FILE_BYTES, ahead=True)
        self.reader = reader
        self.deleted_below = 0
        self.corrupt: set[int] = set()
        self.torn = b""

    def apply(self, op: Op) -> None:
        kind, first, second = op
        if kind == "append":
            for number in range(second):
                self.append(bytes([number]) * first)
        elif kind == "tear":
            whole = self.log.next(bytes(range(7)) * (first // 7), properties=b"K\x01v\x02")
            self.torn = whole[: max(4, len(whole) * second // 100)]
            self.log.write(self.log.position, self.torn)
        elif kind == "delete":
            bases = [base for base in self.log.bases() if base + FILE_BYTES <= self.log.position]
            if len(bases) > 1:
                self.deleted_below = self.log.delete_oldest() + FILE_BYTES
                self.reader.clock.advance(2.0)
        elif kind == "corrupt":
            self.damage(first)
        elif kind == "read":
            self.reader.step(first, second)
            self.reader.clock.advance(0.3)
        else:
            self.reader.restart()

    def append(self, body: bytes) -> None:
        if self.torn:
            self.log.write(self.log.position, bytes(len(self.torn)))
            self.torn = b""
        self.log.append(body)

    def damage(self, at: int) -> None:
        """Flip bytes in the last unread record: unread, so that the oracle knows what must be missing."""
        unread = [o for o in self.log.records if o >= self.reader.position and o not in self.corrupt]
        if unread and unread[-1] >= self.deleted_below:
            offset, data = unread[-1], self.log.records[unread[-1]]
            place = 88 + at % (len(data) - 88 - 4) if len(data) > 100 else 8
            if data[84:88] == bytes(4):
                place = 8
            place = min(place, 88 + int.from_bytes(data[84:88], "big") - 1) if place >= 88 else place
            self.log.write(offset + place, bytes([data[place] ^ 0xFF]))
            self.corrupt.add(offset)


@settings(max_examples=250, deadline=None)
@given(OPS, st.booleans())
def test_reading_equals_what_was_written(ops: list[Op], holding: bool) -> None:
    with fresh_store() as store:
        clock = ManualClock()
        BrokerLog(store, file_bytes=FILE_BYTES)
        reader = Reader(store, clock, holding=holding)
        history = History(store, reader)
        if holding:
            reader.source.hold()
        for op in ops:
            history.apply(op)
            if holding:
                reader.source.hold()
        history.append(b"the end")
        history.append(b"and one more")
        reader.drain()
        reader.source.close()

        written = history.log.records
        for offset, data in reader.found.items():
            if offset not in history.corrupt:
                assert data == written[offset]
        gone = {o for o in written if any(a <= o < b for a, b in reader.gaps)}
        assert set(reader.found) | gone == set(written)
        assert not set(reader.found) & gone
        assert gone <= history.corrupt | {o for o in written if o < history.deleted_below}
        if holding:
            assert gone <= history.corrupt
        assert reader.position == history.log.position
