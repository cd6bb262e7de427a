"""Lite queues: the places that a record has in them beside its place in its own queue.

A producer names lite queues in ``INNER_MULTI_DISPATCH``, and the broker writes the record's offset in each of them into
``INNER_MULTI_QUEUE_OFFSET``; both are lists with commas. The broker stores the record once and puts it into the consume queue
of each: topic ``%LMQ%name``, queue 0. A place counts here if RocketMQ 5.5 dispatches it:

* the two lists are of one length, both without what is empty at their ends, as Java splits them. They differ where a name does
  not begin with ``%LMQ%``: it gets no offset, and then none of the record's places is dispatched;
* the record is of no topic that brokers leave out, and neither prepared nor rolled back;
* the name has no ``/``. Of a name that a record has twice the first place counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION
from tiered.codec.record.properties import SCHEDULE_TOPIC, PropertyEntries
from tiered.codec.record.ragged import gather, pieces
from tiered.codec.record.topics import intern
from tiered.codec.types import Bools, Ints

LITE_PREFIX = "%LMQ%"
"""Begins the name of every lite queue."""
MAX_NAME_BYTES = 255
"""Of a lite queue's name, all of it; a longer one no broker can keep as a directory."""

_UNDISPATCHED = ("%RETRY%", "rmq_sys_")
_COMMA = 0x2C
_DIGITS = 18
"""Of an offset: more do not occur, and these fit 64 bits."""


@dataclass(frozen=True, slots=True)
class LitePlaces:
    """Places in lite queues, ascending by row, then as the record names them: ``row`` of the batch, ``queue``, an index into
    ``queues``, and ``offset`` there."""

    row: Ints
    queue: Ints
    offset: Ints
    queues: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.row)


_NONE = np.empty(0, np.int64)
NO_PLACES = LitePlaces(_NONE, _NONE, _NONE, ())


def is_lite(topic: str) -> bool:
    """Whether queues of this topic are lite queues."""
    return topic.startswith(LITE_PREFIX)


def lite_places(batch: MessageBatch, entries: PropertyEntries) -> LitePlaces:
    """The places of all records of ``batch``; ``entries``: its properties. Any bytes are accepted; what is malformed does not
    count."""
    rows = len(batch)
    if not len(entries.named(b"INNER_MULTI_DISPATCH")):
        return NO_PLACES
    names, offsets = (
        entries.last(name, rows) for name in (b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET")
    )
    having = np.flatnonzero((names >= 0) & (offsets >= 0) & _dispatched(batch))
    if not len(having):
        return NO_PLACES
    named, numbered = _split(entries, names[having]), _split(entries, offsets[having])
    whole = named.count == numbered.count
    named, numbered = named.of(whole), numbered.of(whole)
    offset = _decimals(entries.blob, numbered.start, numbered.end)
    row = having[named.owner]
    good = (offset >= 0) & _lite(entries.blob, named.start, named.end)
    row, offset, start, end = row[good], offset[good], named.start[good], named.end[good]
    if not len(row):
        return NO_PLACES
    index, distinct = intern(pieces(entries.blob, start, end - start), len(row))
    texts = [_text(name) for name in distinct]
    place, queue = row * len(texts) + index, index.astype(np.int64)
    kept = np.zeros(len(row), np.bool_)
    kept[np.unique(place, return_index=True)[1]] = True
    kept &= np.array([text is not None for text in texts])[queue]
    return LitePlaces(row[kept], queue[kept], offset[kept], tuple(text or "" for text in texts))


def _dispatched(batch: MessageBatch) -> Bools:
    """Rows that the broker puts into lite queues, if they name any."""
    kind = batch.headers["sys_flag"] & SYS_TRANSACTION
    left_out = [t == SCHEDULE_TOPIC or t.startswith(_UNDISPATCHED) for t in batch.topics]
    taken: Bools = (kind != SYS_PREPARED) & (kind != SYS_ROLLBACK)
    taken &= ~np.array(left_out, np.bool_)[batch.headers["topic_index"]]
    return taken


@dataclass(frozen=True, slots=True)
class _Lists:
    """Lists cut at commas. ``owner``: the list of each piece, ``start`` and ``end``: where it lies; ``count``: pieces of each
    list."""

    owner: Ints
    start: Ints
    end: Ints
    count: Ints

    def of(self, lists: Bools) -> _Lists:
        """The pieces of some of the lists."""
        kept = lists[self.owner]
        return _Lists(self.owner[kept], self.start[kept], self.end[kept], self.count)


def _split(entries: PropertyEntries, chosen: Ints) -> _Lists:
    """The values of these entries as Java's ``split(",")`` cuts them: without the empty pieces at the end."""
    starts, ends = entries.name_end[chosen] + 1, entries.value_end[chosen]
    first, last = int(starts.min()), int(ends.max())
    commas = np.flatnonzero(np.frombuffer(entries.blob[first:last], np.uint8) == _COMMA) + first
    low, high = np.searchsorted(commas, starts), np.searchsorted(commas, ends)
    inside = high - low
    begins = np.cumsum(inside + 1) - (inside + 1)
    owner = np.repeat(np.arange(len(chosen)), inside + 1)
    number = np.arange(len(owner)) - begins[owner]
    behind = commas[np.minimum(low[owner] + number, len(commas) - 1)] if len(commas) else number
    before = commas[low[owner] + number - 1] + 1 if len(commas) else number
    start = np.where(number == 0, starts[owner], before)
    end = np.where(number == inside[owner], ends[owner], behind)
    count = np.zeros(len(chosen), np.int64)
    filled = end > start
    np.maximum.at(count, owner[filled], number[filled] + 1)
    kept = number < count[owner]
    return _Lists(owner[kept], start[kept], end[kept], count)


def _decimals(blob: memoryview, start: Ints, end: Ints) -> Ints:
    """The numbers in these ranges; -1 for what is no plain decimal number."""
    length = end - start
    value = np.zeros(len(start), np.int64)
    good = (length > 0) & (length <= _DIGITS)
    for at in range(int(length[good].max()) if good.any() else 0):
        rows = np.flatnonzero(good & (length > at))
        digit = gather(blob, start[rows] + at, "u1").astype(np.int64) - 0x30
        good[rows] = (digit >= 0) & (digit <= 9)
        value[rows] = value[rows] * 10 + digit
    return np.where(good, value, -1)


def _lite(blob: memoryview, start: Ints, end: Ints) -> Bools:
    """Ranges that begin with the prefix of lite queues, with something behind it, and are not too long."""
    prefix = LITE_PREFIX.encode()
    length = end - start
    good = (length > len(prefix)) & (length <= MAX_NAME_BYTES)
    rows = np.flatnonzero(good)
    found: npt.NDArray[np.void] = gather(blob, start[rows], f"S{len(prefix)}")
    good[rows] = found == np.bytes_(prefix)
    return good


def _text(name: bytes) -> str | None:
    """The name of a lite queue; ``None`` for one that brokers pass over."""
    if b"/" in name:
        return None
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None
