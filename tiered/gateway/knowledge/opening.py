"""An archive that is opened while the gateway already serves: hot traffic never waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, cast

from tiered.backoff import Backoff
from tiered.errors import TieredError, Unavailable
from tiered.fetch.base import ReaderId
from tiered.filter.storagelevels import StorageLevel, StorageLevels
from tiered.service import Next, pause
from tiered.settings import Fetch
from tiered.store import MessageStore

log = logging.getLogger("tiered.gateway")

BACKOFF = Backoff(1.0, 30.0)
LOOK_SECONDS = 5.0


class LateArchive:
    """Opens the store in ``step``, the step of a ``Service``; ``store`` may be used before: it is then ``Unavailable``.

    Any error of opening is tried again, also one that settings would have to cure: a gateway that serves hot traffic does not
    end because of its archive.
    """

    def __init__(self, open_store: Callable[[ExitStack], MessageStore], settings: Fetch) -> None:
        """``open_store``: ``MessageStore.open`` with everything but the stack."""
        self.problem: str | None = "the archive is being opened"
        self.was_open = False
        """Whether it could be read once."""
        self._open_store = open_store
        self._opened: MessageStore | None = None
        self._stack = ExitStack()
        self._pauses = BACKOFF.pauses()
        self._settings = settings
        self._late = _Late(self, StorageLevels(settings.storage_level, settings.topic_storage_levels))

    @property
    def store(self) -> MessageStore:
        """The store, opened or not."""
        return cast(MessageStore, self._late)

    @property
    def opened(self) -> MessageStore | None:
        """The store once it is open."""
        return self._opened

    def set_levels(self, settings: Fetch) -> None:
        """Storage levels from now on, of this store or of the one that will be opened. ``Invalid``: as before, then."""
        self._late.levels.replace(settings.storage_level, settings.topic_storage_levels)
        self._settings = settings
        if self._opened is not None:
            self._opened.replace_storage_levels(settings.storage_level, settings.topic_storage_levels)

    def step(self) -> Next:
        """Open it, or look what is new in it."""
        try:
            if self._opened is None:
                self._open()
            else:
                self._opened.follow()  # hot answers are judged by what is known, however little is read from the archive
            if self._opened is not None:
                _ = self._opened.view
            if self.problem is not None:
                log.info("the archive is open")
            self.was_open = True
            self.problem, self._pauses = None, BACKOFF.pauses()
            return pause(LOOK_SECONDS)
        except TieredError as error:
            self._failed(str(error))
        except Exception as error:  # a surprise of a driver must not end the gateway either
            log.debug("opening the archive failed", exc_info=True)
            self._failed(repr(error))
        return pause(next(self._pauses))

    def close(self) -> None:
        """Close the store."""
        self.problem = "the gateway stops"
        self._opened = None
        self._stack.close()

    def _open(self) -> None:
        with ExitStack() as inner:
            store = self._open_store(inner)
            self._stack.push(inner.pop_all())
        self._opened = store
        self.set_levels(self._settings)  # they may have been changed since

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            log.error("the archive cannot be read; what the broker has is served: %s", problem)
        self.problem = problem


class _Late:
    """Every attribute of the store, as soon as there is one."""

    def __init__(self, owner: LateArchive, levels: StorageLevels) -> None:
        self._owner = owner
        self.levels = levels

    def observe(self, reader: ReaderId, topic: str, queue_id: int, offset: int) -> None:
        """Nothing to tell before there is a cache."""
        if self._owner.opened is not None:
            self._owner.opened.observe(reader, topic, queue_id, offset)

    def storage_level(self, topic: str) -> StorageLevel:
        """Known from the settings before the store is."""
        store = self._owner.opened
        return store.storage_level(topic) if store is not None else self.levels.level(topic)

    def __getattr__(self, name: str) -> Any:
        store = self._owner.opened
        if store is None:
            raise Unavailable(f"the archive is not open: {self._owner.problem}")
        return getattr(store, name)
