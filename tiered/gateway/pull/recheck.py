"""Pulls deep below the broker's begin, answered without asking it each time.

A group that reads history makes the broker refuse each pull first. What the broker said to one stands for a while
(``gateway.cold_recheck_ms``, counted from that answer) for the next ones of the same connection that differ from it in nothing
but where they read, as long as they read deep below where the broker said that its queue begins: a begin only rises, and no
answer reaches up to it. So rights, groups, subscriptions and topics are asked for again after that while, a reset that the
broker hands out with a pull comes with the next one that is asked, and near the border every pull goes to the broker. A
commit that travels with a pull reaches the broker with that one, too. On the event loop only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from cachetools import LRUCache
from msgspec import structs

from tiered.clock import Clock
from tiered.codec.remoting.codes import RequestCode, ResponseCode, number_field
from tiered.codec.remoting.frame import Command
from tiered.errors import BadRequest
from tiered.gateway.ports import ConnectionInfo
from tiered.metrics import Metrics

DEEP_ANSWERS = 2
"""A pull must read at least so many of its own fullest answers below the broker's begin."""

MAX_KNOWN = 4096
MAX_CHARACTERS = 4096
"""Of all fields of a request together; longer ones are asked each time, so that what is kept stays bounded."""

_VARY = frozenset({"queueOffset", "commitOffset", "Signature"})
"""Fields that differ between pulls of one reader of one queue. A signature covers the offset; the broker alone can check it."""

_Key = tuple[int, tuple[tuple[str, str], ...]]


@dataclass(slots=True)
class _Said:
    """What the broker said, when, where the queue began, and whether the archive had what it had not."""

    answer: Command
    since: float
    begin: int
    replaced: bool = False


class Recheck:
    """What the broker said last to pulls that the archive then answered. ``seconds`` 0: nothing is kept."""

    def __init__(self, clock: Clock, metrics: Metrics, seconds: float) -> None:
        self._clock = clock
        self._metrics = metrics
        self._seconds = seconds
        self._said: LRUCache[_Key, _Said] = LRUCache(MAX_KNOWN)

    def stand_in(self, request: Command, connection: ConnectionInfo) -> Command | None:
        """The broker's last answer, with the opaque of ``request``, if it may stand in for another one."""
        if not self._said or request.code != RequestCode.PULL_MESSAGE or request.is_oneway or request.body:
            return None
        key = _key(request.ext, connection)
        said = self._said.get(key)
        if said is None or not said.replaced:
            return None
        if self._clock.monotonic() - said.since >= self._seconds:
            del self._said[key]
            return None
        try:
            offset = number_field(request.ext, "queueOffset")
            deep = said.begin - DEEP_ANSWERS * max(1, number_field(request.ext, "maxMsgNums", 32))
        except BadRequest:
            return None
        if not 0 <= offset < deep:
            return None
        self._metrics.cold_unasked.inc()
        return structs.replace(said.answer, opaque=request.opaque)

    def hear(self, request: Command, answer: Command, connection: ConnectionInfo) -> None:
        """The broker refuses a pull because it has deleted what it asks for. ``BadRequest`` if its fields make no sense."""
        if self._seconds and request.code == RequestCode.PULL_MESSAGE and _is_short(request.ext):
            begin = number_field(answer.ext, "minOffset")
            self._said[_key(request.ext, connection)] = _Said(answer, self._clock.monotonic(), begin)

    @contextmanager
    def kept(
        self, request: Command, answer: Command, connection: ConnectionInfo
    ) -> Iterator[Callable[[Command | None], None]]:
        """While ``answer``, of the broker or standing in for one, is replaced; the caller says by what.

        Only with records of the archive may it stand in from now on: whatever else comes, the broker is asked the next time.
        """
        key = _key(request.ext, connection)
        replaced = False

        def say(made: Command | None) -> None:
            nonlocal replaced
            replaced = made is not None and made.code == ResponseCode.SUCCESS

        try:
            yield say
        finally:
            said = self._said.get(key)
            if said is not None and said.answer.ext is answer.ext:  # not a newer one
                said.replaced = replaced


def _key(fields: Mapping[str, str], connection: ConnectionInfo) -> _Key:
    # A list is half as dear as a generator, and each pull needs two of these.
    return connection.number, tuple([field for field in fields.items() if field[0] not in _VARY])


def _is_short(fields: Mapping[str, str]) -> bool:
    return sum(map(len, fields)) + sum(map(len, fields.values())) <= MAX_CHARACTERS
