"""The rows of runs whose object cannot be read, made of their records, wherever those were found.

The fold says of each run what its records must add up to; nothing else of what cannot be read is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.sources import Gathered, Piece
from tiered.archive.state.keys import RUN
from tiered.codec.checksum import crc32c
from tiered.codec.format.messagerows import message_rows
from tiered.codec.format.sections import CODEC_NONE
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.properties import property_columns
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt


@dataclass(frozen=True, slots=True)
class RunRecords:
    """The live records of a run, back to back, and of each its size and first queue offset. ``commit_seq``: the commit that
    archived each; ``None`` where that is not known here. ``origin``: what they were found in, for messages."""

    data: Buffer
    sizes: Ints
    offsets: Ints
    commit_seq: Ints | None
    origin: str


def regathered(job: Job, found: Sequence[RunRecords]) -> Gathered:
    """Everything about a job's runs, made of the records of each, whose commits are known. ``Corrupt`` if one fails its own
    sum, or a run is not what the fold says."""
    data = b"".join(bytes(each.data) for each in found)
    sizes = np.concatenate([each.sizes for each in found])
    edges = np.append(0, np.cumsum(sizes))
    frames = Frames(edges[:-1], sizes, len(data), Stop.END)
    good, batch = verify_headers(data, frames, None)
    counts = np.array([len(each.sizes) for each in found], np.int64)
    source = np.repeat(np.arange(len(found)), counts)
    if len(good) != len(sizes):
        raise Corrupt("a record fails its own sum", key=found[int(source[len(good)])].origin)
    offsets = np.concatenate([each.offsets for each in found])
    owned = np.diff(offsets, append=0)
    lasts = np.cumsum(counts) - 1
    owned[lasts] = job.runs["end"] - offsets[lasts]
    properties = property_columns(batch)
    odd = np.flatnonzero((owned != 1) & (owned != properties.queue_offsets))
    if len(odd):
        _differs(found[int(source[odd[0]])], "queue offsets")
    rows = message_rows(batch, properties, np.arange(len(sizes)), owned)
    live = edges[lasts + 1] - edges[lasts + 1 - counts]
    skipped = (job.runs["flat_end"] - job.runs["first_flat_offset"]).astype(np.int64) - live
    for number, each in enumerate(found):
        first = int(lasts[number] + 1 - counts[number])
        _check(job, number, rows[first : first + len(each.sizes)], each, int(skipped[number]))
    return Gathered(
        rows=rows,
        commit_seq=np.concatenate([each.commit_seq for each in found if each.commit_seq is not None]),
        queue_offset=offsets,
        source=source,
        tags=list(properties.tags),
        pieces=[
            Piece(each.data, each.origin, 0, len(each.data), CODEC_NONE, crc32c(each.data), 0, len(each.data))
            for each in found
        ],
        key_hash=properties.key_hash,
        key_source=source[properties.key_row],
        key_offset=offsets[properties.key_row],
        skipped=skipped,
    )


def _check(job: Job, number: int, rows: npt.NDArray[np.void], found: RunRecords, skipped: int) -> None:
    """What the fold says of a run: offsets, bytes and, where it was not cut, times and physical bounds."""
    run = job.runs[number]
    whole_front = run["start"] == run["first_queue_offset"]
    whole = whole_front and run["end"] == run["first_queue_offset"] + run["queue_offsets"]
    if found.offsets[0] != run["start"] or (rows["queue_offsets"] < 1).any():
        _differs(found, "queue offsets")
    if skipped < 0 or (whole_front and skipped):
        _differs(found, "bytes of its records")
    if whole and len(rows) != run["rows"]:
        _differs(found, "number of records")
    if whole and (
        (rows["store_timestamp"].min(), rows["store_timestamp"].max())
        != (run["min_store_time"], run["max_store_time"])
    ):
        _differs(found, "store times")
    if whole and job.keys[number][:1] == RUN and (
        rows["physical_offset"][0] != run["physical_start"]
        or rows["physical_offset"][-1] + rows["size"][-1] != run["physical_end"]
    ):  # fmt: skip
        _differs(found, "physical bounds")


def _differs(found: RunRecords, what: str) -> NoReturn:
    raise Corrupt(
        "records that were found are not those that the fold names", key=found.origin, found=f"other {what}"
    )
