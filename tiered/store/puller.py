"""One read of a queue, waiting or not: decide, look at the log if need be, fetch, answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass

from tiered.archive.read.view import View
from tiered.errors import Corrupt, NotFound, TieredError, Unavailable
from tiered.fetch.base import Fetched, ReaderId
from tiered.fetch.fetcher import Fetcher
from tiered.filter.base import RowFilter
from tiered.metrics import Metrics
from tiered.model import GetMessageResult
from tiered.store.answer import ELSEWHERE, Place, decide, finish
from tiered.store.follower import Follower
from tiered.store.futures import chained

Answer = Future[GetMessageResult] | GetMessageResult


@dataclass(frozen=True, slots=True)
class Pull:
    """What is asked: as ``MessageStore.get_message``."""

    reader: ReaderId
    topic: str
    queue_id: int
    offset: int
    max_count: int
    max_bytes: int
    row_filter: RowFilter | None


class Puller:
    """Reads of queues. Thread-safe.

    An answer that a newer commit could change is given after a look at the log. When an object that the view names is gone, the
    view is older than a deletion: one more look, one more try.
    """

    def __init__(self, follower: Follower, engine: Callable[[View], Fetcher], metrics: Metrics) -> None:
        self._follower = follower
        self._make_engine = engine
        self._metrics = metrics
        self._lock = threading.Lock()
        self._engine: Fetcher | None = None

    def get(self, pull: Pull) -> GetMessageResult:
        """The answer, in this thread."""
        try:
            return self._get(pull)
        except TieredError as error:
            self._metrics.reads.labels(type(error).__name__).inc()
            raise

    def _get(self, pull: Pull) -> GetMessageResult:
        for last in (False, True):
            view, found = self._decided(pull)
            if isinstance(found, GetMessageResult) and found.status in ELSEWHERE and not last:
                self._follower.follow()
                view, found = self._decided(pull)
            if isinstance(found, GetMessageResult):
                return self._counted(found)
            try:
                fetched = self._engine_of(view).read(
                    view.state, pull.reader, found.queue, found.generation, found.offset,
                    max_count=pull.max_count, max_bytes=pull.max_bytes, row_filter=pull.row_filter,
                )  # fmt: skip
            except NotFound as error:
                if last:
                    raise missing(error) from error
                self._follower.follow(force=True)  # or somebody else has looked meanwhile
                continue
            return self._counted(finish(found, fetched))
        raise AssertionError("unreachable")

    def get_async(self, pull: Pull) -> Future[GetMessageResult]:
        """The answer, or its error, through a future; nothing is waited for here."""
        ready = self._follower.ready_async()
        asked = chained(ready, lambda _: self._ask(pull, looked=False, retried=False))
        return chained(asked, lambda result: result, self._failed)

    def _ask(self, pull: Pull, *, looked: bool, retried: bool) -> Answer:
        view, found = self._decided(pull)
        if isinstance(found, GetMessageResult):
            if found.status in ELSEWHERE and not looked:
                look = self._follower.follow_async()
                return chained(look, lambda _: self._ask(pull, looked=True, retried=retried))
            return self._counted(found)
        place: Place = found
        fetched = self._engine_of(view).read_async(
            view.state, pull.reader, place.queue, place.generation, place.offset,
            max_count=pull.max_count, max_bytes=pull.max_bytes, row_filter=pull.row_filter,
        )  # fmt: skip

        def arrived(records: Fetched) -> Answer:
            return self._counted(finish(place, records))

        def failed(error: BaseException) -> Answer:
            if not isinstance(error, NotFound):
                raise error
            if retried:
                raise missing(error) from error
            look = self._follower.follow_async(force=True)
            return chained(look, lambda _: self._ask(pull, looked=True, retried=True))

        return chained(fetched, arrived, failed)

    def close(self) -> None:
        """Give up what is under way."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _decided(self, pull: Pull) -> tuple[View, GetMessageResult | Place]:
        view = self._follower.ready()
        return view, decide(view.state, pull.topic, pull.queue_id, pull.offset, pull.max_count)

    def _engine_of(self, view: View) -> Fetcher:
        with self._lock:
            if self._engine is None:
                self._engine = self._make_engine(view)
            return self._engine

    def _failed(self, error: BaseException) -> GetMessageResult:
        if isinstance(error, CancelledError):
            error = Unavailable("the reader is closed")
        self._metrics.reads.labels(type(error).__name__).inc()
        raise error

    def _counted(self, result: GetMessageResult) -> GetMessageResult:
        self._metrics.reads.labels(result.status.name).inc()
        if result.records:
            self._metrics.read_messages.inc(len(result.records))
            self._metrics.read_bytes.inc(result.buffer_bytes)
        return result


def missing(error: NotFound) -> Corrupt:
    """An object that the newest commits name is not there."""
    fields = {name: value for name, value in error.fields.items() if name != "hint"}
    return Corrupt("an object of the archive is missing", hint=None, **fields)
