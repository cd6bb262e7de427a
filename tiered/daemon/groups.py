"""The broker's subscription groups and consumer offsets, followed at a bounded rhythm; never a reason for archiving to wait."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack

from tiered.clock import Clock
from tiered.daemon.groupbook import GroupKeeper, GroupsNote, groups_directory, groups_stamp
from tiered.daemon.parts import Parts
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.metadata.base import RedoStore
from tiered.metadata.open import open_redo
from tiered.metrics import Metrics
from tiered.service import Next, Service, pause
from tiered.source.grouplists import BrokerGroups

log = logging.getLogger("tiered.daemon")

CACHE_BYTES = 8 * 1024 * 1024
PART_OF_TIME = 20
"""A look takes at most this part of the time: after a long one the pause is so many times as long."""
NOTE_SECONDS = 300.0
"""How often it is noted that nothing changed."""


class GroupsFollower:
    """Looks at the broker's lists, and keeps what changed. ``step`` is one look."""

    def __init__(
        self, store: RedoStore, broker: BrokerGroups, clock: Clock, seconds: float, metrics: Metrics
    ) -> None:
        self._store = store
        self._broker = broker
        self._clock = clock
        self._seconds = seconds
        self._metrics = metrics
        self._keeper = GroupKeeper(store)
        self._of: object = None
        self._note: GroupsNote | None = None
        self._noted = clock.monotonic()
        self._good = clock.monotonic()
        self._problem: str | None = None
        self._failed = False
        metrics.groups_age.set_function(self.age_seconds)

    def age_seconds(self) -> float:
        """How long ago the broker's lists were last read, or found unchanged. From any thread."""
        return self._clock.monotonic() - self._good

    def step(self) -> Next:
        """One look. ``Unavailable`` where the lists cannot be read or nothing can be written."""
        began = self._clock.monotonic()
        try:
            if self._failed:
                self._store.reopen()
                self._failed = False
            self._look(began)
        except Unavailable as error:
            self._failed, self._of, self._problem = True, None, str(error)
            raise
        except Corrupt as error:
            log.warning(
                "what was kept of the broker's groups is damaged: it is made again", extra=error.fields
            )
            self._store.clear()
            self._of = None
            return pause(self._seconds)
        self._good, self._problem = self._clock.monotonic(), None
        return pause(max(self._seconds, PART_OF_TIME * (self._good - began)))

    def _look(self, now: float) -> None:
        """Read the lists if they changed."""
        changes = self._broker.changes()
        if changes is None:
            return
        if changes == self._of and self._note is not None:
            if now - self._noted >= NOTE_SECONDS:
                self._noted = now
                note = self._note
                self._note = GroupsNote(self._clock.now_ms(), note.groups, note.offsets, note.skipped)
                self._keeper.saw(self._note)
            return
        note = self._broker.read(lambda entries: self._keeper.update(entries, self._clock.now_ms()))
        self._of, self._note, self._noted = changes, note, now
        self._metrics.groups.set(note.groups)
        self._metrics.group_offsets.set(note.offsets)

    def status(self) -> Mapping[str, object]:
        """For ``/status``."""
        note = self._note
        said: dict[str, object] = {"age_seconds": round(self.age_seconds(), 1), "problem": self._problem}
        if note is not None:
            said |= {"groups": note.groups, "offsets": note.offsets, "skipped": note.skipped}
        return said


def follow_groups(parts: Parts, stack: ExitStack) -> GroupsFollower | None:
    """Follow the groups of the broker that the settings name, in a thread of its own; ``None`` if they ask for none, or, with a
    warning, where nothing can be kept."""
    settings, archive_id = parts.settings, parts.log.reader.identity.archive_id
    if not settings.source.groups_ms or not settings.source.store_dir or not settings.state_directory:
        return None
    directory = groups_directory(settings.state_directory)
    try:
        store = open_redo("rocksdb", directory, CACHE_BYTES, stamp=groups_stamp(archive_id))
    except TieredError as error:
        log.warning("the broker's groups cannot be kept: archiving goes on without them", extra=error.fields)
        return None
    stack.callback(store.close)
    broker, seconds = BrokerGroups(settings.source.store_dir), settings.source.groups_ms / 1000
    made = GroupsFollower(store, broker, parts.clock, seconds, parts.metrics)
    service = Service("groups", made.step, parts.clock, metrics=parts.metrics)
    service.start()
    stack.callback(service.join, 2.0)
    stack.callback(service.stop)
    return made
