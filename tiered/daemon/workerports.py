"""The ports of a gateway with several workers: one process gives them out, and holds them while no worker listens."""

from __future__ import annotations

import errno
import logging
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tiered.clock import Clock
from tiered.errors import Invalid
from tiered.gateway.routes.rewriting import PortBook, port_range
from tiered.settings import Gateway
from tiered.text.addresses import split_address

log = logging.getLogger("tiered.gateway")

MAX_PLACES = 4096
FREE_SECONDS = 3.0


class WorkerPorts:
    """Of the name-server front and of each broker. ``open`` first."""

    def __init__(self, settings: Gateway, directory: Path | None, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._book = PortBook(port_range(settings.broker_listen_ports), directory, clock)
        self._held: dict[str, socket.socket] = {}  # by broker
        self._namesrv: socket.socket | None = None

    @property
    def namesrv_port(self) -> int:
        """The name-server front's."""
        assert self._namesrv is not None
        return int(self._namesrv.getsockname()[1])

    def open(self) -> None:
        """Take the name-server front's port, and those of the brokers known from before. ``Invalid`` without the first."""
        host, port = split_address(
            self._settings.namesrv_listen, key="gateway.namesrv_listen", listening=True
        )
        try:
            self._namesrv = self._soon(host, port)
        except OSError as error:
            raise Invalid(
                "the gateway's name-server address cannot be bound",
                key="gateway.namesrv_listen",
                address=self._settings.namesrv_listen,
                found=error.strerror,
                hint="choose another gateway.namesrv_listen, or stop what listens there",
            ) from None
        self._book.load()
        self.given({address: place.name for address, place in sorted(self._book.places.items())})

    def _soon(self, host: str, port: int) -> socket.socket:
        """The workers of a gateway that was killed let go of their ports within a moment. ``OSError`` beyond that."""
        end = self._clock.monotonic() + FREE_SECONDS
        while True:
            try:
                return hold_port(host, port)
            except OSError as error:
                if error.errno != errno.EADDRINUSE or self._clock.monotonic() >= end:
                    raise
            self._clock.wait(0.05, threading.Event())

    def given(self, found: Mapping[str, str | None]) -> dict[str, Any]:
        """Have a port for each of these brokers; the places of those that have one, as a message says it."""
        for address, name in found.items():
            port = self._port(address)
            if port is not None:
                self._book.note(address, port, name)
        return self.said(frozenset(found))

    def said(self, only: frozenset[str] | None = None) -> dict[str, Any]:
        """The places of brokers, all or some, as a message says them."""
        return {
            "places": {
                address: [place.port, place.name, place.seen_ms]
                for address, place in self._book.places.items()
                if address in self._held and (only is None or address in only)
            }
        }

    def close(self) -> None:
        """Give the ports up."""
        for held in (*self._held.values(), *([self._namesrv] if self._namesrv is not None else ())):
            held.close()

    def _port(self, address: str) -> int | None:
        held = self._held.get(address)
        if held is not None:
            return int(held.getsockname()[1])
        if len(self._held) >= MAX_PLACES:
            return None
        taken = {int(other.getsockname()[1]) for other in self._held.values()} | {self.namesrv_port}
        for port in self._book.candidates(address, taken.__contains__):
            if port in taken:
                continue
            try:
                self._held[address] = made = hold_port(self._settings.broker_listen_host, port)
            except OSError as error:
                said = {"broker": address, "port": port, "error": error.strerror}
                log.warning("a port for a broker cannot be used", extra=said)
                continue
            return int(made.getsockname()[1])
        return None


def hold_port(host: str, port: int) -> socket.socket:
    """A socket that is bound and never listens: a port that workers can listen at, and others cannot take. ``OSError``.

    First it is tried alone: another gateway of the same user, whose workers share their ports as well, would else listen at the
    same one, and half of each one's clients would end up with the other.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    if port:
        with socket.socket(family, socket.SOCK_STREAM) as alone:
            alone.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            alone.bind((host, port))
            alone.listen(1)
    held = socket.socket(family, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind((host, port))
    except BaseException:
        held.close()
        raise
    return held
