"""The broker's own list of its topics and their attributes, read from the file or the RocksDB store beside its commitlog.

Brokers write the file in place: for a moment it is missing or half of it is there. Who asks hears so, and asks again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

from tiered.codec.checksum import crc32c
from tiered.codec.record.lite import is_lite
from tiered.codec.record.systemtopics import is_system_topic
from tiered.errors import Corrupt, Unavailable, of_local_disk
from tiered.source import rocks
from tiered.source.topiclists import TOPICS_FILE, Attributes, from_json, from_rocks, place_of

_HOUR_MS = 3_600_000
_MOST_HOURS = 36_500 * 24
"""A hundred years: more is for ever, as it is in our own settings."""
_QUEUE_DIRECTORIES = ("consumequeue", "batchconsumequeue")


@dataclass(frozen=True, slots=True)
class TopicList:
    """Every topic that the broker has, with its attributes; those of brokers before 5.0 have none."""

    store_dir: str
    attributes: Attributes

    def reserved_ms(self) -> dict[str, int]:
        """How long messages of a topic stay by its attribute ``reserve.time`` (hours; only a number above 0 counts)."""
        found = {}
        for topic, hours in self.attributes.reserved.items():
            if hours.isdecimal() and int(hours) > 0:
                found[topic] = min(int(hours), _MOST_HOURS) * _HOUR_MS
        return found

    def compacted(self) -> set[str]:
        """Topics of which the broker keeps the newest message of each key, however old it is."""
        return self.attributes.compacted

    def deleted(self, topics: Iterable[str]) -> set[str]:
        """Which of these topics the broker has deleted: they are not in its list, and the queues that it deletes with a topic
        are gone too. RocketMQ's own topics are not asked for: some are in no list.

        Of queues in RocksDB the list alone decides: which are there the broker has in memory only, often for hours.
        ``Unavailable`` where the store itself went away since the list was read: then nothing is there.
        """
        gone = {
            topic
            for topic in self.attributes.missing(topics)
            if not is_system_topic(topic)
            and not is_lite(topic)  # in no list
            and not any(
                _has_entries(os.path.join(self.store_dir, kind, topic)) for kind in _QUEUE_DIRECTORIES
            )
        }
        config = os.path.join(self.store_dir, os.path.dirname(TOPICS_FILE))
        if gone and not os.path.isdir(config):
            raise _unknown(config, "the store went away")
        return gone


class BrokerTopicLists:
    """The list of one broker, parsed once a change. For one thread at a time.

    A file is rewritten in place, perhaps twice within one tick of its times and at the same length: what was parsed is kept for
    good only after a second reading found the same bytes under the same times.
    """

    def __init__(self, store_dir: str) -> None:
        self._store_dir = store_dir
        self._kept: TopicList | None = None
        self._of: object = None  # file or files that it was made of, as they were before
        self._crc: int | None = None  # of the file's bytes
        self._sure = False
        self.parsed = 0
        """How often a list was parsed."""

    def read(self) -> TopicList | None:
        """What the broker of this store directory says of its topics; ``None`` where no broker keeps a configuration: nothing
        is named, or it is a store without ``config``, which a real broker always has.

        ``Unavailable`` if the list cannot be read now, or is not whole.
        """
        if not self._store_dir:
            return None
        place = place_of(self._store_dir)
        path = os.path.join(self._store_dir, TOPICS_FILE if place is None else place.directory)
        attributes: Attributes | None
        try:
            now = (path, rocks.changes(path) if place is not None else _change(path))
            if now == self._of and self._sure:
                return self._kept
            if place is not None:
                attributes, crc, sure = from_rocks(self._store_dir, place), None, now[1] is not None
            else:
                with open(path, "rb") as file:
                    data = file.read()
                crc, sure = crc32c(data), False
                if crc == self._crc and self._kept is not None:
                    self._of, self._sure = now, now == self._of
                    return self._kept
                attributes = from_json(data)
        except FileNotFoundError as error:
            config = os.path.isdir(os.path.dirname(path))
            if not config and os.path.isdir(os.path.join(self._store_dir, "commitlog")):
                return None
            raise _unknown(path, "no such file") from error
        except OSError as error:
            raise of_local_disk(
                "the broker's list of topics cannot be read", error, hint="let this user read it", path=path
            ) from error
        except (Corrupt, KeyError, TypeError, AttributeError, ValueError) as error:
            raise _unknown(path, f"not a whole list: {error}") from error
        if attributes is None or (place is None and not len(attributes)):
            raise _unknown(path, "an empty list")
        self.parsed += 1
        self._of, self._crc, self._sure = now, crc, sure
        self._kept = TopicList(self._store_dir, attributes)
        return self._kept


def read_topics(store_dir: str) -> TopicList | None:
    """See ``BrokerTopicLists.read``, once."""
    return BrokerTopicLists(store_dir).read()


def _change(path: str) -> object:
    """What tells one content of a file from another."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _unknown(path: str, found: str) -> Unavailable:
    return Unavailable(
        "the broker's list of topics cannot be read",
        path=path,
        found=found,
        hint="brokers rewrite their file in place, so it is tried again; to go on without the list set"
        " retain.topic_attributes = false and retain.deleted_topic_ms = 0",
    )


def _has_entries(directory: str) -> bool:
    """Whether anything is left in a directory; ``Unavailable`` where nobody knows."""
    try:
        with os.scandir(directory) as found:
            return next(found, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise of_local_disk(
            "the broker's queues cannot be looked at", error, hint="let this user read them", path=directory
        ) from error
