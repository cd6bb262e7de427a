"""Random valid histories of an archive, with a naive model beside them (lists of records, no ranges, no bounds).

``History(random.Random(seed))`` grows by ``step()``; ``commits`` are the log, ``store`` is its fold, ``model`` says which
record is readable at each queue offset. Nothing in the model knows of runs, so it cannot repeat the fold's mistakes.
"""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from tiered.archive.fold.apply import apply
from tiered.archive.state.forgotten import FORGOTTEN_QUEUES
from tiered.archive.state.layers import Changes
from tiered.archive.state.offsetmap import map_of_runs, nothing_given
from tiered.archive.state.sinks import SINK_MAPS, SINKS
from tiered.archive.state.values import RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows, SinkStep, batch
from tiered.metadata.base import MetadataStore
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue

ARCHIVE_ID = b"archive-archive-"


MAPPED = (bytes([3]) * 16,)
"""Sinks that say where they put messages."""


@dataclass(frozen=True)
class Record:
    """A message as the broker wrote it."""

    number: int
    offset: int
    owned: int
    size: int
    physical: int
    flat: int
    time: int

    @property
    def end(self) -> int:
        return self.offset + self.owned


@dataclass
class Generation:
    lineage: int
    first: int
    maximum: int
    flat_end: int = 0
    minimum: int = 0
    reached: int = 0  # physical offset behind its last record
    ended: bool = (
        False  # the broker has lost trimmed messages of it: its queue goes on below what the archive knows
    )
    records: list[Record] = field(default_factory=list)  # trimmed ones included
    gaps: set[int] = field(default_factory=set)

    def live(self) -> list[Record]:
        return [r for r in self.records if r.offset >= self.minimum]


@dataclass
class Queue:
    current: int = 0
    highest: int = 0
    generations: dict[int, Generation] = field(default_factory=dict)


@dataclass
class Model:
    """Queues, and closed rows by (queue, generation, closing commit)."""

    queues: dict[MessageQueue, Queue] = field(default_factory=dict)
    closed: dict[tuple[MessageQueue, int, int], dict[int, int]] = field(default_factory=dict)
    sinks: dict[bytes, tuple[int, int, dict[MessageQueue, int]]] = field(default_factory=dict)
    """Of each sink the revision of its order, its position and how far it is in each queue."""
    forgotten: int = 0
    """The highest generation of any queue that was forgotten."""


def store_changes(store: MetadataStore, changes: Changes) -> None:
    """Put changes as the log does."""
    store.put_many(changes.puts, changes.deletes, applied=changes.head.position())


def run_batch(rows: list[dict[str, Any]]) -> EditBatch:
    """An ``AppendRun`` batch from rows."""
    return batch(EditKind.APPEND_RUN, **{n: [r[n] for r in rows] for n in rows[0]})


def open_epoch(epoch: int, writer_id: bytes, lineage: int, **changed: Any) -> EditBatch:
    """An ``OpenEpoch`` row."""
    fields: dict[str, Any] = {
        "epoch": epoch, "writer_id": writer_id, "host": "host", "store_time_ms": 1, "lineage": lineage,
        "source_kind": "commitlog", "role": "master", "broker_epoch": None, "min_reader": 1, "min_writer": 1,
        "required_features": Rows([[]]),
    }  # fmt: skip
    return batch(EditKind.OPEN_EPOCH, **{**fields, **changed})


