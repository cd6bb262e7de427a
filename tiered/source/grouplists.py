"""The broker's own list of subscription groups and of consumer offsets: JSON files, or the RocksDB stores beside them.

What lies where (RocketMQ 4.x to 5.5; of several the one counts that counts for topics, ``topiclists``):

* ``config/subscriptionGroup.json``: ``subscriptionGroupTable`` {group: configuration}. ``config/consumerOffset.json``, or with
  ``enableLmq`` ``lmqConsumerOffset.json``: ``offsetTable`` {"topic@group": {queue id: next offset}}, and ``lmqOffsetTable``
  {"topic@group": next offset} of lite queues.
* ``config/subscriptionGroups`` and ``config/consumerOffsets``, column family ``default``: group -> JSON, topic@group -> JSON
  with an ``offsetTable`` {queue id: next offset}.
* ``config/metadata``, column families ``subscriptionGroup`` and ``consumerOffset``: the same.
* ``config/rdb``, column family ``default``: tables 4 (groups) and 1 (offsets), keys as those of topics; of an offset: length
  of the group (two bytes), group, 0x01, length of the topic (two bytes), topic, 0x01, queue id (four bytes) -> next offset
  (eight bytes). RocketMQ's own groups are not in it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from tiered.codec.remoting.lenientjson import decode_json, members_of
from tiered.errors import Corrupt, Unavailable, of_local_disk
from tiered.source import rocks
from tiered.source.topiclists import ROCKS_PLACES, place_of

_Made = TypeVar("_Made")
_V2, _UNIFIED, _V1 = ROCKS_PLACES
_CONFIG = "config"
_GROUPS, _OFFSETS, _LITE_OFFSETS = "subscriptionGroup.json", "consumerOffset.json", "lmqConsumerOffset.json"
_GROUP_STORE, _OFFSET_STORE = "subscriptionGroups", "consumerOffsets"
_V2_GROUP, _V2_OFFSET, _JSON = b"\x01\x00\x04\x02", b"\x01\x00\x01\x02", b"\x01"
_MOST = (1 << 63) - 1
_MOST_QUEUE = (1 << 31) - 1

Pair = tuple[bytes, bytes]


class GroupConfig(NamedTuple):
    """A subscription group, with its configuration as the broker writes it (JSON, no blanks)."""

    group: str
    config: bytes


class GroupOffset(NamedTuple):
    """The queue offset at which a group goes on with a queue, as the broker knows it."""

    group: str
    topic: str
    queue_id: int
    offset: int


class NotKept(NamedTuple):
    """An entry that makes no sense, as it is written: it is left out, and counted."""

    found: str


Entry = GroupConfig | GroupOffset | NotKept


class BrokerGroups:
    """Asked again and again. ``changes`` costs a few looks at directories; ``read`` parses all there is."""

    def __init__(self, store_dir: str) -> None:
        self._store_dir = store_dir

    def changes(self) -> object:
        """What tells one content from another; ``None`` where no broker keeps a configuration."""
        config = os.path.join(self._store_dir, _CONFIG)
        if not self._store_dir or not os.path.isdir(config):
            return None
        found: list[object] = []
        for name in (_GROUPS, _OFFSETS, _LITE_OFFSETS):
            try:
                seen = os.stat(os.path.join(config, name))
                found.append((name, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns))
            except OSError:
                found.append(name)
        for name in (_GROUP_STORE, _OFFSET_STORE, *(os.path.basename(p.directory) for p in ROCKS_PLACES[:2])):
            directory = os.path.join(config, name)
            found.append((name, rocks.changes(directory), rocks.is_rocks(directory)))
        return tuple(found)

    def read(self, use: Callable[[Iterator[Entry]], _Made]) -> _Made:
        """What ``use`` makes of all entries; it may be called again from the beginning. ``Unavailable`` if they cannot be read
        now, or are not whole: brokers rewrite their files in place."""
        place = place_of(self._store_dir)
        try:
            if place == _V2:
                return self._scan(place.directory, place.family, lambda pairs: use(_of_v2(pairs)))
            if place == _UNIFIED:
                return self._both(
                    place.directory, place.directory, "subscriptionGroup", "consumerOffset", use
                )
            groups, offsets = (os.path.join(_CONFIG, name) for name in (_GROUP_STORE, _OFFSET_STORE))
            if place == _V1 and any(
                rocks.is_rocks(os.path.join(self._store_dir, d)) for d in (groups, offsets)
            ):
                return self._both(groups, offsets, "default", "default", use)
            return use(chain(self._group_file(), self._offset_file()))
        except OSError as error:
            raise of_local_disk(
                "the broker's list of groups cannot be read", error,
                hint="let this user read it", path=os.path.join(self._store_dir, _CONFIG),
            ) from error  # fmt: skip
        except (Corrupt, KeyError, TypeError, AttributeError, ValueError) as error:
            raise self._unknown(_CONFIG, f"not a whole list: {error}") from error

    def _both(
        self,
        groups: str,
        offsets: str,
        groups_in: str,
        offsets_in: str,
        use: Callable[[Iterator[Entry]], _Made],
    ) -> _Made:
        """Of two stores, or two families of one; a store that is not there has none."""

        def with_groups(found: Iterator[Pair]) -> _Made:
            return self._scan(
                offsets, offsets_in, lambda pairs: use(chain(_of_groups(found), _of_offsets(pairs)))
            )

        return self._scan(groups, groups_in, with_groups)

    def _scan(self, directory: str, family: str, use: Callable[[Iterator[Pair]], _Made]) -> _Made:
        path = os.path.join(self._store_dir, directory)
        return rocks.scan(path, family, use) if rocks.is_rocks(path) else use(iter(()))

    def _group_file(self) -> Iterator[Entry]:
        table = self._json(_GROUPS, "subscriptionGroupTable")
        return (GroupConfig(group, _compact(config)) for group, config in table)

    def _offset_file(self) -> Iterator[Entry]:
        """A broker that is told to keep lite queues, too, leaves the former file behind: the last written counts."""
        names = [name for name in (_OFFSETS, _LITE_OFFSETS) if os.path.exists(self._path(name))]
        name = max(names, key=lambda found: os.stat(self._path(found)).st_mtime_ns, default=_OFFSETS)
        for key, table in self._json(name, "offsetTable"):
            yield from _offsets(key, table.items())
        if name == _LITE_OFFSETS:
            for key, offset in self._json(name, "lmqOffsetTable"):
                yield from _offsets(key, [("0", offset)])

    def _json(self, name: str, table: str) -> Iterator[tuple[str, Any]]:
        """Members of a table of a file; none if the broker never wrote one."""
        path = self._path(name)
        try:
            with open(path, "rb") as file:
                data = file.read()
        except FileNotFoundError as error:
            if os.path.exists(path + ".bak"):  # renamed, and not written anew yet
                raise self._unknown(os.path.join(_CONFIG, name), "no such file") from error
            return iter(())
        return members_of(data, table)

    def _path(self, name: str) -> str:
        return os.path.join(self._store_dir, _CONFIG, name)

    def _unknown(self, name: str, found: str) -> Unavailable:
        return Unavailable(
            "the broker's list of groups cannot be read",
            path=os.path.join(self._store_dir, name),
            found=found,
            hint="brokers rewrite their files in place, so it is tried again; source.groups_ms = 0 gives it up",
        )


def _compact(config: object) -> bytes:
    return json.dumps(config, separators=(",", ":"), ensure_ascii=False).encode()


def _offsets(key: str, table: Iterable[tuple[str, Any]]) -> Iterator[Entry]:
    """The offsets under topic@group; every other key is none of RocketMQ's."""
    names = key.split("@")
    if len(names) != 2:
        yield NotKept(key)
        return
    for queue, offset in table:
        yield _offset(names[1], names[0], int(queue), int(offset))


