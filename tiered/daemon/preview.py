"""What ``tiered run`` would meet, found by its own checks and without a change to anything: whether this is the archive's
broker, and whether all that is not archived yet can be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from tiered.archive.log.localfiles import check_fence, check_known_archive
from tiered.archive.read.view import View
from tiered.clock import Clock
from tiered.codec.record.frame import Frames, Stop, verify
from tiered.daemon.once import PresentEnd
from tiered.daemon.parts import known_name
from tiered.errors import Corrupt, TieredError
from tiered.model import PhysicalOffset
from tiered.opening.compare import compare_with_archive
from tiered.opening.lineage import BrokerComparison, Relation
from tiered.provider.base import Provider
from tiered.settings import MIB, Settings
from tiered.source.base import Chunk, CommitLogSource, ReadStatus
from tiered.source.start import resolve_start

READ_BYTES = 8 * MIB
MOST_BYTES = 8 * 1024 * MIB
"""Unarchived bytes that are read at most: with more than this a daemon has hours of work, and says itself what it meets."""
STILL_SECONDS = 10.0
"""Below the log's end something must move within this time, damage included (it is waited for less than this)."""
DAMAGE_WAIT_MS = 1000
"""Instead of a longer ``source.corrupt_wait_ms``: a broker writes a record within milliseconds."""


@dataclass(slots=True)
class Looked:
    """What reading on found: [``start``, ``end``) was read, in which ``gaps`` (start, end, reason) would be recorded.

    ``problem``: what would stop or end archiving, or be its verdict. ``partly``: there is more, which was not looked at.
    """

    start: PhysicalOffset
    end: PhysicalOffset
    gaps: list[tuple[int, int, str]] = field(default_factory=list)
    problem: TieredError | None = None
    partly: bool = False


def check_state(state: Path, provider: Provider, root: str, archive_id: bytes | None) -> None:
    """``Fenced`` if the state directory says that this writer was fenced; ``Refused``, or ``Unavailable``, if it knows another
    archive here than this, or than none."""
    check_fence(state, take_over=False)
    check_known_archive(state, known_name(provider, root), archive_id)


def compared(source: CommitLogSource, archive: View | None, settings: Settings) -> BrokerComparison:
    """What broker and archive share; ``Refused`` where ``tiered run`` would decline. ``None``: there is no archive yet."""
    if archive is None or archive.head is None:
        return BrokerComparison(Relation.FRESH, PhysicalOffset(0))
    return compare_with_archive(
        source,
        archive.state,
        archive.head,
        archive.objects,
        accept_new_lineage=settings.archive.new_lineage,
    )


def impatient(settings: Settings) -> Settings:
    """The settings with damage waited for a second: the source opened with them can be asked to the end of its log."""
    wait = min(DAMAGE_WAIT_MS, settings.source.corrupt_wait_ms)
    return replace(settings, source=replace(settings.source, corrupt_wait_ms=wait))


def look(
    source: CommitLogSource,
    outcome: BrokerComparison,
    settings: Settings,
    clock: Clock,
    advance: Callable[[int], None] = lambda done: None,
    *,
    most_bytes: int = MOST_BYTES,
) -> Looked:
    """Read everything from where archiving would go on to the log's end as it is now, as ``tiered run --once`` would.

    ``advance`` hears how many bytes were read.
    """
    fresh = outcome.relation in (Relation.FRESH, Relation.NEW)
    start = resolve_start(source, settings.source.start) if fresh else outcome.offset
    seen, end = Looked(start, start), PresentEnd(source, clock, source.max_offset())
    try:
        _walk(source, clock, seen, end, advance, most_bytes)
        seen.problem = None if seen.partly else end.verdict()
    except TieredError as error:
        seen.problem = error
    return seen


def _walk(
    source: CommitLogSource,
    clock: Clock,
    seen: Looked,
    end: PresentEnd,
    advance: Callable[[int], None],
    most_bytes: int,
) -> None:
    alone, moved_at = False, clock.monotonic()
    while True:
        chunk = source.read(seen.end, max_bytes=READ_BYTES, max_records=1 if alone else READ_BYTES)
        position, alone = _read_of(source, chunk)
        if chunk.status is ReadStatus.GAP:
            seen.gaps.append((chunk.start, chunk.next_offset, chunk.reason))
            end.gap(chunk.start, chunk.next_offset, chunk.reason)
        waiting_for = chunk.reason if chunk.status is ReadStatus.IDLE else None
        if position > seen.end:
            seen.end, moved_at = position, clock.monotonic()
            advance(seen.end - seen.start)
        if end.done(seen.end, waiting_for):
            return
        seen.partly = seen.end - seen.start > most_bytes
        if seen.partly:
            return
        if clock.monotonic() - moved_at > STILL_SECONDS:
            raise Corrupt(
                "the commitlog cannot be read further from here, and nothing shows that it ends here",
                position=seen.end,
                expected="a record, or the end of the log",
                found=waiting_for or "records that cannot be read",
            )
        if waiting_for is not None:
            clock.wait(0.1)


def _read_of(source: CommitLogSource, chunk: Chunk) -> tuple[PhysicalOffset, bool]:
    """Where to read next, and whether a record that failed its checks lies there: it must be asked for alone."""
    if chunk.status is not ReadStatus.RECORDS or not len(chunk.starts):
        return chunk.next_offset, False
    copy = source.copy(chunk.start, chunk.end)
    good = verify(copy, Frames(chunk.starts, chunk.sizes, len(copy), Stop.END, None, ""), chunk.start)
    if len(good) == len(chunk.starts):
        return chunk.next_offset, False
    return PhysicalOffset(chunk.start + good.end), True
