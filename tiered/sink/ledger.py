"""How far all sinks are, on its way into the archive: what rides on commits (DESIGN.md, "Sinks", J4)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from tiered.archive.log.flush import Flush, Priority
from tiered.archive.log.planned import Place
from tiered.archive.state.keys import queue_key
from tiered.archive.state.offsetmap import OffsetMap, nothing_given
from tiered.archive.state.sinkmaps import sink_maps_of
from tiered.archive.state.sinks import SINK_MAPS, SinkQueue, SinkState, sink, sink_queues_of
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditBatch, EditKind, Rows, SinkStep, batch
from tiered.errors import TieredError
from tiered.feed.base import FeedPosition, Follow
from tiered.model import MessageQueue

MAX_QUEUES = 65_536
"""Of one sink in one commit. What is more goes into the next ones, and the sink's place in the log after the last of them."""

MAX_MAP_RUNS = 1 << 17
"""Of all maps in one commit: about a megabyte."""


@dataclass(frozen=True, slots=True)
class SinkAdvance:
    """What a sink has for good. ``queues``: those that changed. ``step``: what it does to what is known; ``back``: of one that
    begins anew, whether some of it went back since. ``maps``: where messages were put, of sinks that know it."""

    sink_id: bytes
    name: str
    revision: int
    lineage: int
    looked: int
    log: FeedPosition = field(default_factory=FeedPosition)
    queues: Mapping[MessageQueue, Follow] = field(default_factory=dict)
    step: SinkStep = SinkStep.ON
    back: bool = False
    maps: Mapping[MessageQueue, OffsetMap] = field(default_factory=dict)


