"""``SinkProgress`` in the fold: which rule refuses which commit, what older programs see, and what goes with a queue."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.kit.histories import History, open_epoch, store_changes
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.fold.apply import apply
from tiered.archive.state.keys import SINK, SINK_MAP, SINK_QUEUE, queue_key
from tiered.archive.state.offsetmap import OffsetMap, map_of_runs
from tiered.archive.state.scope import Scope
from tiered.archive.state.sinkmaps import sink_maps, sink_maps_of
from tiered.archive.state.sinks import SINK_MAPS, SINKS, SinkQueue, sink, sink_queues
from tiered.codec.format.edits import EditBatch, EditKind, Rows, SinkStep, batch
from tiered.errors import Corrupt
from tiered.model import MessageQueue

ONE = b"\1" * 16
QUEUE = MessageQueue("topic-0", 0)


def progress(log: History, queues: dict[MessageQueue, int] | None = None, **changed: Any) -> EditBatch:
    some = queues or {}
    row: dict[str, Any] = {
        "sink_id": ONE, "sink": "orders", "step": SinkStep.ON, "revision": 1, "lineage": 1, "looked": 0,
        "sink_position": [100, [90, 10, 7]],
        "sink_queues": {
            "topic": [mq.topic for mq in some], "queue_id": [mq.queue_id for mq in some],
            "next": list(some.values()), "physical": [90 for _ in some],
        },
        **changed,
    }  # fmt: skip
    return batch(EditKind.SINK_PROGRESS, **{name: Rows([value]) for name, value in row.items()})


@pytest.fixture
def log() -> History:
    made = History(random.Random(3), topics=1, queues=2)
    made.add([progress(made, {QUEUE: 5})])
    return made


def test_what_is_known_of_a_sink(log: History) -> None:
    found = sink(log.store, ONE)
    assert found is not None
    assert (found.name, found.physical, found.anchor, found.commit_seq) == ("orders", 100, (90, 10, 7), 1)
    assert list(sink_queues(log.store, ONE)) == [(QUEUE, SinkQueue(5, 90))]


@pytest.mark.parametrize(
    ("rule", "edit"),
    [
        ("16 bytes", lambda log: progress(log, sink_id=b"short")),
        ("step is known", lambda log: progress(log, step=4)),
        ("goes back in a queue only", lambda log: progress(log, {QUEUE: 4})),
        ("position goes back only", lambda log: progress(log, sink_position=[99, None])),
        ("position goes back only", lambda log: progress(log, sink_position=[None, None])),
        ("revision never goes back", lambda log: progress(log, revision=0)),
        ("by a later order", lambda log: progress(log, step=SinkStep.ANEW)),
        ("lineage is known", lambda log: progress(log, lineage=2)),
        ("lineage never goes back", lambda log: progress(log, lineage=0)),
        ("commits before its own", lambda log: progress(log, looked=2)),
        ("in range", lambda log: progress(log, sink_position=[2**61, None])),
        ("next is in range", lambda log: progress(log, {QUEUE: -1})),
    ],
)
def test_what_is_refused(log: History, rule: str, edit: Callable[[History], EditBatch]) -> None:
    before = list(log.store.iterate(b""))
    with pytest.raises(Corrupt, match=rule):
        apply(log.store, log.next_commit([edit(log)]))
    assert list(log.store.iterate(b"")) == before


def test_a_commit_names_a_sink_and_a_queue_once(log: History) -> None:
    twice = batch(
        EditKind.SINK_PROGRESS,
        **{name: Rows([*column, *column]) for name, column in progress(log).columns.items()},
    )
    with pytest.raises(Corrupt, match="names a sink once"):
        apply(log.store, log.next_commit([twice]))
    both = {"topic": ["a", "a"], "queue_id": [0, 0], "next": [9, 9], "physical": [None, None]}
    with pytest.raises(Corrupt, match="queue is named once"):
        apply(log.store, log.next_commit([progress(log, sink_queues=both)]))


def test_it_goes_back_where_it_says_so(log: History) -> None:
    log.add([progress(log, {QUEUE: 2}, step=SinkStep.BACK, sink_position=[50, None])])
    assert list(sink_queues(log.store, ONE)) == [(QUEUE, SinkQueue(2, 90))]
    log.add([progress(log, step=SinkStep.ANEW, revision=2, sink_position=[None, None])])
    assert list(sink_queues(log.store, ONE)) == []
    log.add([progress(log, step=SinkStep.REMOVED)])
    assert [key for key, _ in log.store.iterate(b"") if key[:1] in (SINK, SINK_QUEUE)] == []


def test_the_first_of_them_makes_the_feature_required_and_later_epochs_keep_it(log: History) -> None:
    plain = History(random.Random(3), topics=1, queues=2)
    assert plain.state.head().required_features == ()  # type: ignore[union-attr]
    assert log.state.head().required_features == (SINKS,)  # type: ignore[union-attr]
    log.epoch += 1
    with pytest.raises(Corrupt, match="never opened without it"):
        apply(log.store, log.next_commit([open_epoch(log.epoch, log.writer, 1)]))
    opened = log.add([open_epoch(log.epoch, log.writer, 1, required_features=Rows([[SINKS]]))])
    assert opened.seq == 2
    assert list(sink_queues(log.store, ONE)) == [(QUEUE, SinkQueue(5, 90))]


def test_a_view_of_some_queues_has_no_sinks_but_the_feature(log: History) -> None:
    scope = Scope.topic("topic-0")
    partial = PartialStore(scope)
    for commit in log.commits:
        store_changes(partial, apply(partial, commit, scope))
    assert {key[:1] for key, _ in partial.iterate(b"h")} == {b"h"}
    assert not scope.covers(SINK)
    assert not scope.covers(SINK_QUEUE + ONE)
    assert not scope.covers(SINK_MAP + ONE)
    assert scope.wider(SINK + ONE).everything


# ---- maps


def mapped(start: int, end: int, at: int = 100, **changed: Any) -> EditBatch:
    runs = {"first": [start], "messages": [max(1, end - start)], "target_offset": [at]}
    base, packed = map_of_runs(start, end, "Orders", "id", 2, runs).pack()
    row: dict[str, Any] = {
        "sink_id": ONE, "topic": QUEUE.topic, "queue_id": QUEUE.queue_id, "start": start, "end": end, "target": "Orders",
        "target_id": "id", "partition": 2, "target_offset": base, "map_runs": packed, **changed,
    }  # fmt: skip
    return batch(EditKind.SINK_MAP, **{name: Rows([value]) for name, value in row.items()})


def runs_of(messages: int) -> bytes:
    runs = {"first": [8], "messages": [messages], "target_offset": [100]}
    return map_of_runs(8, 12, "Orders", "id", 2, runs).pack()[1]


def known(log: History) -> OffsetMap:
    (found,) = sink_maps_of(log.store, ONE, [queue_key(QUEUE)])
    assert found is not None
    return found


@pytest.fixture
def placed(log: History) -> History:
    log.add([progress(log, {QUEUE: 8}), mapped(5, 8)])
    return log


def test_a_map_goes_on_with_its_sink_and_the_feature_is_required(log: History) -> None:
    assert SINK_MAPS not in log.state.head().required_features  # type: ignore[union-attr]
    log.add([progress(log, {QUEUE: 8}), mapped(5, 8)])
    log.add([progress(log, {QUEUE: 9}), mapped(8, 9, 104)])
    assert (known(log).start, known(log).end, len(known(log))) == (5, 9, 2)
    assert [known(log).locate(offset) for offset in (4, 5, 7, 8, 9)] == [
        None, (100, 100), (102, 102), (104, 104), (105, 105),
    ]  # fmt: skip
    assert log.state.head().required_features == (SINKS, SINK_MAPS)  # type: ignore[union-attr]
    log.epoch += 1
    with pytest.raises(Corrupt, match="never opened without it"):
        apply(
            log.store,
            log.next_commit([open_epoch(log.epoch, log.writer, 1, required_features=Rows([[SINKS]]))]),
        )


@pytest.mark.parametrize(
    ("rule", "edits"),
    [
        ("says where it put", lambda log: [progress(log, {QUEUE: 9})]),
        ("ends where the sink is", lambda log: [progress(log, {QUEUE: 9}), mapped(8, 10)]),
        ("ends where the sink is", lambda log: [mapped(8, 9), progress(log, {QUEUE: 9})]),
        ("ends where the sink is", lambda log: [mapped(5, 8, sink_id=b"\2" * 16)]),
        ("16 bytes", lambda log: [progress(log, {QUEUE: 9}), mapped(8, 9, sink_id=b"x")]),
        ("make no sense", lambda log: [progress(log, {QUEUE: 9}), mapped(8, 9, map_runs=runs_of(0))]),
        ("ends before its runs", lambda log: [progress(log, {QUEUE: 9}), mapped(8, 9, map_runs=runs_of(4))]),
        ("partition is in range", lambda log: [progress(log, {QUEUE: 9}), mapped(8, 9, partition=-1)]),
    ],
)
def test_what_is_refused_of_a_map(
    placed: History, rule: str, edits: Callable[[History], list[EditBatch]]
) -> None:
    before = list(placed.store.iterate(b""))
    with pytest.raises(Corrupt, match=rule):
        apply(placed.store, placed.next_commit(edits(placed)))
    assert list(placed.store.iterate(b"")) == before


def test_a_map_is_cut_where_its_sink_goes_back_and_goes_with_it(placed: History) -> None:
    placed.add([progress(placed, {QUEUE: 6}, step=SinkStep.BACK)])
    assert (known(placed).end, known(placed).locate(6)) == (6, (101, 101))
    placed.add([progress(placed, {QUEUE: 7}), mapped(6, 7, 200)])
    assert known(placed).locate(6) == (200, 200)
    placed.add([progress(placed, {QUEUE: 6}, step=SinkStep.ANEW, revision=2)])
    assert list(sink_maps(placed.store, ONE)) == []


def test_retention_takes_runs_along(placed: History) -> None:
    log = History(random.Random(3), topics=1, queues=2)
    while not (
        live := [
            q for q in log.state.queues() if q.generation is not None and q.max_offset > q.min_offset + 1
        ]
    ):
        log.add(log.flush())
    queue = live[0]
    low, high = queue.min_offset, queue.max_offset
    runs = {"first": [low, low + 1], "messages": [1, high - low - 1], "target_offset": [10, 20]}
    base, packed = map_of_runs(low, high, "Orders", "id", 2, runs).pack()
    row = mapped(
        low, high, topic=queue.queue.topic, queue_id=queue.queue.queue_id, target_offset=base, map_runs=packed
    )
    log.add([progress(log, {queue.queue: high}), row])
    log.add([
        batch(
            EditKind.TRIM_QUEUE, topic=queue.queue.topic, queue_id=queue.queue.queue_id, generation=queue.generation,
            first_offset=low + 1,
        )
    ])  # fmt: skip
    ((_, found),) = sink_maps(log.store, ONE)
    assert (found.start, len(found), found.locate(low)) == (low + 1, 1, None)
