"""Read nodes as verbs see them: one look at what gateways look at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiered.clock import SystemClock
from tiered.errors import Invalid
from tiered.membership.base import Member, Members, MemberState, gone_after
from tiered.membership.open import open_membership
from tiered.placement.readloads import read_loads
from tiered.settings import Settings


def look(settings: Settings) -> Members:
    """Who is there now. ``Unavailable``: nobody knows."""
    membership = open_membership(settings, SystemClock(), look_seconds=1.0)
    try:
        return membership.members()
    finally:
        membership.close()


def is_silent(member: Member) -> bool:
    """Whether it has not renewed its lease for longer than that holds, by the registry's clock."""
    return member.age_seconds is not None and member.age_seconds >= gone_after(member.card)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Nodes to place queues on. ``reads``: bytes an hour that they gave of late, by digest of the queue; ``left_out``: nodes
    that do not count, and why."""

    capacity: Mapping[str, int]
    reads: Mapping[int, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)


def fleet_of(nodes: str | None, settings: Settings) -> Fleet:
    """Nodes by the list, by ``gateway.read_nodes``, or by what has announced itself. ``Invalid`` without any."""
    if nodes is not None:
        return Fleet(dict(_named(one.strip(), nodes) for one in nodes.split(",")))
    if settings.gateway.read_nodes and not settings.gateway.membership:
        return Fleet(dict.fromkeys(settings.gateway.read_nodes, 1))
    found = look(settings)
    left_out = dict.fromkeys(found.troubles, "its lease is damaged")
    left_out |= dict.fromkeys(found.silent, "it is silent")
    cards = []
    for member in found.there:
        card = member.card
        if is_silent(member):
            left_out[card.name] = "it is silent"
        elif card.state is MemberState.DRAINING:
            left_out[card.name] = "it drains"
        else:
            cards.append(card)
    if not cards:
        raise Invalid(
            "no read nodes to place queues on: nobody that stays has announced itself",
            found=", ".join(f"{name}: {why}" for name, why in left_out.items())[:300] or None,
            hint="start read nodes with serve.membership=bucket, or name them: --nodes a,b=2",
        )
    return Fleet(
        {card.name: card.capacity for card in cards}, read_loads(card.reads for card in cards), left_out
    )


def _named(text: str, nodes: str) -> tuple[str, int]:
    """Name and capacity of one of a list."""
    name, _, capacity = text.rpartition("=") if "=" in text else (text, "", "1")
    if not name or not (capacity.isascii() and capacity.isdigit()) or not 1 <= int(capacity[:8]) <= 1_000_000:
        raise Invalid(
            "--nodes names read nodes, and perhaps their capacities",
            found=nodes[:200], expected="a,b=2,c: names as tiered nodes or gateway.read_nodes has them",
        )  # fmt: skip
    return name, int(capacity)
