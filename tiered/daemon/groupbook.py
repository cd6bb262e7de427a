"""What the broker says of its subscription groups, kept beside the daemon as an ordered map: only what changed is written.

Keys: kind (one byte), group; of an offset then a zero byte, topic, a zero byte, queue id (four bytes, big-endian). Values: of a
group its configuration (JSON), of an offset the offset and when it was seen to change, ms since 1970 (two numbers of eight
bytes). A note says how much there is and when the broker was asked. A database of its own, without a log: what a crash takes,
the next look at the broker brings again.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from tiered.codec.types import Ints
from tiered.errors import Corrupt
from tiered.metadata.base import MetadataView, RedoStore
from tiered.source.grouplists import Entry, GroupConfig, GroupOffset

_CONFIG, _OFFSET = b"g", b"o"
_QUEUE = struct.Struct(">I")
_VALUE = struct.Struct("<qq")
_AT_ONCE = 10_000
_Item = TypeVar("_Item")


def groups_directory(state_directory: str) -> str:
    """Where it lies below a daemon's state directory."""
    return os.path.join(state_directory, "groups")


def groups_stamp(archive_id: bytes) -> str:
    """What the store is stamped with: one of another archive is emptied."""
    return f"groups 1 {archive_id.hex()}"


@dataclass(frozen=True, slots=True)
class GroupsNote:
    """How much there is, and when the broker was asked (ms since 1970). ``skipped``: entries that made no sense."""

    seen_ms: int
    groups: int
    offsets: int
    skipped: int

    def encode(self) -> bytes:
        return json.dumps([self.seen_ms, self.groups, self.offsets, self.skipped]).encode()

    @classmethod
    def decode(cls, data: bytes) -> GroupsNote:
        """``Corrupt`` if that is no note."""
        try:
            return cls(*map(int, json.loads(data)))
        except (TypeError, ValueError) as error:
            raise Corrupt("what is kept of the broker's groups has no note", found=data[:64].hex()) from error


@dataclass(frozen=True, slots=True)
class KeptOffset:
    """A group's next offset of a queue, and when it was seen to change."""

    group: str
    topic: str
    queue_id: int
    offset: int
    changed_ms: int


class GroupBook:
    """Reads what is kept."""

    def __init__(self, view: MetadataView) -> None:
        self._view = view

    def note(self) -> GroupsNote | None:
        """``None`` before the broker was ever asked."""
        found = self._view.applied()
        return None if found is None else GroupsNote.decode(found)

    def groups(self, *, prefix: str = "", after: str | None = None) -> Iterator[str]:
        """Names of groups that have a configuration or an offset, in the order of their bytes."""
        begin, last = prefix.encode(), None if after is None else after.encode()
        while (found := self._next(begin, last)) is not None:
            yield found.decode()
            last = found

    def config(self, group: str) -> bytes | None:
        """A group's configuration; ``None`` for one that is created by its first message alone."""
        return self._view.get_many([_CONFIG + group.encode()])[0]

    def offsets(self, group: str) -> Iterator[KeptOffset]:
        """By topic and queue id."""
        prefix = _OFFSET + group.encode() + b"\0"
        for key, value in self._view.iterate(prefix):
            topic, (queue,) = key[len(prefix) : -5], _QUEUE.unpack(key[-4:])
            offset, changed = _VALUE.unpack(value)
            yield KeptOffset(group, topic.decode(), queue, offset, changed)

    def _next(self, prefix: bytes, last: bytes | None) -> bytes | None:
        """The first group behind ``last``: by its configuration or by its offsets."""
        found: list[bytes] = []
        for kind, behind in ((_CONFIG, b"\0"), (_OFFSET, b"\1")):
            start = None if last is None else kind + last + behind
            pair = next(self._view.iterate(kind + prefix, start=start), None)
            if pair is not None:
                found.append(pair[0][1:].split(b"\0", 1)[0])
        return min(found, default=None)


class GroupKeeper(GroupBook):
    """Writes what changed."""

    def __init__(self, store: RedoStore) -> None:
        super().__init__(store)
        self._store = store
        self.written = 0
        """Entries put or deleted since this was made."""

    def update(self, entries: Iterator[Entry], now_ms: int) -> GroupsNote:
        """Keep exactly these entries. In proportion to their number it only reads; it writes what differs."""
        counts = {GroupConfig: 0, GroupOffset: 0}
        skipped = 0
        seen: list[Ints] = [np.empty(0, np.int64)]
        for some in _batched(entries, _AT_ONCE):
            pairs: dict[bytes, bytes] = {}
            for entry in some:
                if isinstance(entry, GroupOffset):
                    pairs[_offset_key(entry)] = _VALUE.pack(entry.offset, now_ms)
                elif isinstance(entry, GroupConfig) and "\0" not in entry.group:
                    pairs[_CONFIG + entry.group.encode()] = entry.config
                else:
                    skipped += 1
                    continue
                counts[type(entry)] += 1
            seen.append(np.fromiter(map(hash, pairs), np.int64, len(pairs)))
            self._put(pairs)
        self._forget(np.sort(np.concatenate(seen)))
        note = GroupsNote(now_ms, counts[GroupConfig], counts[GroupOffset], skipped)
        self.saw(note)
        return note

    def saw(self, note: GroupsNote) -> None:
        """Note when the broker was asked, and make everything durable."""
        self._store.put_many((), applied=note.encode())
        self._store.flush()

    def _put(self, pairs: dict[bytes, bytes]) -> None:
        found = self._store.get_many(list(pairs))
        changed = [
            (key, value)
            for (key, value), old in zip(pairs.items(), found, strict=True)
            if old is None or (old[:8] != value[:8] if key[:1] == _OFFSET else old != value)
        ]
        if changed:
            self._store.put_many(changed)
            self.written += len(changed)

    def _forget(self, seen: Ints) -> None:
        """Delete what the broker does not have any more; of two keys with one hash the one that is gone may stay."""
        for kind in (_CONFIG, _OFFSET):
            for some in _batched((key for key, _ in self._store.iterate(kind)), _AT_ONCE):
                hashes = np.fromiter(map(hash, some), np.int64, len(some))
                at = np.searchsorted(seen, hashes)
                there = (
                    np.zeros(len(some), bool)
                    if not len(seen)
                    else seen[np.minimum(at, len(seen) - 1)] == hashes
                )
                gone = [some[i] for i in np.flatnonzero(~there).tolist()]
                if gone:
                    self._store.put_many((), gone)
                    self.written += len(gone)


def _batched(found: Iterable[_Item], count: int) -> Iterator[list[_Item]]:
    each = iter(found)
    while some := list(islice(each, count)):
        yield some


def _offset_key(entry: GroupOffset) -> bytes:
    return _OFFSET + entry.group.encode() + b"\0" + entry.topic.encode() + b"\0" + _QUEUE.pack(entry.queue_id)
