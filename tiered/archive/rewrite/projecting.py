"""Compaction by key, as a task: for topics that ask for it a projection of each queue is kept in the bucket (DESIGN.md,
"Compaction by key"). Messages stay where they are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from tiered.archive.keys import Area, ObjectKey, parse, projection_key
from tiered.archive.keys import build as path_of
from tiered.archive.log.maintenance import Done, Figures, Outlook, OwnKeys, Stopped, Turn
from tiered.archive.log.writer import CommitLog
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.projection import Projection, listed_projections, newest_projection
from tiered.archive.read.runs import COALESCE_BYTES
from tiered.archive.read.view import View
from tiered.archive.rewrite.projectionbuild import BuildBounds, ProjectionBuild
from tiered.archive.rewrite.spool import Spool
from tiered.archive.state.listing import list_topics
from tiered.archive.state.values import QueueState
from tiered.clock import Clock
from tiered.crashpoint import ProjectionPoint, reach
from tiered.errors import Corrupt, Invalid, NotFound, Unavailable
from tiered.model import MessageQueue
from tiered.provider.resolve import put_own
from tiered.settings import Settings

_DIRECTORY = "compaction"


@dataclass(frozen=True, slots=True)
class ProjectingOptions:
    """What asks for a projection, when one is made anew, and within which bounds."""

    patterns: tuple[str, ...]
    interval_seconds: float
    min_messages: int
    renew_percent: int
    bounds: BuildBounds

    @classmethod
    def of(cls, settings: Settings) -> ProjectingOptions:
        """As the settings say."""
        made, state = settings.compaction, settings.state_directory
        bounds = BuildBounds(settings.fetch.compact_bytes, str(Path(state) / _DIRECTORY) if state else None)
        return cls(made.topics, made.interval_ms / 1000, made.min_messages, made.renew_percent, bounds)


@dataclass(frozen=True, slots=True)
class _Known:
    """What is remembered of a queue's newest projection."""

    path: str
    generation: int
    seq: int
    end: int
    entries: int

    @classmethod
    def of(cls, found: Projection) -> _Known:
        head = found.head
        return cls(found.path, head.generation, head.seq, head.end, head.entries)


