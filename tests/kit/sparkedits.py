"""Scans and streams whose archive is edited between plan and read, without a JVM; and an archive edited at random.

``planned`` and ``Following`` hand plans on as Spark does, pickled. ``World`` edits a ``fetchscene.Scene`` and keeps lists of
what must be readable, which know nothing of runs.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tests.kit.archiveedits import NUMBERS, Edits, rewind
from tests.kit.fetchscene import ORDERS, Scene
from tests.kit.merging import merge_all
from tests.kit.sparkscene import rows_of
from tiered.codec.record.message import Message
from tiered.errors import NotFound
from tiered.model import MessageQueue
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader
from tiered_spark.options import parse_options
from tiered_spark.stream import MessageStreamReader, Offset

MEMORY = {"archive": "memory://x", "decodeBody": "false"}
HEADERS = "topic,queue_id,queue_offset,physical_offset,tags"
WHOLE = "topic,queue_id,queue_offset,physical_offset,body"
QUEUES = [MessageQueue(topic, queue_id) for topic in ("Orders", "Payments") for queue_id in (0, 1)]

Rowset = list[dict[str, Any]]


def send(
    scene: Scene, messages: int, queue_of: Callable[[int], MessageQueue] = lambda n: ORDERS
) -> list[Message]:
    """Messages, archived by one flush."""
    made = []
    for n in range(messages):
        queue, number = queue_of(n), next(NUMBERS)
        tags = {} if number % 5 == 0 else {"TAGS": f"tag-{number % 3}"}
        body = b"%d " % random.Random(number).getrandbits(64) * 12
        made.append(scene.broker.send(queue.topic, queue.queue_id, body, properties=tags))
    scene.daemon.settle()
    return made


def seen(rows: Rowset) -> Rowset:
    """Sorted, so that two scans can be compared."""
    return sorted(rows, key=lambda row: (row["topic"], row["queue_id"], row["queue_offset"]))


def planned(columns: str = "", **options: str) -> Callable[[], Rowset]:
    """A scan that is planned now, and read as an executor reads it when it is called."""
    parsed = parse_options({**MEMORY, **({"columns": columns} if columns else {}), **options})
    reader = MessageReader(parsed, message_schema(tuple(columns.split(","))) if columns else message_schema())
    made = pickle.dumps((reader, reader.partitions()))
    return lambda: read(*pickle.loads(made))


def read(reader: MessageReader | MessageStreamReader, partitions: list[InputPartition]) -> Rowset:
    batches = [batch for partition in partitions for batch in reader.read(partition)]
    return seen(rows_of(pa.Table.from_batches(batches))) if batches else []


def answer(later: Callable[[], Rowset]) -> Rowset | None:
    """Its rows; ``None`` where it says that an object of the archive, which it names, is gone."""
    try:
        return later()
    except NotFound as error:
        if not {"/data/", "/segment/"} & {f"/{part}/" for part in str(error.fields.get("key")).split("/")}:
            raise
        return None


class Following:
    """A stream as Spark drives it: planned on the driver, read by a copy. ``at``: its checkpoint."""

    def __init__(self, **options: str) -> None:
        self.options = {**MEMORY, "columns": WHOLE, **options}
        self.at: Offset | None = None
        self.restart()

    def restart(self) -> None:
        """The query is started again with its checkpoint."""
        self.reader = MessageStreamReader(
            parse_options(self.options), message_schema(tuple(WHOLE.split(",")))
        )
        if self.at is None:
            self.at = self.reader.initialOffset()

    def latest(self) -> Offset:
        assert self.at is not None
        return self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())

    def plan(self, end: Offset) -> Callable[[], Rowset]:
        """The batch up to ``end``, read when it is called."""
        assert self.at is not None
        made = pickle.dumps((self.reader, self.reader.partitions(self.at, end)))
        return lambda: read(*pickle.loads(made))

    def next(self) -> Rowset:
        """One whole batch."""
        end = self.latest()
        rows = self.plan(end)()
        self.at = end
        return rows


class World:
    """The archive, edited at random, and which messages it must show: lists that know nothing of runs."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self.scene, self.edits, self.chance = scene, Edits(scene), chance
        self.live: dict[MessageQueue, list[tuple[Message, int]]] = {queue: [] for queue in QUEUES}
        self.deleted = 0
        self.trimmed_to = 0
        self.begins: dict[int, int] = {}  # physical offset of a message: where its commit begins
        self.done: Counter[str] = Counter()
        self.flush()
        self.first = len(scene.broker.sent)

    def step(self, *kinds: str) -> None:
        """One edit of these kinds; some cannot be made at some times."""
        kind = self.chance.choice(kinds)
        if getattr(self, kind)():
            self.done[kind] += 1

    def flush(self) -> bool:
        """Messages in several queues, in one or several commits; each is remembered with its commit."""
        for _ in range(self.chance.randint(1, 3)):
            self.remember(send(self.scene, self.chance.randint(1, 40), lambda n: self.chance.choice(QUEUES)))
        return True

    def remember(self, messages: list[Message]) -> None:
        for message in messages:
            queue = MessageQueue(message.topic, message.queue_id)
            run = next(r for r in self.edits.runs(queue) if r.start <= message.queue_offset < r.end)
            self.live[queue].append((message, run.id.commit_seq))
            self.begins[message.physical_offset] = messages[0].physical_offset

    def trim(self) -> bool:
        """A queue loses its beginning, perhaps all of it."""
        queue = self.chance.choice([q for q in QUEUES if self.live[q]] or [None])
        if queue is None:
            return False
        offsets = [message.queue_offset for message, _ in self.live[queue]]
        first = self.chance.choice([*offsets, offsets[-1] + 1])
        self.edits.trim(queue, first)
        gone = [m.physical_offset for m, _ in self.live[queue] if m.queue_offset < first]
        self.trimmed_to = max([self.trimmed_to, *gone])
        self.live[queue] = [(m, c) for m, c in self.live[queue] if m.queue_offset >= first]
        return True

    def merge(self) -> bool:
        """Adjacent whole runs, those of a cut one left out."""
        queue = self.chance.choice(QUEUES)
        runs = self.edits.runs(queue)
        whole = [(r.start, r.end) == (r.first_queue_offset, r.start + r.queue_offsets) for r in runs]
        low = self.chance.randrange(len(runs)) if runs else 0
        high = low
        while (
            high < min(len(runs), low + 4)
            and whole[high]
            and (high == low or runs[high - 1].end == runs[high].start)
        ):
            high += 1
        if high - low < 2:
            return False
        self.edits.merge(queue, runs[low:high], level=self.chance.choice([1, 2]))
        return True

    def compact(self) -> bool:
        """The program's own merging, in jobs of any size."""
        before = self.scene.state.head()
        merge_all(self.scene.daemon, job_runs=self.chance.choice([16, 10_000]))
        return self.scene.state.head() != before

    def lose(self) -> bool:
        """The broker loses its tail: not all, since a log that has nothing in common with the archive is refused, and from a
        commit of which retention took nothing, so that the archive still has what shows where the broker went back to."""
        last = [m for m, _ in self.scene.broker.sent[self.first :][-30:]]
        lost = [m for m in last if self.begins[m.physical_offset] > self.trimmed_to]
        if not lost:
            return False
        message = self.chance.choice(lost)
        made = rewind(self.scene, message)
        for queue in QUEUES:
            self.live[queue] = [
                (m, c) for m, c in self.live[queue] if m.physical_offset < message.physical_offset
            ]
        self.remember([made])
        return True

    def delete(self) -> bool:
        """Everything that nobody refers to any more, named and deleted."""
        self.edits.retire()
        gone = len(self.edits.delete())
        self.deleted += gone
        return gone > 0

    def rows(self, start: Any = -1, end: Any = 1 << 62) -> list[tuple[Any, ...]]:
        """What is live between two positions of a stream: commits, or places in them as a checkpoint has them."""

        def includes(position: Any, m: Message, commit: int) -> bool:
            if isinstance(position, int):
                return commit <= position
            return [commit, m.topic, m.queue_id, m.queue_offset] < position

        return sorted(
            (m.topic, m.queue_id, m.queue_offset, m.physical_offset)
            for messages in self.live.values() for m, commit in messages
            if includes(end, m, commit) and not includes(start, m, commit)
        )  # fmt: skip


def places(rows: Rowset) -> list[tuple[Any, ...]]:
    return sorted((r["topic"], r["queue_id"], r["queue_offset"], r["physical_offset"]) for r in rows)