class SinkLedger:
    """Advances of sinks that no commit has yet. Any thread; ``riding`` and ``refused`` are called by the line of commits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[bytes, SinkAdvance] = {}
        self.rewound = -1
        """The last commit of this process that rewound the archive; perhaps not proven yet."""
        self.trouble: str | None = None
        """Why nothing more is taken: a commit with it would break a rule of the archive."""

    def keep(self, advance: SinkAdvance) -> None:
        """From now on this waits for a commit, together with what waits of the same sink."""
        with self._lock:
            before = self._waiting.get(advance.sink_id)
            self._waiting[advance.sink_id] = advance if before is None else _together(before, advance)

    @property
    def waits(self) -> bool:
        """Whether there is something that no commit has, as far as is known."""
        return bool(self._waiting) and self.trouble is None

    def riding(self, fold: ArchiveState, edits: Sequence[EditBatch] = ()) -> list[EditBatch]:
        """What the fold that a commit is planned on does not know yet; what it knows waits no longer."""
        if any(edit.kind is EditKind.REWIND for edit in edits):
            head = fold.head()
            self.rewound = 0 if head is None else head.seq + 1
        if self.trouble is not None:
            return []
        with self._lock:
            rows: list[dict[str, Any]] = []
            maps: list[tuple[bytes, MessageQueue, OffsetMap]] = []
            for sink_id, advance in list(self._waiting.items()):
                row, left = _row(advance, fold, maps)
                if left is None:
                    del self._waiting[sink_id]
                else:
                    self._waiting[sink_id] = left
                if row is not None:
                    rows.append(row)
        if not rows:
            return []
        return [_batch(EditKind.SINK_PROGRESS, rows), *map_edits(maps)]

    def refused(self, error: TieredError) -> None:
        """The fold does not take it: nothing rides any more, and archiving goes on without."""
        self.trouble = str(error)


@dataclass(frozen=True, slots=True)
class SinkCommit:
    """A commit of its own for what rides on commits, where none comes along."""

    ledger: SinkLedger
    now: float
    messages: int = 0
    raw_bytes: int = 0
    priority: Priority = Priority.READS

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """An empty flush, if there is something that rides on it."""
        if not self.ledger.riding(fold):
            return None
        return Flush((), None, self.now, priority=self.priority)


def _together(before: SinkAdvance, advance: SinkAdvance) -> SinkAdvance:
    if advance.step in (SinkStep.ANEW, SinkStep.REMOVED):
        return advance
    queues = {**before.queues, **advance.queues}
    advance = replace(advance, maps=_maps_together(before, advance))
    if before.step is SinkStep.ANEW:
        back = before.back or advance.step is SinkStep.BACK
        return replace(advance, queues=queues, step=SinkStep.ANEW, back=back)
    return replace(advance, queues=queues, step=max(before.step, advance.step))


def _maps_together(before: SinkAdvance, advance: SinkAdvance) -> dict[MessageQueue, OffsetMap]:
    """Maps of both, each up to where the sink is."""
    maps = dict(before.maps)
    for queue, follow in advance.queues.items():
        if queue in maps:
            maps[queue] = maps[queue].cut(follow.next)
    for queue, told in advance.maps.items():
        maps[queue] = maps[queue].then(told) if queue in maps else told
    return maps


def _row(
    advance: SinkAdvance, fold: ArchiveState, maps: list[tuple[bytes, MessageQueue, OffsetMap]]
) -> tuple[dict[str, Any] | None, SinkAdvance | None]:
    """The row that makes the fold know, and what of the advance still has to be known then. Its maps are put into ``maps``."""
    known = sink(fold.view, advance.sink_id)
    step = advance.step
    if step is SinkStep.REMOVED:
        return (None, None) if known is None else (_columns(advance, {}, advance.log), advance)
    if step is SinkStep.ANEW and known is not None and known.revision >= advance.revision:
        step = SinkStep.BACK if advance.back else SinkStep.ON
    if step is SinkStep.ANEW:
        news = dict(advance.queues)
    else:
        held = sink_queues_of(fold.view, advance.sink_id, list(map(queue_key, advance.queues)))
        news = {
            queue: follow
            for (queue, follow), there in zip(advance.queues.items(), held, strict=True)
            if there != SinkQueue(follow.next, follow.physical)
        }
    if not news and step is not SinkStep.ANEW and known is not None and _same(known, advance):
        return None, None
    left = replace(advance, queues=news)
    some = dict(islice(news.items(), MAX_QUEUES))
    log = advance.log
    if len(some) < len(news):
        log = FeedPosition()
        if step is not SinkStep.ANEW and known is not None:
            # Nor has it looked: queues that are still to come might be where the broker lost what they had.
            log = _position(known)
            advance = replace(advance, looked=known.looked, lineage=known.lineage)
    maps += ((advance.sink_id, *told) for told in _maps(advance, some, fold, anew=step is SinkStep.ANEW))
    left = replace(advance, queues=news, maps={q: told for q, told in advance.maps.items() if q in news})
    return _columns(replace(advance, step=step), some, log), left


def _maps(
    advance: SinkAdvance, queues: Mapping[MessageQueue, Follow], fold: ArchiveState, *, anew: bool
) -> Iterator[tuple[MessageQueue, OffsetMap]]:
    """What maps learn with these queues. One that has a map and of which nothing is known begins anew: it never lags behind."""
    head = fold.head()
    mapped = not anew and head is not None and SINK_MAPS in head.required_features
    keys = list(map(queue_key, queues)) if mapped else []
    found = sink_maps_of(fold.view, advance.sink_id, keys) if mapped else [None] * len(queues)
    for (queue, follow), known in zip(queues.items(), found, strict=True):
        told = advance.maps.get(queue)
        if told is not None and told.end == follow.next:
            yield queue, told
        elif known is not None and known.end < follow.next:
            yield queue, nothing_given(follow.next, follow.next)


def map_edits(maps: Sequence[tuple[bytes, MessageQueue, OffsetMap]]) -> list[EditBatch]:
    """A row for each queue of a sink; each with fewer runs where there are very many."""
    if not maps:
        return []
    most = max(1, MAX_MAP_RUNS // len(maps))
    rows = []
    for sink_id, queue, told in maps:
        base, runs = told.coarser(most).pack()
        rows.append({
            "sink_id": sink_id, "topic": queue.topic, "queue_id": queue.queue_id, "start": told.start, "end": told.end,
            "target": told.target, "target_id": told.target_id, "partition": told.partition, "target_offset": base,
            "map_runs": runs,
        })  # fmt: skip
    return [_batch(EditKind.SINK_MAP, rows)]


def _batch(kind: EditKind, rows: Sequence[Mapping[str, Any]]) -> EditBatch:
    return batch(kind, **{name: Rows([row[name] for row in rows]) for name in rows[0]})


def _same(known: SinkState, advance: SinkAdvance) -> bool:
    place = (known.physical, known.anchor) == (advance.log.physical, advance.log.anchor)
    return place and (known.lineage, known.looked) == (advance.lineage, advance.looked)


def _position(known: SinkState) -> FeedPosition:
    return FeedPosition(known.physical)  # type: ignore[arg-type]


def _columns(
    advance: SinkAdvance, queues: Mapping[MessageQueue, Follow], log: FeedPosition
) -> dict[str, Any]:
    return {
        "sink_id": advance.sink_id,
        "sink": advance.name,
        "step": int(advance.step),
        "revision": advance.revision,
        "lineage": advance.lineage,
        "sink_position": [log.physical, None if log.anchor is None else list(log.anchor)],
        "looked": advance.looked,
        "sink_queues": {
            "topic": [queue.topic for queue in queues],
            "queue_id": [queue.queue_id for queue in queues],
            "next": [follow.next for follow in queues.values()],
            "physical": [follow.physical for follow in queues.values()],
        },
    }
