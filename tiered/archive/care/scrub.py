"""The scrub, as a task: the listing often, every byte at a slower rhythm, a little at a time, for as long as the archive lives.

Two walks over the same keys. The one over the listing compares presence and length, and reads what was written anew since the
one before and whatever is listed as damaged; the other reads every byte. Both go on where they were after a restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from tiered.archive.care.notes import DamagedKey, Notebook, Notes, Pass, figures_of, said_of_notes, shown
from tiered.archive.care.walk import UNREADABLE, Seen, Walk, said_of, unreadable
from tiered.archive.keys import CheckpointKey, CommitKey, parse
from tiered.archive.log.maintenance import Done, Figures, Outlook, Turn
from tiered.archive.log.reader import LogReader
from tiered.archive.read.besides import is_needed
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.crashpoint import ScrubPoint, reach
from tiered.errors import Corrupt, Invalid, NotFound, TieredError, Unavailable
from tiered.provider.base import Stored
from tiered.settings.keeping import Scrub
from tiered.text.human import duration

FIRST_SECONDS = 600.0
"""After a start no walk begins for this, unless one has waited for as long by the host's clock: a process that is started once
and ended makes no requests, and one that never lives for longer walks all the same."""
KEEP_SECONDS = 30.0
"""Between two times that the place is written down, the first turn of a process apart: what a crash has read again at most."""
OVERDUE_INTERVALS = 2
"""A walk begins an interval after the one before and takes no longer than one: so long after a beginning the next has ended."""
LISTED_AT_ONCE = 1000
"""Keys of the listing that one turn looks at."""
UNREADABLE_SECONDS = 600.0
"""What the store fails to give for so long, while it gives others, is listed and passed over: a disk's bad sector, a class of
storage that must be restored first."""
STILL_FAILING_SECONDS = 3600.0
"""Between two failures of a key that are told as one: tasks wait for each other."""
FAILING_KEYS = 16
"""Those that failed last are remembered."""
TICK_MS = 1000
"""Stores tell times in whole seconds."""


class Scrubber:
    """The task. A turn looks at about a second's worth of bytes, or a page of the listing, and then leaves the thread to
    others: bytes a second are kept by when the next turn is due. It reads, needs no epoch, and changes nothing.

    ``state``: the fold as it is now. ``created_ms``: when the archive was made.
    """

    name = "scrub"

    def __init__(
        self,
        reader: LogReader,
        state: Callable[[], ArchiveState],
        clock: Clock,
        settings: Scrub,
        notebook: Notebook,
    ) -> None:
        self._reader = reader
        self._state = state
        self._clock = clock
        self._settings = settings
        self._book = notebook
        self._next = clock.monotonic() + self._first_seconds()
        self._kept = -math.inf  # so the first turn is written down: there may be no second one
        self._open: dict[str, tuple[Walk, Iterator[Seen]]] = {}  # walks under way, by kind
        self._turn: Turn | None = None
        self._failing: dict[str, tuple[float, float]] = {}  # what is not given: since when, and last

    @property
    def notes(self) -> Notes:
        """What is known now. From any thread."""
        return self._book.notes

    def due(self, now: float) -> bool:
        """When a walk has more to do, or is to begin, and enough time has passed for the bytes that were read."""
        return self._settings.enabled and now >= self._next and self._kind() is not None

    def plan(self) -> Outlook:
        """See ``Task``. It looks at nothing but its notes."""
        kind = self._kind() if self._settings.enabled else None
        said = "off: scrub.enabled is false" if not self._settings.enabled else self.said()
        return Outlook(0 if kind is None else 1, said, self.figures())

    def run_once(self, turn: Turn) -> Done:
        """Go on with a walk, for a while."""
        kind = self._kind()
        if kind is None:
            return Done(more=False, trouble=self.trouble())
        began, self._turn = self._clock.monotonic(), turn
        try:
            figures = self._some(kind, turn)
        except (Unavailable, Invalid) as error:
            path = self._open[kind][0].at if kind in self._open else None
            self._open.clear()
            damage = None if path is None else self._never_given(path, error)
            if path is None or damage is None:
                raise
            figures = {
                f"{kind}_objects": 1,
                "bytes": 0,
                "damage": self._take(kind, Seen(path, damage=damage)),
            }
        except BaseException:
            self._open.clear()  # the places that are kept are where the next ones begin
            raise
        rate = self._settings.max_bytes_per_second
        self._next = began + (int(str(figures["bytes"])) / rate if rate else 0.0)
        if self._clock.monotonic() - self._kept >= KEEP_SECONDS or not self._pass(kind).under_way:
            self._keep()
        return Done(more=False, figures=figures, trouble=self.trouble())

    def trouble(self) -> str | None:
        """What somebody has to know: damage, or a walk that is slower than it must be."""
        notes, settings = self.notes, self._settings
        if notes.findings:
            first = next(iter(notes.findings.values()))
            count = (
                f"{len(notes.findings) + notes.more} keys are"
                if len(notes.findings) + notes.more > 1
                else "a key is"
            )
            return f"{count} damaged or missing: {first.what} ({self._reader.keys.key(first.path)}); tiered scrub lists all"
        if notes.more:
            return f"{notes.more} keys more were damaged or missing than could be listed; the next walk over bytes lists them"
        for kind, limit_ms, setting in (
            (
                "reading",
                settings.read_interval_ms,
                "scrub.read_interval_ms: raise scrub.max_bytes_per_second",
            ),
            ("listing", settings.list_interval_ms, "scrub.list_interval_ms: raise it"),
        ):
            since_ms = self._pass(kind).began_ms
            if (
                self._pass(kind).under_way
                and since_ms is not None
                and self._clock.now_ms() - since_ms > limit_ms
            ):
                return f"a walk over all {_OVER[kind]} takes longer than {setting}"
        return self.overdue()

    def overdue(self) -> str | None:
        """Which walk should have come to its end and did not, whatever kept it from that: processes that end too soon, a store
        that is away, a state directory that is not kept. From any thread."""
        if not self._settings.enabled:
            return None
        for kind, interval_ms in reversed(self._intervals()):
            began_ms = self._pass(kind).whole_began_ms
            since_ms = self._reader.identity.created_ms if began_ms is None else began_ms
            if self._clock.now_ms() - since_ms > OVERDUE_INTERVALS * interval_ms + 1000 * FIRST_SECONDS:
                told = f"none that came to its end began within the last {duration(OVERDUE_INTERVALS * interval_ms)}"
                return f"a walk over all {_OVER[kind]} is overdue: {told}, twice scrub.{_SETTING[kind]}"
        return None

    def document(self) -> dict[str, object]:
        """The part of ``/status`` that speaks of the scrub. From any thread."""
        return {
            **self.figures(),
            "enabled": self._settings.enabled,
            "overdue": self.overdue(),
            "damage": shown(self.notes, self._reader.keys.root),
        }

    def figures(self) -> dict[str, int]:
        """For programs. From any thread."""
        return figures_of(self.notes, self._clock.now_ms(), self._reader.identity.created_ms)

    def said(self) -> str:
        """For people."""
        return said_of_notes(self.figures())

    def _first_seconds(self) -> float:
        """How long the first turn is waited for: as long as is left of ``FIRST_SECONDS``, by when a walk could have gone on."""
        made_ms = self._reader.identity.created_ms
        could_ms = [
            made_ms if at.began_ms is None else at.began_ms + (0 if at.under_way else interval_ms)
            for at, interval_ms in ((self._pass(kind), ms) for kind, ms in self._intervals())
        ]
        first = min(FIRST_SECONDS, self._settings.list_interval_ms / 1000)
        return min(first, max(0.0, first - (self._clock.now_ms() - min(could_ms)) / 1000))

    def _intervals(self) -> tuple[tuple[str, int], ...]:
        return ("listing", self._settings.list_interval_ms), ("reading", self._settings.read_interval_ms)

    def _kind(self) -> str | None:
        """Which walk is next. Where both are, they take turns: neither waits for the other's end, nor for a process that lives
        for two turns."""
        pending = [
            kind for kind, interval_ms in self._intervals() if self._pends(self._pass(kind), interval_ms)
        ]
        if self.notes.read_again and "reading" not in pending:
            pending.append("reading")
        return next((kind for kind in pending if kind != self.notes.last), pending[0] if pending else None)

    def _pends(self, at: Pass, interval_ms: int) -> bool:
        since_ms = None if at.began_ms is None else self._clock.now_ms() - at.began_ms
        return at.under_way or since_ms is None or not 0 <= since_ms < interval_ms

    def _pass(self, kind: str) -> Pass:
        return self.notes.listing if kind == "listing" else self.notes.reading

    def _set(self, kind: str, at: Pass) -> None:
        self._book.notes = (
            replace(self.notes, listing=at) if kind == "listing" else replace(self.notes, reading=at)
        )

    def _some(self, kind: str, turn: Turn) -> Figures:
        """Steps of a walk, as many as a turn takes; what they came to."""
        if not self._pass(kind).under_way:
            self._begin(kind)
        self._book.notes = replace(self.notes, last=kind)
        if kind not in self._open:
            walk = self._walk(kind)
            self._open[kind] = walk, walk.steps(self._pass(kind).after or "")
        most = self._settings.max_bytes_per_second or 1 << 62
        byte_count = objects = damaged = 0
        for seen in self._open[kind][1]:
            byte_count += seen.bytes
            if seen.done:
                objects += 1
                damaged += self._take(kind, seen)
            if byte_count >= most or objects >= LISTED_AT_ONCE:
                break
        else:
            self._end(kind)
        return {f"{kind}_objects": objects, "bytes": byte_count, "damage": damaged}

    def heard(self, error: TieredError) -> None:
        """A task ended in an error, perhaps this one. An object that the store fails to give again and again is listed, so that
        this task leaves it alone, too, and all that waits behind it goes on."""
        path = self._reader.keys.path(str(error.fields.get("key")))
        if path is None or not self._settings.enabled or not self._is_asked_for(path):
            return
        damage = self._never_given(path, error)
        if damage is not None:
            self._book.notes = self.notes.damaged(finding(path, damage, self._clock.now_ms()))
            self._keep()

    def _is_asked_for(self, path: str) -> bool:
        """Whether tasks read what lies there: runs, in an object or inside a commit, or names of shards."""
        fold, made = self._state(), parse(path)
        if isinstance(made, CheckpointKey):
            return not fold.is_retired(path)
        if isinstance(made, CommitKey):
            return next(fold.inline_needed(made.seq, made.seq + 1), None) is not None
        item = fold.object_at(path)
        return item is not None and is_needed(item)

    def _never_given(self, path: str, error: TieredError) -> Corrupt | None:
        """What to list of a key that could not be read; ``None`` where that may be the store's, and for as long as it may
        pass. One that is listed for it already is not waited for again."""
        now, before = self._clock.monotonic(), self._failing.pop(path, None)
        damage = unreadable(self._reader, path, error)  # while the store gives nothing, no time is counted
        if damage is None:
            return None
        since, last = before or (now, now)
        since = since if now - last <= STILL_FAILING_SECONDS else now
        known = self.notes.findings.get(path)
        if now - since >= UNREADABLE_SECONDS or (known is not None and known.what == UNREADABLE):
            return damage
        self._failing[path] = since, now
        while len(self._failing) > FAILING_KEYS:
            del self._failing[next(iter(self._failing))]
        return None

    def _begin(self, kind: str) -> None:
        head = self._state().head()
        date_ms = self._reader.provider.get(self._reader.keys.identity, 0, 1).date_ms
        self._set(
            kind, self._pass(kind).begun(self._clock.now_ms(), date_ms, -1 if head is None else head.seq)
        )

    def _end(self, kind: str) -> None:
        self._open.pop(kind, None)
        now_ms = self._clock.now_ms()
        if kind == "listing":
            self._book.notes = self.notes.listed(now_ms)
        else:
            self._set(kind, self.notes.reading.ended(now_ms))
            self._book.notes = self.notes.counted()

    def _walk(self, kind: str) -> Walk:
        whole = self.notes.listing.whole_seq, self.notes.listing.whole_date_ms

        def wanted(path: str, stored: Stored, seq: int | None) -> bool:
            if kind == "reading" or path in self.notes.findings:
                return True
            return seq is not None and written_anew(stored, seq, *whole)

        def spend(byte_count: int) -> None:
            if self._turn is not None:
                self._turn.spend(byte_count)

        return Walk(self._reader, self._state, spend, wanted, damaged=lambda: self.notes.findings)

    def _take(self, kind: str, seen: Seen) -> int:
        """Note what was seen of a path; 1 for damage."""
        at = self._pass(kind)
        notes = at.notes if seen.note is None else {**at.notes, seen.note: at.notes.get(seen.note, 0) + 1}
        self._set(
            kind,
            replace(at, after=seen.path, objects=at.objects + 1, bytes=at.bytes + seen.length, notes=notes),
        )
        if seen.damage is not None:
            before = self.notes.more
            self._book.notes = self.notes.damaged(finding(seen.path, seen.damage, self._clock.now_ms()))
            if self.notes.more > before:
                self._set(kind, self._pass(kind).met_unlisted())
                self._book.notes = self.notes.counted()
            reach(ScrubPoint.AFTER_DAMAGE)
            return 1
        if seen.read or seen.note == "unneeded":
            self._failing.pop(seen.path, None)
            self._book.notes = self.notes.sound(seen.path)
        return 0

    def _keep(self) -> None:
        self._book.keep()
        self._kept = self._clock.monotonic()


_OVER = {"reading": "bytes", "listing": "keys"}
_SETTING = {"reading": "read_interval_ms", "listing": "list_interval_ms"}


def written_anew(stored: Stored, seq: int, whole_seq: int, whole_date_ms: int | None) -> bool:
    """Whether an object that was there at the last whole walk over the listing has a later time: somebody put it again.

    Objects never change, so what a store's checksum of them could tell, if it has one that can be compared, its time tells too.
    """
    return (
        whole_date_ms is not None and seq <= whole_seq and stored.last_modified_ms > whole_date_ms + TICK_MS
    )


def finding(path: str, damage: Corrupt | NotFound, now_ms: int) -> DamagedKey:
    """Damage as it is listed."""
    position = damage.fields.get("position")
    return DamagedKey(
        path, damage.message, said_of(damage), position if isinstance(position, int) else None, now_ms, now_ms
    )
