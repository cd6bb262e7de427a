"""Is this the broker that was archived? Asked over the wire, before anything from the archive goes to its clients.

A broker that was installed anew begins its offsets anew: what the archive has under the same offsets is of its former life. The
archiver refuses such a broker by comparing bytes; so does the gateway, with single records, each of which a broker gives away
by its place in the log (``VIEW_MESSAGE_BY_ID``):

* it has the archive's newest record, byte for byte, so all before it is its own: the log only grows at its end;
* it has deleted that one, and its first record was stored later: nothing can be compared, and the archiver goes on there, too;
* its log ends before it (a replica that is behind), and its first record is archived, byte for byte: each queue is then served
  up to the broker's own end only.

A broker that checks rights may refuse the gateway's own questions. Then a record that it gives to a client, whom it has judged,
is compared by its first bytes, for the connections that were there.

Anything else is another broker, or one that has lost its tail until the archiver has closed that lineage. A broker that is
started again ends its connections, so a comparison counts for the connections that were there when it began, and the next one
asks for another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from tiered.archive.read.lookup import Located
from tiered.clock import Clock
from tiered.codec.record.layout import physical_offset_of
from tiered.codec.record.message import decode_message
from tiered.codec.remoting.frame import Bytes
from tiered.errors import TieredError, Unavailable
from tiered.gateway.knowledge.archive import ComparedArchive
from tiered.gateway.knowledge.questions import BrokerRefuses
from tiered.gateway.knowledge.stored import is_record_at
from tiered.gateway.ports import KEYS_HINT, PEEK_BYTES, ConnectionInfo
from tiered.metrics import Metrics

log = logging.getLogger("tiered.gateway")

AGAIN_SECONDS = 1.0
"""Between two comparisons when the last one did not agree."""

WATCH_SECONDS = 5.0
UNKNOWN_SECONDS = 60.0
"""Between two lines in the log about a broker that cannot be compared."""
HINT = "the archiver's log says what it found; source.broker and archive.url say which archive is meant"
OTHER_TAIL = (
    "the broker does not have the archive's newest message at its place: it was installed anew, or has lost its tail and the"
    " archiver has not rewound yet"
)

T = TypeVar("T")


class AsksRecord(Protocol):
    """Records of a connection's broker, and where its log ends; see ``Floors``."""

    async def record_at(self, connection: ConnectionInfo, physical_offset: int) -> bytes | None: ...

    async def log_end(self, connection: ConnectionInfo) -> int | None: ...


