"""A piece of a day of 10,000 queues with a message a second each, simulated: archived, merged, sealed, counted.

A day is 864 million messages. The piece has fewer queues, and every bound by bytes, messages or runs is divided by the same
number: what a flush, a merge or a file holds is then as large a part of all queues as it would be, and *objects are as many as
with all of them*. What is kept for each queue (its runs) is multiplied. Seconds, blocks (they are a queue's own) and the
objects that one job of sealing reads are as they are. The way in, the fold in RocksDB, merging and sealing are the program's;
the broker writes one message of each queue once a second, the bucket lies in memory, the clock is moved by hand, and
maintenance takes none of its time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np

from tests.bench.run import NoFigure, expect
from tests.kit.assemble import Assembly, assemble
from tests.kit.brokerlog import BrokerLog
from tests.kit.merging import AtOnceTurn
from tests.kit.sealing import HOUR_MS, MIDNIGHT_MS
from tiered.archive.checkpoint.format import SHARD_BYTES, cut, encode_body, encode_shard
from tiered.archive.log.maintenance import OwnKeys, Task
from tiered.archive.rewrite.merge import Merge, MergeOptions
from tiered.archive.rewrite.seal import ROW_GROUP_BYTES, Sealing, SealOptions
from tiered.archive.rewrite.sealplan import SEGMENT_LEVEL
from tiered.archive.rewrite.writing import MERGED_LEVEL
from tiered.archive.state.cached import open_fold
from tiered.archive.state.keys import FOLD_PREFIXES, GENERATION, QUEUE, RUN
from tiered.clock import ManualClock
from tiered.metadata.base import MetadataView
from tiered.model import ObjectRef
from tiered.provider.memory import MemoryProvider
from tiered.settings import ONE_DAY_MS, Settings
from tiered.source.generator.options import GeneratorOptions, topic_names
from tiered.source.generator.recordbatch import BatchPlan, BatchRenderer

QUEUES, TOPICS = 10_000, 10
_LOOKS_SECONDS = (0.25, 0.75)
"""Pauses of a second: the last record counts once it stayed as it is for a while, the flush is due at the end."""
_DIVIDED = ("object_bytes", "inline_bytes", "group_commit_bytes", "group_commit_count")
_OF_QUEUES = (QUEUE, GENERATION, RUN)
_AT_ONCE = 20_000

Pair = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Piece:
    """What is simulated: ``seconds`` of ``QUEUES / scale`` queues. ``round_seconds``: most between rounds of merging."""

    seconds: int
    scale: int
    body_bytes: int
    round_seconds: int = 600

    @property
    def queues(self) -> int:
        """A message of each comes every second."""
        return QUEUES // self.scale

    def settings(self) -> Settings:
        """The defaults, with the bounds that all queues share divided."""
        made = Settings()
        care, seal = made.maintenance, made.seal
        divided = {name: getattr(made.dispatch, name) // self.scale for name in _DIVIDED}
        return replace(
            made,
            dispatch=replace(made.dispatch, **divided),
            maintenance=replace(
                care, merge_interval_ms=self.round_seconds * 1000, merge_bytes=care.merge_bytes // self.scale,
                merge_runs=care.merge_runs // self.scale, merge_waiting_runs=care.merge_waiting_runs // self.scale,
            ),
            seal=replace(seal, segment_bytes=seal.segment_bytes // self.scale),
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Census:
    """Live objects by level (commits that hold data are of level 0), objects that nothing refers to any more, and runs.
    ``of_topic``: live objects that hold something of a topic, on average."""

    fresh: int
    merged: int
    sealed: int
    dead: int
    runs: int
    of_topic: float

    @property
    def live(self) -> int:
        """Objects that runs lie in."""
        return self.fresh + self.merged + self.sealed


@dataclass(frozen=True, slots=True)
class Weight:
    """A fold of all queues in bytes: pairs as they are, in RocksDB, and as the shards of a checkpoint. ``rest``: of ``raw``,
    what does not grow with queues or runs (objects above all)."""

    raw: float
    rocksdb: float
    checkpoint: float
    rest: float


@dataclass(slots=True)
class Seen:
    """What was measured. ``rounds``: before and after each; ``rewritten``: messages written by merges; ``spent``: bytes that
    merges asked for and wrote; ``weights``: before and after the last round, and sealed."""

    record_bytes: int = 0
    rounds: list[tuple[Census, Census]] = field(default_factory=list)
    rewritten: int = 0
    spent: int = 0
    sealed: Census | None = None
    file_bytes: int = 0
    weights: list[Weight] = field(default_factory=list)

    @property
    def made(self) -> int:
        """Objects that archiving made."""
        left = [0, *(after.fresh for _, after in self.rounds)]
        return sum(before.fresh - old for (before, _), old in zip(self.rounds, left, strict=False))


def simulate(work: Path, piece: Piece) -> Seen:
    """The piece, merged whenever that is due, then sealed when its day is over."""
    clock, settings = ManualClock(MIDNIGHT_MS), piece.settings()
    sender = _Sender(work / "store", piece)
    store = open_fold("rocksdb", work / "metadata", settings.state.cache_bytes)
    daemon = assemble(
        sender.log.store, MemoryProvider("", clock), clock, metadata=store,
        dispatch={name: getattr(settings.dispatch, name) for name in _DIVIDED},
    )  # fmt: skip
    try:
        merge = Merge(daemon.log, clock, MergeOptions.of(settings), OwnKeys())
        seen = Seen()
        for number in range(piece.seconds):
            sender.second(number, clock.now_ms())
            for pause in _LOOKS_SECONDS:
                _look(daemon)
                clock.advance(pause)
            _look(daemon)
            if merge.due(clock.monotonic()):
                last = not seen.weights and number >= piece.seconds - piece.round_seconds // 5
                _round(daemon, merge, seen, piece, work, last=last)
        seen.record_bytes = sender.log.position
        _seal(daemon, settings, seen, piece, work)
        return seen
    finally:
        daemon.close()
        store.close()


class _Sender:
    """A broker: one message of every queue, once a second, in one commitlog file."""

    def __init__(self, store: Path, piece: Piece) -> None:
        options = GeneratorOptions(store_dir=store, topics=topic_names(TOPICS, "Bench"))
        self._chance = np.random.default_rng(7)
        self._tags = len(options.tags)
        self._renderer = BatchRenderer(
            options.topics,
            options.tags,
            options.born_host,
            options.store_host,
            self._chance,
            compressible=True,
        )
        slot = np.arange(piece.queues, dtype=np.int64)
        self._slot, self._topic, self._queue = slot, slot % TOPICS, slot // TOPICS
        self._body = np.full(piece.queues, piece.body_bytes, np.int64)
        self._size = self._renderer.record_sizes(self._topic, self._body)
        total = int(self._size.sum()) * (piece.seconds + 1)
        self.log = BrokerLog(store, file_bytes=1 << total.bit_length())

    def second(self, number: int, now_ms: int) -> None:
        """The message ``number`` of each queue."""
        count, size = len(self._slot), self._size
        plan = BatchPlan(
            self._topic, self._queue, np.full(count, number, np.int64), self.log.position + np.cumsum(size) - size,
            self._body, size, number * count + self._slot, self._chance.integers(0, self._tags, count), now_ms,
        )  # fmt: skip
        self.log.write(self.log.position, self._renderer.render(plan).tobytes())
        self.log.position += int(size.sum())


def _look(daemon: Assembly) -> None:
    """Whatever can be done now."""
    while daemon.step() == 0.0:
        pass


def _round(daemon: Assembly, merge: Merge, seen: Seen, piece: Piece, work: Path, *, last: bool) -> None:
    before, view = census(daemon), daemon.state.view
    if last:
        seen.weights.append(weigh(view, piece, work / "weighed-before"))
    turn = AtOnceTurn(daemon)
    seen.rewritten += _until_done(daemon, merge, turn)["messages"]
    seen.spent += sum(turn.spent)
    seen.rounds.append((before, census(daemon)))
    if last:
        seen.weights.append(weigh(view, piece, work / "weighed-after"))


def _seal(daemon: Assembly, settings: Settings, seen: Seen, piece: Piece, work: Path) -> None:
    daemon.clock.set_wall(MIDNIGHT_MS + ONE_DAY_MS + 2 * HOUR_MS)
    options = replace(SealOptions.of(settings), directory=str(work), row_group_bytes=ROW_GROUP_BYTES // 8)
    done = _until_done(daemon, Sealing(daemon.log, daemon.clock, options, OwnKeys()), AtOnceTurn(daemon))
    expect(done["messages"], piece.queues * piece.seconds, "messages were sealed")
    seen.sealed = census(daemon)
    seen.file_bytes = sum(item.length for item in daemon.state.objects() if item.level == SEGMENT_LEVEL)
    seen.weights.append(weigh(daemon.state.view, piece, work / "weighed-sealed"))


def _until_done(daemon: Assembly, task: Task, turn: AtOnceTurn) -> Counter[str]:
    sums = Counter[str]()
    while True:
        done = task.run_once(turn)
        if done.trouble is not None:
            raise NoFigure(done.trouble)
        sums.update({name: value for name, value in done.figures.items() if isinstance(value, int)})
        if not done.more:
            return sums


def census(daemon: Assembly) -> Census:
    """Of what is proven."""
    state = daemon.state
    levels = Counter(item.level if item.references else -1 for item in state.objects())
    held: dict[str, set[ObjectRef]] = {}
    runs = 0
    for run in state.runs_all():
        runs += 1
        held.setdefault(run.queue.topic, set()).add(run.object)
    of_topic = sum(map(len, held.values())) / max(1, len(held))
    return Census(levels[0], levels[MERGED_LEVEL], levels[SEGMENT_LEVEL], levels[-1], runs, of_topic)


def weigh(view: MetadataView, piece: Piece, directory: Path) -> Weight:
    """Of the fold as it would be with all queues: each pair of a queue stands there ``scale`` times, under other keys."""
    ours = [pair for prefix in FOLD_PREFIXES if prefix in _OF_QUEUES for pair in view.iterate(prefix)]
    rest = [pair for prefix in FOLD_PREFIXES if prefix not in _OF_QUEUES for pair in view.iterate(prefix)]
    return Weight(
        raw=_size(ours) * piece.scale + _size(rest),
        rocksdb=_in_rocksdb(directory, ours, rest, piece.scale),
        checkpoint=_encoded(ours) * piece.scale + _encoded(rest),
        rest=_size(rest),
    )


def _size(pairs: Sequence[Pair]) -> int:
    return sum(len(key) + len(value) for key, value in pairs)


def _encoded(pairs: Sequence[Pair]) -> int:
    return sum(len(encode_shard(encode_body(some), len(some))) for some in cut(pairs, SHARD_BYTES))


def _in_rocksdb(directory: Path, ours: Sequence[Pair], rest: Sequence[Pair], scale: int) -> int:
    store = open_fold("rocksdb", directory, Settings().state.cache_bytes)
    store.put_many(rest)
    for number in range(scale):
        name = number.to_bytes(2, "big")
        made = iter([(key[:1] + name + key[1:], value) for key, value in ours])
        while some := list(islice(made, _AT_ONCE)):
            store.put_many(some)
    store.close()
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
