"""Whether an answer to a pull leaves records out, seen from its own bytes."""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from tiered.codec.message import decode_message
from tiered.codec.remoting import Bytes
from tiered.errors import TieredError

_HEAD = Struct(">i16xqqi")  # size at 0, queue offset at 20, physical offset at 28, sysFlag at 36
_INNER_BATCH = 0x80
_INNER_NUM = "INNER_NUM"


def lacks(body: Bytes, offset: int, following: int) -> bool:
    """Whether the records in ``body`` own less than all queue offsets in [``offset``, ``following``).

    ``body`` holds whole stored records, in order. What is no record is the broker's own business: nothing is said of it.
    """
    expected, end = offset, 0
    for at, begin, end, flags in _records(body):
        if at > expected:
            return True
        expected = at + (_inner(body[begin:end]) if flags & _INNER_BATCH else 1)
    return end == len(body) and expected < following


def queue_offsets(body: Bytes) -> set[int]:
    """Queue offsets of the records in ``body``, up to what is no record."""
    return {at for at, *_ in _records(body)}


def _records(body: Bytes) -> Iterator[tuple[int, int, int, int]]:
    """Of each record the queue offset, begin and end in ``body``, and the sysFlag; up to what is no record."""
    position, size = 0, len(body)
    while position + _HEAD.size <= size:
        length, at, _, flags = _HEAD.unpack_from(body, position)
        if not _HEAD.size <= length <= size - position:
            return
        yield at, position, position + length, flags
        position += length


def _inner(record: Bytes) -> int:
    """How many queue offsets an inner batch owns; as many as there are if it does not say."""
    try:
        return max(1, int(decode_message(record).properties.get(_INNER_NUM, "")))
    except (TieredError, ValueError):
        return 1 << 62
