"""Edits that no daemon makes yet, put into an archive by its own log: merges, trims, names for deletion, deletions.

``Edits(scene)`` acts as the writer of a ``fetchscene.Scene`` would, and ``rewind`` as its broker. A merge
copies blocks verbatim into one object of level 1
or 2, whose rows keep the commit that each message came with.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import date
from itertools import count, pairwise
from typing import Any

import numpy as np

from tests.kit.assemble import KEYS, assemble, plan
from tests.kit.fetchscene import ORDERS, Scene
from tiered.archive.keys import Area, ObjectKey, build, segment_key
from tiered.archive.read.flatfile import RunReader
from tiered.archive.state.forgotten import written_last
from tiered.archive.state.keys import queue_key
from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.format.edits import EditBatch, EditKind, Rows, batch
from tiered.codec.format.object import (
    BLOCK_DTYPE,
    ROW_DTYPE,
    RUN_DTYPE,
    EncodedObject,
    MessageKeys,
    ObjectTables,
    encode_object,
)
from tiered.codec.record.message import Message, decode_message
from tiered.codec.record.properties import key_hash
from tiered.model import MessageQueue

NUMBERS = count()
"""No two messages are alike, also not where a broker writes anew what it had lost."""
DISPATCH = {"block_bytes": 4096, "object_bytes": 1 << 20, "inline_bytes": 0}


def start_again(scene: Scene) -> None:
    """Another daemon: a new epoch, and a look at whether the broker went back."""
    scene.daemon.close()
    scene.daemon = assemble(
        scene.broker.store, scene.provider, scene.clock, dispatch=DISPATCH, seed=next(NUMBERS)
    )


def rewind(scene: Scene, message: Message) -> Message:
    """The broker loses this message and all after it, and writes another one there; that one."""
    broker, end = scene.broker, scene.broker.position
    broker.crash(message.physical_offset)
    broker.write(message.physical_offset, bytes(end - message.physical_offset))
    body = b"anew %d" % next(NUMBERS)
    made = broker.send(ORDERS.topic, ORDERS.queue_id, body)
    start_again(scene)
    scene.daemon.settle()
    return made


@dataclass
class Edits:
    """Writes commits of edits; each returns the commit's number."""

    scene: Scene

    def put(self, *edits: EditBatch) -> int:
        """One commit."""
        log = self.scene.daemon.log
        planned = plan(log, *edits)
        log.put(planned)
        return planned.commit.seq

    def runs(self, queue: MessageQueue) -> list[RunState]:
        """Live runs of the queue's current generation."""
        found = self.scene.state.queue(queue)
        return (
            []
            if found is None or found.generation is None
            else list(self.scene.state.runs(queue, found.generation))
        )

    def trim(self, queue: MessageQueue, first_offset: int, generation: int | None = None) -> int:
        """Retention: the queue, its current generation or another, begins at ``first_offset``."""
        found = self.scene.state.queue(queue)
        assert found is not None
        return self.put(
            batch(
                EditKind.TRIM_QUEUE, topic=queue.topic, queue_id=queue.queue_id,
                generation=found.generation if generation is None else generation, first_offset=first_offset,
            )
        )  # fmt: skip

    def forget(self, queue: MessageQueue) -> int:
        """The queue, of which nothing is left, goes."""
        _, generation, lineage, end = written_last(self.scene.state.view, [queue_key(queue)])
        return self.put(
            batch(
                EditKind.FORGET_QUEUES, topic=queue.topic, queue_id=queue.queue_id, generation=generation,
                lineage=lineage, physical_end=end,
            )
        )  # fmt: skip

    def merge(self, queue: MessageQueue, sources: list[RunState], *, level: int = 1) -> int:
        """Adjacent whole runs of a queue become one run of one new object."""
        head = self.scene.state.head()
        assert head is not None
        object_id = uuid.uuid4().bytes
        sealed = segment_key(queue.topic, date(2023, 11, 14), head.epoch, object_id)
        path = build(sealed if level == 2 else ObjectKey(Area.DATA, head.epoch, object_id))
        target = _target(sources)
        encoded = self._object(queue, sources, target, object_id, level)
        self.scene.provider.put(KEYS.key(path), encoded.parts, create_only=True)
        added = batch(
            EditKind.ADD_OBJECT, key=path, object_id=object_id, level=level, length=encoded.length,
            sections=Rows([{n: list(s) for n, s in encoded.sections.items()}]),
        )  # fmt: skip
        names = {"commit_seq": "id", "index": "id"}
        ids = {name: [getattr(getattr(r, names[name]), name) for r in sources] for name in names}
        bounds = {name: [getattr(r, name) for r in sources] for name in ("start", "end", "closed_by")}
        row = {"topic": queue.topic, "queue_id": queue.queue_id, "object": 0, "closed_by": None, **target}
        targets = {name: [value] for name, value in row.items()}
        return self.put(added, batch(EditKind.REPLACE_RUNS, sources={**ids, **bounds}, targets=targets))

    def free(self) -> list[ObjectState]:
        """Objects with keys of their own that nothing refers to and that are not named for deletion."""
        return [o for o in self.scene.state.objects() if o.path and not o.references and o.retired_by is None]

    def retire(self) -> list[str]:
        """Name those objects for deletion; their paths."""
        paths = [item.path for item in self.free()]
        if paths:
            self.put(batch(EditKind.RETIRE, keys=Rows([paths]), floor=Rows([None])))
        return paths

    def delete(self) -> list[str]:
        """Delete what is named, and say so in the log; their paths."""
        paths = [item.path for item in self.scene.state.retired()]
        for path in paths:
            self.scene.provider.delete(KEYS.key(path))
        if paths:
            self.put(batch(EditKind.DELETED, keys=Rows([paths])))
        return paths

    def _object(
        self,
        queue: MessageQueue,
        sources: list[RunState],
        target: dict[str, Any],
        object_id: bytes,
        level: int,
    ) -> EncodedObject:
        objects, state = self.scene.objects(), self.scene.state
        tags: list[bytes] = [b""]
        blocks, stored, rows, commits, keys = [], [], [], [], []
        for run in sources:
            item = state.object(run.object)
            assert item is not None
            assert (run.end - run.start, run.queue_offsets) == (run.rows, run.rows), (
                "only whole runs are merged here"
            )
            table = objects.block_table(item)[run.first_block : run.first_block + run.block_count].copy()
            stored += [
                self.scene.provider.get(
                    objects.key_of(item), int(b["position"]), int(b["stored_length"])
                ).data
                for b in table
            ]
            table["run"] = 0
            blocks.append(table)
            own = objects.directory(item).tags
            tags += [tag for tag in own if tag not in tags]
            columns = objects.columns(item, ROW_DTYPE.names or (), run.first_row, run.rows)
            part = np.zeros(run.rows, ROW_DTYPE)
            for name, values in columns.items():
                part[name] = values
            part["tag"] = np.array([tags.index(tag) for tag in own])[columns["tag"]]
            rows.append(part)
            own_commits = np.full(run.rows, run.id.commit_seq, np.int64)
            if item.level:  # merged before
                own_commits = objects.columns(item, ("commit_seq",), run.first_row, run.rows)["commit_seq"]
            commits.append(own_commits)
            for stretch in RunReader(state, objects).stretches(run, run.start, run.end):
                for i, offset in enumerate(stretch.queue_offsets.tolist()):
                    properties = decode_message(bytes(stretch.record(i))).properties
                    names = {*properties.get("KEYS", "").split(" "), properties.get("UNIQ_KEY", "")} - {""}
                    keys += [(key_hash(queue.topic, name), offset) for name in names]
        runs = np.zeros(1, RUN_DTYPE)
        for name in set(RUN_DTYPE.names or ()) & target.keys():
            runs[name] = target[name]
        runs["queue_id"] = queue.queue_id
        archive_id = self.scene.daemon.log.reader.identity.archive_id
        tables = ObjectTables(
            topics=(queue.topic,),
            runs=runs,
            blocks=np.concatenate(blocks).astype(BLOCK_DTYPE),
            stored=stored,
            rows=np.concatenate(rows),
            tags=tags,
            keys=MessageKeys(
                np.array([k for k, _ in keys], np.uint64),
                np.zeros(len(keys), np.int32),
                np.array([o for _, o in keys], np.int64),
            ),
            commit_seq=np.concatenate(commits),
        )
        return encode_object(tables, object_id=object_id, archive_id=archive_id, level=level)


def _target(sources: list[RunState]) -> dict[str, Any]:
    """The run that serves what the sources served; columns as ``AppendRun`` has them."""
    first, last = sources[0], sources[-1]
    assert all(a.end == b.start for a, b in pairwise(sources)), "sources are adjacent"
    return {
        "generation": first.generation,
        "first_queue_offset": first.start,
        "rows": sum(r.rows for r in sources),
        "queue_offsets": sum(r.queue_offsets for r in sources),
        "first_flat_offset": first.first_flat_offset,
        "bytes": last.flat_end - first.first_flat_offset,
        "min_store_time": min(r.min_store_time for r in sources),
        "max_store_time": max(r.max_store_time for r in sources),
        "first_row": 0,
        "first_block": 0,
        "block_count": sum(r.block_count for r in sources),
        "physical_start": min(r.physical_start for r in sources),
        "physical_end": max(r.physical_end for r in sources),
    }