class Projecting:
    """The task. A turn reads a bounded part of one queue's messages, those that its newest projection does not know; the last
    of them puts a projection.

    ``asked``: topics of which the broker keeps the newest message of each key; ``None``: it is never asked. ``damaged``: paths
    that are known to be.
    """

    name = "compact"

    def __init__(
        self,
        commit_log: CommitLog,
        clock: Clock,
        options: ProjectingOptions,
        own_keys: OwnKeys,
        asked: Callable[[], Collection[str]] | None = None,
        *,
        damaged: Callable[[], Collection[str]] = tuple,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._log = commit_log
        self._clock = clock
        self._options = options
        self._own_keys = own_keys
        self._asked = asked
        self._damaged = damaged
        self._random_bytes = random_bytes
        self._known: dict[MessageQueue, _Known | None] = {}
        self._round: list[MessageQueue] | None = None
        self._build: ProjectionBuild | None = None
        self._trouble: str | None = None
        self._next = clock.monotonic()

    def due(self, now: float) -> bool:
        """An interval after the last round ended; never where no topic can ask."""
        return now >= self._next and (bool(self._options.patterns) or self._asked is not None)

    def plan(self) -> Outlook:
        """See ``Task``. It asks the store for projections of queues that this process has not looked at yet."""
        if not (self._options.patterns or self._asked):
            return Outlook(0, "no topic asks for compaction by key")
        self._trouble = None
        view = self._view()
        rows = tuple(self._row(view, queue) for queue in self._waiting(view))
        behind = sum(int(row["messages"] or 0) for row in rows)
        said = (
            f"{len(rows)} queues whose projection is {behind} messages behind"
            if rows
            else "every projection is new enough"
        )
        figures: Figures = {"queues": len(rows), "messages_behind": behind}
        told = said if self._trouble is None else f"{said}; {self._trouble}"
        return Outlook(len(rows), told, figures, rows, self._trouble)

    def run_once(self, turn: Turn) -> Done:
        """Read on, or put a projection, or begin one."""
        view = self._view()
        if self._build is None:
            if self._round is None:
                self._trouble = None
                self._round = list(self._waiting(view))
            if not self._round:
                self._round = None
                self._next = self._clock.monotonic() + self._options.interval_seconds
                return Done(False, trouble=self._trouble)
            self._begin(view, self._round.pop(), turn)
            return Done(True, trouble=self._trouble)
        build = self._build
        try:
            return Done(True, self._go_on(view, build, turn), self._trouble)
        except (Corrupt, NotFound, Unavailable, Invalid) as error:
            # What cannot be read may be the newest of any key.
            known = self._log.reader.keys.path(str(error.fields.get("key"))) in self._damaged()
            if isinstance(error, Unavailable | Invalid) and not known:
                raise
            self._drop()
            self._trouble = f"no projection of {build.queue.topic} queue {build.queue.queue_id}: {error}"
            return Done(True, trouble=self._trouble)
        except Stopped:
            self._drop()
            raise

    # ---- which queues

    def _view(self) -> View:
        reader, state = self._log.reader, self._log.frozen()
        objects = ObjectReader(
            reader.provider, reader.keys, reader.identity.archive_id, cache_bytes=COALESCE_BYTES
        )
        return View(state.head(), state, objects, reader)

    def _waiting(self, view: View) -> Iterator[MessageQueue]:
        """Queues whose projection is to be made anew."""
        compacted: Collection[str] = ()
        if self._asked is not None:
            try:
                compacted = self._asked()
            except Unavailable as error:
                self._trouble = f"topics that ask by their attributes are not known: {error}"
        if not compacted and not self._options.patterns:
            return
        damaged = self._damaged()
        for topic in (found.topic for found in list_topics(view.state.view)):
            if topic in compacted or any(fnmatchcase(topic, p) for p in self._options.patterns):
                yield from (q.queue for q in view.state.queues(topic) if self._is_due(view, q, damaged))

    def _is_due(self, view: View, found: QueueState, damaged: Collection[str]) -> bool:
        if found.generation is None or found.messages < self._options.min_messages:
            return False
        known = self._known_of(view, found, damaged)
        behind = found.max_offset - max(found.min_offset, 0 if known is None else known.end)
        share = 0 if known is None else known.entries * self._options.renew_percent // 100
        return behind >= max(self._options.min_messages, share)

    def _known_of(self, view: View, found: QueueState, damaged: Collection[str]) -> _Known | None:
        """The queue's newest projection that holds, asked of the store once."""
        queue, generation = found.queue, found.generation
        if queue not in self._known:
            newest = newest_projection(view, queue, without=damaged)
            self._known[queue] = None if newest is None else _Known.of(newest)
        known = self._known[queue]
        if known is None or generation is None or known.generation != generation or known.path in damaged:
            return None
        closed = view.state.closed_table(queue, generation)["closed_by"]
        cut = known.end > found.max_offset or bool((closed > known.seq).any())
        return None if cut else known

    def _row(self, view: View, queue: MessageQueue) -> Figures:
        found = view.known(queue)
        assert found is not None  # of this very view
        known = self._known_of(view, found, self._damaged())
        end = max(found.min_offset, 0 if known is None else known.end)
        return {
            "topic": queue.topic, "queue_id": queue.queue_id, "messages": found.max_offset - end,
            "projected_to": end, "max_offset": found.max_offset,
        }  # fmt: skip

    # ---- one projection

    def _begin(self, view: View, queue: MessageQueue, turn: Turn) -> None:
        """Start from the newest projection that holds, or at the queue's beginning."""
        base = newest_projection(view, queue, without=self._damaged())
        self._build = ProjectionBuild.begin(view, queue, base, self._options.bounds, turn)

    def _drop(self) -> None:
        if self._build is not None:
            self._build.close()
            self._build = None

    def _go_on(self, view: View, build: ProjectionBuild, turn: Turn) -> Figures:
        """Read what a turn may, and put the projection when all of it was read."""
        if not build.stands(view):
            self._drop()  # cut meanwhile, or begun anew: another round looks again
            return {}
        read = build.read(view, turn)
        return {"read_messages": read, **(self._put(view, build, turn) if build.complete else {})}

    def _put(self, view: View, build: ProjectionBuild, turn: Turn) -> Figures:
        """Put the projection, and give up those of the queue that it stands for."""
        head, keys, provider = view.head, self._log.reader.keys, self._log.reader.provider
        assert head is not None  # there are messages
        path = path_of(projection_key(build.queue, head.seq, head.epoch, self._random_bytes(16)))
        with Spool(self._options.bounds.directory) as spool, self._own_keys.making(path) as counted:
            made = build.write(view, head, spool)
            turn.spend(spool.length)
            reach(ProjectionPoint.BEFORE_PROJECTION)
            put_own(provider, keys.key(path), spool.parts())
            counted()
            length = spool.length
        reach(ProjectionPoint.AFTER_PROJECTION)
        self._drop()
        self._known[build.queue] = _Known(path, made.generation, made.seq, made.end, made.entries)
        for stored in listed_projections(provider, keys.prefix(Area.PROJECTION), build.queue):
            older = str(keys.path(stored.key))
            named = parse(older)
            own = isinstance(named, ObjectKey) and named.epoch == head.epoch  # others are orphans
            if own and older != path and not view.state.is_retired(older):
                self._own_keys.give_up(older)
        return {"projections": 1, "projected_keys": made.entries, "written_bytes": length}
