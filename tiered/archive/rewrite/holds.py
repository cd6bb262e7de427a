"""Legal holds, as standing orders: every host that may trim an archive sees the same (FORMAT.md, "Standing orders").

Every run of retention lists them first. What cannot be read holds everything: the run stops.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tiered.archive.keys import ArchiveKeys
from tiered.archive.rewrite.policy import LegalHold
from tiered.archive.standing import HOLD, Order, drop_order, put_order, read_orders
from tiered.errors import Conflict, Invalid, NotFound
from tiered.provider.base import Provider

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
"""A new hold's name: what a shell takes without quotes. Older holds keep theirs."""

FOR_EVER_MS = 1 << 60
"""The end of a hold that has none."""


@dataclass(frozen=True, slots=True)
class StoredHold:
    """A hold of the bucket. ``reason``: as it was written; ``created_ms``: by the clock of the host that put it."""

    hold_id: bytes
    hold: LegalHold
    reason: str
    created_ms: int
    dropped: bool


def read_holds(provider: Provider, keys: ArchiveKeys, archive_id: bytes) -> list[StoredHold]:
    """Every hold, dropped ones too, by creation. ``Corrupt`` for one that cannot be read."""
    return [_hold(order) for order in read_orders(provider, keys, archive_id, HOLD)]


def holds_in_force(provider: Provider, keys: ArchiveKeys, archive_id: bytes) -> list[LegalHold]:
    """What no trim may touch."""
    return [stored.hold for stored in read_holds(provider, keys, archive_id) if not stored.dropped]


def add_hold(
    provider: Provider,
    keys: ArchiveKeys,
    archive_id: bytes,
    hold: LegalHold,
    reason: str,
    now_ms: int,
    random_bytes: Callable[[int], bytes],
) -> StoredHold:
    """Put a hold. ``Invalid`` if it can hold nothing, ``Conflict`` if one of this name is in force."""
    if NAME.fullmatch(hold.name) is None:
        raise Invalid(
            "a hold's name has letters, digits, '.', '_' and '-', at most 60, and begins with a letter or digit",
            found=ascii(hold.name[:80]), hint="for example tiered hold add case-7 --topic 'Orders*'",
        )  # fmt: skip
    if not hold.pattern.strip() or hold.start_ms >= hold.end_ms:
        raise Invalid(
            "a hold needs a pattern of topics, and a time that ends after it begins",
            found=f"{hold.pattern!r}, {hold.start_ms} to {hold.end_ms}",
            hint="for example tiered hold add case-7 --topic 'Orders*' --from 2026-01-01 --to 2026-02-01",
        )
    if any(other.name == hold.name for other in holds_in_force(provider, keys, archive_id)):
        raise Conflict(
            "a hold of this name is in force", found=hold.name,
            hint="give it another name; `tiered hold list` shows them",
        )  # fmt: skip
    made = StoredHold(random_bytes(16), hold, reason, now_ms, dropped=False)
    fields = {"reason": reason, "created_ms": now_ms, **asdict(hold)}
    put_order(provider, keys, archive_id, HOLD, made.hold_id, fields)
    return made


def drop_hold(provider: Provider, keys: ArchiveKeys, archive_id: bytes, name: str) -> StoredHold:
    """Say that the hold of this name no longer counts. ``NotFound`` names those in force."""
    in_force = [stored for stored in read_holds(provider, keys, archive_id) if not stored.dropped]
    found = next((stored for stored in in_force if stored.hold.name == name), None)
    if found is None:
        raise NotFound(
            "no hold of this name is in force", found=name,
            expected=", ".join(stored.hold.name for stored in in_force) or "no hold is in force",
            hint="`tiered hold list` shows them",
        )  # fmt: skip
    drop_order(provider, keys, HOLD, found.hold_id)
    return found


def _hold(order: Order) -> StoredHold:
    fields = order.fields
    hold = LegalHold(fields["name"], fields["pattern"], fields["start_ms"], fields["end_ms"])
    return StoredHold(order.order_id, hold, fields["reason"], fields["created_ms"], order.dropped)
