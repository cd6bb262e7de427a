"""From record boundaries to header fields: one pass of numpy gathers over the whole buffer, for every record at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.record.layout import (
    BEFORE_BODY,
    BODY_LENGTH,
    MAGIC_V1,
    MAGIC_V2,
    MAX_V1_TOPIC_BYTES,
    MIN_RECORD_BYTES,
    PREPARED_OFFSET_BEFORE_BODY,
    SYS_BORN_V6,
    SYS_STORE_V6,
    V4_HEAD_DTYPE,
    body_behind,
    store_time_at,
)
from tiered.codec.record.ragged import gather
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt

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
        self.short_hosts = False
        """Whether all hosts are IPv4: then the head that was gathered is all that lies before a body."""

    def read(self) -> Headers:
        column = self.columns
        # One gather for all that lies before the body of a record with IPv4 hosts: no record is shorter.
        fixed = gather(self.buffer, self._int("position"), V4_HEAD_DTYPE)
        column["fixed"] = fixed
        magic = fixed["magic"]
        column["v2"] = (magic == MAGIC_V2).astype(np.int64)
        self._keep((magic == MAGIC_V1) | (magic == MAGIC_V2), "unknown magic")
        self._keep(column["fixed"]["size"] == self._int("size"), "size differs from the boundary found")

        # Hosts: two independent flags shift what follows.
        flags = column["fixed"]["sys_flag"].astype(np.int64)
        column["store_time_at"] = self._int("position") + store_time_at(flags)
        column["body_at"] = body_behind(self._int("store_time_at"), flags)
        column["end"] = self._int("position") + self._int("size")
        self._keep(
            self._int("body_at") + 3 + self._int("v2") <= self._int("end"), "shorter than its own header"
        )

        self.short_hosts = not (flags & (SYS_BORN_V6 | SYS_STORE_V6)).any()
        column["body_length"] = self._before_body("body_length", BODY_LENGTH.size, ">i4").astype(np.int64)
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
        rows["store_timestamp"] = (
            column["fixed"]["store_timestamp"]
            if self.short_hosts
            else gather(self.buffer, self._int("store_time_at"), ">i8")
        )
        rows["reconsume_times"] = self._before_body("reconsume_times", BEFORE_BODY.size, ">i4")
        rows["prepared_transaction_offset"] = self._before_body(
            "prepared_transaction_offset", PREPARED_OFFSET_BEFORE_BODY, ">i8"
        )
        rows["body_position"] = self._int("body_at")
        rows["topic_index"] = 0
        rows["properties_position"] = self._int("topic_end") + 2
        return Headers(rows, self._int("topic_at"), self._int("topic_length"), self.flaw)

    def _before_body(self, name: str, distance: int, kind: str) -> npt.NDArray[Any]:
        """A field that lies so many bytes before the body."""
        if self.short_hosts:
            found: npt.NDArray[Any] = self.columns["fixed"][name]
            return found
        return gather(self.buffer, self._int("body_at") - distance, kind)

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
