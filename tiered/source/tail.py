"""What has to be remembered between two looks at the tail: an unconfirmed last record, unreadable bytes, the log's end."""

from __future__ import annotations

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.codec.checksum import crc32c
from tiered.codec.record.layout import store_times
from tiered.model import PhysicalOffset
from tiered.source.base import BrokerMark
from tiered.source.files import FileTable, LogFile
from tiered.source.life import BrokerLife, LeftoverGuard
from tiered.source.search import next_readable
from tiered.source.walk import Chain, HeadKind, RecordHead

Place = tuple[tuple[int, int], int]
"""A file's identity and a physical offset in it."""

_NOWHERE = PhysicalOffset(-1)
LOOKS = Backoff(1.0, 30.0)
"""Pauses between looks behind a place where nothing can be read."""


class UnconfirmedRecord:
    """The last record, with nothing behind it that confirms it: it counts once it stays unchanged for a while."""

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        self._clock = clock
        self._wait_seconds = wait_ms / 1000
        self._place: Place | None = None
        self._seen = (0, 0)
        self._since = 0.0

    def unchanged(self, place: Place, data: memoryview, *, times: int = 1) -> bool:
        """Whether these bytes were seen here before, ``times`` the wait ago or longer, and are the same now."""
        now = self._clock.monotonic()
        if place == self._place and len(data) == self._seen[0]:
            if now - self._since < times * self._wait_seconds:
                return False
            if crc32c(data) == self._seen[1]:
                return True
        self._place, self._seen, self._since = place, (len(data), crc32c(data)), now
        return False


class StoredPlaces:
    """Where the broker said, in an answer, that it stored a record: that record was written by then, and needs no second look.

    It is believed at the next look alone, and of the last place. A broker that keeps its log in memory of its own first
    (``transientStorePoolEnable``) has nothing there then, and is not believed any more. ``told`` is for any thread; what two of
    them tell in the same moment may be lost, and then the record is looked at twice.
    """

    def __init__(self) -> None:
        self._told = self._now = _NOWHERE
        self._believed = True

    def told(self, place: PhysicalOffset) -> None:
        """The broker answered for a record at ``place``."""
        if self._believed:
            self._told = max(self._told, place)

    def look(self) -> PhysicalOffset:
        """A look begins: the place that is believed during it; below 0: none."""
        self._now, self._told = self._told, _NOWHERE
        return self._now

    def vouched(self, place: int) -> bool:
        """Whether the record at ``place`` is the one."""
        return place == self._now

    def doubt(self) -> None:
        """It was not there."""
        self._believed = False


class Patience:
    """How long bytes at one place have been unreadable and unchanged."""

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        self._clock = clock
        self._wait_seconds = wait_ms / 1000
        self._place: tuple[Place, bytes] | None = None
        self._since = 0.0
        self._looked: float | None = None

    def over(self, place: Place, head: bytes, *, cheap: bool) -> bool:
        """True when it is time to look behind: after the wait, and, unless looking is ``cheap``, once per wait."""
        now = self._clock.monotonic()
        if self._place != (place, head):
            self._place, self._since, self._looked = (place, head), now, None
        if now - self._since < self._wait_seconds:
            return False
        if not cheap and self._looked is not None and now - self._looked < max(1.0, self._wait_seconds):
            return False
        self._looked = now
        return True


class Completeness:
    """Whether a record that is too large to be held is whole. Its body is read for that, at most once a second."""

    def __init__(self, chain: Chain, clock: Clock) -> None:
        self._chain = chain
        self._clock = clock
        self._asked: tuple[Place, bytes] | None = None
        self._whole = False
        self._look_at = 0.0

    def known(self, file: LogFile, position: int, head: RecordHead) -> bool:
        """Whether it is; once it was, as long as its head stays the same."""
        asked, now = ((file.identity, position), head.raw), self._clock.monotonic()
        if asked != self._asked:
            self._asked, self._whole, self._look_at = asked, False, now
        if not self._whole and now >= self._look_at:
            self._whole, self._look_at = self._chain.whole(file, position), now + LOOKS.first_seconds
        return self._whole


