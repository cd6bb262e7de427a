"""``archive.json``: which archive this is. Created once, create-only, never changed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from tiered.archive.keys import ArchiveKeys, KeyValueKey, LeaseKey, ProbeKey, parse
from tiered.codec.checksum import crc32c
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Conflict, Corrupt, NotFound, Refused, Unavailable
from tiered.provider.base import Provider
from tiered.provider.resolve import create_root


@dataclass(frozen=True, slots=True)
class ArchiveIdentity:
    """``archive_id``: 16 random bytes; cluster and broker as the operator names them; created in ms by the store's clock;
    ``collected``: what nothing refers to is deleted unless a setting says otherwise (false: made before that was so)."""

    archive_id: bytes
    cluster: str
    broker: str
    created_ms: int
    collected: bool = False

    def encode(self) -> bytes:
        """The object's bytes: JSON, keys sorted, with its own checksum (FORMAT.md, "archive.json")."""
        fields = {
            "format": _FORMAT if self.collected else _UNCOLLECTED,
            "archive_id": self.archive_id.hex(),
            "cluster": self.cluster,
            "broker": self.broker,
            "created_ms": self.created_ms,
            "crc32c": _NO_SUM,
        }
        data = json.dumps(fields, sort_keys=True).encode() + b"\n"
        return data.replace(_sum_field(_NO_SUM), _sum_field(f"{crc32c(data):08x}"))


_NAMES = {"format", "archive_id", "cluster", "broker", "created_ms"}
_FORMAT, _UNCOLLECTED = 2, 1
"""Formats of this object: programs that know the first alone may not know that commits are removed, and refuse the second."""
_NO_SUM = "00000000"


def _sum_field(text: str) -> bytes:
    return b'"crc32c": "%s"' % text.encode()


def _check_sum(data: bytes, found: object, key: str) -> None:
    """``Corrupt`` unless ``found`` is the checksum of the object with zeros in its place."""
    zeroed = data.replace(_sum_field(str(found)), _sum_field(_NO_SUM))
    expected = f"{crc32c(zeroed):08x}"
    if found != expected:
        raise Corrupt(
            "archive.json does not match its checksum", key=key, expected=expected, found=repr(found)
        )


def decode_identity(data: bytes, key: str) -> ArchiveIdentity:
    """``Corrupt`` if it is not an identity, ``Refused`` if a newer program made it. The first ones have no checksum."""
    try:
        fields = json.loads(data)
        if "crc32c" in fields:
            _check_sum(data, fields["crc32c"], key)
        version = int(fields["format"])
        identity = ArchiveIdentity(
            bytes.fromhex(fields["archive_id"]),
            str(fields["cluster"]),
            str(fields["broker"]),
            int(fields["created_ms"]),
            collected=version > _UNCOLLECTED,
        )
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as e:
        raise Corrupt("archive.json is not an archive's identity", key=key, found=repr(data[:80])) from e
    if version > _FORMAT:
        raise Refused(
            "the archive was written by a newer program",
            hint="install that program's version or a later one",
            key=key,
            expected=f"format ≤ {_FORMAT}",
            found=version,
        )
    if set(fields) - {"crc32c"} != _NAMES:  # the name of the checksum is covered by nothing else
        raise Corrupt(
            "archive.json has unknown fields", key=key, expected=sorted(_NAMES), found=sorted(fields)
        )
    if len(identity.archive_id) != 16:
        raise Corrupt("archive.json has a damaged archive id", key=key, found=fields["archive_id"])
    return identity


def is_identity_of(archive_id: bytes, data: bytes) -> bool:
    """Whether these are the bytes of the identity of archive ``archive_id``; damaged ones are not."""
    try:
        return decode_identity(data, "archive.json").archive_id == archive_id
    except (Corrupt, Refused):
        return False


def read_identity(provider: Provider, keys: ArchiveKeys) -> ArchiveIdentity:
    """The archive's identity, or ``NotFound``."""
    data = bytes(provider.get(keys.identity).data)
    try:
        identity = decode_identity(data, keys.identity)
    except Corrupt:
        _require_the_stores(provider, keys.identity, data)
        raise
    if (identity.cluster, identity.broker) != (keys.cluster, keys.broker):
        raise Refused(
            "another broker's archive is stored here",
            hint="point archive.url elsewhere, or set source.cluster and source.broker",
            key=keys.identity,
            expected=f"{keys.cluster}/{keys.broker}",
            found=f"{identity.cluster}/{identity.broker}",
        )
    return identity


def _require_the_stores(provider: Provider, key: str, data: bytes) -> None:
    """``Unavailable`` for bytes of whoever stands before the store: nothing is damaged. A page shows it; of other bytes the
    listing, in which the object has another length."""
    listed = next(iter(provider.list(key, limit=1)), None)
    if data.lstrip()[:1] == b"<" or listed is None or (listed.key, listed.length) != (key, len(data)):
        raise Unavailable(
            "what answers for the store gives something else as archive.json",
            key=key, url=provider.url, expected="no object" if listed is None else f"{listed.length} bytes",
            found=f"{len(data)} bytes: {data[:40]!r}",
            hint="is archive.url right, and is there a portal, a proxy or a maintenance page before the store?",
        )  # fmt: skip


def require_listing(provider: Provider, keys: ArchiveKeys) -> None:
    """``Unavailable`` unless a listing has archive.json: what it shows nothing of may be there all the same."""
    if next(iter(provider.list(keys.identity, limit=1)), None) is None:
        raise Unavailable(
            "the store lists nothing of an archive that is there",
            key=keys.identity, url=provider.url, found="no object",
            hint="find out what answers listings in the store's place",
        )  # fmt: skip


def kept_identity(provider: Provider, keys: ArchiveKeys) -> ArchiveIdentity | None:
    """The archive's identity; ``None`` where nothing of an archive is there.

    ``Corrupt`` where it is missing and other objects of the archive are there: with another id nobody could read these.
    """
    with suppress(NotFound):
        return read_identity(provider, keys)
    if not _has_begun(provider, keys):
        return None
    try:
        return read_identity(provider, keys)  # it comes before all others, so by now it must be there
    except NotFound:
        raise Corrupt(
            "the archive has objects and no identity: archive.json is lost", key=keys.identity
        ) from None


def ensure_identity(
    provider: Provider, keys: ArchiveKeys, now_ms: int, random_bytes: Callable[[int], bytes]
) -> ArchiveIdentity:
    """Read the identity, or create it; the first to create it wins, and a lost answer is resolved by reading it back.

    ``Corrupt`` as of ``kept_identity``.
    """
    found = kept_identity(provider, keys)
    if found is not None:
        return found
    reach(CrashPoint.BEFORE_IDENTITY)
    create_root(provider)
    made = ArchiveIdentity(random_bytes(16), keys.cluster, keys.broker, now_ms, collected=True)
    try:
        provider.put(keys.identity, [made.encode()])
    except Conflict:
        return read_identity(provider, keys)
    reach(CrashPoint.AFTER_IDENTITY)
    return made


def _has_begun(provider: Provider, keys: ArchiveKeys) -> bool:
    """Whether objects of an archive are there, besides those of a probe, which may be made before its identity is,
    snapshots of a key-value view, which needs no archive, and leases of read nodes, which may wait for one."""
    for stored in provider.list(keys.root):
        path = keys.path(stored.key)
        found = None if path is None else parse(path)
        if found is not None and not isinstance(found, ProbeKey | KeyValueKey | LeaseKey):
            return True
    return False
