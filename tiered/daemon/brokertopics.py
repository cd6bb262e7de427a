"""What the broker beside this process says of its topics, as retention asks for it; and since when topics are gone, noted."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from tiered.archive.rewrite.policy import BrokerSays, policy_from
from tiered.daemon.topicnotes import EMPTY, GONE, Noted, TopicNotes
from tiered.errors import Unavailable, of_local_disk
from tiered.settings import Retain, Settings
from tiered.source.topics import BrokerTopicLists

NOTES_FILE = "deleted-topics"
"""In the state directory: topics that the broker was seen to have deleted, and when that was seen first."""


class BrokersTopics:
    """See ``BrokersWord`` and ``TopicsGone``. ``notes``: this process archives beside that broker and has compared it with the
    archive, so what it does not find is deleted; other processes go by what that one has noted, and by what they see."""

    def __init__(self, settings: Settings, archive_id: bytes, *, notes: bool) -> None:
        self._store_dir = settings.source.store_dir
        self._lists = BrokerTopicLists(self._store_dir)
        state = settings.state_directory
        self._path = Path(state) / NOTES_FILE if state else None
        self._file = None if self._path is None else TopicNotes(self._path, archive_id)
        self._notes = notes

    def heeded(self, settings: Retain) -> bool:
        """See ``BrokersWord``."""
        return bool(self._store_dir) and (settings.topic_attributes or settings.deleted_topic_ms > 0)

    def says(
        self, settings: Retain, topics: Callable[[], Collection[str]], now_ms: Callable[[], int]
    ) -> BrokerSays:
        """See ``BrokersWord``."""
        if not self.heeded(settings):
            return BrokerSays()
        try:
            table = self._lists.read()
        except Unavailable:
            if policy_from(settings).forever and not settings.deleted_topic_ms:
                return BrokerSays()  # nothing is trimmed that it could have kept
            raise
        if table is None:
            return BrokerSays()
        said = BrokerSays()
        if settings.topic_attributes:
            said = BrokerSays(table.reserved_ms(), compacted=frozenset(table.compacted()))
        if not settings.deleted_topic_ms:
            return said
        since_ms = self._gone(table.deleted(topics()), now_ms)
        expired = {
            topic for topic, since in since_ms.items() if now_ms() - since >= settings.deleted_topic_ms
        }
        return replace(said, expired=frozenset(expired))

    def deleted(self, topics: Collection[str]) -> Mapping[str, int | None]:
        """Of these topics those that the broker deleted, each with when that was noted first; ``None`` where it was not.
        ``Unavailable`` while its list cannot be read."""
        table = self._lists.read()
        gone = set() if table is None else table.deleted(topics)
        noted = self._noted()[GONE] if gone else {}
        return {topic: noted.get(topic) for topic in gone}

    def empty_since(self, topics: Collection[str], now_ms: Callable[[], int]) -> Mapping[str, int]:
        """See ``TopicsGone``. What was noted is looked at again by each process; only who notes adds to it."""
        table = self._lists.read()
        if table is None:
            return {}
        return self._since(EMPTY, table.deleted(topics), now_ms)

    def empty_noted(self) -> Mapping[str, int]:
        """Topics that were noted as gone and empty, with since when."""
        return self._noted()[EMPTY]

    def _gone(self, deleted: Collection[str], now_ms: Callable[[], int]) -> Mapping[str, int]:
        """When each of these topics was first seen to be gone, as far as it was noted."""
        return self._since(GONE, deleted, now_ms)

    def _since(self, what: str, deleted: Collection[str], now_ms: Callable[[], int]) -> Mapping[str, int]:
        """Since when each of these topics is known to be so; who notes it begins with those that are new."""
        notes = self._read_notes()
        noted = notes.times[what]
        since = {topic: noted[topic] for topic in deleted if topic in noted}
        if not self._notes or self._file is None:
            return since
        since |= {topic: now_ms() for topic in deleted if topic not in noted}
        try:
            self._file.write(notes, what, since)
        except OSError as error:
            raise of_local_disk(
                "it cannot be noted which topics the broker deleted", error,
                hint="set state.directory to a writable directory", path=str(self._path),
            ) from error  # fmt: skip
        return since

    def _noted(self) -> Mapping[str, Mapping[str, int]]:
        return self._read_notes().times

    def _read_notes(self) -> Noted:
        return Noted() if self._file is None else self._file.read()
