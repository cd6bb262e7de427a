"""``tiered sink offsets``: what has no row is said."""

from __future__ import annotations

from tiered.archive.state.offsetmap import nothing_given
from tiered.cli.sinkoffsets import left_out
from tiered.model import MessageQueue
from tiered.sink.kafka.translating import QueueOfGroup


def row(queue: MessageQueue) -> QueueOfGroup:
    return QueueOfGroup(queue, 5, nothing_given(0, 0), queue)


def test_queues_of_the_group_that_the_sink_was_given_nothing_of_are_named() -> None:
    taken = MessageQueue("Orders", 0)
    others = [MessageQueue("Bills", number) for number in range(4)]
    assert left_out([taken], [row(taken)]) is None
    assert left_out([taken, others[0]], [row(taken)]) == (
        "not translated: 1 of the group's queues, of which this sink was given nothing: Bills/0"
    )
    said = left_out([taken, *others], [row(taken)])
    assert said is not None
    assert "4 of the group's queues" in said
    assert said.endswith(": Bills/0, Bills/1, Bills/2 …")