class Differs(Unavailable):
    """The broker's log and the archive share nothing, as far as was seen."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """The first bytes of a record that the broker gave to a client, and the connections that were there when it did."""

    place: int
    head: bytes
    waiting: frozenset[int]


@dataclass(slots=True)
class _Broker:
    """What is known of the broker at one address."""

    lineage: int = -1
    agreed: set[int] = field(default_factory=set)  # connections, by number
    waiting: set[int] = field(default_factory=set)
    task: asyncio.Task[None] | None = None
    refuses: bool = False  # it does not let the gateway ask
    heard: _Heard | None = None
    error: TieredError | None = None  # of the last comparison, if it did not agree
    again: float = 0.0


class SameBroker:
    """Compares each broker with the archive. On the event loop; ``problem`` and ``unknown`` may be read from any thread.

    ``pool`` runs what blocks.
    """

    def __init__(
        self, archive: ComparedArchive, floor: AsksRecord, pool: Executor, metrics: Metrics, clock: Clock
    ) -> None:
        self._archive = archive
        self._floor = floor
        self._pool = pool
        self._metrics = metrics
        self._clock = clock
        self._brokers: dict[str, _Broker] = {}
        self._listens = False
        self._told = False
        self._unknown_again = clock.monotonic()
        self.problem: str | None = None
        """Why nothing cold is served to the clients of a broker: it is another one."""
        self.unknown: str | None = None
        """Why that cannot be seen at all now."""

    def agrees(self, connection: ConnectionInfo) -> bool:
        """Whether the connection is known to lead to the archived broker."""
        broker = self._brokers.get(connection.broker_address)
        return broker is not None and connection.number in broker.agreed and broker.lineage == self._lineage()

    async def require(self, connection: ConnectionInfo) -> None:
        """Return when the connection is known to lead there. ``Unavailable`` if it does not, or that cannot be seen."""
        broker = self._brokers.setdefault(connection.broker_address, _Broker())
        broker.waiting.add(connection.number)
        while not self.agrees(connection):
            await self._checked(broker, connection)
            if broker.error is not None:
                raise _again(broker.error)

    @property
    def listens(self) -> bool:
        """Whether ``heard`` is of use: a broker does not let the gateway ask, and somebody waits."""
        return self._listens

    def heard(self, connection: ConnectionInfo, head: Bytes) -> None:
        """The broker has answered a client's pull with a record that begins with ``head``, its first ``PEEK_BYTES``."""
        broker = self._brokers.get(connection.broker_address)
        if broker is None or len(head) < PEEK_BYTES:
            return
        place = physical_offset_of(head)
        if broker.refuses and broker.heard is None and broker.waiting and place is not None:
            broker.heard = _Heard(place, bytes(head[:PEEK_BYTES]), frozenset(broker.waiting))

    def closed(self, connection: ConnectionInfo) -> None:
        """The connection is gone; the next one may lead to another process at the same address."""
        broker = self._brokers.get(connection.broker_address)
        if broker is not None:
            broker.agreed.discard(connection.number)
            broker.waiting.discard(connection.number)

    async def watch(self, brokers: Callable[[], Iterable[ConnectionInfo]]) -> None:
        """Compare brokers that nobody has asked for yet, or that did not agree, until they do. Never ends by itself.

        ``brokers``: one connection, real or not, to each that is to be looked at; the others are forgotten.
        """
        while True:
            looked = {connection.broker_address: connection for connection in brokers()}
            for address in [
                at for at, known in self._brokers.items() if at not in looked and not known.waiting
            ]:
                del self._brokers[address]
            for address, connection in looked.items():
                known = self._brokers.setdefault(address, _Broker())
                if known.lineage < 0 or known.error is not None:
                    with suppress(TieredError):  # without an archive there is nothing to compare
                        self._lineage()
                        await self._checked(known, connection)
            self._say()
            await asyncio.sleep(WATCH_SECONDS)

    async def _checked(self, broker: _Broker, connection: ConnectionInfo) -> None:
        """Wait for the comparison under way, or for one that begins now; none if the last one has just failed."""
        if broker.task is None or broker.task.done():
            if broker.error is not None and self._clock.monotonic() < broker.again:
                return
            broker.task = asyncio.get_running_loop().create_task(self._check(broker, connection))
        await asyncio.shield(broker.task)

    async def _check(self, broker: _Broker, connection: ConnectionInfo) -> None:
        """One comparison for all who wait now."""
        for_whom = set(broker.waiting)
        outcome: str = "same"
        broker.error, lineage = None, -1
        try:
            lineage = self._lineage()
            try:
                await self._compare(connection)
                broker.refuses = False
            except BrokerRefuses as refusal:
                broker.refuses = True
                for_whom = set(await self._by_what_was_heard(broker, refusal))
        except Differs as error:
            outcome, broker.error = "differs", error
        except TieredError as error:
            outcome, broker.error = "unknown", error
        self._metrics.gateway_broker_checks.labels(outcome).inc()
        self._listens = any(known.refuses and known.waiting for known in self._brokers.values())
        if broker.error is None:
            if broker.lineage != lineage:
                broker.agreed.clear()
            broker.lineage = lineage
            broker.agreed |= for_whom & broker.waiting
            broker.waiting -= for_whom
        else:
            if outcome == "differs":
                broker.agreed.clear()
            broker.again = self._clock.monotonic() + AGAIN_SECONDS
        self._say()

    def _say(self) -> None:
        """Bring what is shown up to date; a line in the log when it changes."""
        errors = {at: broker.error for at, broker in self._brokers.items() if broker.error is not None}
        problem = next((f"{at}: {error}" for at, error in errors.items() if isinstance(error, Differs)), None)
        unknown = next(
            (f"{at}: {error}" for at, error in errors.items() if not isinstance(error, Differs)), None
        )
        if problem is not None and self.problem is None:
            log.error("nothing archived is served to clients of a broker: %s", problem)
        elif unknown is not None and self.unknown is None and self._clock.monotonic() >= self._unknown_again:
            self._unknown_again = (
                self._clock.monotonic() + UNKNOWN_SECONDS
            )  # each new connection may ask anew
            self._told = True
            log.warning("it cannot be seen whether a broker is the archived one: %s", unknown)
        elif not errors and (self.problem or self._told):
            self._told = False
            log.info("the broker is the archived one; what is archived is served")
        self.problem, self.unknown = problem, unknown
        self._metrics.gateway_broker_differs.set(0 if problem is None else 1)

    async def _compare(self, connection: ConnectionInfo) -> None:
        """``Differs`` unless broker and archive agree; other errors if that cannot be seen."""
        newest = await self._newest()
        if newest is None:
            return
        here = await self._floor.record_at(connection, newest.message.physical_offset)
        if here == newest.record:
            return
        # The archiver may have rewound meanwhile, and what is known of the archive be older.
        await self._aside(self._archive.follow)
        newer = await self._newest()
        if newer is not None and newer.record != newest.record:
            newest = newer
            here = await self._floor.record_at(connection, newest.message.physical_offset)
            if here == newest.record:
                return
        await self._by_first_record(connection, newest, here)

    async def _by_first_record(self, connection: ConnectionInfo, newest: Located, here: bytes | None) -> None:
        """The newest archived record is not the broker's: it may have deleted it, or not have it yet."""
        place = newest.message.physical_offset
        if here is not None and is_record_at(here, place):
            raise Differs(OTHER_TAIL, archived=place, hint=HINT)
        first = await self._floor.record_at(connection, 0)
        begin = None if first is None else physical_offset_of(first)
        if first is None or begin is None or not is_record_at(first, begin):
            empty = "the broker has no messages, the archive has: it was installed anew"
            raise Differs(empty, archived=place, hint=HINT)
        if begin > place:
            if decode_message(first).store_timestamp >= newest.message.store_timestamp:
                return
            older = "the broker's first message is older than the archive's last one"
            raise Differs(older, begin=begin, archived=place, hint=HINT)
        end = await self._floor.log_end(connection)
        if end is None:
            raise BrokerRefuses("the broker does not say where its log ends", archived=place, hint=KEYS_HINT)
        if end > place:
            raise Differs(OTHER_TAIL, archived=place, end=end, hint=HINT)
        archived = await self._aside(lambda: self._archive.locate(begin))
        if archived is None or archived.lineage != newest.lineage:
            nothing = "the broker has none of the archived messages yet: nothing can be compared"
            raise Unavailable(nothing, begin=begin, archived=place)
        if archived.record != first:
            other = "the broker's first message is not the archived one: it was installed anew"
            raise Differs(other, begin=begin, archived=place, hint=HINT)

    async def _by_what_was_heard(self, broker: _Broker, refusal: BrokerRefuses) -> frozenset[int]:
        """For which connections a client's record shows the same; the broker's refusal if there is none to compare."""
        heard = broker.heard
        if heard is None:
            raise refusal
        archived = await self._aside(lambda: self._archive.locate(heard.place))
        if archived is None or archived.lineage != self._lineage():
            progress = self._archive.progress()
            if progress is None or heard.place < progress.physical_offset:
                broker.heard = None  # it is not archived at all
            raise refusal
        broker.heard = None
        if archived.record[:PEEK_BYTES] != heard.head:
            raise Differs(OTHER_TAIL, archived=heard.place, hint=HINT)
        return heard.waiting

    async def _newest(self) -> Located | None:
        return await self._aside(self._archive.newest)

    async def _aside(self, function: Callable[[], T]) -> T:
        return await asyncio.wrap_future(self._pool.submit(function))

    def _lineage(self) -> int:
        progress = self._archive.progress()
        return 0 if progress is None else progress.lineage


def _again(error: TieredError) -> Unavailable:
    """The same for one more asker: an error raised twice would grow."""
    kind = Differs if isinstance(error, Differs) else Unavailable
    made = kind(error.message, hint=error.hint)
    made.fields = dict(error.fields)
    return made
