"""Standing orders: small create-only objects beside the log that stand until they are dropped (FORMAT.md, "Standing orders").

A setting would hold on one host only, and a commit would need the writer's claim. So what must hold for whoever works on an
archive is an object of its own, put by anybody who may write to the bucket; it is dropped by another object. Nothing deletes
either.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tiered.archive.keys import (
    BACKFILL_PREFIX,
    HOLD_PREFIX,
    SINK_PREFIX,
    TABLE_PREFIX,
    ArchiveKeys,
    BackfillKey,
    HoldKey,
    SinkKey,
    TableKey,
    build,
    parse,
)
from tiered.codec.summedline import decode_line, encode_line
from tiered.errors import Corrupt, NotFound, Refused
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own
from tiered.version import FORMAT_VERSION

_MAX_BYTES = 64 * 1024
_DROPPED = b"dropped\n"


@dataclass(frozen=True, slots=True)
class OrderKind:
    """A kind of order. ``what``: a noun; ``meanwhile``: what stands still while one cannot be read."""

    prefix: str
    key: type[HoldKey | TableKey | SinkKey | BackfillKey]
    id_field: str
    what: str
    meanwhile: str

    def order_path(self, order_id: bytes) -> str:
        """Where an order of this kind lies, below the broker's root."""
        return build(self.key(order_id))

    def unreadable(self, key: str, expected: str, found: str) -> Corrupt:
        """The error for one that cannot be read."""
        return Corrupt(
            f"a {self.what} cannot be read: {self.meanwhile}",
            hint=f"restore this key from the bucket's versions or a copy; if it is nobody's {self.what.split()[-1]}, remove it",
            key=key, expected=expected, found=found,
        )  # fmt: skip


HOLD = OrderKind(HOLD_PREFIX, HoldKey, "hold_id", "legal hold", "nothing is trimmed while that is so")
TABLE = OrderKind(
    TABLE_PREFIX, TableKey, "table_id", "kept table", "no table is kept up to date while that is so"
)
SINK = OrderKind(
    SINK_PREFIX,
    SinkKey,
    "order_id",
    "sink's order",
    "sinks go on as they were ordered before, and nothing is trimmed",
)
BACKFILL = OrderKind(
    BACKFILL_PREFIX,
    BackfillKey,
    "backfill_id",
    "part of a backfill",
    "its sink waits while that is so",
)
ORDER_KINDS = (HOLD, TABLE, SINK, BACKFILL)


def kind_of(key: HoldKey | TableKey | SinkKey | BackfillKey) -> OrderKind:
    """The kind of a key."""
    return next(kind for kind in ORDER_KINDS if isinstance(key, kind.key))


@dataclass(frozen=True, slots=True)
class Order:
    """An order of the bucket; ``fields`` as they were put."""

    order_id: bytes
    fields: Mapping[str, Any]
    dropped: bool


def read_orders(provider: Provider, keys: ArchiveKeys, archive_id: bytes, kind: OrderKind) -> list[Order]:
    """Every order of a kind, dropped ones too, by creation. ``Corrupt`` for one that cannot be read."""
    found = list_orders(provider, keys, kind)
    orders = [
        read_order(provider, keys, archive_id, kind, order_id, dropped=dropped)
        for order_id, dropped in found.items()
    ]
    return sorted(orders, key=lambda order: (order.fields["created_ms"], order.order_id))


def list_orders(provider: Provider, keys: ArchiveKeys, kind: OrderKind) -> dict[bytes, bool]:
    """The ids of all orders of a kind, and whether each was dropped. ``Corrupt`` for a key that is no order's."""
    found: dict[bytes, bool] = {}
    for stored in provider.list(keys.key(kind.prefix)):
        identity = parse(str(keys.path(stored.key)))
        if not isinstance(identity, kind.key):
            raise kind.unreadable(stored.key, f"a {kind.what.split()[-1]}'s key", "another")
        found[identity.order_id] = found.get(identity.order_id, False) or identity.dropped
    return found


def read_order(
    provider: Provider,
    keys: ArchiveKeys,
    archive_id: bytes,
    kind: OrderKind,
    order_id: bytes,
    *,
    dropped: bool = False,
) -> Order:
    """One order. ``Corrupt`` if it is not there, or cannot be read; ``Refused`` if a newer program put it."""
    key = keys.key(build(kind.key(order_id)))
    try:
        data = bytes(provider.get(key, 0, _MAX_BYTES).data)
    except NotFound:
        found = "nothing, although it was dropped" if dropped else "nothing"
        raise kind.unreadable(key, f"a {kind.what.split()[-1]}", found) from None
    return Order(order_id, _decode(data, key, order_id, archive_id, kind), dropped)


def check_order(
    provider: Provider, keys: ArchiveKeys, archive_id: bytes, kind: OrderKind, order_id: bytes
) -> None:
    """``Corrupt`` unless the order of this id can be read; ``NotFound``."""
    key = keys.key(build(kind.key(order_id)))
    _decode(bytes(provider.get(key, 0, _MAX_BYTES).data), key, order_id, archive_id, kind)


def put_order(
    provider: Provider,
    keys: ArchiveKeys,
    archive_id: bytes,
    kind: OrderKind,
    order_id: bytes,
    fields: Mapping[str, Any],
) -> None:
    """Put an order. ``fields`` have ``created_ms``, by the clock of this host."""
    whole = {
        "format": FORMAT_VERSION,
        "archive_id": archive_id.hex(),
        kind.id_field: order_id.hex(),
        **fields,
    }
    put_own(provider, keys.key(build(kind.key(order_id))), [encode_line(whole)])


def drop_order(provider: Provider, keys: ArchiveKeys, kind: OrderKind, order_id: bytes) -> None:
    """Say that an order no longer counts."""
    put_own(provider, keys.key(build(kind.key(order_id, dropped=True))), [_DROPPED])


def _decode(data: bytes, key: str, order_id: bytes, archive_id: bytes, kind: OrderKind) -> Mapping[str, Any]:
    try:
        fields = decode_line(data)
    except ValueError as error:
        raise kind.unreadable(key, "a line of JSON and its sum", str(error)) from error
    if fields["format"] > FORMAT_VERSION:
        raise Refused(
            f"a {kind.what} was put by a newer program",
            hint="install that program's version or a later one", key=key,
            expected=f"format ≤ {FORMAT_VERSION}", found=fields["format"],
        )  # fmt: skip
    if (fields["archive_id"], fields[kind.id_field]) != (archive_id.hex(), order_id.hex()):
        raise kind.unreadable(
            key, f"a {kind.what.split()[-1]} of this archive under its own key", "another's"
        )
    return fields
