"""Rows of a batch as columns that drivers need: what RocketMQ's consumers would see of them. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import (
    SYS_COMPRESSED,
    SYS_INNER_BATCH,
    SYS_STORE_V6,
    V4_HOST_BYTES,
    V6_HOST_BYTES,
    store_host_at,
)
from tiered.codec.record.properties import PropertyEntries
from tiered.codec.record.ragged import gather, pieces
from tiered.codec.record.unpack import InnerMessage, inflated, inner_messages, is_unwrapped
from tiered.codec.types import Bools, Ints
from tiered.sink.base import SinkBatch

MAX_BODY_BYTES = 256 << 20
"""Largest body that is decompressed if nothing smaller is asked for: the largest that a broker can be told to take."""


class Body(NamedTuple):
    """A message's body. ``readable``: as consumers see it; else it is as it is stored, compressed in a way that cannot be read,
    or larger than was asked for."""

    content: bytes
    readable: bool = True


@dataclass(frozen=True)
class SinkMessages:
    """Messages in order, a column for each field; nothing refers to the batch's buffer. Times in ms since 1970.

    A record that consumers take apart (an inner batch) stands here as the messages that it holds, each with its own queue
    offset. ``row``: the number, among the rows of the batch, of the record that a message comes from.
    """

    topics: tuple[str, ...]
    """Names that ``topic`` points into."""
    row: Ints
    topic: Ints
    queue_id: Ints
    queue_offset: Ints
    physical_offset: Ints
    store_timestamp: Ints
    born_timestamp: Ints
    sys_flag: Ints
    flag: Ints
    reconsume_times: Ints
    stored: list[bytes]
    """Bodies; compressed ones as they are stored."""
    entries: PropertyEntries
    """All properties, in the order of the messages: what is well formed, of equal names each."""
    message_id: list[str]
    """RocketMQ's offset message id: where the record lies in the broker's log."""

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def compressed(self) -> Bools:
        """Messages whose ``stored`` body is not what consumers see."""
        found: Bools = self.sys_flag & SYS_COMPRESSED != 0
        return found

    def bodies(self, most: int = MAX_BODY_BYTES) -> Iterator[Body]:
        """Bodies as consumers see them, each made when it is its turn; those of more than ``most`` bytes when decompressed stay
        as they are."""
        if not self.compressed.any():
            yield from map(Body, self.stored)
            return
        for at, (stored, packed) in enumerate(zip(self.stored, self.compressed.tolist(), strict=True)):
            yield self.body(at, most) if packed else Body(stored)

    def body(self, at: int, most: int = MAX_BODY_BYTES) -> Body:
        """One of ``bodies``."""
        stored = self.stored[at]
        if not self.compressed[at]:
            return Body(stored)
        plain = inflated(stored, int(self.sys_flag[at]), most)
        return Body(stored, False) if plain is None else Body(plain)

    @cached_property
    def properties(self) -> list[list[tuple[str, bytes]]]:
        """Names and values of each message, in the order in which they are stored; of equal names the last. Names that are not
        UTF-8 have U+FFFD in them, values are as they are stored."""
        e, names, text = self.entries, self._names, self._texts
        pairs = list(zip(map(text.__getitem__, names), e.cut(e.name_end + 1, e.value_end), strict=True))
        edges = np.searchsorted(e.row, np.arange(len(self) + 1)).tolist()
        found = list(map(pairs.__getitem__, map(slice, edges[:-1], edges[1:])))
        for at in _with_equal_names(e.row, names, text):
            found[at] = list({name: (name, value) for name, value in found[at]}.values())
        return found

    @cached_property
    def _names(self) -> list[bytes]:
        return self.entries.cut(self.entries.name_start, self.entries.name_end)

    @cached_property
    def _texts(self) -> dict[bytes, str]:
        return {name: name.decode("utf-8", "replace") for name in set(self._names)}

    @cached_property
    def tags(self) -> list[bytes | None]:
        """The tag of each message."""
        return self.named(b"TAGS")

    @cached_property
    def keys(self) -> list[bytes | None]:
        """All keys of each message, with blanks between them."""
        return self.named(b"KEYS")

    @cached_property
    def unique_key(self) -> list[bytes | None]:
        """The id that the producer's client made, which users see as message id."""
        return self.named(b"UNIQ_KEY")

    def named(self, name: bytes) -> list[bytes | None]:
        """A property of each message, ``None`` where it has none of that name."""
        e = self.entries
        entry = e.last(name, len(self))
        having = np.flatnonzero(entry >= 0)
        values = e.cut(e.name_end[entry[having]] + 1, e.value_end[entry[having]])
        if len(having) == len(self):
            return list(values)
        found: list[bytes | None] = [None] * len(self)
        for at, value in zip(having.tolist(), values, strict=True):
            found[at] = value
        return found

    def since(self, first: int, end: int) -> SinkMessages:
        """The messages [``first``, ``end``): drivers that must not hold much take a batch in parts."""
        part = slice(first, end)
        e = self.entries
        low, high = np.searchsorted(e.row, (first, end)).tolist()
        entries = PropertyEntries(
            e.blob,
            e.row[low:high] - first,
            e.name_start[low:high],
            e.name_end[low:high],
            e.value_end[low:high],
        )
        columns = {name: getattr(self, name)[part] for name in ("stored", "message_id", *_COLUMNS)}
        return SinkMessages(topics=self.topics, entries=entries, **columns)


_HEXADECIMAL = np.array([f"{byte:02X}" for byte in range(256)], "U2")
_COLUMNS = (
    "row", "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "born_timestamp", "sys_flag", "flag",
    "reconsume_times",
)  # fmt: skip


