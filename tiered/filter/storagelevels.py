"""Storage levels: which reads the archive answers and which the broker, by RocketMQ's rules; settable live and per topic."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
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
    """Always, also for what is not archived yet."""

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


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """What the broker itself can read of a queue: [``min_offset``, ``max_offset``), or nothing with ``min_offset`` ``None``.

    ``in_memory``: whether the message asked for is in the broker's page cache, as far as the caller can tell.
    """

    min_offset: int | None
    max_offset: int
    in_memory: bool = True

    def has(self, offset: int) -> bool:
        """Whether the broker can serve ``offset``."""
        return self.min_offset is not None and self.min_offset <= offset < self.max_offset


def archive_answers(level: StorageLevel, offset: int, archive_end: int | None, local: LocalQueue) -> bool:
    """Whether the archive answers a read at ``offset``; false: the broker. ``archive_end`` ``None``: no such queue archived.

    RocketMQ's decision (``TieredMessageStore``), top down; the caller has sent reads of system topics to the broker already.
    """
    if level is StorageLevel.FORCE:
        return True
    if level is StorageLevel.DISABLE or archive_end is None or offset >= archive_end:
        return False
    if not local.has(offset):
        return True
    return level >= StorageLevel.NOT_IN_MEM and not local.in_memory


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
        return next(
            (level for pattern, level in self._patterns if fnmatchcase(topic, pattern)), self._default
        )

    def set(self, pattern: str, level: StorageLevel | str | None) -> None:
        """From now on: a pattern that has a level keeps its place, a new one goes before all others; ``None`` removes it.

        ``*`` alone sets the default.
        """
        if not pattern:
            raise Invalid(
                "a storage level is for a topic or a pattern", found="an empty one", hint="* means all"
            )
        new = StorageLevel.parse(level) if isinstance(level, str) else level
        with self._lock:
            known = [name for name, _ in self._patterns]
            if pattern == "*" and pattern not in known and new is not None:
                self._default = new
            elif new is None:
                self._patterns = tuple(p for p in self._patterns if p[0] != pattern)
            elif pattern in known:
                self._patterns = tuple((n, new if n == pattern else old) for n, old in self._patterns)
            else:
                self._patterns = ((pattern, new), *self._patterns)


def _parsed(entry: str) -> tuple[str, StorageLevel]:
    pattern, equals, level = entry.partition("=")
    if not equals or not pattern.strip():
        raise Invalid(
            "fetch.topic_storage_levels must be topic=LEVEL",
            found=entry,
            hint="for example Orders*=NOT_IN_MEM",
        )
    return pattern.strip(), StorageLevel.parse(level)