class History:
    """A log that grows. ``contents`` maps a run id to the records by offset that lie in its object."""

    def __init__(
        self,
        chance: random.Random,
        *,
        topics: int = 3,
        queues: int = 2,
        forgets: bool = False,
        sinks: bool = False,
    ) -> None:
        self.chance = chance
        self.forgets, self.sinks = forgets, sinks
        self.placed = 0
        self.names = [MessageQueue(f"topic-{t}", q) for t in range(topics) for q in range(queues)]
        self.store = MemoryStore()
        self.commits: list[Commit] = []
        self.model = Model()
        self.contents: dict[tuple[int, int], dict[int, Record]] = {}
        self.lineage, self.lineages, self.epoch, self.writer = 0, 0, 0, b""
        self.physical: dict[int, int] = {}
        self.edges: dict[int, set[int]] = {}
        self.numbers = 0
        self.add([self._claim(new_lineage=True)])

    @property
    def state(self) -> ArchiveState:
        return ArchiveState(self.store)

    def copy(self) -> Self:
        """Another that begins here and grows as this one would. Commits never change: they are shared."""
        shared = {"store", "commits"}
        grown = {name: value for name, value in vars(self).items() if name not in shared}
        other = copy.copy(self)
        vars(other).update(pickle.loads(pickle.dumps(grown)))
        other.commits = list(self.commits)
        other.store = MemoryStore()
        other.store.put_many(self.store.iterate(b""), applied=self.store.applied())
        return other

    # ---- growing

    def step(self) -> Commit:
        """Add one commit of a random kind."""
        kinds: list[tuple[int, Callable[[], list[EditBatch] | None]]] = [
            (10, self.flush), (2, self.rewind), (2, self.trim), (3, self.replace), (1, self.claim), (1, self.retire),
        ]  # fmt: skip
        if self.forgets:
            kinds += [(2, self.empty), (4, self.forget)]
        if self.sinks:
            kinds.append((4, self.sink_progress))
        while True:
            make = self.chance.choices([k for _, k in kinds], [w for w, _ in kinds])[0]
            edits = make()
            if edits is not None:
                return self.add(edits)

    def next_commit(self, edits: list[EditBatch]) -> Commit:
        """A commit that follows the head, not added."""
        seq = len(self.commits)
        inline = 0
        for b in edits:
            if b.kind is EditKind.ADD_OBJECT:
                inline += sum(
                    n for n, k in zip(b.ints("length").tolist(), b.columns["key"], strict=True) if not k
                )
        previous = self.commits[-1].commit_id if self.commits else bytes(16)
        return Commit(seq, self.epoch, ARCHIVE_ID, self._id(seq), previous, self.writer, edits, inline)

    def add(self, edits: list[EditBatch]) -> Commit:
        commit = self.next_commit(edits)
        store_changes(self.store, apply(self.store, commit))
        self.commits.append(commit)
        return commit

    @staticmethod
    def _id(seq: int) -> bytes:
        return b"commit" + (seq + 1).to_bytes(10, "big")

    def _claim(self, *, new_lineage: bool) -> EditBatch:
        self.epoch += 1
        self.writer = bytes([self.epoch % 250 + 1]) * 16
        if new_lineage:
            self.lineages += 1
            self.physical[self.lineages] = self.chance.choice([0, 5000])
            self.edges[self.lineages] = {self.physical[self.lineages]}
            self.lineage = self.lineages
        head = self.state.head()
        kept = [] if head is None else [f for f in (SINKS, SINK_MAPS) if f in head.required_features]
        features = Rows([[*([FORGOTTEN_QUEUES] if self.forgets else []), *kept]])
        return open_epoch(self.epoch, self.writer, self.lineage, required_features=features)

    def claim(self) -> list[EditBatch]:
        """A new writer, once in a while with a new lineage."""
        return [self._claim(new_lineage=self.chance.random() < 0.3)]

    def flush(self) -> list[EditBatch]:
        """Records of several queues in one or two objects, in physical order."""
        edits: list[EditBatch] = []
        at = self.physical[self.lineage]
        if self.chance.random() < 0.1:
            edits.append(
                batch(EditKind.PHYS_GAP, lineage=self.lineage, start=at, end=at + 300, reason="deleted")
            )
            at += 300
        objects = self.chance.choice([1, 1, 2])
        edits.append(self._objects(objects, inline=objects == 1 and self.chance.random() < 0.5))
        runs = 0
        for number in range(objects):
            at, runs = self._write_object(edits, number, at, runs)
        offsets = [at] if self.chance.random() < 0.7 else [(self.physical[self.lineage] + at) // 2, at]
        edits.append(self._progress(offsets))
        self.physical[self.lineage] = at
        return edits

    def _write_object(self, edits: list[EditBatch], number: int, at: int, runs: int) -> tuple[int, int]:
        chosen = self.chance.sample(self.names, self.chance.randint(1, len(self.names)))
        stream = [mq for mq in chosen for _ in range(self.chance.randint(1, 4))]
        self.chance.shuffle(stream)
        opened: dict[MessageQueue, int] = {}
        rows: dict[MessageQueue, list[Record]] = {mq: [] for mq in chosen}
        fresh, holes = [], []
        for mq in stream:
            if mq not in opened:
                opened[mq] = self._open(mq, at, fresh, holes)
            record = self._record(mq, at)
            rows[mq].append(record)
            at += record.size
            self.edges[self.lineage].add(at)
        if fresh:
            names = ("topic", "queue_id", "generation", "lineage", "first_queue_offset", "physical_offset")
            edits.append(
                batch(
                    EditKind.NEW_GENERATION,
                    **dict(zip(names, map(list, zip(*fresh, strict=True)), strict=True)),
                )
            )
        if holes:
            names = ("topic", "queue_id", "generation", "start", "end", "reason")
            edits.append(
                batch(EditKind.GAP, **dict(zip(names, map(list, zip(*holes, strict=True)), strict=True)))
            )
        table = []
        for mq in chosen:
            # A queue may take two runs of one batch.
            middle = self.chance.randint(0, len(rows[mq])) if self.chance.random() < 0.3 else 0
            for part in (rows[mq][:middle], rows[mq][middle:]):
                if part:
                    table.append(self._run(mq, self.model.queues[mq].current, part, number))
                    self.contents[len(self.commits), runs + len(table) - 1] = _by_offset(part)
        edits.append(run_batch(table))
        return at, runs + len(table)

    def _open(self, mq: MessageQueue, at: int, fresh: list[Any], holes: list[Any]) -> int:
        """Begin a generation or leave a hole, as a queue of a live broker may."""
        queue = self.model.queues.setdefault(mq, Queue(highest=self.model.forgotten))
        now = queue.generations.get(queue.current)
        # Two generations of one queue in a commit would need batches of their own.
        young = now is not None and not now.records
        fresh_one = now is None or now.lineage != self.lineage or now.ended
        if fresh_one or (not young and self.chance.random() < 0.05):
            queue.highest = queue.current = queue.highest + 1
            first = self.chance.choice([0, 0, 100])
            now = queue.generations[queue.current] = Generation(
                self.lineage, first, first, minimum=first, reached=at
            )
            fresh.append((mq.topic, mq.queue_id, queue.current, self.lineage, first, at))
        if self.chance.random() < 0.1:
            end = now.maximum + self.chance.randint(1, 5)
            holes.append((mq.topic, mq.queue_id, queue.current, now.maximum, end, "jumped"))
            now.gaps.update(range(now.maximum, end))
            now.maximum = end
        return queue.current

    def _record(self, mq: MessageQueue, at: int) -> Record:
        queue = self.model.queues[mq]
        now = queue.generations[queue.current]
        owned, size = self.chance.choice([1, 1, 1, 3]), self.chance.randint(91, 200)
        time = self.chance.randint(1000, 9000)
        self.numbers += 1
        record = Record(self.numbers, now.maximum, owned, size, at, now.flat_end, time)
        if not now.records:
            now.minimum = record.offset
        now.records.append(record)
        now.reached = at + size
        now.maximum, now.flat_end = record.end, record.flat + size
        return record

    def _run(self, mq: MessageQueue, generation: int, part: list[Record], number: int) -> dict[str, Any]:
        return {
            "topic": mq.topic, "queue_id": mq.queue_id, "generation": generation, "first_queue_offset": part[0].offset,
            "rows": len(part), "queue_offsets": sum(r.owned for r in part), "first_flat_offset": part[0].flat,
            "bytes": sum(r.size for r in part), "min_store_time": min(r.time for r in part),
            "max_store_time": max(r.time for r in part), "object": number, "first_row": 0, "first_block": 0,
            "block_count": 1, "physical_start": part[0].physical, "physical_end": part[-1].physical + part[-1].size,
        }  # fmt: skip

    def _objects(self, count: int, *, inline: bool, level: int = 0) -> EditBatch:
        seq = len(self.commits)
        area = "segment" if level == 2 else "data"
        keys = [""] if inline else [f"{area}/{self.epoch:010d}-{seq:08d}-{i}" for i in range(count)]
        ids = [self._id(seq)] if inline else [bytes([i + 1]) * 16 for i in range(count)]
        return batch(
            EditKind.ADD_OBJECT,
            key=keys,
            object_id=ids,
            level=[level] * len(keys),
            length=[1000] * len(keys),
            sections=Rows([{1: [0, 100, 7], 2: [100, 50, 8]} for _ in keys]),
        )

    def _progress(self, offsets: list[int]) -> EditBatch:
        return batch(
            EditKind.PROGRESS,
            lineage=[self.lineage] * len(offsets),
            physical_offset=offsets,
            mark_crc=[o % 2**32 for o in offsets],
            crc_from=[o // 1000 * 1000 for o in offsets],
        )

    # ---- taking away

    def rewind(self) -> list[EditBatch] | None:
        """The broker lost its tail, at a record boundary."""
        end = self.physical[self.lineage]
        edges = sorted(e for e in self.edges[self.lineage] if e <= end)
        reached = self.state.head().progress.get(self.lineage)  # type: ignore[union-attr]
        if reached is None:
            return None
        position = self.chance.choice([e for e in edges[-12:] if e <= reached.physical_offset])
        rows: dict[str, list[Any]] = {
            n: [] for n in ("topic", "queue_id", "generation", "max_offset", "flat_end")
        }
        # As a writer finds them: by runs, whose physical end is only a bound after an earlier cut.
        behind = {
            (r.queue, r.generation)
            for r in self.state.runs_all()
            if r.lineage == self.lineage and r.physical_end > position
        }
        for mq, queue in self.model.queues.items():
            for number, generation in queue.generations.items():
                if generation.lineage == self.lineage:
                    generation.reached = min(generation.reached, position)
                if (mq, number) in behind:
                    maximum, flat = self._cut(mq, number, generation, position)
                    for name, value in zip(rows, (mq.topic, mq.queue_id, number, maximum, flat), strict=True):
                        rows[name].append(value)
                elif generation.lineage == self.lineage:
                    kept = [r for r in generation.records if r.physical < position]
                    generation.ended |= len(kept) < len(generation.records)
                    generation.records = kept
            # Also when a lower generation is the one cut: the current one was then born behind the cut and emptied by a trim.
            if (mq.topic, mq.queue_id) in zip(rows["topic"], rows["queue_id"], strict=True):
                self._choose(queue)
        self.physical[self.lineage] = position
        self.edges[self.lineage] = {e for e in edges if e <= position}
        return [
            batch(
                EditKind.REWIND,
                lineage=self.lineage,
                physical_offset=position,
                mark_crc=position % 2**32,
                crc_from=position // 1000 * 1000,
                queues=rows,
            )
        ]

    def _cut(self, mq: MessageQueue, number: int, generation: Generation, position: int) -> tuple[int, int]:
        kept = [r for r in generation.records if r.physical < position]
        lost = [r for r in generation.records if r.physical >= position]
        flat = lost[0].flat if lost else generation.flat_end
        maximum = lost[0].offset if lost else generation.maximum
        if kept and self.chance.random() < 0.5:
            maximum = kept[-1].end  # the gap between them goes too
        gone = [r for r in lost if r.offset >= generation.minimum]
        if gone:
            rows = {o: r.number for r in gone for o in range(r.offset, r.end)}
            self.model.closed[mq, number, len(self.commits)] = rows
        generation.records, generation.flat_end = kept, flat
        generation.maximum = maximum
        generation.minimum = min(generation.minimum, maximum)
        generation.gaps = {g for g in generation.gaps if g < maximum}
        return maximum, flat

    def _choose(self, queue: Queue) -> None:
        now = queue.generations.get(queue.current)
        if now is None or now.live():
            return
        candidates = [n for n, g in queue.generations.items() if g.lineage == self.lineage and g.live()]
        queue.current = max(candidates, default=0)

    def trim(self) -> list[EditBatch] | None:
        """Retention of one generation."""
        found = [
            (mq, n) for mq, q in self.model.queues.items() for n, g in q.generations.items() if g.records
        ]
        if not found:
            return None
        mq, number = self.chance.choice(found)
        generation = self.model.queues[mq].generations[number]
        first = self.chance.choice(
            [generation.minimum, *(r.offset for r in generation.live()), generation.maximum]
        )
        generation.minimum = max(generation.minimum, first)
        generation.gaps = {g for g in generation.gaps if g >= first}
        for name, records in list(self.model.closed.items()):
            if name[:2] == (mq, number):
                self.model.closed[name] = {o: n for o, n in records.items() if o >= first}
        return [
            batch(
                EditKind.TRIM_QUEUE,
                topic=mq.topic,
                queue_id=mq.queue_id,
                generation=number,
                first_offset=first,
            )
        ]

    def empty(self) -> list[EditBatch] | None:
        """Retention of all that a queue has."""
        found = [mq for mq in self.model.queues if not self._is_empty(mq)]
        if not found:
            return None
        mq = self.chance.choice(found)
        ends = {}
        for number, generation in self.model.queues[mq].generations.items():
            rows = [
                o + 1 for name, part in self.model.closed.items() if name[:2] == (mq, number) for o in part
            ]
            now = number == self.model.queues[mq].current
            ends[number] = generation.maximum if now else max([generation.maximum, *rows])
            generation.minimum, generation.gaps = generation.maximum, set()
        for name in [name for name in self.model.closed if name[0] == mq]:
            self.model.closed[name] = {o: n for o, n in self.model.closed[name].items() if o >= ends[name[1]]}
        count = len(ends)
        return [
            batch(
                EditKind.TRIM_QUEUE, topic=[mq.topic] * count, queue_id=[mq.queue_id] * count,
                generation=list(ends), first_offset=list(ends.values()),
            )
        ]  # fmt: skip

    def _is_empty(self, mq: MessageQueue) -> bool:
        kept = any(rows for name, rows in self.model.closed.items() if name[0] == mq)
        return not kept and not any(g.live() or g.gaps for g in self.model.queues[mq].generations.values())

    def forget(self) -> list[EditBatch] | None:
        """Some of the queues of which nothing is left."""
        found = [mq for mq in self.names if mq in self.model.queues and self._is_empty(mq)]
        if not found:
            return None
        chosen = self.chance.sample(found, self.chance.randint(1, len(found)))
        rows: list[tuple[str, int, int, int, int]] = []
        for mq in sorted(chosen, key=self.names.index):
            queue = self.model.queues.pop(mq)
            last = queue.generations[queue.current or queue.highest]
            ends = [g.reached for g in queue.generations.values() if g.lineage == last.lineage]
            rows.append((mq.topic, mq.queue_id, queue.highest, last.lineage, max(ends)))
            self.model.forgotten = max(self.model.forgotten, queue.highest)
            for _, _, reached in self.model.sinks.values():
                reached.pop(mq, None)
        names = ("topic", "queue_id", "generation", "lineage", "physical_end")
        columns = map(list, zip(*rows, strict=True))
        return [batch(EditKind.FORGET_QUEUES, **dict(zip(names, columns, strict=True)))]

    def sink_progress(self) -> list[EditBatch]:
        """One or two sinks go on, back, anew, or are removed."""
        rows: list[dict[str, Any]] = []
        maps: list[dict[str, Any]] = []
        for sink_id in self.chance.sample([bytes([n]) * 16 for n in (1, 2, 3)], self.chance.randint(1, 2)):
            step = self.chance.choices(list(SinkStep), [6, 2, 1, 1])[0]
            old = self.model.sinks.get(sink_id, (1, 0, {}))
            queues = self.chance.sample(self.names, self.chance.randint(0, 3))
            if step is SinkStep.REMOVED:
                self.model.sinks.pop(sink_id, None)
            else:
                back = step is not SinkStep.ON
                position = self.chance.randint(0, 50) + (0 if back else old[1])
                kept = {} if step is SinkStep.ANEW else old[2]
                moved = {mq: self.chance.randint(0, 9) + (0 if back else kept.get(mq, 0)) for mq in queues}
                revision = old[0] + (step is SinkStep.ANEW)
                self.model.sinks[sink_id] = (revision, position, {**kept, **moved})
            revision, position, reached = self.model.sinks.get(sink_id, (0, 0, {}))
            if sink_id in MAPPED and step is not SinkStep.REMOVED:
                maps += [self._mapped(sink_id, mq, old[2].get(mq, 0), reached[mq]) for mq in queues]
            some = {
                "topic": [mq.topic for mq in queues], "queue_id": [mq.queue_id for mq in queues],
                "next": [reached.get(mq, 0) for mq in queues], "physical": [None for _ in queues],
            }  # fmt: skip
            rows.append({
                "sink_id": sink_id, "sink": "s", "step": int(step), "revision": revision, "lineage": self.lineage,
                "sink_position": [position, None], "looked": len(self.commits) - 1, "sink_queues": some,
            })  # fmt: skip
        return [
            batch(kind, **{name: Rows([row[name] for row in named]) for name in named[0]})
            for kind, named in ((EditKind.SINK_PROGRESS, rows), (EditKind.SINK_MAP, maps))
            if named
        ]

    def _mapped(self, sink_id: bytes, mq: MessageQueue, before: int, now: int) -> dict[str, Any]:
        """A row of where a sink put what it was given of a queue."""
        start = min(before, now)
        self.placed += 3
        runs = {"first": [start], "messages": [now - start], "target_offset": [self.placed]}
        self.placed += now - start
        told = map_of_runs(start, now, "t", "id", 1, runs) if now > start else nothing_given(start, now)
        base, packed = told.pack()
        return {
            "sink_id": sink_id, "topic": mq.topic, "queue_id": mq.queue_id, "start": start, "end": now, "target": told.target,
            "target_id": told.target_id, "partition": told.partition, "target_offset": base, "map_runs": packed,
        }  # fmt: skip

    def replace(self) -> list[EditBatch] | None:
        """Merge some runs of some queues, live or closed, into one object."""
        groups: dict[tuple[MessageQueue, int, int | None], list[RunState]] = {}
        for run in [*self.state.runs_all(), *self.state.closed_parts()]:
            if self.contents[run.id.commit_seq, run.id.index][run.start].offset != run.start:
                continue  # cut inside an inner batch: no target can begin there
            groups.setdefault((run.queue, run.generation, run.closed_by), []).append(run)
        if not groups:
            return None
        chosen = self.chance.sample(sorted(groups, key=str), self.chance.randint(1, min(3, len(groups))))
        sources: dict[str, list[Any]] = {n: [] for n in ("commit_seq", "index", "start", "end", "closed_by")}
        rows: list[dict[str, Any]] = []
        for name in chosen:
            runs = sorted(groups[name], key=lambda r: r.start)
            low = self.chance.randrange(len(runs))
            runs = runs[low : low + self.chance.randint(1, 4)]
            for run in runs:
                values = (run.id.commit_seq, run.id.index, run.start, run.end, run.closed_by)
                for column, value in zip(sources, values, strict=True):
                    sources[column].append(value)
            rows.extend(self._targets(name, runs, len(rows)))
        targets = {n: [r[n] for r in rows] for n in rows[0]}
        level = self.chance.choice([1, 2])
        return [
            self._objects(1, inline=False, level=level),
            batch(EditKind.REPLACE_RUNS, sources=sources, targets=targets),
        ]

    def _targets(
        self, name: tuple[MessageQueue, int, int | None], runs: list[RunState], already: int
    ) -> list[dict[str, Any]]:
        """One target per stretch of adjacent sources."""
        stretches: list[list[Record]] = []
        last = None
        for run in runs:
            part = [
                r
                for r in self.contents[run.id.commit_seq, run.id.index].values()
                if run.start <= r.offset < run.end
            ]
            part = sorted(set(part), key=lambda r: r.offset)
            if last == run.start:
                stretches[-1].extend(part)
            else:
                stretches.append(part)
            last = run.end
        made = []
        for part in stretches:
            self.contents[len(self.commits), already + len(made)] = _by_offset(part)
            made.append({**self._run(name[0], name[1], part, 0), "closed_by": name[2]})
        return made

    def retire(self) -> list[EditBatch] | None:
        """Name what nobody needs, and delete what was named before; move the floor."""
        head = self.state.head()
        assert head is not None
        edits = []
        named = [r.path for r in self.state.retired()]
        if named:
            edits.append(batch(EditKind.DELETED, keys=Rows([named])))
        free = [o.path for o in self.state.objects() if o.path and o.references == 0 and o.retired_by is None]
        floor = self.chance.choice([None, self.chance.randint(head.floor, len(self.commits) - 1)])
        if free or floor is not None:
            edits.append(batch(EditKind.RETIRE, keys=Rows([free]), floor=Rows([floor])))
        return edits or None

    # ---- comparing

    def readable(self) -> dict[tuple[MessageQueue, int], dict[int, int]]:
        """Record numbers by queue offset, of every generation, as the model has them."""
        return {
            (mq, n): {o: r.number for r in g.live() for o in range(r.offset, r.end)}
            for mq, q in self.model.queues.items()
            for n, g in q.generations.items()
        }

    def folded(self, state: ArchiveState) -> dict[tuple[MessageQueue, int], dict[int, int]]:
        """The same, read through the fold's runs."""
        found: dict[tuple[MessageQueue, int], dict[int, int]] = {}
        for mq in self.model.queues:
            for generation in state.generations(mq):
                slot = found.setdefault((mq, generation.generation), {})
                for run in state.runs(mq, generation.generation):
                    slot.update(self.served(run))
        return found

    def served(self, run: RunState) -> dict[int, int]:
        """What a reader finds in the live bounds of a run."""
        content = self.contents[run.id.commit_seq, run.id.index]
        return {o: content[o].number for o in range(run.start, run.end)}

    def closed(self) -> dict[tuple[MessageQueue, int, int], dict[int, int]]:
        """Closed rows as the model has them."""
        return {name: rows for name, rows in self.model.closed.items() if rows}

    def folded_closed(self, state: ArchiveState) -> dict[tuple[MessageQueue, int, int], dict[int, int]]:
        """Closed rows, read through the fold."""
        found: dict[tuple[MessageQueue, int, int], dict[int, int]] = {}
        for run in state.closed_parts():
            assert run.closed_by is not None
            found.setdefault((run.queue, run.generation, run.closed_by), {}).update(self.served(run))
        return found


def _by_offset(part: Iterable[Record]) -> dict[int, Record]:
    return {o: r for r in part for o in range(r.offset, r.end)}


def mutate(edit: EditBatch, column: str, row: int, change: Callable[[Any], Any]) -> EditBatch:
    """A copy of a batch with one value changed."""
    columns = dict(edit.columns)
    values = columns[column].copy() if isinstance(columns[column], np.ndarray) else list(columns[column])
    values[row] = change(values[row])
    columns[column] = values
    return EditBatch(edit.kind, columns)
