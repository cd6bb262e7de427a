"""What a message carries along in properties of its own: where it was first, and which brokers had it on the way."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

MESSAGE_ID, QUEUE, OFFSET, ORIGINS, SINK = (
    f"TIERED_{name}" for name in ("MSG_ID", "QUEUE", "OFFSET", "ORIGINS", "SINK")
)
"""The offset message id, the queue as ``topic/queue id`` and the offset in it that a message had where it was first: by them a
reader knows one that comes again. ``ORIGINS``: every broker that had it, oldest first, joined with commas. ``SINK``: the sink
that gave it last (``SinkPlace.short_id``)."""


class BrokerOrigin(NamedTuple):
    """A broker: names alone may be those of many."""

    cluster: str
    broker: str
    address: str

    def __str__(self) -> str:
        return "/".join(part.replace(",", "_").replace("/", "_") for part in self)


def came_from(properties: Mapping[str, str], destination: Collection[str]) -> bool:
    """Whether one of the destination's brokers (``str`` of its origin) had this message already."""
    return any(origin in destination for origin in properties.get(ORIGINS, "").split(","))


def carrying(
    properties: Mapping[str, str], origin: BrokerOrigin, message_id: str, queue: str, offset: int, sink: str
) -> dict[str, str]:
    """Properties with what is carried along: ``origin`` is the broker that this message is taken from."""
    first = {MESSAGE_ID: message_id, QUEUE: queue, OFFSET: str(offset)}
    carried = {name: properties.get(name, value) for name, value in first.items()}
    before = properties.get(ORIGINS, "")
    origins = f"{before},{origin}" if before else str(origin)
    return {**properties, **carried, ORIGINS: origins, SINK: sink}
