"""Where a broker keeps the list of its topics: the JSON file that brokers write by default, or one of three RocksDB stores.

A broker that is told to keep its list elsewhere leaves the former one behind, so of several the one counts that the running
broker has open; where none is open, the one that was written last.

What lies in the stores (RocketMQ 5.5.0; golden stores of it are read by ``tests/unit/test_source_rocks.py``):

* ``config/topics``, column family ``default``: topic -> JSON. With ``storeType=defaultRocksDB``.
* ``config/metadata``, column family ``topic``: the same. With ``useSingleRocksDBForAllConfigs=true``, too.
* ``config/rdb``, column family ``default``: the same behind a prefix each. With ``configManagerVersion=v2``, whatever the
  store is. Keys: table 1 (one byte), of topics (3, two bytes), a record (2, one byte), length of the topic (two bytes), the
  topic. Values: JSON (1, one byte), the JSON. RocketMQ's own topics are not in it.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.remoting.lenientjson import decode_json, members_of
from tiered.errors import Corrupt
from tiered.source import rocks

TOPICS_FILE = os.path.join("config", "topics.json")
"""Below the store directory."""

_V2_VERSION = b"\x01\x00\x03\x01"
_V2_TOPIC = b"\x01\x00\x03\x02"
_V2_LENGTH_BYTES = 2
_JSON = b"\x01"
_NO_ATTRIBUTES = b'"attributes":{}'
_NONE: Mapping[str, str] = {}
_RESERVE_TIME = "reserve.time"
_CLEANUP_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"


@dataclass(frozen=True, slots=True)
class RocksPlace:
    """A RocksDB store below the store directory, and the column family that holds topics."""

    directory: str
    family: str
    prefixed: bool = False


ROCKS_PLACES = (
    RocksPlace(os.path.join("config", "rdb"), "default", prefixed=True),
    RocksPlace(os.path.join("config", "metadata"), "topic"),
    RocksPlace(os.path.join("config", "topics"), "default"),
)


def place_of(store_dir: str) -> RocksPlace | None:
    """Where the broker keeps the list now; ``None``: in the JSON file."""
    present = [p for p in ROCKS_PLACES if rocks.is_rocks(os.path.join(store_dir, p.directory))]
    for place in present:
        if rocks.in_use(os.path.join(store_dir, place.directory)):
            return place
    written: dict[RocksPlace | None, int] = {
        place: rocks.opened_ns(os.path.join(store_dir, place.directory)) for place in present
    }
    try:
        written[None] = os.stat(os.path.join(store_dir, TOPICS_FILE)).st_mtime_ns
    except OSError:
        written.setdefault(None, -1)
    return max(written, key=lambda place: written[place])


class Attributes:
    """Of very many topics those attributes that matter here; of the others only that they are there.

    Names are kept as 64-bit hashes, 8 bytes each: of two topics with one hash the one that is gone counts as there, and stays.
    """

    def __init__(self) -> None:
        self._hashes = array("q")
        self._order: npt.NDArray[np.int64] | None = None
        self.reserved: dict[str, str] = {}
        """The attribute ``reserve.time``, as written, of topics that have it."""
        self.compacted: set[str] = set()
        """Topics of ``cleanup.policy=COMPACTION``."""

    def add(self, topic: str, attributes: Mapping[str, str]) -> None:
        """One more topic."""
        self._hashes.append(hash(topic))
        if _RESERVE_TIME in attributes:
            self.reserved[topic] = attributes[_RESERVE_TIME]
        if attributes.get(_CLEANUP_POLICY) == _COMPACTION:
            self.compacted.add(topic)

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, topic: object) -> bool:
        return len(self.missing([str(topic)])) == 0

    def missing(self, topics: Iterable[str]) -> list[str]:
        """Which of these topics are not there, in their order."""
        if self._order is None:
            self._order = np.sort(np.array(self._hashes, np.int64))
            self._hashes = array("q", self._order.tobytes())
        wanted = list(topics)
        hashes = np.fromiter(map(hash, wanted), np.int64, len(wanted))
        if not len(self._order):
            return wanted
        at = np.minimum(np.searchsorted(self._order, hashes), len(self._order) - 1)
        return list(compress(wanted, self._order[at] != hashes))


def from_json(data: bytes) -> Attributes:
    """The content of ``topics.json``. ``Corrupt`` and errors of shape if it is not whole.

    One topic after the other is read and let go: 250,000 as one tree of objects take hundreds of megabytes.
    """
    found = Attributes()
    for topic, config in members_of(data, "topicConfigTable"):
        found.add(topic, _dict(config.get("attributes")))
    return found


def _dict(found: object) -> Mapping[str, str]:
    return dict(found) if found else _NONE  # type: ignore[call-overload]


def from_rocks(store_dir: str, place: RocksPlace) -> Attributes | None:
    """The list in a RocksDB store; ``None`` if nothing says that it is whole. ``Corrupt``, ``Unavailable``."""
    directory = os.path.join(store_dir, place.directory)
    return rocks.scan(directory, place.family, _prefixed if place.prefixed else _plain)


def _plain(pairs: Iterator[tuple[bytes, bytes]]) -> Attributes | None:
    """A broker has topics of its own from its first start on."""
    found = Attributes()
    for key, value in pairs:
        found.add(key.decode(), _attributes(value))
    return found if len(found) else None


def _prefixed(pairs: Iterator[tuple[bytes, bytes]]) -> Attributes | None:
    """Users' topics only, so there may be none; that there ever was one says the version of the table."""
    found = Attributes()
    versioned = False
    for key, value in pairs:
        versioned |= key.startswith(_V2_VERSION)
        if not key.startswith(_V2_TOPIC):
            continue
        topic = key[len(_V2_TOPIC) + _V2_LENGTH_BYTES :]
        size = int.from_bytes(key[len(_V2_TOPIC) : len(_V2_TOPIC) + _V2_LENGTH_BYTES], "big")
        if size != len(topic) or value[:1] != _JSON:
            raise Corrupt(
                "a topic in the broker's RocksDB is written in a way that this program does not know",
                key=key.hex(),
                found=value[:16].hex(),
            )
        found.add(topic.decode(), _attributes(value[1:]))
    return found if versioned else None


def _attributes(config: bytes) -> Mapping[str, str]:
    """Of one topic's JSON; most have none, and cost no parsing."""
    if config.startswith(b"{" + _NO_ATTRIBUTES):
        return _NONE
    decoded: Any = decode_json(config)
    return dict(decoded.get("attributes") or {})
