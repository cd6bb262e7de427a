"""What has to be remembered between two looks at the tail: an unconfirmed last record, unreadable bytes, the log's end."""

from __future__ import annotations

import numpy as np

from tiered.clock import Clock
from tiered.codec.header import read_headers
from tiered.model import PhysicalOffset
from tiered.source.base import BrokerMark
from tiered.source.chain import Chain, HeadKind, store_times
from tiered.source.files import FileTable, LogFile
from tiered.source.life import BrokerLife, LeftoverGuard

Place = tuple[tuple[int, int], int]
"""A file's identity and a physical offset in it."""


def cut_short(data: memoryview) -> bool:
    """Whether a whole-looking record may still lack its end: a topic with zero bytes, or properties that end in one.

    Body CRC and lengths do not cover topic and properties, so a writer stopped inside them would leave nothing else to see.
    A real record that looks so is confirmed by the next one.
    """
    headers = read_headers(data, np.zeros(1, np.int64), np.array([len(data)], np.int64))
    if headers.flaw is not None:
        return False  # not whole-looking at all: its checks say so
    at, length = int(headers.topic_positions[0]), int(headers.topic_lengths[0])
    torn_properties = int(headers.rows["properties_length"][0]) > 0 and data[-1] == 0
    return torn_properties or 0 in data[at : at + length]


class Pending:
    """The last record, with nothing behind it that confirms it: it counts once it stays unchanged for a while."""

    def __init__(self, clock: Clock, wait_ms: int) -> None:
        self._clock = clock
        self._wait_seconds = wait_ms / 1000
        self._place: Place | None = None
        self._bytes = b""
        self._since = 0.0

    def unchanged(self, place: Place, data: memoryview, *, times: int = 1) -> bool:
        """Whether these bytes were seen here before, ``times`` the wait ago or longer, and are the same now."""
        now = self._clock.monotonic()
        if place == self._place and len(data) == len(self._bytes):
            if now - self._since < times * self._wait_seconds:
                return False
            if data == self._bytes:
                return True
        self._place, self._bytes, self._since = place, bytes(data), now
        return False


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


class NewestEnd:
    """End of the last record the broker wrote. Remembers it and hops on from there; forgets it when the broker restarts."""

    def __init__(self, chain: Chain, life: BrokerLife, guard: LeftoverGuard) -> None:
        self._chain = chain
        self._life = life
        self._guard = guard
        self._place: Place | None = None
        self._restart: BrokerMark | None = None
        self._last_time: int | None = None

    def find(self, table: FileTable) -> PhysicalOffset:
        """Physical offset behind the newest record; the log's first byte if there is none, 0 without files."""
        file = self._newest_written(table)
        if file is None:
            return table.files[0].base if len(table) else PhysicalOffset(0)
        restart = self._life.mark()
        if self._place is None or self._place[0] != file.identity or restart != self._restart:
            self._place, self._last_time = (file.identity, file.base), None
        self._restart = restart
        return self._hop_on(file, self._place[1])

    def learn(self, file: LogFile, position: int, store_time_ms: int) -> None:
        """A record that ends at ``position`` was just read: no need to hop there again."""
        if self._place is None:
            self._restart = self._life.mark()
        elif self._place[0] != file.identity or self._place[1] >= position:
            return
        self._place, self._last_time = (file.identity, position), store_time_ms

    def _newest_written(self, table: FileTable) -> LogFile | None:
        for file in reversed(table.files):
            if self._chain.head(file, file.base).kind is not HeadKind.ZERO:
                return file
        return None

    def _hop_on(self, file: LogFile, position: int) -> PhysicalOffset:
        if self._chain.head(file, position).kind is not HeadKind.RECORD:
            return PhysicalOffset(position)
        life_start_ms = self._life.start_ms()
        for start, view, frames in self._chain.walk(file, position):
            times = store_times(view, frames.starts)
            seam = self._guard.seam(times, self._last_time, life_start_ms)
            if seam is not None and not self._guard.believes(file, start + int(frames.starts[seam])):
                if seam:
                    self._last_time = int(times[seam - 1])
                position = start + int(frames.starts[seam])
                break
            self._last_time, position = int(times[-1]), start + frames.end
        self._place = (file.identity, position)
        return PhysicalOffset(position)
