"""``ForgetQueues`` in the fold: which rule refuses which commit, what goes, and what the head keeps (DESIGN.md, "Queues that
are gone")."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kit.histories import History, mutate, open_epoch, store_changes
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.fold.apply import apply
from tiered.archive.state.forgotten import empty_queues, occupied
from tiered.archive.state.keys import DISPATCH, GENERATION, QUEUE, queue_key, queue_keys, topic_key
from tiered.archive.state.scope import Scope
from tiered.archive.state.values import Forgotten, unpack_head
from tiered.codec.format.edits import EditBatch, EditKind
from tiered.errors import Corrupt
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, Progress


class Emptied(History):
    """A history whose queues have nothing left, and one that has."""

    def __init__(self, seed: int = 5, steps: int = 8) -> None:
        super().__init__(random.Random(seed), topics=2, queues=2, forgets=True)
        while len(self.model.queues) < 4 or len(self.commits) < steps:
            self.add(self.flush())
        while len([mq for mq in self.model.queues if self._is_empty(mq)]) < 3:
            self.add(self.empty() or [])

    @property
    def full(self) -> MessageQueue:
        return next(mq for mq in self.model.queues if not self._is_empty(mq))

    def all_empty(self) -> EditBatch:
        """The edit that forgets all three."""
        while True:
            before = self.model.queues.copy(), self.model.forgotten
            (edit,) = self.forget() or []
            if len(edit) == 3:
                return edit
            self.model.queues, self.model.forgotten = before

    def refuses(self, rule: str, edit: EditBatch) -> None:
        before = list(self.store.iterate(b""))
        with pytest.raises(Corrupt, match=rule):
            apply(self.store, self.next_commit([edit]))
        assert list(self.store.iterate(b"")) == before


def wrong(column: str, row: int, value: Any) -> Any:
    return lambda log, edit: mutate(edit, column, row, lambda _: value)


def with_queue(log: Emptied, edit: EditBatch, queue: MessageQueue) -> EditBatch:
    """The first row named for another queue, in the order of the keys."""
    made = mutate(mutate(edit, "topic", 0, lambda _: queue.topic), "queue_id", 0, lambda _: queue.queue_id)
    return made.take(np.array([0]))


@pytest.mark.parametrize(
    ("rule", "change"),
    [
        ("own generation", wrong("generation", 1, 7)),
        ("own lineage", wrong("lineage", 2, 2)),
        ("own physical_end", wrong("physical_end", 1, 5)),
        ("is known", lambda log, edit: with_queue(log, edit, MessageQueue("never", 0))),
        ("each once", lambda log, edit: edit.take(np.array([0, 0]))),
        ("in the order of their keys", lambda log, edit: edit.take(np.array([1, 0, 2]))),
        ("is in range", wrong("queue_id", 2, 2**31)),
    ],
)
def test_what_is_refused(rule: str, change: Any) -> None:
    log = Emptied()
    log.refuses(rule, change(log, log.all_empty()))


def test_a_queue_that_has_something_is_not_forgotten() -> None:
    log = Emptied()
    edit = with_queue(log, log.all_empty(), log.full)
    record = log.state.queue(log.full)
    assert record is not None
    assert record.lineage is not None
    for column, value in (
        ("generation", record.highest_generation), ("lineage", record.lineage), ("physical_end", record.last_physical_end),
    ):  # fmt: skip
        edit = mutate(edit, column, 0, lambda _, value=value: value)  # type: ignore[misc]
    log.refuses("nothing is left", edit)


@pytest.mark.parametrize("prefix", [b"r", b"c", b"y", b"a"])
def test_whatever_lies_below_its_key_keeps_a_queue(prefix: bytes) -> None:
    """Of any generation: a run, a closed part, a gap, an alias."""
    log = Emptied()
    edit = log.all_empty()
    last = queue_key(MessageQueue(edit.columns["topic"][-1], int(edit.ints("queue_id")[-1])))
    log.store.put_many([(prefix + last + bytes(12), b"something")])
    log.refuses("nothing is left", edit)


def test_only_an_epoch_that_says_so_forgets() -> None:
    """Programs that do not know it were refused when that epoch was opened."""
    log = Emptied()
    plain, edit = History(random.Random(5)), log.all_empty()
    with pytest.raises(Corrupt, match="in an epoch that requires it"):
        apply(plain.store, plain.next_commit([edit]))
    log.epoch += 1
    with pytest.raises(Corrupt, match="never opened without it"):
        log.add([open_epoch(log.epoch, log.writer, log.lineage)])


def test_everything_of_a_queue_goes_and_the_head_keeps_what_they_had_at_most() -> None:
    log = Emptied()
    for topic in ("topic-0", "topic-1"):
        keys = queue_keys([topic] * 2, np.arange(2))
        log.store.put_many([(DISPATCH + key, b"as an earlier version kept it") for key in keys])
    edit = log.all_empty()
    log.add([edit])
    kept = queue_key(log.full)
    for prefix in (QUEUE, GENERATION, DISPATCH, b"r", b"c", b"y"):
        assert {key[1 : 1 + len(kept)] for key, _ in log.store.iterate(prefix)} <= {kept}, prefix
    head = log.state.head()
    assert head is not None
    ends = {1: int(edit.ints("physical_end").max())}
    assert head.forgotten == Forgotten(int(edit.ints("generation").max()), 3, ends)
    assert unpack_head(head.pack()) == head


def test_a_queue_that_returns_begins_above_whatever_was_forgotten() -> None:
    log = Emptied()
    edit = log.all_empty()
    gone = MessageQueue(edit.columns["topic"][0], int(edit.ints("queue_id")[0]))
    log.add([edit])
    while log.state.queue(gone) is None:
        log.add(log.flush())
    found = log.state.queue(gone)
    assert found is not None
    assert found.highest_generation > int(edit.ints("generation").max())
    assert log.folded(log.state) == log.readable()


def test_a_head_without_it_is_what_it_was_byte_by_byte() -> None:
    log = Emptied()
    head = log.state.head()
    assert head is not None
    assert len(head.pack()) < len(replace(head, forgotten=Forgotten(1, 1, {1: 0})).pack())
    assert replace(head, forgotten=Forgotten()).pack() == head.pack()


def test_a_fold_of_some_queues_keeps_the_same_head() -> None:
    """A reader of few queues, begun below the commit, folds the rows of its own and the numbers of all."""
    log = Emptied()
    kept, edit = log.full, log.all_empty()
    first = MessageQueue(edit.columns["topic"][0], int(edit.ints("queue_id")[0]))
    log.add([edit])
    whole = log.state.head()
    for queue in (kept, first):
        scope = Scope.queue(queue.topic, queue.queue_id)
        store = PartialStore(scope)
        for commit in log.commits:
            store_changes(store, apply(store, commit, scope))  # type: ignore[arg-type]
        view = store.snapshot()
        head = unpack_head(view.get_many((b"h",))[0] or b"")
        assert whole is not None
        assert head.forgotten == whole.forgotten
        assert (view.get_many((QUEUE + queue_key(queue),))[0] is None) == (queue == first)


def test_what_may_lie_behind_a_position() -> None:
    """A reader that stood at these positions may have missed messages of a queue that was forgotten since."""
    gone = Forgotten(3, 9, {1: 500, 2: 80})
    reached = {1: Progress(1, 600, 0, 0), 2: Progress(2, 80, 0, 0)}
    assert not gone.behind(reached)
    assert gone.behind({**reached, 2: Progress(2, 79, 0, 0)})
    assert gone.behind({1: reached[1]})
    assert not Forgotten().behind({})


def test_the_walk_meets_each_queue_that_has_something() -> None:
    chance = random.Random(3)
    for _ in range(60):
        store = MemoryStore()
        names = [queue_key(MessageQueue(f"t{n}", q)) for n in range(12) for q in (0, 1)]
        store.put_many(
            (b"r" + key + bytes([i]), b"")
            for key in names
            if chance.random() < 0.4
            for i in range(chance.randint(1, 3))
        )
        asked = sorted(chance.sample(names, chance.randint(0, 20)))
        met = list(occupied(lambda p, start, s=store: s.iterate(p, start=start), b"r", asked))  # type: ignore[misc]
        assert met == [key for key in asked if next(store.iterate(b"r" + key), None) is not None]


def test_empty_queues_are_found_by_topic() -> None:
    log = Emptied()
    full = log.full
    found = [
        key for keys in empty_queues(log.store, [topic_key("topic-0"), topic_key("topic-1")]) for key in keys
    ]
    assert found == [queue_key(mq) for mq in log.names if mq != full]
    some = [key for keys in empty_queues(log.store, [topic_key(full.topic)]) for key in keys]
    assert some == [key for key in found if key.startswith(topic_key(full.topic))]
    assert all(edit.kind is not EditKind.FORGET_QUEUES for commit in log.commits for edit in commit.edits)
