"""Every bound of an HTTP server in one value, and who counts what it cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tiered.settings import KIB

MAX_HEAD_BYTES = 16 * KIB
"""Request line and header fields together, line ends included."""
MAX_HEADERS = 64


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds of a server. Times in seconds.

    ``connections``: at once, one more is turned away. ``at_once``: threads of the pool that pages may use. ``requests``: on one
    connection. ``head_seconds``: for a connection's first whole head. ``idle_seconds``: for its next one. ``send_seconds``: for
    a client to take what is buffered for it. ``answer_seconds``: for one whole answer. ``body_seconds``: for a whole body, if a
    page takes one.
    """

    connections: int = 64
    at_once: int = 4
    requests: int = 1000
    head_seconds: float = 10.0
    idle_seconds: float = 30.0
    send_seconds: float = 30.0
    answer_seconds: float = 900.0
    body_seconds: float = 30.0


class Watcher(Protocol):
    """Who counts answers."""

    def answered(self, status: int) -> None:
        """An answer with this status has begun."""
        ...

    def cut(self) -> None:
        """An answer did not reach its end: the client went away or did not take it, or the page failed in its middle."""
        ...


class NobodyCounts:
    """A ``Watcher`` for servers without metrics."""

    def answered(self, status: int) -> None:
        """Dropped: there is no metric to count it."""

    def cut(self) -> None:
        """Dropped: there is no metric to count it."""
