"""One walk from its beginning to its end, by somebody who has nothing else to do: a verb."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from tiered.archive.care.notes import Notes
from tiered.archive.care.scrub import finding
from tiered.archive.care.walk import UNREADABLE, Seen, Walk, unreadable
from tiered.archive.keys import CheckpointKey, parse
from tiered.archive.log.reader import LogReader
from tiered.archive.read.verify import READ_AHEAD
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.errors import Corrupt, Invalid, NotFound, Unavailable
from tiered.provider.wrap import TokenBucket


@dataclass(frozen=True, slots=True)
class Look:
    """What a walk found. ``damaged``: keys, of which ``notes`` list the first."""

    damaged: int
    notes: Notes
    figures: dict[str, int]


FOLLOW_SECONDS = 60.0
"""Between two looks for new commits: what they retire is deleted a grace later, which is longer."""


class _Followed:
    """The fold as it was at most ``FOLLOW_SECONDS`` ago."""

    def __init__(self, follow: Callable[[], ArchiveState], clock: Clock) -> None:
        self._follow = follow
        self._clock = clock
        self._seen: tuple[float, ArchiveState] | None = None

    def __call__(self) -> ArchiveState:
        now = self._clock.monotonic()
        if self._seen is None or now - self._seen[0] >= FOLLOW_SECONDS:
            self._seen = now, self._follow()
        return self._seen[1]


def look(
    reader: LogReader,
    follow: Callable[[], ArchiveState],
    clock: Clock,
    *,
    deep: bool,
    bytes_per_second: int = 0,
    progress: Callable[[int], None] = lambda done: None,
) -> Look:
    """Walk over everything; ``follow``: the fold as it is now; ``deep``: read every byte. What the store did not give is asked
    for once more at the end: it may have been slow, or said that it was asked for too much.

    ``progress`` hears of bytes read, or else of keys."""
    bucket = TokenBucket(bytes_per_second, clock) if bytes_per_second else None

    def spend(byte_count: int) -> None:
        if bucket is not None:
            clock.wait(bucket.take(byte_count))

    notes, sums, why = Notes(reader.identity.archive_id), Counter[str](), Counter[str]()
    state = _Followed(follow, clock)
    for seen in _steps(reader, state, spend, deep=deep):
        sums["read_bytes"] += seen.bytes
        if seen.done:
            sums["keys"] += 1
            sums["bytes"] += seen.length
            why[seen.note or "compared"] += 1
        if seen.damage is not None:
            notes = notes.damaged(finding(seen.path, seen.damage, clock.now_ms()))
        progress(sums["read_bytes"] if deep else sums["keys"])
    for path in [path for path, found in notes.findings.items() if found.what == UNREADABLE]:
        with suppress(Unavailable, Invalid):
            damage = _asked_again(reader, state, spend, path)
            notes = (
                notes.sound(path) if damage is None else notes.damaged(finding(path, damage, clock.now_ms()))
            )
    figures = {name: sums[name] for name in ("keys", "bytes", "read_bytes")} | dict(sorted(why.items()))
    return Look(len(notes.findings) + notes.more, notes, figures)


def _steps(
    reader: LogReader, follow: Callable[[], ArchiveState], spend: Callable[[int], None], *, deep: bool
) -> Iterator[Seen]:
    """A walk that passes over what the store does not give, while it gives others: that is damage of this one key. A checkpoint
    is asked for behind its place, too, for the shards that it names."""
    after, passed = "", set[str]()
    while True:
        walk = Walk(
            reader, follow, spend, lambda path, stored, seq: deep, ahead=READ_AHEAD, damaged=lambda: passed
        )
        try:
            for seen in walk.steps(after):
                yield seen
                after = seen.path if seen.done else after
            return
        except (Unavailable, Invalid) as error:
            path = reader.keys.path(str(error.fields.get("key"))) or ""
            here = path == walk.at
            known = path in passed or not (here or isinstance(parse(path), CheckpointKey))
            damage = None if known else unreadable(reader, path, error)
            if damage is None:
                raise
            passed.add(path)
            after = path if here else after
            yield Seen(path, done=here, damage=damage)


def _asked_again(
    reader: LogReader, follow: Callable[[], ArchiveState], spend: Callable[[int], None], path: str
) -> Corrupt | NotFound | None:
    """What is wrong with one path, by all of its bytes."""
    walk = Walk(reader, follow, spend, lambda other, stored, seq: other == path, ahead=READ_AHEAD)
    found = (seen for seen in walk.steps(path[:-1]) if seen.done and seen.path >= path)
    seen = next(found, None)
    return None if seen is None or seen.path != path else seen.damage