def messages_of(batch: SinkBatch) -> SinkMessages:
    """The messages that a batch gives. ``Invalid``: one is compressed by a method whose library is not installed."""
    all_rows = len(batch.rows) == len(batch.messages)
    headers = batch.messages.headers if all_rows else batch.messages.headers[batch.rows]
    chosen = MessageBatch(batch.messages.buffer, headers, batch.messages.topics)

    def column(name: str) -> Ints:
        return headers[name].astype(np.int64)

    made = SinkMessages(
        topics=chosen.topics,
        row=np.arange(len(headers)),
        topic=column("topic_index"),
        queue_id=column("queue_id"),
        queue_offset=column("queue_offset"),
        physical_offset=column("physical_offset"),
        store_timestamp=column("store_timestamp"),
        born_timestamp=column("born_timestamp"),
        sys_flag=column("sys_flag"),
        flag=column("flag"),
        reconsume_times=column("reconsume_times"),
        stored=pieces(chosen.buffer, headers["body_position"], column("body_length")),
        entries=PropertyEntries.parse(chosen),
        message_id=_message_ids(chosen),
    )
    holding = np.flatnonzero(headers["sys_flag"] & SYS_INNER_BATCH)
    return _taken_apart(made, holding) if len(holding) else made


def _taken_apart(made: SinkMessages, holding: Ints) -> SinkMessages:
    """With the messages of inner batches in place of these; those that cannot be read stay as they are."""
    inner: dict[int, list[InnerMessage]] = {}
    for at in holding.tolist():
        if is_unwrapped(int(made.sys_flag[at])):
            body = made.body(at)
            found = inner_messages(body.content) if body.readable else None
            if found:
                inner[at] = found
    if not inner:
        return made
    copies = np.ones(len(made), np.int64)
    copies[list(inner)] = list(map(len, inner.values()))
    begins = np.cumsum(copies) - copies
    columns: dict[str, Any] = {name: np.repeat(getattr(made, name), copies) for name in _COLUMNS}
    columns["queue_offset"] += np.arange(len(columns["row"])) - np.repeat(begins, copies)
    stored, ids, areas = [], [], []
    edges = np.searchsorted(made.entries.row, np.arange(len(made) + 1)).tolist()
    for at, whole in enumerate(made.stored):
        held = inner.get(at)
        ids += [made.message_id[at]] * int(copies[at])
        if held is None:
            stored.append(whole)
            areas.append(_area(made.entries, edges[at], edges[at + 1]))
            continue
        stored += [message.body for message in held]
        areas += [message.properties + b"\x02" for message in held]
        part = slice(int(begins[at]), int(begins[at] + copies[at]))
        columns["flag"][part] = [message.flag for message in held]
        columns["sys_flag"][part] &= ~SYS_COMPRESSED
    ends = np.cumsum(list(map(len, areas))) - 1
    entries = PropertyEntries.laid(memoryview(b"".join(areas)), ends)
    return replace(made, stored=stored, message_id=ids, entries=entries, **columns)


def _area(entries: PropertyEntries, first: int, end: int) -> bytes:
    """The well-formed properties of a message, as they are stored."""
    places = zip(entries.name_start[first:end].tolist(), entries.value_end[first:end].tolist(), strict=True)
    return b"".join(bytes(entries.blob[begin : stop + 1]) for begin, stop in places) or b"\x02"


def _with_equal_names(row: Ints, names: list[bytes], text: dict[bytes, str]) -> list[int]:
    """Messages that have a name twice; nearly never any."""
    distinct = {name: at for at, name in enumerate(dict.fromkeys(text.values()))}
    code = {raw: distinct[name] for raw, name in text.items()}
    codes = np.fromiter(map(code.__getitem__, names), np.int64, len(names))
    if _all_alike(row, codes):
        return []
    place = row * max(1, len(distinct)) + codes
    place.sort()
    again: list[int] = np.unique(place[1:][np.diff(place) == 0] // max(1, len(distinct))).tolist()
    return again


def _all_alike(row: Ints, codes: Ints) -> bool:
    """Whether all messages have the names of the first, which are distinct: as most that one program sent."""
    if not len(row):
        return True
    several = int(np.searchsorted(row, row[0], "right"))
    if len(codes) % several or len(set(codes[:several].tolist())) < several:
        return False
    rows = row.reshape(-1, several)
    return bool((rows == rows[:, :1]).all() and (codes.reshape(-1, several) == codes[:several]).all())


def _message_ids(batch: MessageBatch) -> list[str]:
    headers = batch.headers
    flags = headers["sys_flag"]
    host_at = headers["position"] + store_host_at(flags.astype(np.int64))
    offsets = headers["physical_offset"]
    six = flags & SYS_STORE_V6 != 0
    if not six.any():
        return _ids_of(batch, host_at, V4_HOST_BYTES, offsets)
    found: npt.NDArray[np.object_] = np.empty(len(headers), object)
    for rows, width in ((np.flatnonzero(~six), V4_HOST_BYTES), (np.flatnonzero(six), V6_HOST_BYTES)):
        found[rows] = _ids_of(batch, host_at[rows], width, offsets[rows])
    ids: list[str] = found.tolist()
    return ids


def _ids_of(batch: MessageBatch, host_at: Ints, width: int, offsets: Ints) -> list[str]:
    """Of hosts of so many bytes."""
    raw = np.empty((len(host_at), width + 8), np.uint8)
    raw[:, :width] = gather(batch.buffer, host_at, f"V{width}").view(np.uint8).reshape(-1, width)
    raw[:, width:] = offsets.astype(">i8").view(np.uint8).reshape(-1, 8)
    ids: list[str] = _HEXADECIMAL[raw].view(f"U{2 * (width + 8)}").ravel().tolist()
    return ids