def _offset(group: str, topic: str, queue: int, offset: int) -> Entry:
    if "\0" in group + topic or not 0 <= queue <= _MOST_QUEUE or not -_MOST <= offset <= _MOST:
        return NotKept(f"{topic}@{group} {queue}: {offset}")
    return GroupOffset(group, topic, queue, offset)


def _of_groups(pairs: Iterator[Pair]) -> Iterator[Entry]:
    return (GroupConfig(key.decode(), value) for key, value in pairs)


def _of_offsets(pairs: Iterator[Pair]) -> Iterator[Entry]:
    for key, value in pairs:
        yield from _offsets(key.decode(), decode_json(value)["offsetTable"].items())


def _of_v2(pairs: Iterator[Pair]) -> Iterator[Entry]:
    for key, value in pairs:
        if key.startswith(_V2_GROUP):
            name, rest = _named(key[len(_V2_GROUP) :])
            if rest or value[:1] != _JSON:
                raise Corrupt("a group in the broker's RocksDB is written in another way", key=key.hex())
            yield GroupConfig(name, value[1:])
        elif key.startswith(_V2_OFFSET):
            group, rest = _named(key[len(_V2_OFFSET) :])
            topic, queue = _named(rest[1:])
            if len(queue) != 5 or len(value) != 8:
                raise Corrupt("an offset in the broker's RocksDB is written in another way", key=key.hex())
            yield _offset(
                group, topic, int.from_bytes(queue[1:], "big"), int.from_bytes(value, "big", signed=True)
            )


def _named(key: bytes) -> tuple[str, bytes]:
    """A name behind its length, and what follows it."""
    end = 2 + int.from_bytes(key[:2], "big")
    if len(key) < end:
        raise Corrupt("a name in the broker's RocksDB is cut off", key=key.hex())
    return key[2:end].decode(), key[end:]
