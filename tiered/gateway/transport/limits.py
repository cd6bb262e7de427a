"""What bounds the gateway: connections, bytes of answers under way; and what it counts.

Counting on the way of every frame is plain addition; ``Traffic.publish`` moves the sums into the metrics when somebody looks.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from tiered.metrics import Metrics

ANSWERS_PER_CONNECTION = 16
"""Answers from the archive under way to one connection at once; more of them wait."""

ANSWERING_PER_CONNECTION = 1024
"""Answers made here that one connection waits for: with more it is not read, until half of them are made."""

PENDING_PER_CONNECTION = 16_384
"""Requests of one connection whose answers are looked at; one more ends the connection."""

OPAQUES_PER_CONNECTION = 65_536
"""Requests of one connection without an answer whose opaques are tracked; one more ends the connection."""

_SEND, _PULL, _POP, _OFFSET, _ROUTE, _LOOKUP = "send", "pull", "pop", "offset", "route", "lookup"
KINDS: Mapping[int, str] = MappingProxyType(
    {
        **dict.fromkeys((10, 310, 320, 36, 37, 324, 325, 326), _SEND),
        **dict.fromkeys((11, 361), _PULL),
        **dict.fromkeys((200050, 200051, 200052, 200053, 200054, 200055, 200151), _POP),
        **dict.fromkeys((14, 15, 29, 30, 31, 32, 43), _OFFSET),
        **dict.fromkeys((105, 106), _ROUTE),
        **dict.fromkeys((12, 33), _LOOKUP),
        **dict.fromkeys((34, 35, 38, 41, 42, 400), "client"),
    }
)
"""Class of a request by its code, for the metrics; the others are ``other``."""


@dataclass(slots=True)
class Traffic:
    """Sums over all connections since the start of the process."""

    codes: Counter[int | None] = field(default_factory=Counter)  # by request code; None: header not read
    answers: int = 0
    from_clients: int = 0
    from_upstream: int = 0
    _published: dict[str, float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def publish(self, metrics: Metrics) -> None:
        """Add what came since the last call to the metrics. From any thread."""
        sums: Counter[str] = Counter()
        for code, count in self.codes.copy().items():
            sums[KINDS.get(code, "other") if code is not None else "other"] += count
        with self._lock:
            for kind, count in sums.items():
                metrics.gateway_requests.labels(kind).inc(self._more(kind, count))
            metrics.gateway_answers.inc(self._more(" answers", self.answers))
            metrics.gateway_bytes.labels("client").inc(self._more(" clients", self.from_clients))
            metrics.gateway_bytes.labels("upstream").inc(self._more(" upstream", self.from_upstream))

    def seen(self, code: int | None) -> None:
        """Count one request. Codes that nobody knows are one, so that garbage cannot grow the table."""
        self.codes[code if code in KINDS else None] += 1

    def _more(self, name: str, now: float) -> float:
        more = now - self._published.get(name, 0)
        self._published[name] = now
        return more


class Sparse:
    """Log lines that a crowd of clients could multiply: of each kind at most one in ``seconds``. Kinds are few and fixed."""

    def __init__(self, seconds: float = 1.0) -> None:
        self._seconds = seconds
        self._kinds: dict[str, tuple[float, int]] = {}  # when the next may be said, and how many were not

    def due(self, kind: str, now: float) -> int | None:
        """``None``: say nothing now. Else how many lines of this kind were left out since the last one."""
        after, unsaid = self._kinds.get(kind, (now, 0))
        if now < after:
            self._kinds[kind] = after, unsaid + 1
            return None
        self._kinds[kind] = now + self._seconds, 0
        return unsaid


class Slots:
    """At most ``most`` connections."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.taken = 0

    def take(self) -> bool:
        """A place for one more connection, if there is one."""
        if self.taken >= self._most:
            return False
        self.taken += 1
        return True

    def give_back(self) -> None:
        """The connection is gone."""
        self.taken -= 1


class Seated(Protocol):
    """Who has one of the ``Seats``: a session."""

    @property
    def spoke(self) -> bool:
        """Whether the client has sent a frame."""
        ...

    def cut(self, reason: str, why: str) -> None: ...


