"""Legal holds as the bucket keeps them: create-only objects, so that every host that may trim an archive sees the same.

A setting would hold on one host only, and a commit would need the writer's claim just when somebody is in a hurry. So a hold
is an object of its own (FORMAT.md, "Legal holds"), put by anybody who may write to the bucket, beside the log and not in it;
it is dropped by another object, and nothing deletes either. Every run of retention lists them first. What cannot be read holds
everything: the run stops.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass

from tiered.archive.keys import HOLD_PREFIX, ArchiveKeys, HoldKey, build, parse
from tiered.archive.rewrite.policy import LegalHold
from tiered.codec.checksum import crc32c
from tiered.errors import Conflict, Corrupt, Invalid, NotFound, Refused
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own
from tiered.version import FORMAT_VERSION

FOR_EVER_MS = 1 << 60
"""The end of a hold that has none."""

_MAX_BYTES = 64 * 1024
_DROPPED = b"dropped\n"


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
    found: dict[bytes, bool] = {}
    for stored in provider.list(keys.key(HOLD_PREFIX)):
        identity = parse(str(keys.path(stored.key)))
        if not isinstance(identity, HoldKey):
            raise _unreadable(stored.key, "a hold's key", "another")
        found[identity.hold_id] = found.get(identity.hold_id, False) or identity.dropped
    holds = []
    for hold_id, dropped in found.items():
        key = keys.key(build(HoldKey(hold_id)))
        try:
            data = bytes(provider.get(key, 0, _MAX_BYTES).data)
        except NotFound:
            raise _unreadable(key, "a hold", "nothing, although it was dropped") from None
        holds.append(_decode(data, key, hold_id, archive_id, dropped=dropped))
    return sorted(holds, key=lambda stored: (stored.created_ms, stored.hold_id))


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
    if not hold.name.strip() or not hold.pattern.strip() or hold.start_ms >= hold.end_ms:
        raise Invalid(
            "a hold needs a name, a pattern of topics, and a time that ends after it begins",
            found=f"{hold.name!r}, {hold.pattern!r}, {hold.start_ms} to {hold.end_ms}",
            hint="for example tiered hold add case-7 --topic 'Orders*' --from 2026-01-01 --to 2026-02-01",
        )
    if any(other.name == hold.name for other in holds_in_force(provider, keys, archive_id)):
        raise Conflict(
            "a hold of this name is in force", found=hold.name,
            hint="give it another name; `tiered hold list` shows them",
        )  # fmt: skip
    made = StoredHold(random_bytes(16), hold, reason, now_ms, dropped=False)
    put_own(provider, keys.key(build(HoldKey(made.hold_id))), [_encode(made, archive_id)])
    return made


def drop_hold(provider: Provider, keys: ArchiveKeys, archive_id: bytes, name: str) -> StoredHold:
    """Say that the hold of this name no longer counts. ``NotFound`` names those in force."""
    in_force = [stored for stored in read_holds(provider, keys, archive_id) if not stored.dropped]
    found = next((stored for stored in in_force if stored.hold.name == name), None)
    if found is None:
        raise NotFound(
            "no hold of this name is in force", found=name,
            expected=", ".join(stored.hold.name for stored in in_force) or "none is",
            hint="`tiered hold list` shows them",
        )  # fmt: skip
    put_own(provider, keys.key(build(HoldKey(found.hold_id, dropped=True))), [_DROPPED])
    return found


def _encode(stored: StoredHold, archive_id: bytes) -> bytes:
    fields = {
        "format": FORMAT_VERSION, "archive_id": archive_id.hex(), "hold_id": stored.hold_id.hex(),
        "reason": stored.reason, "created_ms": stored.created_ms, **asdict(stored.hold),
    }  # fmt: skip
    data = json.dumps(fields, sort_keys=True).encode() + b"\n"
    return data + f"{crc32c(data):08x}\n".encode()


def _decode(data: bytes, key: str, hold_id: bytes, archive_id: bytes, *, dropped: bool) -> StoredHold:
    end = data.find(b"\n") + 1
    line, checksum = data[:end], data[end:].rstrip(b"\n")
    expected = f"{crc32c(line):08x}"
    if checksum.decode("ascii", "replace") != expected:
        raise _unreadable(key, expected, repr(checksum[:20]))
    fields = json.loads(line)
    if fields["format"] > FORMAT_VERSION:
        raise Refused(
            "a legal hold was put by a newer program",
            hint="install that program's version or a later one", key=key,
            expected=f"format ≤ {FORMAT_VERSION}", found=fields["format"],
        )  # fmt: skip
    if (fields["archive_id"], fields["hold_id"]) != (archive_id.hex(), hold_id.hex()):
        raise _unreadable(key, "a hold of this archive under its own key", "another's")
    hold = LegalHold(fields["name"], fields["pattern"], fields["start_ms"], fields["end_ms"])
    return StoredHold(hold_id, hold, fields["reason"], fields["created_ms"], dropped)


def _unreadable(key: str, expected: str, found: str) -> Corrupt:
    return Corrupt(
        "a legal hold cannot be read: nothing is trimmed while that is so",
        hint="restore this key from the bucket's versions or a copy; if it is nobody's hold, remove it",
        key=key, expected=expected, found=found,
    )  # fmt: skip
