"""One of the two sockets of a session: what it sends is walked over and goes on to the other one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from tiered.clock import Clock
from tiered.codec.remoting.frame import Bytes
from tiered.errors import TieredError
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.transport.frames import FrameWalk
from tiered.gateway.transport.limits import ByteBudget, Sparse, Traffic
from tiered.metrics import Metrics
from tiered.settings import Gateway

log = logging.getLogger("tiered.gateway")

HIGH_WATER_BYTES = 256 * 1024
"""Bytes waiting for one side at which the other side is no longer read."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What all sessions of the process share."""

    settings: Gateway
    clock: Clock
    metrics: Metrics
    traffic: Traffic
    budget: ByteBudget
    sparse: Sparse


class Sides(Protocol):
    """What a side knows of its session."""

    shared: Shared
    info: ConnectionInfo
    closed: bool
    client: Side

    @property
    def ready(self) -> bool: ...

    def cut(self, reason: str, why: str) -> None: ...

    def unsaid(self, kind: str) -> int | None: ...

    def settle(self) -> None: ...

    def drained(self, side: Side) -> None: ...

    def lost(self, side: Side, error: Exception | None) -> None: ...


class Side(asyncio.Protocol):
    """One of the two sockets of a session."""

    def __init__(self, session: Sides, name: str) -> None:
        self.name = name
        self.walk: FrameWalk  # over what this side sends
        self.other: Side
        self.transport: asyncio.Transport | None = None
        self.paused = False
        self._stopped_by: set[str] = set()
        self.open = False
        self.received = 0
        self.written = 0
        self._session = session

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is there; its other side may have been closed, or stopped reading, meanwhile."""
        self.transport = cast(asyncio.Transport, transport)
        self.open = True
        self.transport.set_write_buffer_limits(HIGH_WATER_BYTES)
        if self._session.closed:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Walk over the bytes and send on what may go on."""
        size = len(data)
        self.received += size
        session = self._session
        if self is session.client:
            session.shared.traffic.from_clients += size
        else:
            session.shared.traffic.from_upstream += size
        if session.closed:
            return
        try:
            pieces = self.walk.feed(data)
        except TieredError as error:
            session.cut("bad_frame", f"the {self.name} sent bytes that are not a frame: {error}")
            return
        except Exception as error:  # what answers raise must not reach the event loop
            if (unsaid := session.unsaid("judging")) is not None:
                log.exception(
                    "a frame could not be judged", extra={"client": session.info.client, "unsaid": unsaid}
                )
            session.cut("failure", f"a frame of the {self.name} could not be judged: {error!r}")
            return
        if pieces:
            self.other.send(pieces)
        if self.walk.inserts or not session.ready:
            session.settle()

    def send(self, pieces: Sequence[Bytes]) -> None:
        """Write to this side's socket; cuts the session when too much waits for it."""
        transport = self.transport
        if transport is None:
            self._session.cut("failure", f"the {self.name} is not connected yet")
            return
        if len(pieces) == 1:  # nearly always: a chunk goes on as it came
            self.written += len(pieces[0])
            transport.write(pieces[0])
        else:
            self.written += sum(map(len, pieces))
            transport.writelines(pieces)
        waiting = transport.get_write_buffer_size()
        if waiting > self._session.shared.settings.max_pending_bytes:
            self._session.cut("slow_reader", f"{waiting} bytes wait for the {self.name}")

    @property
    def waiting(self) -> int:
        """Bytes that the socket has not taken yet."""
        return self.transport.get_write_buffer_size() if self.transport is not None else 0

    @property
    def delivered(self) -> int:
        """Bytes that the socket has taken since the beginning."""
        return self.written - self.waiting

    def pause_writing(self) -> None:
        """Too much waits here: the other side is not read."""
        self.paused = True
        self.other.stop_reading(self.name)

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self.paused = False
        self.other.read_on(self.name)
        self._session.drained(self)

    def stop_reading(self, reason: str) -> None:
        """Read nothing more from this side's socket, until no reason is left."""
        if not self._stopped_by and self.transport is not None:
            self.transport.pause_reading()
        self._stopped_by.add(reason)

    def read_on(self, reason: str) -> None:
        """A reason is gone, if it was one."""
        if reason not in self._stopped_by:
            return
        self._stopped_by.discard(reason)
        if not self._stopped_by and self.transport is not None:
            self.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """The socket is gone, and with it the session."""
        self.open = False
        self._session.lost(self, error)
