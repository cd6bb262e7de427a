"""Reading a ``LocalCommitLog`` in tests: one look, a settled look, and everything there is."""

from __future__ import annotations

from tiered.clock import ManualClock
from tiered.model import PhysicalOffset
from tiered.source.base import Chunk, ReadStatus
from tiered.source.local import LocalCommitLog


def look(source: LocalCommitLog, start: int, max_bytes: int = 1 << 20, max_records: int = 10_000) -> Chunk:
    return source.read(PhysicalOffset(start), max_bytes=max_bytes, max_records=max_records)


def settled(source: LocalCommitLog, clock: ManualClock, start: int, **limits: int) -> Chunk:
    """What is read once the last record had time to prove itself."""
    look(source, start, **limits)
    clock.advance(2.5)
    return look(source, start, **limits)


def bytes_of(source: LocalCommitLog, chunk: Chunk) -> dict[int, bytes]:
    data = bytes(source.copy(chunk.start, chunk.end))
    return {
        chunk.start + int(at): data[int(at) : int(at + size)]
        for at, size in zip(chunk.starts, chunk.sizes, strict=True)
    }


def drain(
    source: LocalCommitLog, clock: ManualClock, start: int = 0, **limits: int
) -> tuple[dict[int, bytes], int, list[Chunk]]:
    """Everything readable from ``start``, where reading ended, and the gaps."""
    found: dict[int, bytes] = {}
    gaps: list[Chunk] = []
    position = start
    while True:
        chunk = settled(source, clock, position, **limits)
        if chunk.status is ReadStatus.IDLE:
            return found, position, gaps
        if chunk.status is ReadStatus.GAP:
            gaps.append(chunk)
        else:
            found |= bytes_of(source, chunk)
        position = chunk.next_offset