class Written:
    """Which files the broker has begun to write: one that is allocated ahead is all zeros.

    A file whose first bytes were lost counts once something was found in it (``found_in``).
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._found: dict[Place, PhysicalOffset] = {}

    def newest(self, table: FileTable) -> LogFile | None:
        """The newest file that is written; ``None`` if there is none."""
        for file in reversed(table.files):
            if self._chain.head(file, file.base).kind is not HeadKind.ZERO or self._deeper(file):
                return file
        return None

    def beyond(self, table: FileTable, file: LogFile) -> bool:
        """Whether the broker went on to a file behind this one."""
        newest = self.newest(table)
        return newest is not None and newest.base > file.base

    def found_in(self, file: LogFile, place: PhysicalOffset) -> None:
        """A record was found at ``place`` although the file begins with zeros."""
        self._found = {(file.identity, file.base): place}  # the newest will do: those before it lie below it

    def _deeper(self, file: LogFile) -> bool:
        place = self._found.get((file.identity, file.base))
        return place is not None and self._chain.head(file, place).kind is HeadKind.RECORD


class LookBehind:
    """What lies behind a place where nothing can be read: the next place in the log that can be trusted.

    A look may read the file to its end, so that it is taken at most once a ``pause``, which doubles while there is nothing.
    """

    def __init__(self, chain: Chain, life: BrokerLife, written: Written, clock: Clock) -> None:
        self._chain = chain
        self._life = life
        self._written = written
        self._clock = clock
        self._place: tuple[Place, int | None] | None = None
        self._look_at = 0.0
        self._looked = False
        self._pauses = LOOKS.pauses()
        self._found: PhysicalOffset | None = None

    def look(self, table: FileTable, file: LogFile, position: int, *, settle: bool) -> PhysicalOffset | None:
        """Where a record that counts begins behind ``position``, in this file or a later one; ``None`` while none is known.

        ``settle``: the place must have been the same for a moment first, as where a busy broker writes it is not.
        """
        now = self._clock.monotonic()
        place = ((file.identity, position), self._life.start_ms())
        if self._place != place:
            self._place, self._found, self._pauses = place, None, LOOKS.pauses()
            self._look_at, self._looked = now + LOOKS.first_seconds, False
        first = not settle and not self._looked
        if self._found is None and (first or now >= self._look_at):
            self._looked = True
            self._found = self.find(table, file, position)
            self._look_at = now + next(self._pauses)
        return self._found

    def find(self, table: FileTable, file: LogFile, position: int) -> PhysicalOffset | None:
        """The same, looked up now."""
        found = self.in_file(file, position, moved_on=self._written.beyond(table, file))
        following = table.after(file.base)
        while found is None and following is not None:
            found = self.in_file(following, following.base - 1, moved_on=False)
            if found is not None:
                self._written.found_in(following, found)
            following = table.after(following.base)
        return found

    def in_file(self, file: LogFile, position: int, *, moved_on: bool) -> PhysicalOffset | None:
        """The next place in this file alone; its closing blank counts when the broker has ``moved_on`` to a later one."""
        written_in_ms = None if moved_on else self._life.start_ms()
        return next_readable(self._chain, file, position, written_in_ms=written_in_ms, blank_counts=moved_on)


class NewestEnd:
    """End of the last record the broker wrote, behind bytes that cannot be read, too, where a record that counts lies there.

    Remembers it and hops on from there; forgets it when the broker restarts.
    """

    def __init__(
        self, chain: Chain, life: BrokerLife, guard: LeftoverGuard, written: Written, behind: LookBehind
    ) -> None:
        self._chain = chain
        self._life = life
        self._guard = guard
        self._written = written
        self._behind = behind
        self._place: Place | None = None
        self._restart: BrokerMark | None = None
        self._last_time: int | None = None

    def find(self, table: FileTable) -> PhysicalOffset:
        """Physical offset behind the newest record; the log's first byte if there is none, 0 without files."""
        file = self._written.newest(table)
        if file is None:
            if not len(table):
                return PhysicalOffset(0)
            file = table.files[0]
        restart = self._life.mark()
        settle = True
        if self._place is None or self._place[0] != file.identity or restart != self._restart:
            self._place, self._last_time = (file.identity, file.base), None
            settle = False
        self._restart = restart
        return self._go_on(table, file, self._place[1], settle=settle)

    def learn(self, file: LogFile, position: int, store_time_ms: int) -> None:
        """A record that ends at ``position`` was just read: no need to hop there again."""
        if self._place is None:
            self._restart = self._life.mark()
        elif self._place[0] != file.identity or (
            self._place[1] >= position and not self._in_leftovers(store_time_ms)
        ):
            return
        self._place, self._last_time = (file.identity, position), store_time_ms

    def _in_leftovers(self, store_time_ms: int) -> bool:
        """Whether the end that is remembered lies in records of a former life, as one of this life was read before it.

        While the broker has not written yet, whole records behind its cut look like any others.
        """
        start_ms = self._life.start_ms()
        return start_ms is not None and (self._last_time or 0) < start_ms <= store_time_ms

    def _go_on(self, table: FileTable, file: LogFile, position: int, *, settle: bool) -> PhysicalOffset:
        end, suspicious = self._hop_on(file, position)
        while not suspicious:
            kind = self._chain.head(file, end).kind
            quiet = kind in (HeadKind.ZERO, HeadKind.BLANK)  # as at the tail of any log
            found = self._behind.look(table, file, end, settle=settle and quiet)
            if found is None:
                cut = file.missing and not quiet
                return PhysicalOffset(file.base + file.stored) if cut else end
            file = table.at(found) or file
            self._place = (file.identity, found)
            position = end
            end, suspicious = self._hop_on(file, found)
            if end <= position:
                break
        return end

    def _hop_on(self, file: LogFile, position: int) -> tuple[PhysicalOffset, bool]:
        """Where the chain of records from ``position`` on ends, and whether only because those behind may be leftovers."""
        if self._chain.head(file, position).kind is not HeadKind.RECORD:
            return PhysicalOffset(position), False
        life_start_ms = self._life.start_ms()
        suspicious = False
        for start, view, frames in self._chain.walk(file, position):
            times = store_times(view, frames.starts)
            seam = self._guard.seam(times, self._last_time, life_start_ms)
            if seam is not None and not self._guard.believes(file, start + int(frames.starts[seam])):
                if seam:
                    self._last_time = int(times[seam - 1])
                position, suspicious = start + int(frames.starts[seam]), True
                break
            self._last_time, position = int(times[-1]), start + frames.end
        self._place = (file.identity, position)
        return PhysicalOffset(position), suspicious
