"""The port: a node announces itself, renews, leaves; whoever looks gets the members, each with its state.

Errors: ``Unavailable`` (wait and retry; whether it was written is unknown), ``Conflict`` (the name is another process's) and,
for settings, ``Invalid``. Foreign exceptions never leave a driver.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol

from tiered.errors import Corrupt, Invalid
from tiered.text.addresses import split_address

LEASE_MS = (1_000, 600_000)
"""Bounds of how long a lease holds unrenewed, whatever it says itself."""
MOST_CARD_BYTES = 4096
MOST_MEMBERS = 4096
"""Members that one look gives; more are said, and left out."""
RENEWALS = 3
"""A lease is renewed so many times in the time that it holds."""
MOST_READS = 48
"""Queues of which a card tells how they are read: with them the longest card is within ``MOST_CARD_BYTES``."""


class MemberState(Enum):
    """Where a node is in its life. Only ``LIVE`` ones are asked for reads."""

    JOINING = "joining"  # its archive is not open
    LIVE = "live"
    DRAINING = "draining"  # it answers what it was asked, and leaves


@dataclass(frozen=True, slots=True)
class Card:
    """What a node says of itself. ``address``: where gateways ask it; ``version``: the program's; ``wire_from`` to ``wire_to``:
    versions of questions that it understands; ``capacity``: its share, beside others'; ``process``: 32 hex digits, another one
    at each start; ``lease_ms``: how long it counts as there without renewal; ``reads``: its busiest queues of late, each by a
    digest and the bytes an hour that it gave of it."""

    name: str
    address: str
    process: str
    version: str
    wire_from: int = 1
    wire_to: int = 1
    capacity: int = 1
    state: MemberState = MemberState.JOINING
    lease_ms: int = 30_000
    reads: tuple[tuple[int, int], ...] = ()

    def said(self, state: MemberState, reads: tuple[tuple[int, int], ...] = ()) -> Card:
        """The same node in another state, and as it is read now."""
        return replace(self, state=state, reads=reads)

    def fields(self) -> dict[str, Any]:
        """As JSON has it."""
        reads = [[f"{digest:016x}", load] for digest, load in self.reads]
        return {
            "name": self.name,
            "address": self.address,
            "process": self.process,
            "version": self.version,
            "wire": [self.wire_from, self.wire_to],
            "capacity": self.capacity,
            "state": self.state.value,
            "lease_ms": self.lease_ms,
            **({"reads": reads} if reads else {}),
        }

    @classmethod
    def parse(cls, fields: Mapping[str, Any], *, name: str, where: str) -> Card:
        """``Corrupt`` unless it is the card of node ``name``; ``where`` it lies. Fields that are not known are left alone; a
        card without a capacity is that of a node of 1, and one without reads says nothing of them."""
        try:
            low, high = fields["wire"]
            made = cls(
                _text(fields["name"]),
                _text(fields["address"]),
                _process(fields["process"]),
                _text(fields["version"]),
                _number(low, 1),
                _number(high, 1),
                _number(fields.get("capacity", 1), 1, 1_000_000),
                MemberState(fields["state"]),
                min(max(_number(fields["lease_ms"], 1), LEASE_MS[0]), LEASE_MS[1]),
                tuple(_read(row) for row in fields.get("reads", ())[:MOST_READS]),
            )
            split_address(made.address, key="address")
        except (KeyError, TypeError, ValueError, Invalid) as error:
            raise damaged(where, repr(error)[:200]) from None
        if made.name != name:
            raise damaged(where, f"the card of {made.name[:100]}")
        return made


@dataclass(frozen=True, slots=True)
class Member:
    """A node that is there. ``number``: of its newest renewal, as the driver counts; ``unrenewed_seconds``: for how long who
    looks has seen no newer one; ``age_seconds``: since that renewal by the registry's clock, for people."""

    card: Card
    number: int
    unrenewed_seconds: float
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Members:
    """What one look found. ``troubles``: nodes that do not count because what they left cannot be read, and why; ``silent``:
    those that have not renewed their leases, with the seconds."""

    there: tuple[Member, ...] = ()
    troubles: Mapping[str, str] = ()  # type: ignore[assignment]
    silent: Mapping[str, float] = ()  # type: ignore[assignment]

    def __post_init__(self) -> None:
        object.__setattr__(self, "troubles", dict(self.troubles))
        object.__setattr__(self, "silent", dict(self.silent))


class Lease(Protocol):
    """What a node holds while it is a member. For the thread that renews it."""

    def renew(self, card: Card) -> None:
        """Say that it is still there, and what it is now. ``Conflict``: the name went to another process, which has been told
        so or will be; the lease is over."""
        ...

    def leave(self) -> None:
        """It is gone from the next look on. A lease that is lost is left alone."""
        ...


class Membership(Protocol):
    """A registry of read nodes of one archive."""

    def announce(self, card: Card, *, anew: bool = True) -> Lease:
        """Take the card's name. ``Conflict`` while another process has it: asked again and again, it is given as soon as the
        other one has not renewed it for as long as its lease holds. At once goes a name whose card has the same address, which
        only one process can listen at; not with ``anew`` false: after a name was lost."""
        ...

    def members(self) -> Members:
        """Who is there now. ``Unavailable``: nobody knows, which is no reason to count anybody as gone."""
        ...

    def wait(self, seconds: float, stop: threading.Event) -> None:
        """Until something may have changed since ``members``, at most ``seconds``, or ``stop``."""
        ...

    def close(self) -> None:
        """Release connections; from any thread, whoever waits comes back."""
        ...


def gone_after(card: Card) -> float:
    """Seconds without renewal after which a node counts as gone."""
    return card.lease_ms / 1000


def damaged(where: str, found: str) -> Corrupt:
    """The error for what a node left and nobody can read."""
    return Corrupt(
        "what a read node says of itself cannot be read: this node does not count",
        hint="restart that node, or remove this key if there is no such node any more",
        key=where,
        found=found,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= 255:
        raise ValueError(f"not a short text: {value!r}"[:100])
    return value


def _process(value: Any) -> str:
    if len(bytes.fromhex(_text(value))) != 16:
        raise ValueError(f"not 32 hexadecimal digits: {value!r}"[:100])
    return str(value)


def _read(row: Any) -> tuple[int, int]:
    digest, load = row
    return int(_text(digest), 16) & ((1 << 64) - 1), _number(load, 0, 1 << 62)


def _number(value: Any, low: int, high: int = (1 << 31) - 1) -> int:
    if type(value) is not int or not low <= value <= high:
        raise ValueError(f"not a number from {low} to {high}: {value!r}"[:100])
    return value
