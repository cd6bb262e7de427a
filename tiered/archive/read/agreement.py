"""Whether an object's records are what its tables say of them: columns, runs, queue offsets, and the records' own sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.read.objects import BlockSlice
from tiered.archive.read.runs import row_offsets, stretch_offsets
from tiered.codec.format.block import BlockTable
from tiered.codec.format.directory import Directory
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Frames, Stop, edges_of, scan
from tiered.codec.record.properties import tags_codes
from tiered.codec.types import Bools, Buffer
from tiered.errors import Corrupt
from tiered.model import OFF_QUEUE_TOPIC, MessageQueue

COMPARED = {
    "size": "size",
    "physical_offset": "physical_offset",
    "store_timestamp": "store_timestamp",
    "born_timestamp": "born_timestamp",
    "sys_flag": "sys_flag",
    "body_crc": "body_crc",
    "body_length": "body_length",
}
"""Columns of an object and the record headers they must equal."""

NAMES = (*COMPARED, "tags_code", "queue_offsets")
"""Columns that records are compared with."""

Columns = Mapping[str, npt.NDArray[np.generic]]


def queue_of(directory: Directory, run: int) -> MessageQueue:
    """The queue of a run of an object."""
    row = directory.runs[run]
    return MessageQueue(directory.topics[int(row["topic"])], int(row["queue_id"]))


def agree(data: Buffer, table: BlockTable, columns: Columns, directory: Directory) -> bool:
    """Whether neighbouring blocks, of whatever runs, hold exactly the records that ``columns`` and ``directory`` describe.

    ``data``: their raw bytes; ``table``: their rows of the block table; ``columns``: of their rows. All of them at once: a
    block of few records costs no more than its bytes. ``check_block`` names what is wrong where they do not agree.
    """
    sizes = columns["size"].astype(np.int64)
    edges = np.append(0, np.cumsum(sizes))
    row_ends = np.cumsum(table["rows"], dtype=np.int64)
    raw_ends = np.cumsum(table["raw_length"], dtype=np.int64)
    if (row_ends[-1], raw_ends[-1]) != (len(sizes), len(data)) or (edges[row_ends] != raw_ends).any():
        return False
    frames = Frames(edges[:-1], sizes, len(data), Stop.END)
    try:
        whole, batch = verify_headers(data, frames, None)
    except Corrupt:
        return False
    headers = batch.headers
    return (
        len(whole) == len(sizes)
        and all(np.array_equal(columns[column], headers[header]) for column, header in COMPARED.items())
        and np.array_equal(columns["tags_code"], tags_codes(batch))
        and bool(_placed(headers, batch.topics, table, columns["queue_offsets"], directory).all())
    )


def _placed(
    headers: npt.NDArray[np.void],
    topics: tuple[str, ...],
    table: BlockTable,
    owned: npt.NDArray[Any],
    directory: Directory,
) -> Bools:
    """Which records name the queue, and the offset in it, at which their block has them. Those outside of queues have none."""
    begins = np.flatnonzero(np.diff(table["run"], prepend=-1))
    counts = np.add.reduceat(table["rows"].astype(np.int64), begins)
    firsts = table["first_queue_offset"][begins].astype(np.int64)
    runs = directory.runs[table["run"][begins]]
    offsets = stretch_offsets(firsts, counts, owned, np.ones(len(runs), np.bool_))
    known = {topic: number for number, topic in enumerate(directory.topics)}
    named = np.array([known.get(topic, -1) for topic in topics])[headers["topic_index"]]
    right = (
        (headers["queue_offset"] == offsets)
        & (headers["queue_id"] == np.repeat(runs["queue_id"], counts))
        & (named == np.repeat(runs["topic"], counts))
    )
    found: Bools = right | np.repeat(runs["topic"] == known.get(OFF_QUEUE_TOPIC, -1), counts)
    return found


def check_block(piece: BlockSlice, columns: Columns, queue: MessageQueue, key: str) -> None:
    """The records of a block, or of neighbouring ones of a queue, are whole and are what the columns say. ``Corrupt``
    otherwise."""
    edges = edges_of(piece.data, piece.rows)
    if edges is None:  # not one record behind the other: a walk says where that ends
        frames = scan(piece.data, base=None, max_record_bytes=len(piece.data))
    else:
        frames = Frames(edges[:-1], np.diff(edges), int(edges[-1]), Stop.END)
    whole, batch = verify_headers(piece.data, frames, None)
    if len(whole.starts) != piece.rows or whole.end != len(piece.data):
        raise Corrupt("a block's records are damaged", key=key, position=whole.end, detail=whole.detail)
    for column, header in COMPARED.items():
        if not np.array_equal(columns[column].astype(np.int64), batch.headers[header].astype(np.int64)):
            raise Corrupt("columns and records disagree", key=key, column=column, queue=queue)
    if not np.array_equal(columns["tags_code"], tags_codes(batch)):
        raise Corrupt("columns and records disagree", key=key, column="tags_code", queue=queue)
    if queue.topic == OFF_QUEUE_TOPIC:
        return
    offsets = row_offsets(piece.first_queue_offset, piece.rows, columns["queue_offsets"])
    if not np.array_equal(batch.headers["queue_offset"], offsets):
        raise Corrupt("records and their place in the queue disagree", key=key, queue=queue)
    if set(batch.topics) != {queue.topic} or (batch.headers["queue_id"] != queue.queue_id).any():
        raise Corrupt("a block holds records of another queue", key=key, queue=queue, found=batch.topics)
