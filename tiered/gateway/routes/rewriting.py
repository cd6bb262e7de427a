"""Broker addresses in route answers, and which port of the gateway stands for each.

Answers are patched in place. RocketMQ's route JSON is invalid (bare numbers as keys), and its clients read them in
ways that no rewriting would survive: only the text of an address between its quotes is exchanged.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tiered import durable
from tiered.clock import Clock
from tiered.codec.remoting.lenientjson import decode_json
from tiered.errors import Corrupt, Invalid, Unavailable

log = logging.getLogger("tiered.gateway")

SEEN_MS = 3_600_000  # how often "seen" is written down
_FORGET_MS = 7 * 86_400_000  # a broker not seen this long loses its port

# A quote inside a JSON text is escaped, so the closing quote of these keys cannot occur in one.
_ADDRESSES = re.compile(rb'"brokerAddrs"\s*:\s*\{[^{}]*\}')
_FILTER_SERVERS = re.compile(rb'"filterServerTable"\s*:\s*\{[^{}]*\}')
_ADDRESS = re.compile(rb'("?-?\d+"?\s*:\s*")([^"\\]+)(?=")')
_FILTER_KEY = re.compile(rb'([{,]\s*")([^"\\]+)(?="\s*:)')


def addresses_in(body: bytes | memoryview) -> dict[str, str | None]:
    """Every broker address of a route (105) or cluster (106) answer, with its broker's name where it can be read."""
    data = bytes(body)
    found: dict[str, str | None] = {
        match[2].decode("utf-8", "replace"): None
        for table in _ADDRESSES.finditer(data)
        for match in _ADDRESS.finditer(table[0])
    }
    for name, addresses in _named(data):
        for address in addresses:
            if address in found:
                found[address] = name
    return found


def rewrite(body: bytes | memoryview, addresses: Mapping[str, str]) -> bytes:
    """``body`` with every address exchanged for its value in ``addresses``; not a byte more. Addresses not named stay."""
    ours = {theirs.encode(): mine.encode() for theirs, mine in addresses.items()}

    def exchange(match: re.Match[bytes]) -> bytes:
        return match[1] + ours.get(match[2], match[2])

    patched = _ADDRESSES.sub(lambda table: _ADDRESS.sub(exchange, table[0]), bytes(body))
    return _FILTER_SERVERS.sub(lambda table: _FILTER_KEY.sub(exchange, table[0]), patched)


def _named(data: bytes) -> Iterator[tuple[str, list[str]]]:
    """Broker name and addresses of every broker of an answer; nothing if it cannot be read."""
    try:
        left = [decode_json(data)]
    except Corrupt:
        return
    while left:
        value = left.pop()
        if isinstance(value, list):
            left += value
        elif isinstance(value, dict):
            name, addresses = value.get("brokerName"), value.get("brokerAddrs")
            if isinstance(name, str) and isinstance(addresses, dict):
                yield name, [address for address in addresses.values() if isinstance(address, str)]
            left += value.values()


@dataclass(slots=True)
class BrokerPort:
    """The gateway's port for one broker address, and what is known of the broker."""

    port: int
    name: str | None = None
    seen_ms: int = 0


class PortBook:
    """Broker address → port, remembered in a file so that a restarted gateway listens where its clients look for it."""

    FILE = "gateway-ports.json"

    def __init__(self, ports: range | None, directory: Path | None, clock: Clock) -> None:
        """``ports``: those that may be given out, ``None`` for any free one; ``directory``: ``None`` to remember nothing."""
        self._ports = ports
        self._file = directory / self.FILE if directory is not None else None
        self._clock = clock
        self.places: dict[str, BrokerPort] = {}

    def load(self) -> None:
        """Read the file, if there is one. One that cannot be read is left out with a warning: the ports are chosen anew."""
        if self._file is None:
            return
        try:
            known = json.loads(self._file.read_text())["brokers"]
            self.places = {
                str(address): BrokerPort(int(entry["port"]), entry.get("name"), int(entry.get("seen_ms", 0)))
                for address, entry in known.items()
            }
            before = self._clock.now_ms() - _FORGET_MS
            self.places = {name: place for name, place in self.places.items() if place.seen_ms > before}
        except FileNotFoundError:
            return
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.warning(
                "the file of the gateway's ports cannot be read; ports are given anew",
                extra={"file": str(self._file), "error": repr(error)},
            )

    def candidates(self, address: str, taken: Callable[[int], bool]) -> Iterator[int]:
        """Ports to try for ``address``, the remembered one first; then those nobody has; then the one unused longest."""
        place = self.places.get(address)
        if place is not None and (self._ports is None or place.port in self._ports):
            yield place.port
        if self._ports is None:
            yield 0
            return
        given = {other.port: name for name, other in self.places.items()}
        yield from (port for port in self._ports if port not in given and not taken(port))
        idle = [(self.places[name].seen_ms, port) for port, name in given.items() if not taken(port)]
        yield from (port for _, port in sorted(idle) if port in self._ports)

    def note(self, address: str, port: int, name: str | None) -> None:
        """``address`` is served at ``port`` from now on, and no other is. Written down if that is new."""
        old = self.places.get(address)
        place = BrokerPort(port, name or (old.name if old else None), self._clock.now_ms())
        for other in [key for key, value in self.places.items() if value.port == port and key != address]:
            del self.places[other]
        self.places[address] = place
        if old is None or (old.port, old.name) != (place.port, place.name):
            self._save()
        elif place.seen_ms - old.seen_ms < SEEN_MS:
            place.seen_ms = old.seen_ms
        else:
            self._save()

    def _save(self) -> None:
        if self._file is None:
            return
        brokers = {
            address: {"port": place.port, "name": place.name, "seen_ms": place.seen_ms}
            for address, place in sorted(self.places.items())
        }
        try:
            durable.make_directory(self._file.parent)
            durable.replace(self._file, json.dumps({"version": 1, "brokers": brokers}, indent=1).encode())
        except OSError as error:
            log.warning(
                "the gateway's ports cannot be remembered",
                extra={"file": str(self._file), "error": error.strerror},
            )


def port_range(text: str) -> range | None:
    """``first-last`` or one port; ``None`` for ``0``, any free port. ``Invalid`` names the setting."""
    first, dash, last = text.partition("-")
    if not all(part.strip().isdigit() for part in ((first, last) if dash else (first,))):
        raise Invalid("gateway.broker_listen_ports must be first-last", found=text, hint="12911-12999, or 0")
    low, high = int(first), int(last if dash else first)
    if low == high == 0:
        return None
    if not 0 < low <= high <= 65_535:
        raise Invalid("gateway.broker_listen_ports is not a range of ports", found=text, hint="12911-12999")
    return range(low, high + 1)


def exhausted(address: str, ports: range | None) -> Unavailable:
    """No port is left for ``address``."""
    return Unavailable(
        "no port is left for a broker",
        broker=address,
        ports=f"{ports.start}-{ports.stop - 1}" if ports else "any",
        hint="widen gateway.broker_listen_ports, or stop what listens there",
    )
