"""Registries of read nodes, alike for every driver: opened by several processes, damaged, away, while time passes.

Each ``Registry`` opens drivers that are as those of different processes. ``pass_time`` lets a time pass in which whoever is
given looks again and again, as processes do: by clocks that a test moves.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tests.kit.assemble import KEYS
from tiered.clock import ManualClock
from tiered.codec.types import Buffer
from tiered.errors import TieredError, Unavailable
from tiered.membership.base import Card, Members, Membership, MemberState
from tiered.membership.bucket import BucketMembership
from tiered.provider.memory import MemoryObjects, MemoryProvider
from tiered.provider.wrap import Wrapped

LOOK_SECONDS = 1.0
LEASE_MS = 6_000


def card(name: str = "node-1", **changed: object) -> Card:
    """Of a live node."""
    made = Card(
        name, f"10.0.0.1:{10_000 + len(name)}", f"{sum(name.encode()):032x}", "0.1.0", 1, 2, 1, MemberState.LIVE, LEASE_MS
    )  # fmt: skip
    return replace(made, **changed)  # type: ignore[arg-type]


def other(of: Card, **changed: object) -> Card:
    """Another process with the name of ``of``, elsewhere."""
    return replace(of, **{"process": "f" * 32, "address": "10.0.0.99:1", **changed})  # type: ignore[arg-type]


def names(found: Members) -> list[str]:
    """Of those who are there, sorted."""
    return sorted(member.card.name for member in found.there)


class Clocked:
    """A registry whose time a test moves. ``lease_ms``: what its nodes' leases hold."""

    lease_ms = LEASE_MS

    def __init__(self) -> None:
        self.clock = ManualClock()

    def pass_time(self, seconds: float, look: Callable[[], object]) -> None:
        """``look`` is called every ``LOOK_SECONDS``."""
        for _ in range(round(seconds / LOOK_SECONDS)):
            self.clock.advance(LOOK_SECONDS)
            look()

    def until(self, holds: Callable[[], bool], look: Callable[[], object]) -> bool:
        """At once, or within two leases."""
        self.pass_time(0 if holds() else self.lease_ms / 500, look)
        return holds()


class Failing(Wrapped):
    """A store that fails while it is told to, and counts what it is asked."""

    def __init__(self, inner: MemoryProvider, registry: BucketRegistry) -> None:
        super().__init__(inner)
        self._registry = registry

    def _ask(self, verb: str) -> None:
        self._registry.asked.append(verb)
        if self._registry.error is not None:
            raise self._registry.error

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> object:  # type: ignore[override]
        self._ask("put")
        return self.inner.put(key, parts, create_only=create_only)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> object:  # type: ignore[override]
        self._ask("get")
        return self.inner.get(key, start, length)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[object]:  # type: ignore[override]
        self._ask("list")
        return self.inner.list(prefix, start_after=start_after, limit=limit)

    def delete(self, key: str) -> None:
        self._ask("delete")
        self.inner.delete(key)


class BucketRegistry(Clocked):
    """Leases in a bucket in memory; ``clock`` is everybody's."""

    def __init__(self) -> None:
        super().__init__()
        self.objects = MemoryObjects()
        self.error: TieredError | None = None
        self.asked: list[str] = []

    @property
    def bare(self) -> MemoryProvider:
        """The bucket itself."""
        return MemoryProvider("", self.clock, self.objects)

    def open(self) -> Membership:
        """As another process."""
        return BucketMembership(Failing(self.bare, self), KEYS, self.clock, LOOK_SECONDS)  # type: ignore[arg-type]

    def damage(self, name: str) -> None:
        """What a node wrote is changed."""
        for stored in list(self.bare.list(KEYS.key("lease/"))):
            if f"/{name}/" in stored.key:
                data = bytearray(bytes(self.bare.get(stored.key).data))
                data[len(data) // 2] ^= 1
                self.bare.put(stored.key, [bytes(data)], create_only=False)

    @contextmanager
    def away(self) -> Iterator[None]:
        """The bucket answers 503."""
        self.error = Unavailable("the store does not answer now", found="503")
        try:
            yield
        finally:
            self.error = None

    def wait_briefly(self, membership: Membership) -> None:
        """A ``wait`` that nothing ends but its time."""
        membership.wait(0.01, threading.Event())
