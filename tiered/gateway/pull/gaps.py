"""Whether an answer to a pull leaves records out, and whether it is of the archived queue, seen from stored bytes."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from itertools import pairwise

from tiered.codec.record.layout import STEPPED, SYS_INNER_BATCH
from tiered.codec.record.message import decode_message
from tiered.codec.record.walk import records_in
from tiered.codec.remoting.frame import Bytes
from tiered.errors import TieredError

_INNER_NUM = "INNER_NUM"


def lacks(body: Bytes, offset: int, following: int) -> bool:
    """Whether the records in ``body`` own less than all queue offsets in [``offset``, ``following``).

    ``body`` holds whole stored records, in order. Trailing bytes that are not a record are ignored.

    Near a broker's minimum every answer that passes is looked at, and nearly all are as they should be.
    """
    if _are_all(body, offset, following):
        return False
    expected, position = offset, 0
    for at, _, begin, end, flags in records_in(body):
        if at > expected:
            return True
        expected = at + (_inner(body[begin:end]) if flags & SYS_INNER_BATCH else 1)
        position = end
    return position == len(body) and expected < following


def _are_all(body: Bytes, offset: int, following: int) -> bool:
    """Whether ``body`` is one record for each queue offset in [``offset``, ``following``), in order, and nothing else.

    An inner batch counts as one record: if it owns more, either the next one has another offset, or it is the last.
    """
    read, position = STEPPED.unpack_from, 0
    try:
        for expected in range(offset, following):
            length, at = read(body, position)
            if at != expected:
                return False
            position += length
    except struct.error:  # the body ends before that
        return False
    return position == len(body)


def places(*bodies: Bytes) -> dict[int, int]:
    """Physical offset by queue offset of the records in ``bodies``, up to the first bytes that are not a record."""
    return {at: place for body in bodies for at, place, *_ in records_in(body)}


def before(body: Bytes, offset: int) -> Bytes:
    """The records in ``body`` ahead of the first one at or beyond a queue offset."""
    ends = 0
    for at, _, _, end, _ in records_in(body):
        if at >= offset:
            break
        ends = end
    return body[:ends]


def agree(archived: Mapping[int, int], here: Mapping[int, int]) -> bool:
    """Whether records of both can be of one queue, given their ``places``: in a log later offsets lie behind earlier ones, and
    one offset at one place. When a queue is deleted and made again, its offsets begin anew and the log goes on."""
    sides = archived.items(), here.items()
    return all(
        (one[0] < other[0] and one[1] < other[1]) or any(one in side and other in side for side in sides)
        for one, other in pairwise(sorted({*sides[0], *sides[1]}))
    )


def _inner(record: Bytes) -> int:
    """How many queue offsets an inner batch owns; as many as there are if it does not say."""
    try:
        return max(1, int(decode_message(record).properties.get(_INNER_NUM, "")))
    except (TieredError, ValueError):
        return 1 << 62
