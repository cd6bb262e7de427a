"""Segments: writing and reading them beside pyarrow alone on the same table, in CPU time of one thread each."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.bench.run import Row, expect
from tests.kit.segments import ARCHIVE, OBJECT, MadeSegment, opened, whole
from tiered.archive.rewrite.seal import BAND_BYTES, ROW_GROUP_BYTES
from tiered.codec.arrow.assemble import ASSEMBLED_FROM
from tiered.codec.record.message import Message, encode_message
from tiered.codec.segment.cutting import RunPart, joined_records
from tiered.codec.segment.writer import SealedSegment, SegmentWriter, parquet_writer
from tiered.codec.zstd import deflate
from tiered.errors import Corrupt
from tiered.settings import Dispatch

ROUNDS = 5
QUEUES = 4
BODY_BYTES = 1024
_WORDS = 2000
FIRST_MS = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Written:
    """A segment, its row groups as tables, and the bytes of its records."""

    segment: MadeSegment
    tables: list[pa.Table]
    record_bytes: int


def segments(messages: int) -> list[Row]:
    """Writing with the proof of every record; reading row groups, decoding and assembling them; size at rest."""
    parts = message_parts(messages)
    size = sum(part.size_bytes for part in parts)
    data, sealed = sealed_bytes(parts)
    expect(sealed.rows, messages, "messages were sealed")
    source = pa.BufferReader(data)
    file = pq.ParquetFile(source)
    groups = file.num_row_groups
    tables = [file.read_row_group(n) for n in range(groups)]
    made = Written(MadeSegment(data, sealed), tables, size)
    stored = _blocks(parts)
    per = len(data) / messages
    return [
        _row("seal: columns, proof, Parquet", size, lambda: sealed_bytes(parts), lambda: _write_alone(made), "≥ 0.5"),
        _row("read row groups, records", size, lambda: _read(made), lambda: _read_alone(made, None), "≥ 0.5"),
        _row("… beside the columns that records need", size, lambda: _read(made),
             lambda: _read_alone(made, list(ASSEMBLED_FROM)), "-"),
        Row(f"a message of {size // messages} bytes at rest", f"{per:.0f} bytes",
            f"{stored / messages:.0f} bytes, in a block of level 0, without tables", f"{len(data) / stored:.2f}", "-"),
    ]  # fmt: skip


def _row(what: str, size: int, ours: Callable[[], object], alone: Callable[[], object], target: str) -> Row:
    """Rounds in turn, so that whatever else the machine does meets both; the best of each."""
    took: list[float] = []
    beside: list[float] = []
    for _ in range(ROUNDS):
        took.append(_cpu(ours))
        beside.append(_cpu(alone))
    rate, base = size / min(took) / 1e6, size / min(beside) / 1e6
    return Row(
        what,
        f"{rate:.0f} MB/s of records a core",
        f"{base:.0f} MB/s, pyarrow alone",
        f"{rate / base:.2f}",
        target,
    )


def _cpu(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def message_parts(messages: int, first_ms: int = FIRST_MS) -> list[RunPart]:
    """A run for each queue, of bodies made of words; a message a millisecond."""
    chance = random.Random(1)
    words = [bytes(chance.choices(range(97, 123), k=chance.randrange(2, 9))) + b" " for _ in range(_WORDS)]
    parts, at, each = [], 0, messages // QUEUES
    for queue in range(QUEUES):
        rows = each if queue else messages - each * (QUEUES - 1)
        encoded = []
        for offset in range(rows):
            body = b"".join(chance.choices(words, k=BODY_BYTES // 3))[:BODY_BYTES]
            encoded.append(encode_message(_message(queue, offset, at, body, first_ms)))
            at += QUEUES * len(encoded[-1])
        edges = np.fromiter(accumulate(map(len, encoded), initial=0), np.int64, rows + 1)
        offsets = np.arange(rows, dtype=np.int64)
        parts.append(RunPart(queue, 0, b"".join(encoded), edges, offsets, rows, 0, offsets // 1000, True))
    return parts


def _message(queue: int, offset: int, at: int, body: bytes, first_ms: int) -> Message:
    now = first_ms + offset
    properties = {
        "UNIQ_KEY": f"7F0000010B2818B4AAC2{at:012X}", "KEYS": f"order-{at}", "TAGS": "ABC"[offset % 3],
        "CLUSTER": "DefaultCluster", "WAIT": "true",
    }  # fmt: skip
    return Message(
        "T", queue, offset, at, body, properties, born_timestamp=now - 2, store_timestamp=now,
        born_host=f"10.0.0.{offset % 50}:{40_000 + offset % 50}",
    )  # fmt: skip


def sealed_bytes(parts: list[RunPart]) -> tuple[bytes, SealedSegment]:
    """A segment of these runs."""
    writer = SegmentWriter(
        "T", archive_id=ARCHIVE, object_id=OBJECT, row_group_bytes=ROW_GROUP_BYTES, band_bytes=BAND_BYTES,
        nullable=(),
    )  # fmt: skip
    pieces = [piece for part in parts for piece in writer.add(part)] + writer.close()
    assert writer.sealed is not None
    return b"".join(pieces), writer.sealed


def _write_alone(made: Written) -> None:
    """The very writer, given tables that are ready."""
    sink = pa.BufferOutputStream()
    band_rows = int(opened(made.segment.data).directory.groups["band_rows"].max())
    with parquet_writer(sink, made.tables[0], band_rows=band_rows) as file:
        for table in made.tables:
            file.write_table(table, row_group_size=table.num_rows)


def _read(made: Written) -> None:
    """As a scan reads on: each row group's bands are there, and decoded as many at once as the reader sees fit."""
    segment, data, rows = opened(made.segment.data), memoryview(made.segment.data), 0
    for number in range(len(segment.directory.groups)):
        bands = segment.directory.bands_of(number)
        for found in segment.each_band(bands, whole(segment, data, bands)):
            if isinstance(found, Corrupt):
                raise found
            rows += len(found.edges) - 1
    expect(rows, made.segment.sealed.rows)


def _read_alone(made: Written, columns: list[str] | None) -> None:
    file = pq.ParquetFile(pa.BufferReader(made.segment.data))
    rows = sum(
        file.read_row_group(n, columns=columns, use_threads=False).num_rows
        for n in range(file.num_row_groups)
    )
    expect(rows, made.segment.sealed.rows)


def _blocks(parts: list[RunPart]) -> int:
    """The same records as blocks of level 0, without their tables."""
    writing = Dispatch()
    size = writing.block_bytes
    pieces = (
        joined_records([part])[at : at + size] for part in parts for at in range(0, part.size_bytes, size)
    )
    return sum(len(deflate(piece, level=writing.compression_level)) for piece in pieces)