class Seats:
    """At most ``most`` connections of clients, so divided that no host keeps the others out.

    When there is none left, the oldest that never sent a frame goes: a client that is one sends a frame at once. The last
    eighth is for hosts that have less than half of all.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._reserve = most // 8
        self._seated: dict[Seated, str] = {}
        self._silent: dict[Seated, None] = {}  # oldest first; looked through when there is no seat left
        self._of_host: Counter[str] = Counter()

    @property
    def taken(self) -> int:
        """Seats that are not free."""
        return len(self._seated)

    def take(self, who: Seated, host: str) -> bool:
        """A seat for one more, if there is one or somebody gives way."""
        small = 2 * self._of_host[host] < self._most
        if self._most - self.taken <= (0 if small else self._reserve) and not self._make_room(host, small):
            return False
        self._seated[who] = host
        self._silent[who] = None
        self._of_host[host] += 1
        return True

    def give_back(self, who: Seated) -> None:
        """The connection is gone."""
        host = self._seated.pop(who, None)
        self._silent.pop(who, None)
        if host is not None:
            self._of_host[host] -= 1
            if not self._of_host[host]:
                del self._of_host[host]

    def _make_room(self, host: str, small: bool) -> bool:
        """Whether somebody gave way: of any host, or for one that has much of its own."""
        spoke, found = [], None
        for other in self._silent:
            if other.spoke:
                spoke.append(other)
            elif small or self._seated[other] == host:
                found = other
                break
        for other in spoke:
            del self._silent[other]
        if found is None:
            return False
        self.give_back(found)
        found.cut("never_spoke", "it sent no frame, and gateway.max_connections is reached")
        return True


Entry = tuple[int, asyncio.Future[None]]
"""Somebody who waits: bytes, and what tells him that he has them."""


class Takers(Protocol):
    """Who waits, and whose turn it is; ``share`` is whatever it tells apart."""

    def push(self, share: Any, cost: int, item: Entry) -> None: ...
    def first(self) -> Entry: ...
    def pop(self) -> Entry: ...
    def __len__(self) -> int: ...


class _InOrder:
    """First come, first served."""

    def __init__(self) -> None:
        self._line: deque[Entry] = deque()

    def push(self, share: Any, cost: int, item: Entry) -> None:
        self._line.append(item)

    def first(self) -> Entry:
        return self._line[0]

    def pop(self) -> Entry:
        return self._line.popleft()

    def __len__(self) -> int:
        return len(self._line)


class ByteBudget:
    """Bytes that may be set aside at once; who finds none left waits for his turn. For one event loop."""

    def __init__(
        self,
        most: int,
        waiting: Takers | None = None,
        share: Callable[[str, str], Any] = lambda topic, group: None,
    ) -> None:
        """``waiting``: whose turn it is, else first come first served; ``share``: whose an answer is, by topic and group."""
        self._most = most
        self._waiting: Takers = _InOrder() if waiting is None else waiting
        self._share = share
        self.taken = 0

    def take_at_once(self, size: int) -> int | None:
        """``take``, where nobody waits for a turn; ``None``: he would have to."""
        size = min(size, self._most)
        if len(self._waiting) or self.taken + size > self._most:
            return None
        self.taken += size
        return size

    async def take(self, size: int, topic: str = "", group: str = "") -> int:
        """Set ``size`` bytes aside, at most the whole budget; returns how many, to be given back."""
        taken = self.take_at_once(size)
        if taken is not None:
            return taken
        size = min(size, self._most)
        turn = asyncio.get_running_loop().create_future()
        self._waiting.push(self._share(topic, group), size, (size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._next()
            else:
                self.give_back(size)
            raise
        return size

    def give_back(self, size: int) -> None:
        """``size`` bytes are free again."""
        self.taken -= size
        self._next()

    def _next(self) -> None:
        while len(self._waiting):
            size, turn = self._waiting.first()
            if not turn.cancelled():
                if self.taken + size > self._most:
                    return
                self.taken += size
                turn.set_result(None)
            self._waiting.pop()
