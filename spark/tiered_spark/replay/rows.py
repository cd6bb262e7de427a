"""Rows of a frame as messages to send: what travels, what is left out, and the mark of where each came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from tiered.broker.send import KEPT_SYS_FLAGS, NEW_MESSAGE
from tiered.codec.arrow.arrays import words
from tiered.codec.checksum import body_crc
from tiered.codec.record.layout import SYS_COMPRESSED, SYS_COMPRESSION_TYPE, SYS_INNER_BATCH
from tiered.codec.record.properties import key_hash
from tiered.codec.types import Ints
from tiered.errors import Invalid

ORIGIN = "TIERED_ORIGIN"
"""Property of every message that is sent: ``cluster/broker/topic/queue/offset`` of the row."""

REPLAY = "TIERED_REPLAY"
"""Property: the option ``replayId``, if there is one."""

_COMPRESSION = SYS_COMPRESSED | SYS_COMPRESSION_TYPE
_SLICE = 1024
_INT = ("tinyint", "smallint", "int", "bigint")
_TIME = ("timestamp", "timestamp_ntz", "bigint")
_TEXT = ("string",)

REQUIRED: dict[str, tuple[str, ...]] = {
    "body": ("binary", "string"),
    "properties": ("map<string,string>",),
    "sys_flag": _INT,
    "body_crc": _INT,
    "cluster": _TEXT,
    "broker": _TEXT,
    "topic": _TEXT,
    "queue_id": _INT,
    "queue_offset": _INT,
}
OPTIONAL: dict[str, tuple[str, ...]] = {
    "tags": _TEXT,
    "keys": ("array<string>",),
    "flag": _INT,
    "born_timestamp": _TIME,
}
"""Columns that are used, with their types. Others are left alone."""

Sent = Callable[[str, Ints], npt.NDArray[np.bool_]]
"""Of a source queue's offsets, which were acknowledged before."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send. ``queue``: its source queue. ``lane``: messages of one lane keep their order; a number of the keys
    where these choose the target, else of the source queue within its batch."""

    queue: str
    offset: int
    broker: str
    queue_id: int
    lane: int
    body: bytes
    properties: str
    sys_flag: int
    flag: int
    born_ms: int

    @property
    def place(self) -> str:
        """``cluster/broker/topic/queue/offset`` of the row."""
        return f"{self.queue}/{self.offset}"


def check_rows(schema: StructType) -> None:
    """``Invalid`` if a frame of this schema has not what a message needs."""
    kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
    missing = [name for name in REQUIRED if name not in kinds]
    if missing:
        raise Invalid(
            "the frame lacks columns that a message is made of", missing=", ".join(missing),
            hint="leave the source's option columns out, or name these too; keys and tags come with properties",
        )  # fmt: skip
    for name, allowed in {**REQUIRED, **OPTIONAL}.items():
        if name in kinds and kinds[name] not in allowed:
            raise Invalid(
                f"the column {name} has a type that cannot be sent", found=kinds[name], expected=" or ".join(allowed),
                hint=f"cast it: withColumn('{name}', …)",
            )  # fmt: skip


def outgoing(
    batch: pa.RecordBatch, queue: str, replay_id: str, now_ms: int, sent: Sent
) -> Iterator[Outgoing]:
    """The messages of a batch that were not sent before. ``queue``: the option, by which lanes are made.

    Lanes take turns, so that neighbours seldom wait for each other; within a lane the order is that of the batch. ``Invalid``
    if a row lacks its body or place, or has a property that no message can have.
    """
    _check_nulls(batch)
    places = _queues(batch).dictionary_encode()
    codes = places.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    names = places.dictionary.to_pylist()
    offsets = batch["queue_offset"].cast(pa.int64()).to_numpy(zero_copy_only=False)
    good = np.ones(len(codes), np.bool_)
    for code, name in enumerate(names):
        rows = np.flatnonzero(codes == code)
        good[rows] = ~sent(name, offsets[rows])
    chosen = np.flatnonzero(good)
    lanes = _lanes(batch, codes)[chosen] if queue == "hash" else codes[chosen]
    order = np.arange(len(chosen)) if queue == "spread" else np.argsort(_turns(lanes), kind="stable")
    chosen, lanes = chosen[order], lanes[order]
    for start in range(0, len(chosen), _SLICE):
        rows = chosen[start : start + _SLICE]
        part = batch.take(pa.array(rows))
        texts = _properties(part, replay_id).to_pylist()
        bodies = part["body"].cast(pa.large_binary()).to_pylist()
        columns = zip(
            codes[rows].tolist(), offsets[rows].tolist(), part["broker"].to_pylist(), part["queue_id"].to_pylist(),
            lanes[start : start + _SLICE].tolist(), bodies, texts, _sys_flags(part, bodies), _flags(part),
            _born(part, now_ms),
        )  # fmt: skip
        for code, *values in columns:
            yield Outgoing(names[code], *values)


def _check_nulls(batch: pa.RecordBatch) -> None:
    for name in REQUIRED:
        if name != "properties" and batch[name].null_count:
            row = int(np.flatnonzero(batch[name].is_null().to_numpy(zero_copy_only=False))[0])
            raise Invalid(
                "a row cannot be sent, as a value is null", column=name, row=_row_place(batch, row),
                hint=f"filter(\"{name} is not null\"), or give it a value",
            )  # fmt: skip
    if "keys" in batch.schema.names and pc.list_flatten(batch["keys"]).null_count:
        bad = pc.list_parent_indices(batch["keys"]).filter(pc.is_null(pc.list_flatten(batch["keys"])))
        raise Invalid(
            "a row cannot be sent, as one of its keys is null", column="keys", row=_row_place(batch, bad[0].as_py()),
            hint="withColumn('keys', array_compact('keys')) leaves such keys out",
        )  # fmt: skip


def _row_place(batch: pa.RecordBatch, row: int) -> str:
    names = ("cluster", "broker", "topic", "queue_id", "queue_offset")
    return "/".join(str(batch[name][row].as_py()) for name in names)


def _queues(batch: pa.RecordBatch) -> pa.Array:
    """``cluster/broker/topic/queue`` of each row."""
    parts = [batch[name].cast(pa.large_string()) for name in ("cluster", "broker", "topic", "queue_id")]
    return pc.binary_join_element_wise(*parts, pa.scalar("/", pa.large_string()))


def _lanes(batch: pa.RecordBatch, codes: Ints) -> Ints:
    """A number of the keys of each row; of its source queue, where it has none."""
    texts = _keys_text(batch)
    places = _queues(batch)
    texts = pc.if_else(pc.equal(pc.fill_null(texts, ""), ""), places, texts).dictionary_encode()
    numbers = np.array([key_hash("", text) >> 1 for text in texts.dictionary.to_pylist()], np.int64)
    found: Ints = numbers[texts.indices.to_numpy(zero_copy_only=False)] if len(numbers) else codes
    return found


def _turns(lanes: Ints) -> Ints:
    """How many rows of the same lane come before each."""
    order = np.argsort(lanes, kind="stable")
    ordered = lanes[order]
    begins = np.searchsorted(ordered, ordered, side="left")
    turns = np.empty(len(lanes), np.int64)
    turns[order] = np.arange(len(lanes)) - begins
    return turns


def _sys_flags(part: pa.RecordBatch, bodies: list[bytes]) -> list[int]:
    """Flags that fit the bodies: one that was compressed when it was stored and is not what was stored came decompressed."""
    stored = part["sys_flag"].cast(pa.int64()).to_numpy(zero_copy_only=False)
    flags = stored & (KEPT_SYS_FLAGS | SYS_INNER_BATCH)  # the latter for the sender to see
    flags[stored & SYS_COMPRESSED == 0] &= ~np.int64(_COMPRESSION)
    sums = part["body_crc"]
    for row in np.flatnonzero(stored & SYS_COMPRESSED).tolist():
        if body_crc(bodies[row]) != sums[row].as_py():
            flags[row] &= ~_COMPRESSION
    found: list[int] = flags.tolist()
    return found


def _flags(part: pa.RecordBatch) -> list[int]:
    if "flag" not in part.schema.names:
        return [0] * part.num_rows
    found: list[int] = pc.fill_null(part["flag"].cast(pa.int64()), 0).to_pylist()
    return found


def _born(part: pa.RecordBatch, now_ms: int) -> list[int]:
    """Birth of each message in ms; now, where the frame does not say."""
    if "born_timestamp" not in part.schema.names:
        return [now_ms] * part.num_rows
    column = part["born_timestamp"]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    found: list[int] = pc.fill_null(column.cast(pa.int64()), now_ms).to_pylist()
    return found


# ---- properties


def _properties(part: pa.RecordBatch, replay_id: str) -> pa.Array:
    """The properties of each row as a send carries them: ``name 0x01 value 0x02`` for each."""
    drops = (
        NEW_MESSAGE.names
        | {ORIGIN, REPLAY}
        | {name for name, column in (("TAGS", "tags"), ("KEYS", "keys")) if column in part.schema.names}
    )
    names, values, row = _entries(part)
    bad = _unsendable(names, values)
    if bad.any():
        at = int(np.flatnonzero(bad)[0])
        raise Invalid(
            "a message cannot have such a property", name=repr(names[at].as_py()), value=repr(values[at].as_py())[:200],
            row=_row_place(part, int(row[at])),
            expected="name and value not empty, without the characters 1 and 2",
            hint="correct the column properties: map_filter, transform_values",
        )  # fmt: skip
    out = pc.is_in(names, pa.array(sorted(drops), names.type))
    for prefix in NEW_MESSAGE.prefixes:
        out = pc.or_(out, pc.starts_with(names, prefix))
    keep = ~out.to_numpy(zero_copy_only=False)
    names, values, row = names.filter(pa.array(keep)), values.filter(pa.array(keep)), row[keep]
    texts = _joined(_entry(names, values), row, part.num_rows)
    text: Callable[[str], pa.Scalar] = lambda value: pa.scalar(value, pa.large_string())  # noqa: E731
    more = [texts]
    if "tags" in part.schema.names:
        more.append(_optional("TAGS", part["tags"].cast(pa.large_string())))
    if "keys" in part.schema.names:
        more.append(_optional("KEYS", _keys_text(part)))
    offsets = part["queue_offset"].cast(pa.large_string())
    more.append(_entry(text(ORIGIN), pc.binary_join_element_wise(_queues(part), offsets, text("/"))))
    if replay_id:
        more.append(pa.repeat(text(f"{REPLAY}\x01{replay_id}\x02"), part.num_rows))
    return pc.binary_join_element_wise(*more, text(""))


def _entries(part: pa.RecordBatch) -> tuple[pa.Array, pa.Array, Ints]:
    """Names and values of all properties, and the row of each."""
    maps = part["properties"]
    offsets = maps.offsets.to_numpy(zero_copy_only=False).astype(np.int64)
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    row = np.repeat(np.arange(part.num_rows), np.diff(offsets))
    names, values = (
        pa.array(a.slice(first, length)).cast(pa.large_string()) for a in (maps.keys, maps.items)
    )
    return names, values, row


def _unsendable(names: pa.Array, values: pa.Array) -> npt.NDArray[np.bool_]:
    bad = pc.or_(
        pc.match_substring_regex(names, "^$|[\x01\x02]"), pc.match_substring_regex(values, "^$|\x02")
    )
    found: npt.NDArray[np.bool_] = pc.fill_null(bad, True).to_numpy(zero_copy_only=False)
    return found


def _entry(name: Any, value: Any) -> pa.Array:
    marks = (pa.scalar("\x01", pa.large_string()), pa.scalar("\x02", pa.large_string()))
    return pc.binary_join_element_wise(name, marks[0], value, marks[1], pa.scalar("", pa.large_string()))


def _optional(name: str, values: pa.Array) -> pa.Array:
    """An entry for each row, nothing for a null or empty value. ``Invalid`` for a value that no property can have."""
    if pc.any(pc.match_substring(values, "\x02")).as_py():
        raise Invalid(f"a value of {name.lower()} has the character 2, which divides properties", column=name.lower(),
                      hint="leave it out: translate()")  # fmt: skip
    values = pc.if_else(pc.equal(values, ""), pa.scalar(None, values.type), values)
    return pc.fill_null(_entry(pa.scalar(name, pa.large_string()), values), "")


def _keys_text(part: pa.RecordBatch) -> pa.Array:
    """KEYS of each row: that of the properties, unless the column ``keys`` has other ones; null for none."""
    maps = part["properties"]
    before = pc.map_lookup(maps, pa.scalar("KEYS", maps.type.key_type), "last").cast(pa.large_string())
    if "keys" not in part.schema.names:
        return before
    blank = pa.scalar(" ", pa.large_string())
    now = pc.binary_join(part["keys"].cast(pa.large_list(pa.large_string())), blank)
    as_words = pc.binary_join(words(before.cast(pa.string())).cast(pa.large_list(pa.large_string())), blank)
    same = pc.fill_null(pc.equal(as_words, now), False)
    return pc.if_else(same, before, now)


def _joined(entries: pa.Array, row: Ints, rows: int) -> pa.Array:
    """Entries back to back, for each row."""
    offsets = np.searchsorted(row, np.arange(rows + 1)).astype(np.int64)
    lists = pa.LargeListArray.from_arrays(pa.array(offsets), entries)
    return pc.binary_join(lists, pa.scalar("", pa.large_string()))
