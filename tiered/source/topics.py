"""The broker's own list of its topics and their attributes, read from the file beside its commitlog.

Brokers write that file in place: for a moment it is missing or half of it is there. Who asks hears so, and asks again.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tiered.codec.record.systemtopics import is_system_topic
from tiered.codec.remoting.lenientjson import decode_json
from tiered.errors import Corrupt, Unavailable, of_local_disk

TOPICS_FILE = os.path.join("config", "topics.json")
"""Below the store directory. Brokers that keep their configuration in RocksDB have none."""

_RESERVE_TIME = "reserve.time"
_CLEANUP_POLICY, _COMPACTION = "cleanup.policy", "COMPACTION"
_HOUR_MS = 3_600_000
_MOST_HOURS = 36_500 * 24
"""A hundred years: more is for ever, as it is in our own settings."""
_QUEUE_DIRECTORIES = ("consumequeue", "batchconsumequeue")
_LIGHT_QUEUES = "%LMQ%"
"""Queues of this name are no topics of the list."""


@dataclass(frozen=True, slots=True)
class TopicList:
    """Every topic that the broker has, with its attributes; those of brokers before 5.0 have none."""

    store_dir: str
    attributes: Mapping[str, Mapping[str, str]]

    def reserved_ms(self) -> dict[str, int]:
        """How long messages of a topic stay by its attribute ``reserve.time`` (hours; only a number above 0 counts)."""
        found = {}
        for topic, attributes in self.attributes.items():
            hours = attributes.get(_RESERVE_TIME, "")
            if hours.isdecimal() and int(hours) > 0:
                found[topic] = min(int(hours), _MOST_HOURS) * _HOUR_MS
        return found

    def compacted(self) -> set[str]:
        """Topics of which the broker keeps the newest message of each key, however old it is."""
        return {t for t, found in self.attributes.items() if found.get(_CLEANUP_POLICY) == _COMPACTION}

    def deleted(self, topics: Iterable[str]) -> set[str]:
        """Which of these topics the broker has deleted: they are not in its list, and the queues that it deletes with a topic
        are gone too. RocketMQ's own topics are not asked for: some are in no list."""
        return {
            topic
            for topic in topics
            if topic not in self.attributes
            and not is_system_topic(topic)
            and not topic.startswith(_LIGHT_QUEUES)
            and not any(
                _has_entries(os.path.join(self.store_dir, kind, topic)) for kind in _QUEUE_DIRECTORIES
            )
        }


def read_topics(store_dir: str) -> TopicList | None:
    """What the broker of this store directory says of its topics; ``None`` where no broker keeps a configuration: nothing is
    named, or it is a store without ``config``, which a real broker always has.

    ``Unavailable`` if the list cannot be read now, or is not whole.
    """
    if not store_dir:
        return None
    path = os.path.join(store_dir, TOPICS_FILE)
    try:
        with open(path, "rb") as file:
            table = decode_json(file.read())["topicConfigTable"]
        attributes = {topic: dict(config.get("attributes") or {}) for topic, config in table.items()}
    except FileNotFoundError as error:
        if not os.path.isdir(os.path.dirname(path)) and os.path.isdir(os.path.join(store_dir, "commitlog")):
            return None
        raise _unknown(path, "no such file") from error
    except OSError as error:
        raise of_local_disk(
            "the broker's list of topics cannot be read", error, hint="let this user read it", path=path
        ) from error
    except (Corrupt, KeyError, TypeError, AttributeError, ValueError) as error:
        raise _unknown(path, f"not a whole list: {error}") from error
    if not attributes:  # a broker has topics of its own from its first start on
        raise _unknown(path, "an empty list")
    return TopicList(store_dir, attributes)


def _unknown(path: str, found: str) -> Unavailable:
    return Unavailable(
        "the broker's list of topics cannot be read",
        path=path,
        found=found,
        hint="brokers rewrite it in place, so it is tried again; of a broker that keeps its configuration in RocksDB it is not"
        " there: set retain.topic_attributes = false and retain.deleted_topic_ms = 0",
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
