"""Maps of offsets on their way to the archive, where another process takes them up than the one that gave the messages."""

from __future__ import annotations

import base64
import binascii
from collections import defaultdict
from collections.abc import Iterable

from tiered.archive.state.offsetmap import OffsetMap, map_of_runs
from tiered.archive.state.sinkmaps import pack_map, unpack_map
from tiered.errors import Corrupt
from tiered.model import MessageQueue
from tiered.sink.base import Placed


def map_text(known: OffsetMap) -> str:
    """A map as text of JSON: some hundred bytes, and at most a few KiB."""
    return base64.b64encode(pack_map(known)).decode()


def map_of_text(text: str) -> OffsetMap:
    """Inverse of ``map_text``; ``Corrupt``."""
    try:
        return unpack_map(base64.b64decode(text, validate=True))
    except (binascii.Error, TypeError, ValueError) as error:
        raise Corrupt("a map of offsets cannot be read", found=ascii(text)[:80]) from error


def map_of_placed(start: int, end: int, placed: Iterable[Placed]) -> OffsetMap:
    """A map of one queue: what was given of it from ``start`` up to ``end``."""
    runs = list(placed)
    columns = {
        "first": [run.first_offset for run in runs],
        "messages": [run.messages for run in runs],
        "left_out": [run.left_out for run in runs],
        "target_offset": [run.target_offset for run in runs],
        "between": [run.between for run in runs],
    }
    if not runs:
        return map_of_runs(start, end, "", "", 0, columns)
    one = runs[0]
    return map_of_runs(min(start, one.first_offset), end, one.target, one.target_id, one.partition, columns)


def by_queue(placed: Iterable[Placed]) -> dict[MessageQueue, list[Placed]]:
    """Runs of each queue, in their order."""
    made: defaultdict[MessageQueue, list[Placed]] = defaultdict(list)
    for run in placed:
        made[run.queue].append(run)
    return made


def placed_of(queue: MessageQueue, known: OffsetMap) -> tuple[Placed, ...]:
    """The runs of a map, as a sink tells them."""
    columns = (known.first, known.messages, known.target_offset, known.left_out, known.between)
    return tuple(
        Placed(queue, first, messages, known.target, known.partition, there, left, between, known.target_id)
        for first, messages, there, left, between in zip(
            *(column.tolist() for column in columns), strict=True
        )
    )
