"""The checks. A subclass in a test file gives the fixture ``tested``; each method is a test.

Where ``position`` of a sink is kept at the destination, every message has to be there exactly once; else at least once, and no
other message twice than such as were written and not known to be flushed when the sink was opened anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from tiered.errors import Conflict, Fenced, Invalid, Unavailable
from tiered.feed.base import Follow
from tiered.model import MessageQueue
from tiered.sink.base import Sink, SinkPosition
from tiered.sink.comparison.base import Marks
from tiered.sink.contract.feeding import Feeding, TestedSink
from tiered.sink.contract.samples import (
    LEGAL_TOPICS,
    WILD_TOPICS,
    batch_of,
    hostile,
    message_of,
    ordinary,
)

_MOST_REQUESTS = 40


class SinkContract:
    """What holds for every sink."""

    def test_queues_keep_their_order(self, tested: TestedSink) -> None:
        """Several batches, several flushes: each queue's messages in their order, and nothing else."""
        feeding = Feeding(tested)
        sink = feeding.open()
        for first in (0, 3, 6):
            feeding.write(sink, feeding.add(ordinary(2, first=first)))
            feeding.write(sink, feeding.add(ordinary(1, first=first + 2)))
            feeding.flush(sink)
        sink.close()
        feeding.judge()

    def test_only_the_rows_of_a_batch_are_given(self, tested: TestedSink) -> None:
        """A batch names rows of its messages; the others are somebody else's."""
        feeding = Feeding(tested)
        sink = feeding.open()
        messages = ordinary(5)
        rows = [row for row in range(len(messages)) if row % 3 != 1]
        feeding.add([messages[row] for row in rows])
        accepted = sink.write(batch_of(messages, rows)[0])
        assert accepted.messages == len(rows), "as many messages are accepted as rows were given"
        feeding.flush(sink)
        sink.close()
        feeding.judge()

    def test_the_buffer_is_free_after_a_flush(self, tested: TestedSink) -> None:
        """The buffer of a batch changes once it was flushed: no message of it is still to be sent."""
        feeding = Feeding(tested)
        sink = feeding.open()
        buffers = [feeding.write(sink, feeding.add(ordinary(3)))]
        buffers.append(feeding.write(sink, feeding.add(ordinary(3, first=3))))
        feeding.flush(sink)
        for buffer in buffers:
            buffer[:] = b"\xee" * len(buffer)
        feeding.write(sink, feeding.add(ordinary(1, first=6)))
        feeding.flush(sink)
        sink.close()
        feeding.judge()

    def test_an_empty_flush_moves_the_position(self, tested: TestedSink) -> None:
        """A flush without a message: nothing appears, and the position is the new one."""
        feeding = Feeding(tested)
        sink = feeding.open()
        feeding.flush(sink)
        feeding.flush(sink)
        sink.close()
        known = feeding.known
        again = feeding.open()
        if feeding.keeps:
            assert feeding.known.log == known.log, "the position is what was flushed last"
        feeding.write(again, feeding.add(ordinary(1)))
        feeding.flush(again)
        feeding.flush(again)
        again.close()
        feeding.judge()

    def test_the_position_is_complete(self, tested: TestedSink) -> None:
        """A flush tells the queues that changed; the position has every queue ever given, with where its last record lay."""
        feeding = Feeding(tested)
        for number in range(4):
            sink = feeding.open()
            feeding.write(sink, feeding.add([message_of(f"T{number}", 7, 5, b"x", physical=100 + number)]))
            feeding.flush(sink)
            feeding.flush(sink)
            sink.close()
        last = tested.open()
        position = last.position()
        last.close()
        if feeding.keeps:
            assert position is not None
            wanted = {MessageQueue(f"T{number}", 7): Follow(6, 100 + number) for number in range(4)}
            assert dict(position.queues) == wanted, "the position has every queue ever given"
            assert position.log == feeding.known.log, "the position is what was flushed last"
        feeding.judge()

    def test_a_stop_before_a_write_costs_nothing(self, tested: TestedSink) -> None:
        """Opened, and closed or left as it is, again and again."""
        feeding = Feeding(tested)
        for first, closes in enumerate((True, False, True)):
            sink = feeding.open()
            feeding.write(sink, feeding.add(ordinary(1, first=first)))
            feeding.flush(sink)
            if closes:
                sink.close()
            idle = feeding.open()
            if closes:
                idle.close()
        feeding.finish()
        feeding.judge()

    def test_a_stop_between_write_and_flush_loses_nothing(self, tested: TestedSink) -> None:
        """Written, and then closed or left as it is: what the position does not cover is given again."""
        feeding = Feeding(tested)
        maybe: set[tuple[str, int, int]] = set()
        for first, closes in enumerate((True, False, True, False)):
            sink = feeding.open()
            feeding.add(ordinary(1, first=2 * first))
            feeding.write(sink, feeding.behind())
            feeding.flush(sink)
            feeding.write(sink, feeding.add(ordinary(1, first=2 * first + 1)))
            maybe |= feeding.may_double
            if closes:
                sink.close()
        feeding.finish()
        feeding.judge(may_double=maybe)

    def test_a_stop_after_a_flush_doubles_nothing(self, tested: TestedSink) -> None:
        """Flushed, and then closed or left as it is: the next opening has all of it."""
        feeding = Feeding(tested)
        for first, closes in enumerate((True, False, True)):
            sink = feeding.open()
            feeding.add(ordinary(2, first=2 * first))
            feeding.write(sink, feeding.behind())
            feeding.flush(sink)
            if closes:
                sink.close()
        feeding.finish()
        feeding.judge()

    def test_an_answer_lost_at_any_request(self, tested: TestedSink) -> None:
        """The answer to each request in turn is lost, whether it was carried out or not: nothing is lost, and where a position
        is kept it and the messages are there in one step, so that nothing is there twice."""
        feeding = Feeding(tested)
        first = 0
        for done in (False, True):
            for request in range(_MOST_REQUESTS):
                interruption = tested.interrupted(request, done=done)
                if interruption is None:
                    return
                feeding.add(ordinary(1, first=first))
                first += 1
                with interruption as cut:
                    self._try_once(feeding)
                feeding.finish()
                assert cut.happened or request > 0, "``interrupted`` breaks a request of the driver"
                if not cut.happened:
                    break
            else:
                raise AssertionError(f"a driver makes more than {_MOST_REQUESTS} requests for four messages")
        # Where no position is kept a driver may well have sent again by itself.
        feeding.judge(may_double=[(m.topic, m.queue_id, m.queue_offset) for m in feeding.log])

    def test_a_destination_that_is_away(self, tested: TestedSink) -> None:
        """``Unavailable`` at the latest by the flush, and all is there once it is back."""
        feeding = Feeding(tested)
        feeding.add(ordinary(2))
        feeding.finish()
        feeding.add(ordinary(2, first=2))
        absence = tested.away()
        if absence is None:
            return
        sink = feeding.open()
        with absence:
            _refused(sink, feeding)
            sink.close()
            try:
                sink = feeding.open()
            except Unavailable:
                pass
            else:
                _refused(sink, feeding)
                sink.close()
        maybe = set(feeding.may_double)
        feeding.finish()
        feeding.judge(may_double=maybe)

    def test_a_huge_batch(self, tested: TestedSink) -> None:
        """Many messages in one batch."""
        feeding = Feeding(tested)
        sink = feeding.open()
        feeding.write(sink, feeding.add(ordinary(tested.huge // 4)))
        feeding.flush(sink)
        sink.close()
        feeding.judge()

    def test_hostile_messages_arrive_whole(self, tested: TestedSink) -> None:
        """Empty, binary and large bodies, properties with every separator, names that brokers take."""
        feeding = Feeding(tested)
        sink = feeding.open()
        messages = hostile(("Hostile", *LEGAL_TOPICS), large=tested.largest_body)
        feeding.write(sink, feeding.add([m for m in messages if m.body or tested.takes_empty_bodies]))
        feeding.flush(sink)
        sink.close()
        feeding.judge()

    def test_names_that_no_broker_takes(self, tested: TestedSink) -> None:
        """Topics that cannot be: their messages arrive whole, or the sink says ``Invalid``; they are never left out."""
        for topic in WILD_TOPICS:
            feeding = Feeding(tested)
            sink = feeding.open()
            messages = [message_of(topic, 0, offset, b"%d" % offset) for offset in range(2)]
            try:
                feeding.write(sink, messages)
                feeding.flush(sink)
            except Invalid:
                continue
            finally:
                sink.close()
            found = [r.queue_offset for r in tested.read() if (r.topic, r.queue_id) == (topic, 0)]
            assert found == [0, 1], f"the messages of {topic!r} arrive whole, or the sink says Invalid"

    def test_queues_that_come_later_and_begin_anywhere(self, tested: TestedSink) -> None:
        """Queues that were not there before, offsets that do not begin at 0 and have holes, large numbers of queues."""
        feeding = Feeding(tested)
        sink = feeding.open()
        feeding.write(sink, feeding.add(ordinary(1)))
        feeding.flush(sink)
        late = [
            message_of("Late", queue, 10**12 + 7 * n, b"%d" % n) for n in range(3) for queue in (0, 65_535)
        ]
        feeding.write(sink, feeding.add(late))
        feeding.flush(sink)
        sink.close()
        feeding.judge()

    def test_the_older_of_two_openings_does_no_harm(self, tested: TestedSink) -> None:
        """A sink that wakes up after another opening: it is fenced, or what it writes is there once all the same."""
        feeding = Feeding(tested)
        older = feeding.open()
        feeding.write(older, feeding.add(ordinary(2)))
        feeding.flush(older)
        given = feeding.add(ordinary(2, first=2))
        feeding.write(older, given)
        maybe = set(feeding.may_double)
        woken = feeding.twin()
        newer = feeding.open()
        with contextlib.suppress(Fenced, Conflict, Unavailable):
            woken.flush(older)
            there = {(r.topic, r.queue_id, r.queue_offset) for r in tested.read()}
            lacking = [m for m in given if (m.topic, m.queue_id, m.queue_offset) not in there]
            assert lacking == [], "a flush that raises nothing has given its messages"
        feeding.write(newer, feeding.behind())
        feeding.flush(newer)
        _harmless(older)
        feeding.write(newer, feeding.add(ordinary(1, first=4)))
        feeding.flush(newer)
        newer.close()
        older.close()
        feeding.finish()
        feeding.judge(may_double=maybe)

    def test_what_is_read_back_is_what_was_given(self, tested: TestedSink) -> None:
        """Where a driver can be read back: its marks are those of the batches, each queue in its order, and its position is the
        sink's. The sink that is open meanwhile goes on."""
        feeding = Feeding(tested)
        sink = feeding.open()
        odd = [m for m in hostile(("Hostile", "a-b"), large=0) if m.body or tested.takes_empty_bodies]
        feeding.write(sink, feeding.add(odd))
        feeding.flush(sink)
        feeding.write(sink, feeding.add(ordinary(20)))
        feeding.flush(sink)
        reader = tested.read_back()
        if reader is None:
            sink.close()
            return
        with contextlib.closing(reader):
            position = reader.position()
            assert position is None or position == feeding.known, (
                "the position read back is the one flushed last"
            )
            expected = _by_queue([reader.given(batch_of(feeding.log)[0])])
            targets = {reader.target(MessageQueue(m.topic, m.queue_id)) for m in feeding.log}
            assert set(expected) == targets, "marks name queues as ``target`` does"
            found = _by_queue(reader.read(targets))
            assert set(found) == targets, "every queue is read back, and no other"
            for queue, wanted in expected.items():
                there = found[queue] if reader.ordered else sorted(found[queue])
                assert there == wanted, f"{queue} is read back as it was given, in its order"
            assert not any(len(marks.queue) for marks in reader.buried()), "nothing was buried"
            assert reader.unread() is None, "all could be read"
        feeding.write(sink, feeding.add(ordinary(1, first=20)))
        feeding.flush(sink)
        sink.close()
        feeding.judge()

    def test_closing_twice_raises_nothing(self, tested: TestedSink) -> None:
        """After work, without any, and after a failure."""
        feeding = Feeding(tested)
        sink = feeding.open()
        sink.close()
        sink.close()
        sink = feeding.open()
        feeding.write(sink, feeding.add(ordinary(1)))
        feeding.flush(sink)
        sink.close()
        sink.close()
        feeding.judge()

    def _try_once(self, feeding: Feeding) -> None:
        """Open, write, flush, whatever comes of it; errors that are none of the program's are let through."""
        sink = None
        try:
            sink = feeding.open()
            feeding.write(sink, feeding.behind())
            feeding.flush(sink)
        except (Unavailable, Conflict):  # any other kind is wrong, and fails the check by itself
            return
        finally:
            if sink is not None:
                sink.close()


def _by_queue(parts: Iterable[Marks]) -> dict[MessageQueue, list[tuple[int, int, int]]]:
    """(offset, origin, content) of each message."""
    found: dict[MessageQueue, list[tuple[int, int, int]]] = {}
    for marks in parts:
        columns = (marks.queue, marks.queue_offset, marks.origin, marks.content)
        for queue, *mark in zip(*(column.tolist() for column in columns), strict=True):
            found.setdefault(marks.queues[queue], []).append(tuple(mark))
    return found


def _refused(sink: Sink, feeding: Feeding) -> None:
    try:
        feeding.write(sink, feeding.behind())
        feeding.flush(sink)
    except Unavailable:
        return
    raise AssertionError("a flush to a destination that is away raises Unavailable")


def _harmless(older: Sink) -> None:
    """A flush of nothing by a sink that another opening has overtaken: refused, or without effect."""
    try:
        older.flush(SinkPosition())
    except (Fenced, Conflict, Unavailable):
        return
