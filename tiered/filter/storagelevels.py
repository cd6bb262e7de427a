"""Storage levels: which reads the archive answers and which the broker, by RocketMQ's rules; settable live and per topic."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import IntEnum
from fnmatch import fnmatchcase

from tiered.errors import Invalid


class StorageLevel(IntEnum):
    """RocketMQ's ``tieredStorageLevel``, with its numbers: each level asks the archive for more than the one before."""

    DISABLE = 0
    """Never."""
    NOT_IN_DISK = 1
    """When the broker has deleted the message."""
    NOT_IN_MEM = 2
    """Also when the message is on the broker's disk but not in its page cache."""
    FORCE = 3
    """Always, also for messages that are not archived yet."""

    @classmethod
    def parse(cls, text: str) -> StorageLevel:
        """A level from its name or its digit; ``Invalid`` for anything else."""
        word = text.strip().upper()
        for level in cls:
            if word in (level.name, str(level.value)):
                return level
        raise Invalid(
            "not a storage level", expected=", ".join(level.name for level in cls), found=text,
            hint="set fetch.storage_level or fetch.topic_storage_levels (topic=LEVEL)",
        )  # fmt: skip


class StorageLevels:
    """The level of every topic: the first pattern (``*`` and ``?``) that fits decides, else the default. Thread-safe."""

    def __init__(self, default: str, topics: Sequence[str] = ()) -> None:
        self._lock = threading.Lock()
        self._default = StorageLevel.DISABLE
        self._patterns: tuple[tuple[str, StorageLevel], ...] = ()
        self.replace(default, topics)

    def replace(self, default: str, topics: Sequence[str] = ()) -> None:
        """From now on these, and none of those before. ``Invalid``: as before, then."""
        level, patterns = StorageLevel.parse(default), tuple(_parsed(entry) for entry in topics)
        with self._lock:
            self._default, self._patterns = level, patterns

    def level(self, topic: str) -> StorageLevel:
        """The level in force for a topic."""
        if not self._patterns:
            return self._default
        return next(
            (level for pattern, level in self._patterns if fnmatchcase(topic, pattern)), self._default
        )


def _parsed(entry: str) -> tuple[str, StorageLevel]:
    pattern, equals, level = entry.partition("=")
    if not equals or not pattern.strip():
        raise Invalid(
            "fetch.topic_storage_levels must be topic=LEVEL",
            found=entry,
            hint="for example Orders*=NOT_IN_MEM",
        )
    return pattern.strip(), StorageLevel.parse(level)
