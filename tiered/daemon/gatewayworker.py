"""A worker's side of the channel to the process that looks after all of them; see ``tiered.daemon.gatewayworkers``."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiered.daemon.workerwire import Message, Wire
from tiered.errors import Invalid, Unavailable
from tiered.gateway.knowledge.peers import Note
from tiered.gateway.routes.rewriting import BrokerPort

TELL_SECONDS = 0.02
"""Notes are sent together, at most so late."""
MAX_NOTES = 4096
SPREAD_SECONDS = 2.0
"""Below the time for which an operator's tool waits for its answer (3 s)."""
GRANT_SECONDS = 2.0
BEGIN_SECONDS = 30.0
BEAT_SECONDS = 1.0

Hear = Callable[[str, tuple[Any, ...], Any], None]


@dataclass(frozen=True, slots=True)
class WorkerSeat:
    """Which worker this is, and the descriptor of its channel."""

    index: int
    descriptor: int

    @classmethod
    def parse(cls, text: str) -> WorkerSeat:
        """``INDEX:DESCRIPTOR``, as the process that starts workers says it. ``Invalid`` for anything else."""
        index, _, descriptor = text.partition(":")
        if not (index.isdigit() and descriptor.isdigit()):
            raise Invalid(
                "workers are started by tiered gateway itself", found=text, hint="set gateway.workers"
            )
        return cls(int(index), int(descriptor))


class Colleagues:
    """The other workers, by way of the process that looks after all. On the event loop only; ``begin`` first."""

    def __init__(self, seat: WorkerSeat) -> None:
        self.index = seat.index
        self._socket = socket.socket(fileno=seat.descriptor)
        self._wire: Wire | None = None
        self._hear: Hear = lambda kind, key, value: None
        self._report: Callable[[], Message] = dict
        self._waiting: dict[tuple[str, tuple[str | int, ...]], Any] = {}
        self._rounds = asyncio.Lock()
        self._round: asyncio.Task[None] | None = None
        self._begun: asyncio.Future[Message]

    async def begin(self, hear: Hear, report: Callable[[], Message], gone: Callable[[], None]) -> Message:
        """Hear all that is known by now, and what comes; the port of the name-server front, and the brokers' places.

        ``report`` is asked for health and metrics, on a thread; ``gone`` is called when nobody looks after this worker.
        ``Unavailable`` if that is so before anything was heard.
        """
        self._hear, self._report = hear, report
        self._begun = asyncio.get_running_loop().create_future()
        reader, writer = await asyncio.open_unix_connection(sock=self._socket)
        self._wire = Wire(reader, writer, self._take, "supervisor")
        running = asyncio.create_task(self._wire.run())
        running.add_done_callback(lambda _: self._ended(gone))
        self._running = running
        try:
            async with asyncio.timeout(BEGIN_SECONDS):
                return await self._begun
        except TimeoutError:
            raise Unavailable("who looks after the workers says nothing", seconds=BEGIN_SECONDS) from None

    def serving(self) -> None:
        """Connections are accepted from now on."""
        self._send({"op": "serving"})

    async def beat(self) -> None:
        """Say for ever that the event loop turns."""
        while True:
            self._send({"op": "beat"})
            await asyncio.sleep(BEAT_SECONDS)

    def tell(self, kind: str, key: tuple[str | int, ...], value: Any) -> None:
        """See ``Peers``."""
        if not self._waiting:
            asyncio.get_running_loop().call_later(TELL_SECONDS, self._flush)
        self._waiting.pop((kind, key), None)  # what is told last goes last
        self._waiting[kind, key] = value
        if len(self._waiting) >= MAX_NOTES:
            self._flush()

    async def spread(self, notes: Sequence[Note]) -> None:
        """See ``Peers``."""
        self._flush()
        if self._wire is None:
            raise Unavailable("the other workers cannot be told yet")
        answer = await self._wire.ask({"op": "notes", "notes": list(notes)}, SPREAD_SECONDS)
        if not answer["all"]:
            raise Unavailable("not every worker of the gateway has heard it", hint="ask again")

    async def caught_up(self) -> None:
        """See ``Peers``. All who ask while one round of questions is under way share the next one."""
        if self._round is None:
            self._round = asyncio.create_task(self._ask_round())
            self._round.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen
        await asyncio.shield(self._round)

    async def _ask_round(self) -> None:
        async with self._rounds:
            self._round = None
            if self._wire is None:
                raise Unavailable("the other workers cannot be asked yet")
            answer = await self._wire.ask({"op": "settle"}, SPREAD_SECONDS)
            if not answer["all"]:
                raise Unavailable("not every worker of the gateway has said what it knows", hint="ask again")

    async def grant(self, found: Mapping[str, str | None]) -> Mapping[str, BrokerPort]:
        """See ``Granting``."""
        if self._wire is None:
            raise Unavailable("no port can be asked for yet")
        answer = await self._wire.ask({"op": "ports", "found": dict(found)}, GRANT_SECONDS)
        return places_of(answer)

    def close(self) -> None:
        """Let go of the channel."""
        self._flush()
        if self._wire is not None:
            self._wire.close()

    def _ended(self, gone: Callable[[], None]) -> None:
        if not self._begun.done():
            self._begun.set_exception(
                Unavailable("who looks after the workers is gone before it said anything")
            )
        gone()

    def _flush(self) -> None:
        if self._waiting:
            notes = [(kind, key, value) for (kind, key), value in self._waiting.items()]
            self._waiting.clear()
            self._send({"op": "notes", "notes": notes})

    def _send(self, message: Message) -> None:
        if self._wire is not None:
            self._wire.send(message)

    def _take(self, message: Message) -> Any:
        match message["op"]:
            case "notes":
                for kind, key, value in message["notes"]:
                    self._hear(kind, tuple(key), value)
            case "begin":
                if not self._begun.done():
                    self._begun.set_result(message)
            case "settle":
                self._flush()
                return {}  # behind the notes
            case "report":
                return asyncio.to_thread(self._report)
        return None


def places_of(message: Message) -> dict[str, BrokerPort]:
    """The brokers' places in a message."""
    return {address: BrokerPort(*place) for address, place in message["places"].items()}
