"""From record boundaries to header fields: one pass of numpy gathers over the whole buffer, for every record
at once.

Layout of a record (big endian; RocketMQ's ``MessageDecoder``/``CommitLog``): the first 48 bytes never move;
then bornHost (8 bytes, or 20 with sysFlag 0x10), storeTimestamp, storeHost (8, or 20 with 0x20),
reconsumeTimes, preparedTransactionOffset, bodyLength, body, topicLength (1 byte in V1, 2 in V2), topic,
propertiesLength (2), properties.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt

MAGIC_V1 = 0xDAA320A7
"""A record whose topic length is one byte."""

MAGIC_V2 = 0xDAA320AB
"""A record whose topic length is two bytes; written for topics longer than 127 bytes."""

MAGIC_BLANK = 0xCBD43194
"""The filler that closes a commitlog file."""

MIN_RECORD_BYTES = 91
"""A V1 record with IPv4 hosts and no body, topic or properties."""

BLANK_HEADER_BYTES = 8
"""Size and magic of a blank record; the broker keeps at least this much room at the end of a file."""

PHYSICAL_OFFSET_AT = 28
"""Where a record keeps its own physical offset."""

SYS_COMPRESSED = 0x1
SYS_TRANSACTION = 0xC
SYS_PREPARED = 0x4
SYS_COMMIT = 0x8
SYS_ROLLBACK = 0xC
SYS_BORN_V6 = 0x10
SYS_STORE_V6 = 0x20
SYS_INNER_BATCH = 0x80

MAX_V1_TOPIC_BYTES = 127
"""Brokers read the one-byte length as signed."""

HEADER_DTYPE = np.dtype(
    [
        ("position", "i8"),
        ("size", "i4"),
        ("version", "u1"),
        ("body_crc", "u4"),
        ("queue_id", "i4"),
        ("flag", "i4"),
        ("queue_offset", "i8"),
        ("physical_offset", "i8"),
        ("sys_flag", "i4"),
        ("born_timestamp", "i8"),
        ("store_timestamp", "i8"),
        ("reconsume_times", "i4"),
        ("prepared_transaction_offset", "i8"),
        ("body_position", "i8"),
        ("body_length", "i4"),
        ("topic_index", "i4"),
        ("properties_position", "i8"),
        ("properties_length", "i4"),
    ]
)
"""One row per record, native byte order. Positions are in the buffer, times in ms since the epoch, lengths in
bytes.
"""

FIXED_DTYPE = np.dtype(
    [
        ("size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
    ]
)
"""The 48 bytes that never move, as they lie in the record."""

_FROM_FIXED = (
    "body_crc",
    "queue_id",
    "flag",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "born_timestamp",
)


@dataclass(frozen=True, slots=True)
class Flaw:
    """The first record that is not what it says: its row, and why."""

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class Headers:
    """Headers of the rows before the first flaw, and where their topics lie (``topic_index`` not filled
    in).
    """

    rows: npt.NDArray[np.void]
    topic_positions: Ints
    topic_lengths: Ints
    flaw: Flaw | None


def gather(buffer: Buffer, positions: Ints, dtype: np.dtype[np.void] | str) -> npt.NDArray[np.void]:
    """The ``dtype`` values that start at byte ``positions``, one per position; each must lie inside the
    buffer.

    A stride-1 array of overlapping items makes this one C-level copy per row, with no index matrix.
    """
    kind = np.dtype(dtype)
    if len(positions) == 0:
        return np.empty(0, kind)
    span = memoryview(buffer).nbytes - kind.itemsize + 1
    opaque = np.dtype((np.void, kind.itemsize)) if kind.names is not None else kind
    windows: npt.NDArray[np.void] = np.ndarray((max(span, 0),), opaque, buffer=buffer, strides=(1,))
    return windows[positions].view(kind)


def check_bounds(buffer: Buffer, starts: Ints, sizes: Ints) -> None:
    """``Corrupt`` unless every [start, start + size) is at least a minimal record and lies inside the
    buffer.
    """
    length = memoryview(buffer).nbytes
    bad = (starts < 0) | (sizes < MIN_RECORD_BYTES) | (sizes > length) | (starts > length - sizes)
    if bad.any():
        row = int(bad.argmax())
        raise Corrupt(
            "a record boundary lies outside its buffer",
            position=int(starts[row]),
            found=int(sizes[row]),
            expected=f"{MIN_RECORD_BYTES} bytes or more, inside {length} bytes",
        )


def read_headers(buffer: Buffer, starts: Ints, sizes: Ints) -> Headers:
    """Gather every header field and prove that the inner lengths of each record add up to its size.

    Stops before the first record that lies (``flaw``). Raises ``Corrupt`` if a boundary is outside the
    buffer.
    """
    check_bounds(buffer, starts, sizes)
    return _Reader(buffer, starts, sizes).read()


class _Reader:
    """The columns in the making. Every check cuts all of them at its first bad row, so the last flaw is the
    earliest.
    """

    def __init__(self, buffer: Buffer, starts: Ints, sizes: Ints) -> None:
        self.buffer = buffer
        self.columns: dict[str, npt.NDArray[Any]] = {"position": starts, "size": sizes}
        self.flaw: Flaw | None = None

    def read(self) -> Headers:
        column = self.columns
        fixed = gather(self.buffer, self._int("position"), FIXED_DTYPE)
        column["fixed"] = fixed
        magic = fixed["magic"]
        column["v2"] = (magic == MAGIC_V2).astype(np.int64)
        self._keep((magic == MAGIC_V1) | (magic == MAGIC_V2), "unknown magic")
        self._keep(column["fixed"]["size"] == self._int("size"), "size differs from the boundary found")

        # Hosts: two independent flags shift what follows.
        flags = column["fixed"]["sys_flag"].astype(np.int64)
        store_time_at = self._int("position") + 56 + 12 * ((flags & SYS_BORN_V6) >> 4)
        column["store_time_at"] = store_time_at
        column["body_at"] = store_time_at + 32 + 12 * ((flags & SYS_STORE_V6) >> 5)
        column["end"] = self._int("position") + self._int("size")
        self._keep(
            self._int("body_at") + 3 + self._int("v2") <= self._int("end"), "shorter than its own header"
        )

        column["body_length"] = gather(self.buffer, self._int("body_at") - 4, ">i4").astype(np.int64)
        column["body_end"] = self._int("body_at") + self._int("body_length")
        room = self._int("body_end") + 3 + self._int("v2") <= self._int("end")
        self._keep((self._int("body_length") >= 0) & room, "body length does not fit the record")
        self._read_topic()
        return self._result()

    def _read_topic(self) -> None:
        column = self.columns
        at, v2 = self._int("body_end"), self._int("v2")
        # One byte or two; both reads are inside the record, because two bytes of properties length follow.
        short = gather(self.buffer, at, "u1").astype(np.int64)
        topic_length = short
        if v2.any():
            topic_length = np.where(v2 == 1, gather(self.buffer, at, ">i2").astype(np.int64), short)
        limit = np.where(v2 == 1, 0x7FFF, MAX_V1_TOPIC_BYTES)
        column["topic_at"] = at + 1 + v2
        column["topic_length"] = topic_length
        column["topic_end"] = self._int("topic_at") + topic_length
        fits = self._int("topic_end") + 2 <= self._int("end")
        self._keep(
            (topic_length >= 0) & (topic_length <= limit) & fits, "topic length does not fit the record"
        )
        length = gather(self.buffer, self._int("topic_end"), ">i2").astype(np.int64)
        column["properties_length"] = length
        exact = self._int("topic_end") + 2 + length == self._int("end")
        self._keep((length >= 0) & exact, "inner lengths do not add up to the record's size")

    def _result(self) -> Headers:
        column = self.columns
        rows: npt.NDArray[np.void] = np.empty(len(column["position"]), HEADER_DTYPE)
        for name in ("position", "size", "body_length", "properties_length"):
            rows[name] = column[name]
        for name in _FROM_FIXED:
            rows[name] = column["fixed"][name]
        rows["version"] = self._int("v2") + 1
        rows["store_timestamp"] = gather(self.buffer, self._int("store_time_at"), ">i8")
        body_at = self._int("body_at")
        rows["reconsume_times"] = gather(self.buffer, body_at - 16, ">i4")
        rows["prepared_transaction_offset"] = gather(self.buffer, body_at - 12, ">i8")
        rows["body_position"] = body_at
        rows["topic_index"] = 0
        rows["properties_position"] = self._int("topic_end") + 2
        return Headers(rows, self._int("topic_at"), self._int("topic_length"), self.flaw)

    def _int(self, name: str) -> Ints:
        values: Ints = self.columns[name]
        return values

    def _keep(self, good: npt.NDArray[np.bool_], reason: str) -> None:
        if good.all():
            return
        row = int(good.argmin())
        self.flaw = Flaw(row, reason)
        for name, values in self.columns.items():
            self.columns[name] = values[:row]
