"""What the archive needs from message properties, for a whole batch at once: tags, tags code, keys, offsets
owned.

Properties are ``name 0x01 value 0x02`` repeated. As RocketMQ's parser does: a missing last 0x02 is accepted,
the first 0x01 of an entry divides it, an entry with an empty name or value is dropped, and of equal names the
last wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import concat as _concat
from typing import cast

import numpy as np
import numpy.typing as npt
import xxhash

from tiered.codec.javahash import java_hashes, java_hashes_alike
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import SYS_INNER_BATCH, SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION
from tiered.codec.record.ragged import copy_ranges, gather, groups_by_length, pieces
from tiered.codec.record.tagsalike import codes_of_alike
from tiered.codec.record.topics import intern
from tiered.codec.types import Buffer, Ints

SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""Delayed messages wait here; their tags code is the time of delivery."""

DEFAULT_DELAY_LEVELS_MS: tuple[int, ...] = tuple(
    1000 * s for s in (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
)
"""Delay of level 1, 2, … in ms (RocketMQ's default ``messageDelayLevel``)."""

_join = cast("Callable[[bytes, bytes], bytes]", _concat)

_PASS_BYTES = 1 << 18  # of properties whose keys are hashed at once
_MAX_SHAPES = 64  # more would be groups too small to pay for themselves
_NAME_END = 0x01
ENTRY_END = 0x02
"""Closes an entry, and so an area of entries."""
_WHITE = b" \t\n\x0b\x0c\r\x1c\x1d\x1e\x1f"
"""What Java takes for white space, of ASCII."""
_JAVA_DECIMAL = re.compile(rb"[+-]?[0-9]{1,19}\Z")
_MAX_INNER_NUM = 0x7FFF  # a Java short


@dataclass(frozen=True, slots=True)
class PropertyColumns:
    """Per message: ``tags_code`` i8 as in the consume queue, ``tag`` i4 (index into ``tags``; 0 = none),
    ``queue_offsets`` i4 (queue offsets owned: 1, INNER_NUM for an inner batch, 0 for prepared and rollback
    records).

    Per key (UNIQ_KEYs first, then each entry of KEYS; rows ascend within each): ``key_row`` i4, ``key_hash``
    u8 = XXH3-64 of topic, 0x00, key.
    """

    tags_code: npt.NDArray[np.int64]
    tag: npt.NDArray[np.int32]
    tags: tuple[bytes, ...]
    queue_offsets: npt.NDArray[np.int32]
    key_row: npt.NDArray[np.int32]
    key_hash: npt.NDArray[np.uint64]


def key_hash(topic: str, key: str | bytes) -> int:
    """XXH3-64 of topic, 0x00, key: how the archive's key index names a key."""
    raw = key.encode() if isinstance(key, str) else key
    return xxhash.xxh3_64_intdigest(topic.encode() + b"\0" + raw)


def property_columns(
    batch: MessageBatch,
    entries: PropertyEntries | None = None,
    *,
    delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS,
) -> PropertyColumns:
    """The property-made columns of every record of ``batch``. Any bytes are accepted; malformed entries do
    not count. ``entries``: the batch's own, where they are parsed already.
    """
    if entries is None:
        entries = PropertyEntries.parse(batch)
    tag, tags, tags_code = _tags(batch, entries, delay_levels_ms)
    key_row, hashed = _keys(batch, entries)
    return PropertyColumns(tags_code, tag, tuple(tags), _queue_offsets(batch, entries), key_row, hashed)


def tags_codes(
    batch: MessageBatch, *, delay_levels_ms: Sequence[int] = DEFAULT_DELAY_LEVELS_MS
) -> npt.NDArray[np.int64]:
    """``PropertyColumns.tags_code`` alone."""
    alike = None if SCHEDULE_TOPIC in batch.topics else codes_of_alike(batch)
    if alike is not None:
        return alike
    entries = PropertyEntries.parse(batch)
    codes = _hashed_tags(batch, entries)
    if codes is None:
        return _tags(batch, entries, delay_levels_ms)[2]
    _put_delivery_times(codes, batch, entries, delay_levels_ms)
    return codes


def _hashed_tags(batch: MessageBatch, entries: PropertyEntries) -> npt.NDArray[np.int64] | None:
    """The hash of every message's tag, 0 where it has none; ``None`` if tags are not what most are: ASCII, of few lengths."""
    entry = entries.last(b"TAGS", len(batch))
    codes = np.zeros(len(batch), np.int64)
    having = np.flatnonzero(entry >= 0)
    starts, ends = entries.name_end[entry[having]] + 1, entries.value_end[entry[having]]
    lengths = ends - starts
    if len(having) and len(np.unique(lengths)) * _MAX_SHAPES > len(having) + _MAX_SHAPES:
        return None
    for rows, tags in groups_by_length(entries.blob, starts, lengths):
        hashes = java_hashes_alike(tags.view(np.uint8).reshape(len(tags), -1))
        if hashes is None:
            return None
        codes[having[rows]] = hashes
    return codes


def _tags(
    batch: MessageBatch, entries: PropertyEntries, levels_ms: Sequence[int]
) -> tuple[npt.NDArray[np.int32], list[bytes], npt.NDArray[np.int64]]:
    """Per message the number of its tag, the distinct tags, and per message its tags code."""
    tag, tags = _values(entries, entries.last(b"TAGS", len(batch)))
    hashes = java_hashes(tags).astype(np.int64)
    hashes[0] = 0
    codes = hashes[tag]
    _put_delivery_times(codes, batch, entries, levels_ms)
    return tag, tags, codes


def whole_keys(batch: MessageBatch) -> tuple[Ints, bytes]:
    """Rows whose property KEYS is more than white space, ascending, and the XXH3-128 of all of it for each: 16 bytes."""
    entries = PropertyEntries.parse(batch)
    found = entries.last(b"KEYS", len(batch))
    found = found[found >= 0]
    values = entries.cut(entries.name_end[found] + 1, entries.value_end[found])
    digests = list(map(xxhash.xxh3_128_digest, values))
    blank = [i for i, value in enumerate(values) if value[:1] in _WHITE and not value.strip(_WHITE)]
    rows = entries.row[found]
    if blank:
        rows = np.delete(rows, blank)
        digests = [digest for i, digest in enumerate(digests) if i not in set(blank)]
    return rows, b"".join(digests)


@dataclass(frozen=True, slots=True)
class PropertyEntries:
    """Every well-formed property of a batch: positions in ``blob`` (names and values) and the row it belongs
    to.
    """

    blob: memoryview
    row: Ints
    name_start: Ints
    name_end: Ints
    value_end: Ints

    @classmethod
    def parse(cls, batch: MessageBatch) -> PropertyEntries:
        """Every entry of every area."""
        return cls.laid(*_areas(batch))

    @classmethod
    def laid(cls, blob: memoryview, area_ends: Ints) -> PropertyEntries:
        """Every entry of areas that lie back to back; ``area_ends``: where the 0x02 lies that closes each. What brokers write
        has a plain shape, name and value in turn: nothing to sort out."""
        data = np.frombuffer(blob, np.uint8)
        marks = np.flatnonzero((data - np.uint8(_NAME_END)) < 2)  # 0x01 or 0x02
        is_end = data[marks] == ENTRY_END
        if len(is_end) % 2 == 0 and is_end[1::2].all() and not is_end[::2].any():
            divider, ends = marks[::2], marks[1::2]
            begins = _behind(ends)
            good = (divider > begins) & (divider + 1 < ends)
        else:
            end_marks = np.flatnonzero(is_end)
            ends, begins = marks[end_marks], _behind(marks[end_marks])
            # The mark after the previous entry's end is this entry's first: its name's end if it is an 0x01.
            first = _behind(end_marks)
            divider = marks[first]
            good = ~is_end[first] & (divider > begins) & (divider + 1 < ends)
        # A row's area ends at a known mark, so counting ends tells which entries are its own.
        upto = np.searchsorted(ends, area_ends, "right")
        row = np.repeat(np.arange(len(area_ends)), np.diff(upto, prepend=0))
        if good.all():
            return cls(blob, row, begins, divider, ends)
        return cls(blob, row[good], begins[good], divider[good], ends[good])

    def named(self, name: bytes) -> Ints:
        """Entry numbers of this name, ascending (so rows ascend too)."""
        found = np.flatnonzero(self.name_end - self.name_start == len(name))
        # Four bytes at a time (the last read overlaps), or one by one of shorter names: exact, and no string is made.
        width = 4 if len(name) >= 4 else 1
        for at in range(0, len(name), width):
            at = min(at, len(name) - width)
            word = int.from_bytes(name[at : at + width], "big")
            found = found[gather(self.blob, self.name_start[found] + at, f">u{width}") == word]
        return found

    def last(self, name: bytes, rows: int) -> Ints:
        """Per row the number of its last entry of this name, or -1. One entry per row at most is what the
        broker sees.
        """
        found = self.named(name)
        newest = np.full(rows, -1, np.int64)
        newest[self.row[found]] = found  # of equal indexes numpy keeps the last
        return newest

    def says(self, entry_of_row: Ints, text: bytes) -> npt.NDArray[np.bool_]:
        """Per row whether the value of its entry (-1: none) is ``text``, at least one byte, exactly; no string is made."""
        rows = np.flatnonzero(entry_of_row >= 0)
        chosen = entry_of_row[rows]
        starts = self.name_end[chosen] + 1
        alike = self.value_end[chosen] - starts == len(text)
        rows, starts = rows[alike], starts[alike]
        for at, byte in enumerate(text):
            alike = gather(self.blob, starts + at, "u1") == byte
            rows, starts = rows[alike], starts[alike]
        same = np.zeros(len(entry_of_row), bool)
        same[rows] = True
        return same

    def cut(self, starts: Ints, ends: Ints) -> list[bytes]:
        """The bytes of ranges of the blob."""
        return pieces(self.blob, starts, ends - starts)


def property_values(area: Buffer) -> dict[bytes, bytes]:
    """The properties of one message, by the same rules: of equal names the last, malformed entries dropped."""
    found: dict[bytes, bytes] = {}
    for entry in bytes(area).split(b"\2"):
        name, divider, value = entry.partition(b"\1")
        if name and divider and value:
            found[name] = value
    return found


def _behind(marks: Ints) -> Ints:
    """The place behind each mark but the last, after 0: where what the next mark closes begins."""
    found = np.empty_like(marks)
    found[:1] = 0
    np.add(marks[:-1], 1, out=found[1:])
    return found


def _areas(batch: MessageBatch) -> tuple[memoryview, Ints]:
    """All property areas, each closed by an 0x02, and where that lies. It is one of ours unless every area has its own.

    Then each area gets room for one more byte.
    """
    starts = batch.headers["properties_position"]
    lengths = batch.headers["properties_length"].astype(np.int64)
    ends = starts + lengths
    last = gather(batch.buffer, np.maximum(ends - 1, 0), "u1")
    closed = bool(((last == ENTRY_END) & (lengths > 0)).all())
    room = lengths if closed else lengths + 1
    area_ends: Ints = np.cumsum(room) - 1
    blob = bytearray(int(area_ends[-1]) + 1 if len(area_ends) else 0)
    copy_ranges(batch.buffer, starts, lengths, blob, area_ends + 1 - room)
    if not closed:
        np.frombuffer(blob, np.uint8)[area_ends] = ENTRY_END
    return memoryview(blob), area_ends


def _values(entries: PropertyEntries, entry_of_row: Ints) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """(value number per row, distinct values), 0 and b"" for rows that have none."""
    index = np.zeros(len(entry_of_row), np.int32)
    having = np.flatnonzero(entry_of_row >= 0)
    chosen = entry_of_row[having]
    values = entries.cut(entries.name_end[chosen] + 1, entries.value_end[chosen])
    index[having], distinct = intern(values, len(having), known=(b"",))
    return index, distinct


def _decimal(value: bytes) -> int | None:
    """What Java's ``parseInt`` accepts, or ``None``."""
    return int(value) if _JAVA_DECIMAL.match(value) else None


def _put_delivery_times(
    tags_code: npt.NDArray[np.int64], batch: MessageBatch, entries: PropertyEntries, levels_ms: Sequence[int]
) -> None:
    """Replace the tags code of delayed messages that still wait by their time of delivery, in ms."""
    if SCHEDULE_TOPIC not in batch.topics:
        return
    waiting = batch.headers["topic_index"] == batch.topics.index(SCHEDULE_TOPIC)
    level_index, texts = _values(entries, entries.last(b"DELAY", len(batch)))
    delays = np.array([_delay_ms(_decimal(text), levels_ms) for text in texts], np.int64)
    delay = delays[level_index]
    rows = np.flatnonzero(waiting & (delay >= 0))
    tags_code[rows] = batch.headers["store_timestamp"][rows] + delay[rows]


def _delay_ms(level: int | None, levels_ms: Sequence[int]) -> int:
    """The delay of a level, the highest one for levels above it; -1 where the broker keeps the ordinary tags
    code.
    """
    if level is None or level <= 0 or not levels_ms:
        return -1
    return levels_ms[min(level, len(levels_ms)) - 1]


def _queue_offsets(batch: MessageBatch, entries: PropertyEntries) -> npt.NDArray[np.int32]:
    flags = batch.headers["sys_flag"]
    owned = np.ones(len(batch), np.int32)
    inner = (flags & SYS_INNER_BATCH) != 0
    if inner.any():
        index, texts = _values(entries, entries.last(b"INNER_NUM", len(batch)))
        counts = [_decimal(text) for text in texts]
        usable = [c if c is not None and 1 <= c <= _MAX_INNER_NUM else 1 for c in counts]
        owned[inner] = np.array(usable, np.int32)[index[inner]]
    transaction = flags & SYS_TRANSACTION
    owned[(transaction == SYS_PREPARED) | (transaction == SYS_ROLLBACK)] = 0
    return owned


def _keys(
    batch: MessageBatch, entries: PropertyEntries
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint64]]:
    """(row, hash) of every UNIQ_KEY and of every space-separated entry of KEYS.

    A part of the blob at a time: on the way to its hash a key costs some hundred bytes, and keys may be of one byte.
    """
    rows, hashes = [np.empty(0, np.int32)], [np.empty(0, np.uint64)]
    prefixes = [name.encode() + b"\0" for name in batch.topics]
    for name in (b"UNIQ_KEY", b"KEYS"):
        found = entries.last(name, len(batch))
        found = found[found >= 0]
        starts, ends = entries.name_end[found] + 1, entries.value_end[found]
        cuts = np.flatnonzero(np.diff(starts // _PASS_BYTES)) + 1
        for part in np.split(np.arange(len(found)), cuts) if len(found) else ():
            ranges = starts[part], ends[part], entries.row[found[part]]
            first, last, row = _split_at_spaces(entries.blob, *ranges) if name == b"KEYS" else ranges
            hashes.append(_hashes(prefixes, entries, first, last - first, batch.headers["topic_index"][row]))
            rows.append(row.astype(np.int32))
    return np.concatenate(rows), np.concatenate(hashes)


def _hashes(
    prefixes: Sequence[bytes],
    entries: PropertyEntries,
    starts: Ints,
    lengths: Ints,
    topic: npt.NDArray[np.integer],
) -> npt.NDArray[np.uint64]:
    """XXH3-64 of topic, 0x00, key for each range of the blob: laid out side by side, all of one shape at a time.

    ``prefixes``: each topic's with its 0x00.
    """
    prefix_lengths = np.fromiter(map(len, prefixes), np.int64, len(prefixes))
    shape = (prefix_lengths[topic] << 32) | lengths if prefixes else lengths
    shapes = np.unique(shape)
    if len(shapes) > _MAX_SHAPES:
        named = map(_join, map(prefixes.__getitem__, topic.tolist()), entries.cut(starts, starts + lengths))
        return np.fromiter(map(xxhash.xxh3_64_intdigest, named), np.uint64, len(starts))
    hashes = np.empty(len(starts), np.uint64)
    for one in shapes.tolist():
        before, length = one >> 32, one & 0xFFFF_FFFF
        chosen = np.flatnonzero(shape == one)
        laid = np.empty((len(chosen), before + length), np.uint8)
        used, number = np.unique(topic[chosen], return_inverse=True)
        heads = np.array([prefixes[at] for at in used.tolist()], f"V{before}")
        laid[:, :before] = heads[number].view(np.uint8).reshape(-1, before)
        laid[:, before:] = (
            gather(entries.blob, starts[chosen], f"V{length}").view(np.uint8).reshape(-1, length)
        )
        texts = laid.view(f"V{before + length}").ravel().tolist()
        hashes[chosen] = np.fromiter(map(xxhash.xxh3_64_intdigest, texts), np.uint64, len(texts))
    return hashes


def _split_at_spaces(blob: memoryview, starts: Ints, ends: Ints, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut ascending, disjoint ranges (at least one) at every space, empty pieces dropped."""
    begin = int(starts[0])
    spaces = np.flatnonzero(np.frombuffer(blob[begin : int(ends[-1])], np.uint8) == 0x20) + begin
    if len(spaces) == 0:
        return starts, ends, rows
    owner = np.searchsorted(starts, spaces, "right") - 1
    inside = (owner >= 0) & (spaces < ends[owner])
    spaces, owner = spaces[inside], owner[inside]
    # Ranges are disjoint, so sorting starts and ends apart pairs them again.
    starts = np.sort(np.concatenate((starts, spaces + 1)))
    ends = np.sort(np.concatenate((ends, spaces)))
    rows = np.sort(np.concatenate((rows, rows[owner])))
    kept = starts < ends
    return starts[kept], ends[kept], rows[kept]
