"""The key-value view on RocketMQ's remoting: request and response codes of our own, and their header fields as typed values.

The codes are below 32,768, since a binary header has 16 bits for one, and none of RocketMQ's up to 5.5. Keys and digests travel
in base64 with padding, as in the properties of the messages; values are bodies. Fields: docs/KEYVALUE.md.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from tiered.codec.remoting.codes import number_field, text_field, truth
from tiered.codec.remoting.frame import Bytes
from tiered.errors import BadRequest, Corrupt


class KeyValueCode(IntEnum):
    """Request codes."""

    PUT = 30401
    GET = 30402
    DELETE = 30403
    LIST = 30404
    CREATE = 30405
    GET_MANY = 30406


class KeyValueAnswer(IntEnum):
    """Response codes beside RocketMQ's own."""

    CONDITION_FAILED = 30451  # nothing was written; ``currentVersion``: what is there, absent: nothing
    OUTCOME_UNKNOWN = 30452  # the write may be in the log, or come into it


SHA256_BYTES = 32
MOST_LISTED = 1000
NO_VERSION = -1
"""Of a row that stands for a key without an entry."""
_LENGTH = struct.Struct(">I")
_ROW = struct.Struct(
    ">IqqqI"
)  # length of the key, version, stored ms, expires ms (-1: never), length of the value


@dataclass(frozen=True, slots=True)
class KeyValueFields:
    """The fields of a request; which of them count depends on its code. ``absent``, ``if_version`` and ``if_sha256``: the
    condition of a write. ``latest``, ``max_stale_ms``: how fresh a read is. ``prefix``, ``after`` (``None``: from the
    beginning), ``count``, ``keys_only``: of a list."""

    namespace: str
    key: bytes
    token: str
    latest: bool
    max_stale_ms: int | None
    absent: bool
    if_version: int | None
    if_sha256: bytes | None
    ttl_ms: int | None
    prefix: bytes
    after: bytes | None
    count: int
    keys_only: bool

    @classmethod
    def parse(cls, fields: Mapping[str, str]) -> KeyValueFields:
        """``BadRequest`` names the field that is missing or wrong."""
        version = number_field(fields, "ifVersion", default=-2)
        if version < -2 or (version == -2 and "ifVersion" in fields):
            raise BadRequest(
                "a field is out of bounds", field="ifVersion", expected="a version, or -1", found=version
            )
        digest = _decoded(fields, "ifValue") if "ifValue" in fields else None
        if digest is not None and len(digest) != SHA256_BYTES:
            raise BadRequest(
                "a field is not a SHA-256", field="ifValue", expected="32 bytes", found=len(digest)
            )
        ttl_ms = number_field(fields, "ttlMs", default=0)
        stale_ms = number_field(fields, "maxStaleMs", default=0)
        if stale_ms < 0:
            raise BadRequest(
                "a field is out of bounds", field="maxStaleMs", expected="0 or more", found=stale_ms
            )
        count = number_field(fields, "count", 32, default=MOST_LISTED)
        if not 1 <= count <= MOST_LISTED:
            raise BadRequest(
                "a field is out of bounds", field="count", expected=f"1 to {MOST_LISTED}", found=count
            )
        return cls(
            namespace=text_field(fields, "namespace"),
            key=_decoded(fields, "key") if "key" in fields else b"",
            token=fields.get("token", ""),
            latest=truth(fields, "latest"),
            max_stale_ms=stale_ms if "maxStaleMs" in fields else None,
            absent=version == -1,
            if_version=version if version >= 0 else None,
            if_sha256=digest,
            ttl_ms=ttl_ms if "ttlMs" in fields else None,
            prefix=_decoded(fields, "prefix") if fields.get("prefix") else b"",
            after=_decoded(fields, "after") if "after" in fields else None,
            count=count,
            keys_only=truth(fields, "keysOnly"),
        )


@dataclass(frozen=True, slots=True)
class ListedEntry:
    """A row of a list's body. ``expires_ms`` ``None``: never. ``version`` -1: there is no entry with this key."""

    key: bytes
    value: bytes
    version: int
    stored_ms: int
    expires_ms: int | None


def encoded(key: bytes) -> str:
    """A key as a field."""
    return b64encode(key).decode()


def pack_keys(keys: Iterable[bytes]) -> bytes:
    """Keys as the body of a request for several: each its length and its bytes."""
    return b"".join(_LENGTH.pack(len(key)) + key for key in keys)


def unpack_keys(body: Bytes) -> list[bytes]:
    """The keys of such a body. ``BadRequest`` if it is none, or has not 1 to ``MOST_LISTED``."""
    view, at, keys = memoryview(body), 0, list[bytes]()
    while at < len(view) and len(keys) <= MOST_LISTED:
        end = at + _LENGTH.size
        end += _LENGTH.unpack_from(view, at)[0] if end <= len(view) else 0
        if end > len(view):
            raise BadRequest(
                "the body is not a list of keys", position=at, expected="length u32 and key, each"
            )
        keys.append(bytes(view[at + _LENGTH.size : end]))
        at = end
    if not 1 <= len(keys) <= MOST_LISTED:
        raise BadRequest(
            "so many keys cannot be asked for",
            expected=f"1 to {MOST_LISTED} in the body",
            hint="ask for fewer",
        )
    return keys


def pack_listed(entries: Iterable[ListedEntry]) -> Iterator[bytes]:
    """The rows of a list, each: ``_ROW``, key, value."""
    for entry in entries:
        ends = -1 if entry.expires_ms is None else entry.expires_ms
        head = _ROW.pack(len(entry.key), entry.version, entry.stored_ms, ends, len(entry.value))
        yield head + entry.key + entry.value


def unpack_listed(body: Bytes) -> Iterator[ListedEntry]:
    """The entries of a list's body. ``Corrupt`` if it is none."""
    view, at = memoryview(body), 0
    while at < len(view):
        if at + _ROW.size > len(view):
            raise Corrupt("a list of entries ends in the middle of a row", position=at)
        key_bytes, version, stored_ms, ends, value_bytes = _ROW.unpack_from(view, at)
        at += _ROW.size
        if at + key_bytes + value_bytes > len(view):
            raise Corrupt("a list of entries ends in the middle of a row", position=at)
        key = bytes(view[at : at + key_bytes])
        value = bytes(view[at + key_bytes : at + key_bytes + value_bytes])
        at += key_bytes + value_bytes
        yield ListedEntry(key, value, version, stored_ms, None if ends < 0 else ends)


def _decoded(fields: Mapping[str, str], name: str) -> bytes:
    text = fields[name]
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise BadRequest(
            "a field is not base64 with padding",
            field=name,
            expected="RFC 4648, section 4",
            found=repr(text[:40]),
        ) from None
