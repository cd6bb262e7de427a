"""Messages that are given to somebody else, as a table, and as a Parquet file that needs nothing of an archive to be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tiered.codec.arrow.arrays import chosen
from tiered.codec.arrow.columns import RecordColumns
from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import SYS_COMPRESSED
from tiered.codec.record.unpack import plain_bodies
from tiered.codec.types import Ints

_OF_ARCHIVES = ("magic", "commit_seq", "record", "body_encoding")
GIVEN_SCHEMA = pa.schema([field for field in MESSAGE_SCHEMA if field.name not in _OF_ARCHIVES])
"""Names, types and meaning are those of ``tiered_spark.columns``, without what only an archive can say."""

_MOST_BODY_BYTES = 256 << 20
_ROW_GROUP_BYTES = 8 << 20


def given_table(messages: MessageBatch, rows: Ints) -> pa.Table:
    """These rows as a table of ``GIVEN_SCHEMA``: nothing of the buffer is kept. A body is as its consumers see it; where
    that cannot be, it is as it is stored, and ``sys_flag`` still says that it is compressed."""
    headers = messages.headers[rows]
    bodies: list[bytes] | None = None
    if (headers["sys_flag"] & SYS_COMPRESSED).any():
        seen = list(plain_bodies(messages, rows, _MOST_BODY_BYTES))
        bodies = [body for body, _ in seen]
        plain = ~np.fromiter((packed for _, packed in seen), bool, len(seen))
        headers["sys_flag"][plain] &= ~SYS_COMPRESSED
    records = RecordColumns(messages.buffer, headers)
    arrays = []
    for field in GIVEN_SCHEMA:
        if field.name == "topic":
            made = chosen(list(messages.topics), headers["topic_index"].astype(np.int64))
        elif bodies is not None and field.name in ("body", "body_size"):
            made = pa.array(bodies if field.name == "body" else list(map(len, bodies)), field.type)
        else:
            made = records.column(field.name, field.type)
        arrays.append(made if made.type == field.type else made.cast(field.type))
    return pa.Table.from_arrays(arrays, schema=GIVEN_SCHEMA)


class ParquetFile:
    """A Parquet file in the making, compressed with zstd; a row group for every 8 MiB of records."""

    suffix = "parquet"

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer: Any = None
        self._waiting: list[pa.Table] = []
        self._waiting_bytes = 0
        self.messages = 0

    @property
    def size(self) -> int:
        """Bytes so far, about."""
        return int(self._sink.tell()) + self._waiting_bytes

    def add(self, batch: tuple[MessageBatch, Ints]) -> None:
        """Append rows of messages."""
        messages, rows = batch
        table = given_table(messages, rows)
        self._waiting.append(table)
        self._waiting_bytes += table.nbytes
        self.messages += len(table)
        if self._waiting_bytes >= _ROW_GROUP_BYTES:
            self._put_group()

    def take(self) -> bytes:
        """The whole file; the next one begins."""
        self._put_group()
        self._writer.close()
        whole: bytes = self._sink.getvalue().to_pybytes()
        self._begin()
        return whole

    def _put_group(self) -> None:
        if self._writer is None:
            self._writer = pq.ParquetWriter(self._sink, GIVEN_SCHEMA, compression="zstd")
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
        self._waiting, self._waiting_bytes = [], 0


def given_rows(data: bytes, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Some columns of such a file, so many rows at a time. ``ValueError`` if it is none."""
    yield from pq.ParquetFile(pa.BufferReader(data)).iter_batches(rows, columns=list(columns))


def joined_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables of ``GIVEN_SCHEMA`` one behind the other; an empty one of none."""
    return pa.concat_tables(tables) if tables else GIVEN_SCHEMA.empty_table()
