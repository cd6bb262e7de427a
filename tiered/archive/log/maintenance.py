"""Work on an archive that nobody waits for (merging, retention, collection, scrubbing): what a task is, and what it may use.

A task plans from the fold, works in bounded turns, and changes the archive through the line of commits alone, where archiving
goes before it. Who calls it (the daemon's loop, ``tiered maintain``) knows nothing of what it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from tiered.archive.checkpoint.own import OwnCheckpoints
from tiered.archive.log.flush import Priority, Proven, Unsettled

Figures = Mapping[str, int | str | None]
"""What is told to programs: names with units in them, as JSON shows them."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What a task would do now. ``jobs``: turns it would take, 0: nothing is to be done; ``said``: one line for people;
    ``rows``: what it would do one by one, for a dry run; ``trouble``: what cannot be found out or done."""

    jobs: int
    said: str
    figures: Figures = field(default_factory=dict)
    rows: tuple[Figures, ...] = ()
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """What one turn did. ``more``: there is more to do at once. Integer ``figures`` of several turns are added up.

    ``trouble``: what could not be done, and why, while the rest went on. ``left``: what waits now, in place of what was said
    before; a name once said is said again, with 0 where nothing waits.
    """

    more: bool
    figures: Figures = field(default_factory=dict)
    trouble: str | None = None
    left: Mapping[str, int] = field(default_factory=dict)


class Stopped(Exception):
    """The process ends, and so does the turn, wherever it stands: what it has put and not committed nobody refers to."""


class WithoutMessages:
    """What stands in the line of commits and archives nothing: behind all that does."""

    __slots__ = ()

    @property
    def messages(self) -> int:
        """None that were not archived before."""
        return 0

    @property
    def raw_bytes(self) -> int:
        """None of the commitlog."""
        return 0

    @property
    def priority(self) -> Priority:
        """Behind what is archived."""
        return Priority.SEALING


class OwnKeys:
    """Paths under the broker's root that this process makes (DESIGN.md, "Ageing": in hand, given up). Safe from any thread."""

    def __init__(self) -> None:
        self.checkpoints = OwnCheckpoints()
        self._lock = threading.Lock()
        self._in_hand: set[str] = set()
        self._given_up: set[str] = set()

    @contextmanager
    def making(self, path: str) -> Iterator[Callable[[], None]]:
        """In hand until the block ends. Unless what is yielded was called, because its commit counted, it is given up then."""
        committed = []
        with self._lock:
            self._in_hand.add(path)
        try:
            yield lambda: committed.append(True)
        finally:
            with self._lock:
                self._in_hand.discard(path)
                if not committed:
                    self._given_up.add(path)

    @contextmanager
    def holding(self, paths: Collection[str]) -> Iterator[None]:
        """In hand until the block ends, of whatever was made before: a commit or checkpoint may name them again."""
        with self._lock:
            self._in_hand.update(paths)
        try:
            yield
        finally:
            with self._lock:
                self._in_hand.difference_update(paths)

    def in_hand(self, path: str) -> bool:
        """Whether it may still be named by a commit of this process."""
        with self._lock:
            return path in self._in_hand

    def given_up(self) -> list[str]:
        """What may have been put and will never be named; of an unknown outcome, too: who takes these looks at the fold."""
        with self._lock:
            return sorted(self._given_up)

    def gave_up(self, path: str) -> bool:
        """Whether it is one of ``given_up``."""
        with self._lock:
            return path in self._given_up

    def retired(self, path: str) -> None:
        """A commit named it for deletion: it is no longer listed as given up."""
        with self._lock:
            self._given_up.discard(path)
        self.checkpoints.forget_shard(path)


class Turn(Protocol):
    """What a task may use while it is its turn."""

    def commit(self, flush: Unsettled) -> Proven | None:
        """Have a flush committed in a quiet moment of the line, waited for. ``None``: it settled to nothing. An error of its
        planning or of the line is raised; ``Stopped``."""
        ...

    def spend(self, byte_count: int) -> None:
        """Say how many bytes are about to be read or written: waits as the bound of bytes a second asks for; ``Stopped``."""
        ...


class Task(Protocol):
    """One kind of maintenance. Its methods are called by one thread at a time, in the process that holds the epoch."""

    @property
    def name(self) -> str:
        """A verb, as metrics, pages and ``tiered maintain`` show it."""
        ...

    def due(self, now: float) -> bool:
        """Whether it is time to look for work again, by the monotonic clock. Touches neither store nor fold."""
        ...

    def plan(self) -> Outlook:
        """What there is to do now. It reads the proven fold, and changes nothing."""
        ...

    def run_once(self, turn: Turn) -> Done:
        """One bounded turn of work. It may end anywhere, by an error or a crash, and is then simply done again."""
        ...
