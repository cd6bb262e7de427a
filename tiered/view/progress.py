"""How far the view is, and who waits for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

from tiered.clock import Clock
from tiered.keyvalue import WriteOutcome
from tiered.view.redo import Applied, NamespaceState

KEPT_OUTCOMES = 1 << 16
"""Messages of which it is remembered, while somebody writes, what became of them."""


class Undecided(Enum):
    """Why redo decided nothing of a message that it came by."""

    NO_WRITE = "it is no write that redo can read"
    MISSING = "messages of its namespace are missing"


class ViewProgress:
    """What was applied last, for those who wait. The thread that applies calls ``applied``, ``at_end``, ``begin_anew``, any
    other the rest. ``usable``: whether reads may be answered before the log's end was seen: the store had been there before."""

    def __init__(
        self, clock: Clock, states: dict[str, NamespaceState], physical: int, *, usable: bool
    ) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._states = states
        self._physical = physical
        self._seen_end = -float("inf")
        self._usable = usable
        self._writers = self._expecting = 0
        self._outcomes: OrderedDict[tuple[str, int], tuple[bytes, WriteOutcome | Undecided]] = OrderedDict()
        self._ended: str | None = None
        self._life = 0
        """Changes whenever the store may show less than before."""
        self._before: dict[str, NamespaceState] = {}
        """What namespaces were that are not there again yet."""

    @property
    def physical(self) -> int:
        """Everything of the log below is applied."""
        return self._physical

    @property
    def writers(self) -> int:
        """Writes that are under way."""
        return self._writers

    @property
    def expected(self) -> bool:
        """Whether anybody waits for redo: a write that the broker answered, a read of the latest."""
        return self._expecting > 0

    @property
    def usable(self) -> bool:
        """False while the store is being made from its beginning, or is not again where it was: what is not in it yet is not
        *not there*."""
        return self._usable

    def stale_seconds(self) -> float:
        """How long ago the view was at the log's end."""
        return self._clock.monotonic() - self._seen_end

    @contextmanager
    def writing(self) -> Iterator[None]:
        """While a write is under way: what becomes of messages is remembered from before it is sent."""
        with self._changed:
            self._writers += 1
        try:
            yield
        finally:
            with self._changed:
                self._writers -= 1
                if not self._writers:
                    self._outcomes.clear()

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """While somebody waits for redo of what is in the log; entered before redo is told to look."""
        with self._changed:
            self._expecting += 1
        try:
            yield
        finally:
            with self._changed:
                self._expecting -= 1

    def applied(self, done: Applied, states: dict[str, NamespaceState]) -> None:
        """A batch is in the store."""
        with self._changed:
            self._states = states
            self._physical = int(done.position.physical or self._physical)
            for namespace, ids in done.ids.items():
                broken = namespace in states and states[namespace].broken is not None
                for version, unique_key in ids.items():
                    found = _outcome(done, namespace, version, broken=broken)
                    self._outcomes[namespace, version] = unique_key, found
            while len(self._outcomes) > KEPT_OUTCOMES:
                self._outcomes.popitem(last=False)
            if self._before:
                self._is_there_again()
            self._changed.notify_all()

    def at_end(self, seconds_ago: float = 0.0) -> None:
        """There was nothing behind what is applied, so long ago."""
        self._seen_end = self._clock.monotonic() - seconds_ago
        if not self._usable:
            with self._changed:
                self._usable, self._before = True, {}
                self._changed.notify_all()

    def begin_anew(self) -> None:
        """The store is going to be empty again; nothing that was asked for before counts as reached."""
        with self._changed:
            self._goes_back()
            self._before, self._seen_end = {}, -float("inf")
            self._outcomes.clear()

    def goes_back(self) -> None:
        """The store is going to be opened again, and may end earlier then: reads wait until it is where it was."""
        with self._changed:
            if self._usable:
                self._before = dict(self._states)
            self._goes_back()

    def went_back(self, states: dict[str, NamespaceState], physical: int) -> None:
        """The store is open again, and has this."""
        with self._changed:
            self._states, self._physical = states, physical
            if self._before:
                self._is_there_again()
            self._changed.notify_all()

    def _goes_back(self) -> None:
        self._states, self._physical, self._usable = {}, 0, False
        self._life += 1
        self._changed.notify_all()

    def _is_there_again(self) -> None:
        found = self._states
        self._before = {
            name: was
            for name, was in self._before.items()
            if name not in found or _ends_before(found[name], was)
        }
        self._usable = self._usable or not self._before

    def end(self, why: str) -> None:
        """Nothing will be applied any more: those who wait need not."""
        with self._changed:
            self._ended = why
            self._changed.notify_all()

    @property
    def ended(self) -> str | None:
        """Why nothing is applied any more."""
        return self._ended

    @property
    def life(self) -> int:
        """Asked before and behind a read: where it changed, what was read may be of a store that was being made."""
        return self._life

    def wait_usable(self, seconds: float) -> bool:
        """Wait until reads may be answered; whether they may."""
        return self._usable or self._wait(lambda: self._usable, seconds)

    def wait_physical(self, end: int, seconds: float) -> bool:
        """Wait until the log below ``end`` is applied; whether it is."""
        return self._wait(lambda: self._physical >= end, seconds)

    def wait_version(self, namespace: str, version: int, seconds: float) -> bool:
        """Wait until the message with this version is applied; whether it is."""
        return self._wait(lambda: self._next(namespace) > version, seconds)

    def outcome(self, namespace: str, version: int, unique_key: bytes) -> WriteOutcome | Undecided | None:
        """What became of one's own message. ``None``: nobody knows, or the message with this version is another's."""
        with self._changed:
            found = self._outcomes.get((namespace, version))
        if found is None or found[0] != unique_key:
            return None
        return found[1]

    def _next(self, namespace: str) -> int:
        state = self._states.get(namespace)
        return 0 if state is None else state.next

    def _wait(self, reached: Callable[[], bool], seconds: float) -> bool:
        deadline = self._clock.monotonic() + seconds
        with self._changed:
            while not reached() and self._ended is None:
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return False
                if not self._changed.wait(left):
                    break
            return reached()


def _ends_before(state: NamespaceState, was: NamespaceState) -> bool:
    """By the place of the last message: offsets begin again where a topic is made anew."""
    if state.physical is None or was.physical is None:
        return state.next < was.next
    return state.physical < was.physical


def _outcome(done: Applied, namespace: str, version: int, *, broken: bool) -> WriteOutcome | Undecided:
    """What redo said of one message, and nothing that it did not say."""
    rejected = done.rejections.get(namespace, {})
    if version in rejected:
        return WriteOutcome(False, version, rejected[version])
    if version in done.judged.get(namespace, ()):
        return WriteOutcome(True, version)
    return Undecided.MISSING if broken else Undecided.NO_WRITE
