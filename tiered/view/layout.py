"""Keys and values of the view's store, both directions (``docs/KEYVALUE.md``, "The store").

Entries of one namespace lie together, in the order of their keys' bytes; those of a namespace whose name is shorter come
first.
"""

from __future__ import annotations

import struct

from tiered.errors import Corrupt
from tiered.keyvalue import Entry

HEAD = struct.Struct("<QQQ")
"""Before a value: version, ``stored_ms``, ``expires_ms`` (0: never)."""
LAYOUT_VERSION = 1
"""Of keys and values; a store, or a snapshot, of another one says nothing here."""
ENTRY_PREFIX = b"e"
NAMESPACE_PREFIX = b"n"


def entries_prefix(namespace: str) -> bytes:
    """What the keys of all entries of ``namespace``, and of no other, begin with."""
    name = namespace.encode("ascii")
    return b"e%c%b" % (len(name), name)


def entry_key(namespace: str, key: bytes) -> bytes:
    """The store's key of an entry."""
    return entries_prefix(namespace) + key


def split_entry_key(stored: bytes) -> tuple[str, bytes]:
    """Namespace and key of what ``entry_key`` made; ``Corrupt`` of anything else."""
    end = 2 + stored[1] if stored[:1] == ENTRY_PREFIX and len(stored) > 1 else 0
    if not 2 < end < len(stored):
        raise _damaged("key of an entry", stored)
    try:
        return stored[2:end].decode("ascii"), stored[end:]
    except UnicodeDecodeError as e:
        raise _damaged("key of an entry", stored) from e


def namespace_key(namespace: str) -> bytes:
    """The store's key of what is known of a namespace."""
    return NAMESPACE_PREFIX + namespace.encode("ascii")


def split_namespace_key(stored: bytes) -> str:
    """The namespace of what ``namespace_key`` made; ``Corrupt`` of anything else."""
    try:
        if stored[:1] == NAMESPACE_PREFIX and len(stored) > 1:
            return stored[1:].decode("ascii")
    except UnicodeDecodeError:
        pass
    raise _damaged("key of a namespace", stored)


def entry_value(version: int, stored_ms: int, expires_ms: int | None, value: bytes) -> bytes:
    """What the store holds of an entry."""
    return HEAD.pack(version, stored_ms, expires_ms or 0) + value


def entry_of(key: bytes, held: bytes) -> Entry:
    """The entry that ``held`` (of ``entry_value``) tells of ``key``; ``Corrupt`` if it is too short."""
    if len(held) < HEAD.size:
        raise _damaged("value of an entry", held)
    version, stored_ms, expires_ms = HEAD.unpack_from(held)
    return Entry(key, held[HEAD.size :], version, stored_ms, expires_ms or None)


def _damaged(what: str, found: bytes) -> Corrupt:
    return Corrupt(
        f"the view's store holds what is not the {what}",
        hint="stop the view and delete its store: it is made again from the log",
        found=found[:120].hex(),
    )
