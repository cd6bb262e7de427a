"""An archive that is opened while the gateway already serves: hot traffic never waits for it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Concatenate, ParamSpec, TypeVar

from tiered.backoff import Backoff
from tiered.errors import TieredError, Unavailable
from tiered.fetch.base import ReaderId
from tiered.filter.storagelevels import StorageLevel, StorageLevels
from tiered.service import Next, pause
from tiered.settings import Fetch
from tiered.store import MessageStore

log = logging.getLogger("tiered.gateway")

Asked = ParamSpec("Asked")
Found = TypeVar("Found")

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
        self._levels = StorageLevels(settings.storage_level, settings.topic_storage_levels)
        self.store = LateStore(self._now, self._levels)
        """The store, opened or not."""

    @property
    def opened(self) -> MessageStore | None:
        """The store once it is open."""
        return self._opened

    def set_levels(self, settings: Fetch) -> None:
        """Storage levels from now on. ``Invalid``: as before, then."""
        self._levels.replace(settings.storage_level, settings.topic_storage_levels)

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

    def _now(self) -> MessageStore:
        if self._opened is None:
            raise Unavailable("the archive is not open", found=self.problem)
        return self._opened

    def _failed(self, problem: str) -> None:
        if problem != self.problem:
            log.error("the archive cannot be read; what the broker has is served: %s", problem)
        self.problem = problem


def _once_open(
    verb: Callable[Concatenate[MessageStore, Asked], Found],
) -> Callable[Concatenate[LateStore, Asked], Found]:
    """A verb of the store, as ``LateStore`` has it."""
    name = verb.__name__

    def ask(late: LateStore, /, *arguments: Asked.args, **named: Asked.kwargs) -> Found:
        found: Found = getattr(late.opened(), name)(*arguments, **named)
        return found

    return ask


class LateStore:
    """What the gateway and its pages ask of the store: ``Unavailable`` while ``opened`` raises that. Which topics are the
    archive's is known before."""

    def __init__(self, opened: Callable[[], MessageStore], levels: StorageLevels) -> None:
        self.opened = opened
        self._levels = levels

    def storage_level(self, topic: str) -> StorageLevel:
        """The level in force for a topic."""
        return self._levels.level(topic)

    def observe(self, reader: ReaderId, topic: str, queue_id: int, offset: int) -> None:
        """See ``MessageStore``; nothing to tell before there is a cache."""
        with suppress(Unavailable):
            self.opened().observe(reader, topic, queue_id, offset)

    def tenants(self) -> Mapping[str, Mapping[str, object]]:
        """What tenants have had of the store, for people; empty before it is open."""
        with suppress(Unavailable):
            return self.opened().shares.shown()
        return {}

    alive = _once_open(MessageStore.alive)
    forget = _once_open(MessageStore.forget)
    known = _once_open(MessageStore.known)
    progress = _once_open(MessageStore.progress)
    place = _once_open(MessageStore.place)
    reach = _once_open(MessageStore.reach)
    physical_floor = _once_open(MessageStore.physical_floor)
    follow = _once_open(MessageStore.follow)
    follow_if_older = _once_open(MessageStore.follow_if_older)
    compacted_page = _once_open(MessageStore.compacted_page)
    get_message = _once_open(MessageStore.get_message)
    get_message_at_once = _once_open(MessageStore.get_message_at_once)
    get_message_async = _once_open(MessageStore.get_message_async)
    min_offset = _once_open(MessageStore.min_offset)
    max_offset = _once_open(MessageStore.max_offset)
    earliest_message_time = _once_open(MessageStore.earliest_message_time)
    message_time = _once_open(MessageStore.message_time)
    offset_by_time = _once_open(MessageStore.offset_by_time)
    query_message = _once_open(MessageStore.query_message)
    view_message = _once_open(MessageStore.view_message)
    newest = _once_open(MessageStore.newest)
    locate = _once_open(MessageStore.locate)
    query = _once_open(MessageStore.query)
    list_topics = _once_open(MessageStore.list_topics)
    queues = _once_open(MessageStore.queues)
    sinks = _once_open(MessageStore.sinks)
