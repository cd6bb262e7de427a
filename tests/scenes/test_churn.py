"""Topics that come and go all the time (``tests/kit/churn.py``): what they leave in fold, bucket, directory and memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.kit.churn import SETTLED_AFTER, Churn, Left, slope
from tiered.model import MessageQueue

TOPICS, QUEUES = 12, 2
ROUNDS = SETTLED_AFTER + 4
MANY, FEW, LONG = 250, 25, 24
"""Topics of a round, and rounds, where memory is looked at. What a round leaves however many topics it has, be it what is said
of its commits and keys, or what is kept by who measures coverage, rounds of few topics leave, too."""
TRACED = LONG // 2 - 6
"""The first round in which it is: tracing takes most of the time, and what went with an earlier round need not be known."""
LEAST_LEAK = 40.0
"""Bytes a topic that count as a leak. A short name in a set takes more."""


@pytest.fixture
def churn(tmp_path: Path) -> Iterator[Churn]:
    made = Churn(tmp_path, queues=QUEUES)
    yield made
    made.close()


def test_what_topics_leave_behind_does_not_grow(churn: Churn) -> None:
    rounds = [churn.round(number, TOPICS) for number in range(ROUNDS)]
    settled, last = rounds[SETTLED_AFTER], rounds[-1]
    assert 0 < last.pairs["q"] <= 4 * TOPICS * QUEUES, (
        "two days of messages, the grace, and the day under way"
    )
    for kind in "qdrgcyox":
        assert last.pairs[kind] == settled.pairs[kind], f"pairs under {kind}"
    assert (last.objects, last.noted, last.files, last.series) == (
        settled.objects, settled.noted, settled.files, settled.series,
    )  # fmt: skip
    assert last.keys <= settled.keys + 2, "commits, checkpoints and their shards go, too"
    assert last.noted <= 4 * TOPICS, "topics of which nothing is left, or known, are no longer noted"
    messages = sum(queue.messages for queue in churn.scene.state.queues())
    assert 0 < messages <= 3 * TOPICS * QUEUES
    head = churn.scene.state.head()
    assert head is not None
    assert head.forgotten.queues == TOPICS * QUEUES * ROUNDS - last.pairs["q"]
    assert 1 <= head.forgotten.generation <= ROUNDS // 3, (
        "one more for each life of topics, not for each queue"
    )


def test_a_topic_that_returns_begins_above_all_that_its_queues_ever_had(churn: Churn) -> None:
    for number in range(5):
        churn.round(number, TOPICS)
    state, broker = churn.scene.state, churn.scene.broker
    gone = MessageQueue("Topic-000-000003", 1)
    assert state.queue(gone) is None
    broker.send(gone.topic, gone.queue_id)
    churn.scene.daemon.settle(2.0)
    after = state.queue(gone)
    assert after is not None
    assert (after.generation, after.messages, after.min_offset) == (2, 1, 0)


def many_rounds(directory: Path, topics: int) -> list[Left]:
    """The later half of many rounds, with what Python allocates traced."""
    made = Churn(directory)
    try:
        for number in range(TRACED):
            made.round(number, topics)
        tracemalloc.start()
        return [made.round(number, topics) for number in range(TRACED, LONG)][LONG // 2 - TRACED :]
    finally:
        tracemalloc.stop()
        made.close()


@pytest.mark.no_cover
def test_nothing_is_left_of_topics_that_were_forgotten(tmp_path: Path) -> None:
    """Neither in memory, nor in the bucket, the notes or the open files."""
    long, few = many_rounds(tmp_path / "many", MANY), many_rounds(tmp_path / "few", FEW)
    assert few[-1].traced > 0
    assert of_a_topic([left.traced for left in long], [left.traced for left in few]) < LEAST_LEAK
    assert slope([left.stored_bytes for left in long]) / MANY < LEAST_LEAK
    assert max(left.note_bytes for left in long) < 40 * (2 * long[-1].noted + 4096 + 2 * MANY)
    assert max(left.open_files for left in long) <= long[0].open_files + 16, (
        "RocksDB's own, until it joins them"
    )


def of_a_topic(many: Sequence[int], few: Sequence[int]) -> float:
    """By how much each topic more makes what a round leaves larger."""
    return (slope(many) - slope(few)) / (MANY - FEW)


@pytest.mark.parametrize("round_leaves", [0, 3_000, 20_000])
def test_a_leak_is_seen(round_leaves: int) -> None:
    """Of a name a topic, among sizes that go up and down, whatever a round leaves."""
    sizes = [2_500_000 + (-1) ** number * 30_000 + round_leaves * number for number in range(LONG // 2)]
    few = [size - 1_250_000 for size in sizes]
    assert abs(of_a_topic(sizes, few)) < LEAST_LEAK

    def leaking(sizes: Sequence[int], topics: int) -> list[int]:
        return [size + 65 * topics * number for number, size in enumerate(sizes)]

    assert of_a_topic(leaking(sizes, MANY), leaking(few, FEW)) > LEAST_LEAK
