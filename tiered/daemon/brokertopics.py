"""What the broker beside this process says of its topics, as retention asks for it; and since when topics are gone, noted."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path

from tiered import durable
from tiered.archive.rewrite.policy import BrokerSays, policy_from
from tiered.errors import Unavailable, of_local_disk
from tiered.settings import Retain, Settings
from tiered.source.topics import read_topics

NOTES_FILE = "deleted-topics"
"""In the state directory: topics that the broker was seen to have deleted, and when that was seen first."""


class BrokersTopics:
    """See ``BrokersWord``. ``notes``: this process archives beside that broker and has compared it with the archive, so what it
    does not find is deleted; other processes go by what that one has noted, and by what they see."""

    def __init__(self, settings: Settings, archive_id: bytes, *, notes: bool) -> None:
        self._store_dir = settings.source.store_dir
        state = settings.state_directory
        self._path = Path(state) / NOTES_FILE if state else None
        self._archive_id = archive_id.hex()
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
            table = read_topics(self._store_dir)
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

    def _gone(self, deleted: Collection[str], now_ms: Callable[[], int]) -> Mapping[str, int]:
        """When each of these topics was first seen to be gone, as far as it was noted."""
        noted = self._noted()
        since = {topic: noted[topic] for topic in deleted if topic in noted}
        if not self._notes or self._path is None:
            return since
        since |= {topic: now_ms() for topic in deleted if topic not in noted}
        if since != noted:
            data = json.dumps({"archive_id": self._archive_id, "since_ms": since}, sort_keys=True).encode()
            try:
                durable.replace(self._path, data + b"\n")
            except OSError as error:
                raise of_local_disk(
                    "it cannot be noted which topics the broker deleted", error,
                    hint="set state.directory to a writable directory", path=str(self._path),
                ) from error  # fmt: skip
        return since

    def _noted(self) -> Mapping[str, int]:
        """What the file says; nothing where it is damaged or of another archive: then the time begins anew."""
        if self._path is None:
            return {}
        try:
            found = json.loads(self._path.read_bytes())
            if found["archive_id"] != self._archive_id:
                return {}
            return {str(topic): int(since) for topic, since in found["since_ms"].items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return {}
