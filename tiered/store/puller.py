"""One read of a queue, waiting or not: decide, look at the log if need be, fetch, answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from functools import partial

from msgspec import structs

from tiered.archive.read.view import View
from tiered.errors import NotFound, Unavailable
from tiered.fetch.base import FetchedRecords
from tiered.fetch.fetcher import Fetcher
from tiered.fetch.pull import Pull
from tiered.fetch.steps import Steps, done, run_here, run_later
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus, QueueOffset
from tiered.store.answer import ELSEWHERE, ReadPlace, decide, finish
from tiered.store.follower import Follower
from tiered.store.gone import GoneObjects
from tiered.store.lite import LitePlace, decide_lite, read_lite
from tiered.store.places import KnownPlaces


class Puller:
    """Reads of queues. Thread-safe.

    An answer that a newer commit could change is given after a look at the log. When an object that the view names is gone, the
    view is older than a deletion: another look, another try (``GoneObjects``).
    """

    def __init__(self, follower: Follower, engine: Callable[[View], Fetcher], metrics: Metrics) -> None:
        self._follower = follower
        self._make_engine = engine
        self._metrics = metrics
        self._lock = threading.Lock()
        self._engine: Fetcher | None = None
        self._places = KnownPlaces()
        self._found_reads = metrics.reads.labels(GetMessageStatus.FOUND.name)

    def at_once(self, pull: Pull) -> GetMessageResult | None:
        """The answer to a read that goes on inside of a block in memory; ``None``: it takes the whole way."""
        view, engine = self._follower.reader.opened, self._engine
        if view is None or engine is None:
            return None
        queue = pull.queue
        place = self._places.find(view.state, queue, pull)
        fetched = None if place is None else engine.read_on(view.state, queue, pull)
        return None if place is None or fetched is None else self._counted(finish(place, fetched))

    def get(self, pull: Pull) -> GetMessageResult:
        """The answer, in this thread."""
        return self.at_once(pull) or run_here(self._read(pull, here=True))

    def get_async(self, pull: Pull) -> Future[GetMessageResult]:
        """The answer, or its error, through a future; nothing is waited for here."""
        at_once = self.at_once(pull)
        if at_once is None:
            return run_later(self._read(pull, here=False))
        answer: Future[GetMessageResult] = Future()
        answer.set_result(at_once)
        return answer

    def _read(self, pull: Pull, *, here: bool) -> Steps[GetMessageResult]:
        """The steps of one read. ``here``: looks and requests are made in this thread."""
        try:
            result = yield from self._found(pull, here)
        except Exception as error:
            closed = isinstance(error, CancelledError)
            self._metrics.reads.labels((Unavailable if closed else type(error)).__name__).inc()
            if closed:
                raise Unavailable("the reader is closed") from None
            raise
        return self._counted(result)

    def _found(self, pull: Pull, here: bool) -> Steps[GetMessageResult]:
        looked, gone = False, GoneObjects(self._follower.lost)
        if not here:
            opened = self._follower.ready_async()
            yield opened
            opened.result()
        while True:
            view = self._follower.ready()
            found = self._decided(view, pull)
            self._follower.grow()
            if not isinstance(found, GetMessageResult):
                fetch = partial(self._fetch, view, here)
                try:
                    if isinstance(found, LitePlace):
                        return (yield from read_lite(found, pull, fetch))
                    fetching = fetch(pull, found.generation)
                    yield fetching
                    return finish(found, fetching.result())
                except NotFound as error:
                    gone.met(error)
            elif looked or found.status not in ELSEWHERE:
                return found
            looked = True
            look = self._follower.follow_async(force=gone.any, here=here)
            yield look
            look.result()

    def _decided(self, view: View, pull: Pull) -> GetMessageResult | LitePlace | ReadPlace:
        known = self._places.find(view.state, pull.queue, pull)
        if known is not None:
            return structs.replace(known, offset=QueueOffset(pull.offset))
        found = decide_lite(view.state, pull) or decide(view.state, pull)
        if isinstance(found, ReadPlace):
            self._places.learn(view.state, found)
        return found

    def _fetch(self, view: View, here: bool, pull: Pull, generation: int) -> Future[FetchedRecords]:
        engine = self._engine_of(view)
        read = done(engine.read) if here else engine.read_async
        return read(view.state, pull, generation)

    def close(self) -> None:
        """Give up what is under way."""
        with self._lock:
            engine, self._engine = self._engine, None
        self._places.forget()
        if engine is not None:
            engine.close()

    def _engine_of(self, view: View) -> Fetcher:
        with self._lock:
            if self._engine is None:
                self._engine = self._make_engine(view)
            return self._engine

    def _counted(self, result: GetMessageResult) -> GetMessageResult:
        if result.status is GetMessageStatus.FOUND:
            self._found_reads.inc()
        else:
            self._metrics.reads.labels(result.status.name).inc()
        if result.records:
            self._metrics.read_messages.inc(len(result.records))
            self._metrics.read_bytes.inc(result.buffer_bytes)
        return result
