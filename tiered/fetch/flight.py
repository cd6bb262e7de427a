"""One load for many askers: work under way by name, so that later askers wait for the first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tiered.fetch.lanes import FetchJob

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Flight(Generic[T]):
    """Work under way for all of ``names``. ``future`` gives what it brought, or its error. ``job`` is its place in the lanes,
    once its memory was granted."""

    names: tuple[Hashable, ...]
    foreground: bool
    future: Future[T] = field(default_factory=Future)
    job: FetchJob | None = None


class Flights:
    """The flights of a loader. Thread-safe.

    ``known`` is asked under the lock whether a name needs no flight any more (it is in the cache by now); a load
    must therefore put what it brought into the cache *before* it leaves.
    """

    def __init__(self, known: Callable[[Hashable], bool]) -> None:
        self._known = known
        self._lock = threading.Lock()
        self._by_name: dict[Hashable, Flight[Any]] = {}

    def find(self, name: Hashable) -> Flight[Any] | None:
        """The flight that will bring ``name``."""
        return self._by_name.get(name)

    def enter(
        self, names: tuple[Hashable, ...], *, foreground: bool, wanted: tuple[Hashable, ...] = ()
    ) -> Flight[Any] | None:
        """Claim the longest prefix of ``names`` that is neither in flight nor known, as a new flight. ``None`` if the first is:
        look it up again. ``wanted``: what is known where a name brings it, if that is not called by the name itself."""
        with self._lock:
            free: list[Hashable] = []
            for name, known_as in zip(names, wanted or names, strict=True):
                if name in self._by_name or self._known(known_as):
                    break
                free.append(name)
            if not free:
                return None
            flight: Flight[Any] = Flight(tuple(free), foreground)
            self._by_name.update(dict.fromkeys(free, flight))
            return flight

    def leave(self, flight: Flight[Any]) -> None:
        """The flight is over: its names may be asked for anew."""
        with self._lock:
            for name in flight.names:
                if self._by_name.get(name) is flight:
                    del self._by_name[name]

    def __len__(self) -> int:
        return len(self._by_name)
