"""A fold that changes while something is planned on it: at every read of the live store in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from tests.kit.assemble import Assembly
from tiered.archive.state.view import ArchiveState
from tiered.metadata.base import MetadataView
from tiered.metadata.memory import MemoryStore, MemoryView

Planned = TypeVar("Planned")


class _Unwalked:
    """A view for single questions."""

    def __init__(self, view: MetadataView) -> None:
        self._view = view
        self.get_many = view.get_many
        self.applied = view.applied

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        raise AssertionError(f"a walk over {prefix!r} while the fold changes")


@contextmanager
def nobody_walks_over_the_live_fold(daemon: Assembly) -> Iterator[Callable[[], None]]:
    """For the block, or until what is yielded is called, by a turn that is about to commit."""
    log = daemon.log
    vars(log)["proven"] = lambda: ArchiveState(_Unwalked(log.store))

    def over() -> None:
        vars(log).pop("proven", None)

    try:
        yield over
    finally:
        over()


class _Counted(MemoryStore):
    """Calls ``before`` before each read; walks count at every pair, what is frozen counts once."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Callable[[], None] = lambda: None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self.before()
        return super().get_many(keys)

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        for pair in super().iterate(prefix, start=start, reverse=reverse):
            self.before()
            yield pair

    def snapshot(self) -> MemoryView:
        self.before()
        return super().snapshot()


def planned_on_a_moving_fold(
    daemon: Assembly, change: Callable[[], object], plan: Callable[[], Planned]
) -> tuple[Planned, Planned, list[Planned]]:
    """What is planned before ``change``, what is planned after it, and what while it comes, at each of the reads of the live
    fold that there are."""
    store, reads = daemon.log.store, 0
    states = [(list(store.iterate(b"")), store.applied())]
    before = plan()
    change()
    states.append((list(store.iterate(b"")), store.applied()))
    after = plan()
    moving = _Counted()

    def set_to(state: int) -> None:
        pairs, applied = states[state]
        moving.clear()
        moving.put_many(pairs, applied=applied)

    found: list[Planned] = []
    try:
        daemon.log.store = moving
        while len(found) < 1000:
            set_to(0)
            reads = 0

            def count() -> None:
                nonlocal reads
                reads += 1
                if reads == len(found) + 1:
                    set_to(1)

            moving.before = count
            made = plan()
            moving.before = lambda: None
            if reads <= len(found):
                break
            found.append(made)
    finally:
        daemon.log.store = store
    return before, after, found
