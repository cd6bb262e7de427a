"""Records of one topic and what the archive says of each, as one Arrow table: the columns of a Parquet segment."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tiered.codec.arrow.arrays import back_to_back, repeated
from tiered.codec.arrow.columns import RecordColumns
from tiered.codec.record.header import read_headers
from tiered.codec.record.layout import MAGIC_V1, MAGIC_V2
from tiered.codec.types import Buffer, Ints

_TEXT, _TIME = pa.string(), pa.timestamp("us", tz="UTC")

MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("topic", _TEXT, nullable=False),
        pa.field("queue_id", pa.int32(), nullable=False),
        pa.field("queue_offset", pa.int64(), nullable=False),
        ("physical_offset", pa.int64()),
        ("store_timestamp", _TIME),
        ("born_timestamp", _TIME),
        ("store_host", _TEXT),
        ("born_host", _TEXT),
        ("sys_flag", pa.int32()),
        ("flag", pa.int32()),
        ("reconsume_times", pa.int32()),
        ("prepared_transaction_offset", pa.int64()),
        ("body_crc", pa.int64()),
        ("magic", pa.int32()),
        ("tags", _TEXT),
        ("keys", pa.list_(pa.field("element", _TEXT))),
        ("unique_key", _TEXT),
        ("msg_id", _TEXT),
        ("properties", pa.map_(_TEXT, _TEXT)),
        ("body_size", pa.int32()),
        ("body_encoding", _TEXT),
        pa.field("commit_seq", pa.int64(), nullable=False),
        ("record", pa.binary()),
        ("body", pa.binary()),
    ]
)
"""Names, types and meaning are those of ``tiered_spark.columns``. ``topic``, ``queue_id`` and ``queue_offset`` are the
archive's: those of the queue that a record was archived in. ``magic`` is RocketMQ's signed number. ``body_encoding``: how the
client compressed the body, for people, whose engines do not tell. ``commit_seq``: the commit that archived the row. ``record``:
the verbatim bytes, only where the other columns would not give them back. ``body`` is the last: a reader of records fetches its
pages one by one, and what lies before them as a whole."""

RECORD = "record"

_ARCHIVE = ("topic", "queue_id", "queue_offset", "commit_seq", RECORD)
"""What is no field of the record."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Records of one topic, back to back in ``buffer`` between ``edges`` (one more than there are records).

    ``queue_id``, ``queue_offset`` and ``commit_seq`` are what the archive says of each. ``topic`` is as the archive names it:
    bytes that are not UTF-8 are surrogates.
    """

    topic: str
    buffer: Buffer
    edges: Ints
    queue_id: npt.NDArray[np.int32]
    queue_offset: Ints
    commit_seq: Ints

    def __len__(self) -> int:
        return len(self.edges) - 1

    def records(self) -> pa.Array:
        """The verbatim records as binary values."""
        return back_to_back(self.buffer, self.edges)


def message_columns(rows: StoredRows) -> pa.RecordBatch:
    """Every column of ``MESSAGE_SCHEMA``; ``record`` is null throughout. Of a record that is not what its header says, whatever
    is a field of it is null. ``Corrupt`` if something is too short to be a record at all."""
    arrays: dict[str, pa.Array] = {
        "topic": repeated(rows.topic.encode(errors="surrogateescape").decode(errors="replace"), len(rows)),
        "queue_id": pa.array(rows.queue_id, pa.int32()),
        "queue_offset": pa.array(rows.queue_offset, pa.int64()),
        "commit_seq": pa.array(rows.commit_seq, pa.int64()),
        RECORD: pa.nulls(len(rows), pa.binary()),
    }
    headers, sound = _sound_headers(rows)
    records = RecordColumns(rows.buffer, headers)
    place = None
    if not sound.all():
        place = pa.array(np.cumsum(sound) - 1, mask=~sound)
    for field in MESSAGE_SCHEMA:
        if field.name not in _ARCHIVE:
            made = _field(records, field)
            arrays[field.name] = made if place is None else made.take(place)
    return pa.RecordBatch.from_arrays([arrays[name] for name in MESSAGE_SCHEMA.names], schema=MESSAGE_SCHEMA)


def _field(records: RecordColumns, field: pa.Field) -> pa.Array:
    if field.name == "magic":
        signed = np.array([MAGIC_V1, MAGIC_V2], np.uint32).view(np.int32)
        return pa.array(signed[records.headers["version"].astype(np.int64) - 1])
    made = records.column(field.name, field.type)
    return made if made.type == field.type else made.cast(field.type)


def _sound_headers(rows: StoredRows) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Headers of the records that are what their headers say, and which ones those are."""
    sound: npt.NDArray[np.bool_] = np.zeros(len(rows), np.bool_)
    parts = []
    for first, headers in _stretches(rows, 0, len(rows)):
        sound[first : first + len(headers)] = True
        parts.append(headers)
    return (parts[0] if len(parts) == 1 else np.concatenate(parts)), sound


def _stretches(rows: StoredRows, first: int, end: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """(first row, headers) of stretches of sound records.

    Halves are looked at where a whole is not sound: a few bad records among many cost a few more looks.
    """
    starts = rows.edges[first:end]
    found = read_headers(rows.buffer, starts, rows.edges[first + 1 : end + 1] - starts)
    if found.flaw is None or end - first == 1:
        yield first, found.rows
        return
    middle = (first + end) // 2
    yield from _stretches(rows, first, middle)
    yield from _stretches(rows, middle, end)
