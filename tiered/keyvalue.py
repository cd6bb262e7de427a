"""Values of the key-value view: entries, conditions, what became of a write, and the port that doors are given.

A *namespace* is a topic of one queue; a put is a message in it, and its *version* is the queue offset of that message. So a
version is never given twice, versions of a namespace ascend in the order in which its writes took effect, and every reader
of the log gives the same ones (``docs/KEYVALUE.md``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tiered.errors import BadRequest

MAX_KEY_BYTES = 4096
"""As base64 a key is a property of its message, and all properties together have 32,767 bytes."""
MAX_NAMESPACE_CHARACTERS = 100
"""With the topic's prefix and a retry topic's, RocketMQ's limit of 127 is kept."""
MOST_KEYS = 1000
"""Most keys of one ``get_many``, most entries of one page."""
PAGE_BYTES = 16 * 1024 * 1024
"""Bytes of values at which a page ends, behind the entry that reaches them; more in one ``get_many`` is refused."""
MAX_TTL_MS = 100 * 365 * 86_400_000

NOT_DONE, UNKNOWN = "not done", "unknown"
"""What the field ``outcome`` of a failed write's error may say."""

STORED_MS, EXPIRES_MS = "Kv-Stored-Ms", "Kv-Expires-Ms"
"""Over HTTP: header fields beside a value, ms since 1970."""
STALE_MS = "Kv-Stale-Ms"
"""Over HTTP: header field of an answer to a read: at most how many ms it is behind the end of what the view follows."""
PROBLEM = "urn:rocketmq-tiered:problem:"
"""What the type of every failure over HTTP begins with; then the kind, one of these, or the words of its status."""
CONDITION_FAILED, NO_ENTRY, DAMAGE, READ_ONLY = "condition-failed", "no-entry", "damage", "read-only"

_NAMESPACE = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAMESPACE_CHARACTERS}}}\Z")


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it is. ``stored_ms``: when the broker stored the put; ``expires_ms``: when it ends, ``None``: never."""

    key: bytes
    value: bytes
    version: int
    stored_ms: int
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Condition:
    """What the entry must be for a write to take effect; all that is given must hold. ``absent``: there must be none that has
    not expired. ``version``: it must have this one. ``value_sha256``: the digest of its value, 32 bytes."""

    absent: bool = False
    version: int | None = None
    value_sha256: bytes | None = None

    @property
    def given(self) -> bool:
        """Whether anything is asked for."""
        return self.absent or self.version is not None or self.value_sha256 is not None


ALWAYS = Condition()


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """What became of a write, as the log's order decided. ``version``: of the write's own message, also without effect.

    ``current``: if it did not, the version that the entry had in its place; ``None``: there was none.
    """

    applied: bool
    version: int
    current: int | None = None


@dataclass(frozen=True, slots=True)
class KeyPage:
    """Entries in the order of their keys' bytes. ``after``: ask with it for what follows; ``None``: nothing does.

    ``applied``: everything of the namespace below this version was in the view when the page was made.
    """

    entries: tuple[Entry, ...]
    after: bytes | None
    applied: int


class Freshness(Enum):
    """What a read has to see."""

    LATEST = "latest"
    """Every write that anybody was answered for before the read began: the view is waited for."""
    ANY = "any"
    """What the view has, at once: a prefix of the log."""


@dataclass(frozen=True, slots=True)
class ReadRule:
    """How a read is made. ``max_stale_ms``: ``Unavailable`` if the view has not been at the log's end since longer than that;
    ``None``: however long. It says nothing beside ``LATEST``."""

    freshness: Freshness = Freshness.ANY
    max_stale_ms: int | None = None


AT_ONCE = ReadRule()


class KeyValues(Protocol):
    """What the doors ask. For any thread; calls wait, so they belong into a pool. Besides what each says: ``BadRequest`` (a
    name, key or value out of limits), ``NotFound`` (no such namespace), ``Refused`` (the broker declines, or this view takes no
    writes), ``Unavailable`` (broker or log away, or too late). Of a write that is ``Unavailable`` it is unknown whether it
    took, or will take, effect; the error's field ``outcome`` is ``unknown`` then, ``not done`` where it certainly did not."""

    def get(self, namespace: str, key: bytes, rule: ReadRule = AT_ONCE) -> Entry | None:
        """The entry; ``None`` if there is none, or it has expired."""
        ...

    def get_many(self, namespace: str, keys: Sequence[bytes], rule: ReadRule = AT_ONCE) -> list[Entry | None]:
        """Entries in the order of ``keys``, at most ``MOST_KEYS``, all as of one moment. ``BadRequest`` if their values are
        more than ``PAGE_BYTES``, unless it is one."""
        ...

    def page(
        self, namespace: str, prefix: bytes, *, after: bytes | None, count: int, rule: ReadRule = AT_ONCE
    ) -> KeyPage:
        """At most ``count`` entries whose keys begin with ``prefix`` and lie behind ``after``; fewer if their values are many
        bytes, ``PAGE_BYTES``."""
        ...

    def put(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
    ) -> WriteOutcome:
        """Write, and wait until the view has it."""
        ...

    def delete(self, namespace: str, key: bytes, *, condition: Condition = ALWAYS) -> WriteOutcome:
        """The same for a deletion; one of a key that is not there takes effect too, if it asks for nothing."""
        ...

    def create(self, namespace: str) -> bool:
        """Have the broker make the namespace's topic, with one queue; whether it was not there before."""
        ...

    def namespaces(self) -> list[str]:
        """Those that the view has seen, or the broker has made through it, ascending."""
        ...


def check_namespace(namespace: str) -> str:
    """``namespace``; ``BadRequest`` unless it is one."""
    if not _NAMESPACE.match(namespace):
        raise BadRequest(
            "this is not the name of a namespace",
            value=ascii(namespace[:120]),
            expected=f"1 to {MAX_NAMESPACE_CHARACTERS} of A-Z, a-z, 0-9, _ and -",
            hint="rename it",
        )
    return namespace


def check_key(key: bytes) -> bytes:
    """``key``; ``BadRequest`` unless it has 1 to ``MAX_KEY_BYTES`` bytes."""
    if not 0 < len(key) <= MAX_KEY_BYTES:
        raise BadRequest(
            "a key is too long" if key else "a key is empty",
            found=f"{len(key)} bytes",
            expected=f"1 to {MAX_KEY_BYTES} bytes",
            hint="use a shorter key, a digest of it for example" if key else "name a key",
        )
    return key
