"""Writes that have been failing for a while: which, since when, and why. Told by those who write, asked by pages and the watch.

A write is known by its key, because the same key is sent again until it is there. Keys of checkpoints and probes are new at
every try; they share one name each, and the next success of any of them ends it. So there are never more names than writes
under way, and a few.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tiered.clock import Clock
from tiered.codec.types import Buffer
from tiered.errors import Conflict, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.provider.base import Provider, Stored
from tiered.provider.wrap import Wrapped

LOCAL_STATE = "local state"
"""The name of writes to the state directory."""
PROBE = "probe"
"""The name of the writes of the start-up probe."""

READ_BACK = "read back"
"""The name of looking for what the store had answered for."""

_NEW_AT_EVERY_TRY = ("shard", "checkpoint", PROBE)


@dataclass(frozen=True, slots=True)
class FailingWrite:
    """One write that fails. ``seconds``: since its first failing try began."""

    name: str
    seconds: float
    cause: str

    def __str__(self) -> str:
        return f"writes have been failing for {self.seconds:.0f} s: {self.cause}"


class Outages:
    """``limit_seconds``: how long a write may fail before it is worth a word. Safe from any thread; asks nobody."""

    def __init__(self, clock: Clock, limit_seconds: float) -> None:
        self._clock = clock
        self._limit = limit_seconds
        self._lock = threading.Lock()
        self._failing: dict[str, tuple[float, str]] = {}

    def failed(self, name: str, error: TieredError, began: float | None = None) -> None:
        """A try of the write ``name`` failed; it began at ``began`` on the monotonic clock, by default now."""
        now = self._clock.monotonic() if began is None else began
        with self._lock:
            since = self._failing.get(name, (now, ""))[0]
            self._failing[name] = since, str(error)

    def over(self, name: str) -> None:
        """The write ``name`` got through, or will not be tried again."""
        with self._lock:
            self._failing.pop(name, None)

    def cause(self) -> str | None:
        """Why the write that has been failing longest fails, however short that is."""
        oldest = self._oldest()
        return None if oldest is None else oldest.cause

    def worst(self, limit_seconds: float | None = None) -> FailingWrite | None:
        """The write that has been failing longest, once that is longer than the limit, or than ``limit_seconds``."""
        oldest = self._oldest()
        limit = self._limit if limit_seconds is None else limit_seconds
        return oldest if oldest is not None and oldest.seconds >= limit else None

    def _oldest(self) -> FailingWrite | None:
        with self._lock:
            if not self._failing:
                return None
            name, (since, cause) = min(self._failing.items(), key=lambda pair: pair[1][0])
        return FailingWrite(name, self._clock.monotonic() - since, cause)


class Watched(Wrapped):
    """A provider whose puts are told to ``Outages``. It stands below the retries, so that each try is seen, not the last one.

    Once ``stop`` is set no further request begins: opening, probing and folding end with the request under way. Once ``worked``
    is set a refusal (403, say) is ``Unavailable``: the address and the rights were right, rights come back, and a daemon that
    ended over it does not.
    """

    def __init__(self, inner: Provider, outages: Outages, clock: Clock, stop: threading.Event) -> None:
        super().__init__(inner)
        self.worked = False
        self._outages = outages
        self._clock = clock
        self._stop = stop

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        name, began = _name(key), self._clock.monotonic()
        try:
            stored = super().put(key, parts, create_only=create_only)
        except Conflict:
            self._outages.over(name)
            raise
        except (Unavailable, Invalid, NotFound) as error:
            self._outages.failed(name, error, began)
            raise
        self._outages.over(name)
        return stored

    @contextmanager
    def around(self) -> Iterator[None]:
        """Refuse to begin after a stop; take a refusal of a store that worked for an outage."""
        if self._stop.is_set():
            raise Unavailable("stopped: no further request is sent to the store", url=self.url)
        try:
            yield
        except Refused:
            raise
        except Invalid as error:
            if not self.worked:
                raise
            raise Unavailable(error.message, hint=error.hint, **error.fields) from error


def _name(key: str) -> str:
    """The name of a write: its key, or its kind where each try has a key of its own."""
    area = key.rpartition("/")[0].rpartition("/")[2]
    return area if area in _NEW_AT_EVERY_TRY else key
