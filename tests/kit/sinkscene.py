"""Places and providers for tests of sinks: requests to a store that break at a number, a store that is away."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import AbstractContextManager

from tiered.errors import Unavailable
from tiered.provider.base import Provider, Stored
from tiered.provider.wrap import Wrapped
from tiered.sink.contract.feeding import Interrupted
from tiered.sink.kinds import SinkPlace

PLACE = SinkPlace(bytes(range(16)), "DefaultCluster", "broker-a", 3, "orders", sink_id=b"\5" * 16)


class Breaks:
    """Which request breaks next; shared by all providers of a scene."""

    def __init__(self) -> None:
        self.left: int | None = None
        self.done = False
        self.here = True
        self.cut = Interrupted()

    @contextlib.contextmanager
    def at(self, request: int, *, done: bool) -> Iterator[Interrupted]:
        self.left, self.done, self.cut = request, done, Interrupted()
        yield self.cut
        self.left = None

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        self.here = False
        yield
        self.here = True

    @contextlib.contextmanager
    def request(self) -> Iterator[None]:
        """Around a request that is carried out before its answer is lost, or not at all."""
        if not self.here:
            raise Unavailable("the store is away")
        breaks = self.left == 0
        if self.left is not None:
            self.left -= 1
        if breaks and not self.done:
            self.cut.happened = True
            raise Unavailable("the request was lost")
        yield
        if breaks:
            self.cut.happened = True
            raise Unavailable("the answer was lost")


class Breaking(Wrapped):
    """A provider whose requests break as told."""

    def __init__(self, inner: Provider, breaks: Breaks) -> None:
        super().__init__(inner)
        self._breaks = breaks

    def around(self) -> AbstractContextManager[None]:
        return self._breaks.request()

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """One request, whether its reader takes all of it or not."""
        with self._breaks.request():
            found = [*self.inner.list(prefix, start_after=start_after, limit=limit)]
        return iter(found)
