"""Rows of a segment made of given records, and what their columns must be by the slow parser that ``tiered read`` shows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from tests.kit.oddrecords import OddRecord
from tiered.codec.arrow.messagerows import StoredRows
from tiered.codec.record.message import Message, decode_message, message_fields

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of(records: Sequence[OddRecord], topic: str = "T", commit_seq: int = 7) -> StoredRows:
    """Records that are archived one after the other."""
    edges = np.fromiter(accumulate((len(r.raw) for r in records), initial=0), np.int64)
    return StoredRows(
        topic,
        b"".join(r.raw for r in records),
        edges,
        np.array([r.queue_id for r in records], np.int32),
        np.array([r.queue_offset for r in records], np.int64),
        np.full(len(records), commit_seq, np.int64),
    )


def of_messages(messages: Sequence[Message], encoded: Sequence[bytes]) -> list[OddRecord]:
    """Messages archived where they say they lie."""
    return [OddRecord(raw, m.queue_id, m.queue_offset) for m, raw in zip(messages, encoded, strict=True)]


def expected_row(record: OddRecord, topic: str) -> dict[str, Any]:
    """What a reader that goes message by message shows of a sound record; without ``record`` and ``commit_seq``."""
    message = decode_message(record.raw)
    found = message_fields(record.queue_offset, message)
    for name in ("store_timestamp", "born_timestamp"):
        found[name] = instant(found[name])
    magic = int.from_bytes(record.raw[4:8], "big", signed=True)
    method = ("zlib", "lz4", "zstd", "zlib")[message.sys_flag >> 8 & 3] if message.sys_flag & 1 else "plain"
    if message.sys_flag & 1 and message.sys_flag & 0x400:
        method = "unknown"
    found |= {"topic": topic, "queue_id": record.queue_id, "magic": magic, "body": message.body}
    return {**found, "body_encoding": method}


def instant(ms: Any) -> datetime | None:
    """A time in ms; ``None`` outside the years 1 to 9999."""
    try:
        return EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        return None


def shown(columns: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Rows as ``expected_row`` has them, and ``record``."""
    rows: list[dict[str, Any]] = columns.drop_columns(["commit_seq"]).to_pylist()
    for row in rows:
        if row["properties"] is not None:
            row["properties"] = dict(row["properties"])
    return rows
