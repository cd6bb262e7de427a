"""A write as a message, and messages as writes: ``docs/KEYVALUE.md``, "A write is a message".

Messages are decoded as columns: what runs once per message is base64 and what a message asks for besides, both in C or seldom.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import zstandard

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import (
    SYS_COMPRESSED,
    SYS_COMPRESSION_TYPE,
    SYS_INNER_BATCH,
)
from tiered.codec.record.properties import PropertyEntries
from tiered.codec.types import Bools, Ints
from tiered.keyvalue import MAX_KEY_BYTES, MAX_TTL_MS, Condition

TYPE, KEY, IF_VERSION, IF_VALUE, TTL = "kv_opType", "key", "kv_ifVersion", "kv_ifValue", "kv_ttlMs"
EMPTY = "kv_empty"
"""A put with this property, of whatever text, writes an empty value: brokers fail over a message without a body."""
PUT, DELETE = "PUT", "DELETE"
ABSENT = -1
"""``kv_ifVersion`` of a write that takes effect only where there is no entry."""
NO_VALUE = b"-"
"""Body of a deletion, and of a put of an empty value."""
MAX_VERSION = (1 << 63) - 1
_MOST_DIGITS = len(str(MAX_VERSION))
_DIGEST_BYTES = 32
_ZSTD, _ZLIB = 0x200, 0x300
"""Of ``SYS_COMPRESSION_TYPE`` (RocketMQ's ``MessageSysFlag``); none of its bits: zlib, as clients before 5.0 compress."""

_decode_key: Callable[[bytes], bytes] = partial(binascii.a2b_base64, strict_mode=True)


@dataclass(frozen=True, slots=True)
class AskedOf:
    """What one message asks for besides. ``good``: it says so in a way that can be understood."""

    condition: Condition
    ttl_ms: int
    good: bool = True
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Operations:
    """Writes of one queue, in its order: what can be understood of a batch, ``malformed`` messages could not.

    ``row``: of each in ``batch``. ``version``: its queue offset. ``deletes``: which are deletions. ``expires_ms``: 0 for never.
    ``conditions``: by number in these columns, ascending, of those that have one. ``bodies``: by number, of those whose body
    is not as it lies in the batch.
    """

    batch: MessageBatch
    row: Ints
    version: Ints
    stored_ms: Ints
    expires_ms: Ints
    keys: list[bytes]
    deletes: Bools
    conditions: dict[int, Condition]
    bodies: dict[int, bytes]
    malformed: int

    def __len__(self) -> int:
        return len(self.row)


def properties_of(
    kind: str, key: bytes, unique_key: str, condition: Condition, ttl_ms: int | None, *, empty: bool = False
) -> dict[str, str]:
    """The properties of a write's message; ``unique_key`` names the message."""
    text = b64encode(key).decode()
    named = {TYPE: kind, KEY: text, "KEYS": text, "UNIQ_KEY": unique_key, "WAIT": "true"}
    if condition.absent:
        named[IF_VERSION] = str(ABSENT)
    elif condition.version is not None:
        named[IF_VERSION] = str(condition.version)
    if condition.value_sha256 is not None:
        named[IF_VALUE] = b64encode(condition.value_sha256).decode()
    if ttl_ms is not None:
        named[TTL] = str(ttl_ms)
    if empty:
        named[EMPTY] = "true"
    return named


def decode_operations(batch: MessageBatch, entries: PropertyEntries, max_value_bytes: int) -> Operations:
    """What the messages of one queue ask for, in order; ``entries``: their properties. Never raises for what is in them."""
    count = len(batch)
    kinds, keys = entries.last(TYPE.encode(), count), _keys(_texts(entries, KEY, count))
    deletes = entries.says(kinds, DELETE.encode())
    good = deletes | entries.says(kinds, PUT.encode())
    lengths = np.fromiter(map(len, keys), np.int64, count)
    flags = batch.headers["sys_flag"]
    good &= (lengths > 0) & (lengths <= MAX_KEY_BYTES) & ((flags & SYS_INNER_BATCH) == 0)
    stored_ms = batch.headers["store_timestamp"].astype(np.int64)
    expires_ms = np.zeros(count, np.int64)
    conditions: dict[int, Condition] = {}
    asked_for = _asked(entries, count)
    for row, asked in asked_for.items():
        good[row] &= asked.good
        conditions[row] = asked.condition
        if asked.ttl_ms:
            expires_ms[row] = stored_ms[row] + asked.ttl_ms
    bodies = _unpacked(
        batch, np.flatnonzero((flags & SYS_COMPRESSED != 0) & good & ~deletes), max_value_bytes
    )
    for row in [row for row, body in bodies.items() if body is None]:
        good[row] = False
    bodies |= {row: b"" for row, asked in asked_for.items() if asked.empty}
    rows = np.flatnonzero(good)
    whole = len(rows) == count
    number = {} if whole else {row: number for number, row in enumerate(rows.tolist())}
    return Operations(
        batch, rows, batch.headers["queue_offset"][rows], stored_ms[rows], expires_ms[rows],
        keys if whole else [keys[row] for row in rows.tolist()], deletes[rows],
        {number.get(row, row): asked for row, asked in sorted(conditions.items()) if good[row] and asked.given},
        {number.get(row, row): body for row, body in bodies.items() if body is not None and good[row]}, count - len(rows),
    )  # fmt: skip


def unique_keys(batch: MessageBatch, entries: PropertyEntries) -> list[bytes]:
    """Property UNIQ_KEY of every message, of all its properties; empty where there is none."""
    return _texts(entries, "UNIQ_KEY", len(batch))


def _texts(entries: PropertyEntries, name: str, count: int) -> list[bytes]:
    """A property of every message; empty where it has none."""
    found = entries.last(name.encode(), count)
    missing = found < 0
    if not missing.any():
        return entries.cut(entries.name_end[found] + 1, entries.value_end[found])
    texts: npt.NDArray[np.object_] = np.full(count, b"", object)
    chosen = found[~missing]
    texts[~missing] = np.array(
        [*entries.cut(entries.name_end[chosen] + 1, entries.value_end[chosen]), None], object
    )[:-1]
    made: list[bytes] = texts.tolist()
    return made


def _keys(texts: Sequence[bytes]) -> list[bytes]:
    """Keys of their texts; empty for a text that is not strict base64."""
    try:
        return list(map(_decode_key, texts))
    except binascii.Error:
        return [key_of_text(text) for text in texts]


def key_of_text(text: bytes) -> bytes:
    """The key of its base64; empty if it is none."""
    try:
        return _decode_key(text)
    except binascii.Error:
        return b""


def _asked(entries: PropertyEntries, count: int) -> dict[int, AskedOf]:
    """Of each row that asks for anything besides; few do."""
    found: dict[int, dict[str, bytes]] = {}
    for name in (IF_VERSION, IF_VALUE, TTL, EMPTY):
        if not len(entries.named(name.encode())):
            continue
        last = entries.last(name.encode(), count)
        rows = np.flatnonzero(last >= 0)
        texts = entries.cut(entries.name_end[last[rows]] + 1, entries.value_end[last[rows]])
        for row, text in zip(rows.tolist(), texts, strict=True):
            found.setdefault(row, {})[name] = text
    return {row: asked_of(texts) for row, texts in found.items()}


def asked_of(texts: dict[str, bytes]) -> AskedOf:
    """What these properties of one message, of those that ask for anything besides, say."""
    version, ttl = _whole(texts.get(IF_VERSION), ABSENT), _whole(texts.get(TTL), 1)
    digest = key_of_text(texts[IF_VALUE]) if IF_VALUE in texts else None
    good = (IF_VERSION not in texts or version is not None) and (
        digest is None or len(digest) == _DIGEST_BYTES
    )
    good = good and (TTL not in texts or (ttl is not None and ttl <= MAX_TTL_MS))
    condition = Condition(version == ABSENT, None if version == ABSENT else version, digest)
    return AskedOf(condition, ttl or 0, good, EMPTY in texts)


def _whole(text: bytes | None, low: int) -> int | None:
    """A decimal number of at least ``low``, and at most a queue offset's largest."""
    if text is None or not text.removeprefix(b"-").isdigit() or len(text) > _MOST_DIGITS:
        return None
    return int(text) if low <= int(text) <= MAX_VERSION else None


def _unpacked(batch: MessageBatch, rows: Ints, most: int) -> dict[int, bytes | None]:
    """Bodies that a producer compressed; ``None`` for one that cannot be read, or has more than ``most`` bytes."""
    found: dict[int, bytes | None] = {}
    for row in rows.tolist():
        header = batch.headers[row]
        start = int(header["body_position"])
        body = batch.buffer[start : start + int(header["body_length"])]
        found[row] = plain_body(body, int(header["sys_flag"]), most)
    return found


def plain_body(body: memoryview, sys_flag: int, most: int) -> bytes | None:
    """A body that a producer compressed, as it was; ``None`` if it cannot be read, or has more than ``most`` bytes."""
    kind = sys_flag & SYS_COMPRESSION_TYPE
    try:
        if kind in (0, _ZLIB):
            unpacker = zlib.decompressobj()
            plain = unpacker.decompress(body, most + 1)
            return plain if unpacker.eof and len(plain) <= most else None
        if kind == _ZSTD:
            with zstandard.ZstdDecompressor().stream_reader(bytes(body)) as reader:
                plain = reader.read(most + 1)
            return plain if len(plain) <= most else None
    except (zlib.error, zstandard.ZstdError):
        return None
    return None
