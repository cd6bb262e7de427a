"""What messages write, as the store keeps it: many of them as columns, a few one by one.

For a message that comes alone columns of one row cost ten times as much as reading it, and a writer waits for them. What a
message means is said in ``operation``, for both; that they say the same of any bytes is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import SYS_COMPRESSED, SYS_INNER_BATCH
from tiered.codec.record.properties import PropertyEntries, property_values
from tiered.codec.record.ragged import copy_ranges, pieces
from tiered.codec.types import Ints
from tiered.keyvalue import MAX_KEY_BYTES, Condition
from tiered.view.layout import HEAD
from tiered.view.operation import (
    DELETE,
    EMPTY,
    IF_VALUE,
    IF_VERSION,
    KEY,
    PUT,
    TTL,
    TYPE,
    Operations,
    asked_of,
    decode_operations,
    key_of_text,
    plain_body,
    unique_keys,
)

FEW = 8
"""Messages of one queue up to which each is read by itself: beyond, columns are faster."""
_HEAD_DTYPE = np.dtype([("version", "<u8"), ("stored_ms", "<u8"), ("expires_ms", "<u8")])
_TYPE, _KEY, _UNIQUE_KEY, _PUT, _DELETE = (text.encode() for text in (TYPE, KEY, "UNIQ_KEY", PUT, DELETE))
_ASKING = {name.encode(): name for name in (IF_VERSION, IF_VALUE, TTL, EMPTY)}
_FIELDS = [
    "queue_offset", "store_timestamp", "sys_flag", "body_position", "body_length", "properties_position", "properties_length",
]  # fmt: skip


@dataclass(slots=True)
class Writes:
    """Writes of one queue, in its order. ``values``: what the store is to hold, ``None`` for a deletion. ``conditions``: by
    number, ascending, of those that have one. ``malformed``: messages that are none."""

    version: Sequence[int] | Ints
    stored_ms: Sequence[int] | Ints
    keys: list[bytes]
    values: list[bytes | None]
    conditions: dict[int, Condition]
    malformed: int


@dataclass(frozen=True, slots=True)
class ReadMessages:
    """``ids``: property UNIQ_KEY of each message, if they were asked for."""

    writes: Writes
    ids: Sequence[bytes]


def many_messages(batch: MessageBatch, max_value_bytes: int, *, with_ids: bool) -> ReadMessages:
    """What the messages of one queue write, read as columns."""
    entries = PropertyEntries.parse(batch)
    operations = decode_operations(batch, entries, max_value_bytes)
    values: list[bytes | None] = [*_values(operations)]
    for number in np.flatnonzero(operations.deletes).tolist():
        values[number] = None
    writes = Writes(
        operations.version, operations.stored_ms, operations.keys, values, operations.conditions, operations.malformed
    )  # fmt: skip
    return ReadMessages(writes, unique_keys(batch, entries) if with_ids else ())


def few_messages(batch: MessageBatch, max_value_bytes: int, *, with_ids: bool) -> ReadMessages:
    """The same, one message after the other."""
    version, stored, keys = list[int](), list[int](), list[bytes]()
    writes = Writes(version, stored, keys, [], {}, 0)
    ids = list[bytes]()
    columns = [batch.headers[name].tolist() for name in _FIELDS]
    for offset, stored_ms, flags, body_at, body_bytes, at, size in zip(*columns, strict=True):
        told = property_values(batch.buffer[at : at + size])
        if with_ids:
            ids.append(told.get(_UNIQUE_KEY, b""))
        deletes = told.get(_TYPE) == _DELETE
        key = key_of_text(told.get(_KEY, b""))
        good = (deletes or told.get(_TYPE) == _PUT) and 0 < len(key) <= MAX_KEY_BYTES
        good = good and not flags & SYS_INNER_BATCH
        asks = _ASKING.keys() & told.keys()
        asked = asked_of({_ASKING[name]: told[name] for name in asks}) if asks else None
        good = good and (asked is None or asked.good)
        body: bytes | memoryview | None = batch.buffer[body_at : body_at + body_bytes]
        if good and flags & SYS_COMPRESSED and not deletes:
            body = plain_body(batch.buffer[body_at : body_at + body_bytes], flags, max_value_bytes)
        if not good or body is None:
            writes.malformed += 1
            continue
        if asked is not None and asked.condition.given:
            writes.conditions[len(keys)] = asked.condition
        ends_ms = stored_ms + asked.ttl_ms if asked is not None and asked.ttl_ms else 0
        body = b"" if asked is not None and asked.empty else body
        version.append(offset)
        stored.append(stored_ms)
        keys.append(key)
        writes.values.append(None if deletes else HEAD.pack(offset, stored_ms, ends_ms) + body)
    return ReadMessages(writes, ids)


def _values(operations: Operations) -> list[bytes]:
    """What the store is to hold of each put: head and body, cut out of one buffer."""
    headers = operations.batch.headers[operations.row]
    starts, lengths = headers["body_position"].astype(np.int64), headers["body_length"].astype(np.int64)
    heads = np.empty(len(headers), _HEAD_DTYPE)
    heads["version"], heads["stored_ms"] = operations.version, operations.stored_ms
    heads["expires_ms"] = operations.expires_ms
    sizes = HEAD.size + lengths
    places = np.cumsum(sizes) - sizes
    made = bytearray(int(sizes.sum()))
    own = np.arange(len(heads), dtype=np.int64) * HEAD.size
    copy_ranges(heads.tobytes(), own, np.full(len(heads), HEAD.size), made, places)
    copy_ranges(operations.batch.buffer, starts, lengths, made, places + HEAD.size)
    values = pieces(made, places, sizes)
    for number, body in operations.bodies.items():
        values[number] = heads[number].tobytes() + body
    return values
