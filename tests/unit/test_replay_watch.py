"""The watch of replay: whose positions count, what becomes a debt, what becomes an alert."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.kit.fakebroker import FakeBroker
from tests.kit.replaying import bench
from tiered.crashpoint import ReplayPoint, install
from tiered.errors import Corrupt, Refused, Unavailable
from tiered.replay import inbox
from tiered.replay.base import DebtReason, GroupPosition, GroupQueue
from tiered.replay.groups import ordered_groups
from tiered.replay.inbox import Asked, AskedFor
from tiered.replay.ledger import Settled

Q0 = GroupQueue("G", "T", 0)
CONSUMERS = {
    "connectionSet": [{"clientId": "c1", "version": 513}],
    "consumeType": "CONSUME_PASSIVELY",
    "subscriptionTable": {
        "T": {"expressionType": "TAG", "subString": "A || B"},
        "P": {"expressionType": "TAG", "subString": "*"},
    },
}
RUNNING = (
    b'{"mqPopTable":{{"brokerName":"broker-a","queueId":-1,"topic":"T"}:{"droped":false}},'
    b'"mqTable":{{"brokerName":"b}a","queueId":0,"topic":"P"}:{"droped":false}},'
    b'"properties":{"PROP_CONSUMEORDERLY":"%s"}}'
)


def far_behind(broker: FakeBroker, minimum: int) -> None:
    """G stands at 20 in a queue of 1000; the broker has it from ``minimum`` on."""
    broker.fill("T", 0, 1000, minimum)
    broker.committed["T@G"] = {0: 20}


def test_a_minimum_that_passes_a_position_is_in_the_ledger(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 0)
        assert b.watch.look() == []
        b.broker.delete("T", 0, 300)
        [debt] = b.watch.look()
        assert (debt.queue, debt.start, debt.end, debt.reason) == (Q0, 20, 300, DebtReason.SKIPPED)
        assert b.watch.look() == []
        b.broker.delete("T", 0, 310)
        [debt] = b.watch.look()
        assert (debt.start, debt.end) == (20, 310)
        assert b.metrics.value("tiered_replay_skipped_messages_total") == 290
        assert b.metrics.value("tiered_replay_watched_queues") == 1


def test_a_skip_seen_before_the_minimum_moves_is_owed(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 0)
        b.watch.look()
        b.clock.advance(60)
        b.watch.look()
        b.broker.committed["T@G"] = {0: 520}
        for _ in range(3):
            b.clock.advance(3)
            assert b.watch.look() == []
        b.broker.delete("T", 0, 500)
        [debt] = b.watch.look()
        assert (debt.start, debt.end) == (20, 500)


def test_what_was_consumed_in_time_is_not_owed(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 0)
        b.watch.look()
        b.broker.committed["T@G"] = {0: 520}
        b.watch.look()
        b.clock.advance(30)
        b.watch.look()
        b.broker.delete("T", 0, 500)
        assert b.watch.look() == []


def test_a_daemon_that_was_down_finds_the_skip(tmp_path: Path) -> None:
    fake = FakeBroker()
    far_behind(fake, 0)
    with bench(tmp_path, "G", broker=fake) as b:
        b.watch.look()
    again = FakeBroker()
    far_behind(again, 700)
    again.committed["T@G"] = {0: 930}
    with bench(tmp_path, "G", broker=again) as b:
        [debt] = b.watch.look()
        assert (debt.start, debt.end) == (20, 700)


def test_groups_that_want_order_are_told_of_and_not_owed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with bench(tmp_path, "G") as b, caplog.at_level(logging.ERROR, "tiered.replay"):
        far_behind(b.broker, 300)
        b.broker.ordered.add("G")
        b.groups.learn(b.asking, "G")
        [debt] = b.watch.look()
        assert (debt.start, debt.end, debt.reason) == (20, 300, DebtReason.FIFO)
        assert b.ledger.debts() == []
        [record] = [r for r in caplog.records if "wants order" in r.message]
        assert (record.group, record.topic, record.queue_id, record.start, record.end) == (
            "G",
            "T",
            0,
            20,
            300,
        )  # type: ignore[attr-defined]
        assert b.metrics.value("tiered_replay_fifo_skipped_messages_total") == 280


def test_without_patterns_only_groups_that_pop_are_watched(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        far_behind(b.broker, 300)
        b.broker.fill("P", 0, 1000, 300)
        b.broker.committed |= {"P@G": {0: 20}, "T@other": {0: 20}, "%RETRY%G@G": {0: 1}}
        assert b.watch.look() == []
        assert b.watch.seen == ("G", "other")
        b.broker.consumers["G"] = CONSUMERS
        b.broker.running["G"] = RUNNING % b"false"
        for group in b.groups.due(b.watch.seen):
            b.groups.learn(b.asking, group)
        assert b.groups.facts("G").pops == {"T"}
        assert b.groups.facts("G").pulls == {"P"}
        assert [d.queue for d in b.watch.look()] == [Q0]
        assert b.groups.due(b.watch.seen) == []
        b.clock.advance(20)
        assert b.groups.due(b.watch.seen) == ["G", "other"]


def test_a_group_is_known_by_the_retry_topics_that_popping_makes(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        far_behind(b.broker, 300)
        b.broker.fill("%RETRY%G_T", 0, 50, 10)
        b.broker.committed["%RETRY%G_T@G"] = {0: 5}
        debts = {d.queue.topic: (d.start, d.end) for d in b.watch.look()}
        assert debts == {"T": (20, 300), "%RETRY%G_T": (5, 10)}


def test_a_group_watched_before_stays_watched_after_a_restart(tmp_path: Path) -> None:
    fake = FakeBroker()
    far_behind(fake, 0)
    with bench(tmp_path, broker=fake) as b:
        b.broker.consumers["G"], b.broker.running["G"] = CONSUMERS, RUNNING % b"false"
        b.groups.learn(b.asking, "G")
        b.watch.look()
    again = FakeBroker()
    far_behind(again, 300)
    with bench(tmp_path, broker=again) as b:
        assert [d.end for d in b.watch.look()] == [300]


def test_a_group_that_wants_order_is_known_by_its_configuration(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.broker.consumers["G"], b.broker.running["G"] = CONSUMERS, RUNNING % b"true"
        assert not b.groups.learn(b.asking, "G").ordered, (
            "a remoting client pops without order, whatever its listener"
        )
        b.broker.ordered.add("G")
        assert b.groups.learn(b.asking, "G").ordered
        b.broker.ordered.clear()
        b.broker.consumers["G"] = {**CONSUMERS, "consumeType": "CONSUME_POP"}
        b.broker.running.clear()
        facts = b.groups.learn(b.asking, "G")
        assert (facts.pops, facts.ordered) == ({"T", "P"}, True), "order once wanted is remembered"


def test_the_brokers_own_file_tells_of_ordered_groups(tmp_path: Path) -> None:
    path = tmp_path / "consumerOrderInfo.json"
    assert ordered_groups(path) == ordered_groups(None) == set()
    path.write_text('{"table":{"T@G":{"0":{"popTime":1}},"U@H":{}}}')
    assert ordered_groups(path) == {"G", "H"}
    path.write_text('{"tab')
    assert ordered_groups(path) == set()


def test_what_a_group_is_owed_is_held_when_it_turns_out_to_want_order(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 300)
        b.broker.fill("T", 1, 1000, 200)
        b.broker.committed["T@G"] = {0: 20, 1: 20}
        first, _ = b.watch.look()
        b.ledger.settle(Settled(first.number, 50, sent=30))
        b.broker.ordered.add("G")
        b.groups.learn(b.asking, "G")
        b.watch.look()
        assert b.ledger.debts() == []
        told = {
            (d.queue.queue_id, d.start, d.end)
            for d in b.ledger.books().debts.values()
            if d.reason is DebtReason.FIFO
        }
        assert told == {(0, 50, 300), (1, 20, 200)}
        assert sum(d.sent for d in b.ledger.books().debts.values()) == 30


def test_kv_positions_are_the_pulled_ones(tmp_path: Path) -> None:
    with bench(tmp_path, "G", broker=FakeBroker(popConsumerKVServiceEnable="true")) as b:
        far_behind(b.broker, 0)
        b.broker.pulled["T@G"] = {0: 52}
        b.watch.look()
        assert b.ledger.position(Q0) == GroupPosition(52, 52, 0)
    with bench(tmp_path / "..", "H", broker=FakeBroker()) as b:
        far_behind(b.broker, 0)
        b.broker.committed["T@H"] = {0: 20}
        b.broker.pulled["T@H"] = {0: 52}
        b.watch.look()
        assert b.ledger.position(GroupQueue("H", "T", 0)) == GroupPosition(20, 20, 0)


def test_a_look_that_fails_half_way_changes_nothing(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 0)
        b.watch.look()
        before = b.ledger.books()
        b.broker.delete("T", 0, 300)
        b.broker.silent = True
        with pytest.raises(Unavailable):
            b.watch.look()
        assert b.ledger.books() == before
        b.broker.silent = False
        assert len(b.watch.look()) == 1


def test_nothing_is_written_while_nothing_moves(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 0)
        b.watch.look()
        size = (tmp_path / "ledger").stat().st_size
        for _ in range(5):
            b.clock.advance(30)
            b.watch.look()
        assert (tmp_path / "ledger").stat().st_size == size


@pytest.mark.parametrize(
    ("broker", "words"),
    [
        (FakeBroker(version=409), "older than 5.0"),
        (FakeBroker(brokerName="broker-b"), "another one"),
        (FakeBroker(brokerRole="SLAVE"), "slave"),
        (
            FakeBroker(enableRetryTopicV2="true", retrieveMessageFromPopRetryTopicV1="false"),
            "newer retry topics",
        ),
    ],
)
def test_a_broker_that_cannot_be_replayed_to_is_refused(
    tmp_path: Path, broker: FakeBroker, words: str
) -> None:
    with bench(tmp_path, "G", broker=broker) as b, pytest.raises(Refused, match=words) as caught:
        b.watch.look()
    assert caught.value.hint
    assert 43 not in broker.asked


def test_a_broker_that_speaks_something_else_is_told(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 0)
        b.broker.committed["T@G"] = {0: "x"}  # type: ignore[dict-item]
        with pytest.raises(Corrupt, match="not JSON"):
            b.watch.look()


REQUEST = AskedFor("0001-ab", "N", "T", 5, (Asked(0, 10, 60), Asked(1, 0, 7)))


def test_an_operators_request_is_entered_once(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        inbox.leave(tmp_path, REQUEST)
        assert inbox.waiting(tmp_path) == ([REQUEST], [])

        class Crash(BaseException):
            pass

        def hook(point: object) -> None:
            if point is ReplayPoint.AFTER_REQUEST:
                raise Crash

        install(hook)
        try:
            with pytest.raises(Crash):
                b.watch.take_requests()
        finally:
            install(None)
        b.watch.take_requests()
        assert [(d.queue.queue_id, d.start, d.end, d.reason) for d in b.ledger.debts()] == [
            (0, 10, 60, DebtReason.ASKED), (1, 0, 7, DebtReason.ASKED),
        ]  # fmt: skip
        assert inbox.waiting(tmp_path) == ([], [])


def test_what_is_owed_already_is_not_asked_for_twice(tmp_path: Path) -> None:
    with bench(tmp_path, "N") as b:
        b.broker.fill("T", 0, 1000, 40)
        b.broker.committed["T@N"] = {0: 20}
        b.watch.look()
        inbox.leave(tmp_path, REQUEST)
        b.watch.take_requests()
        assert [(d.queue.queue_id, d.start, d.end) for d in b.ledger.debts()] == [
            (0, 20, 40), (0, 10, 20), (0, 40, 60), (1, 0, 7),
        ]  # fmt: skip


def test_a_request_for_a_group_that_wants_order_is_dropped(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.broker.ordered.add("N")
        inbox.leave(tmp_path, REQUEST)
        b.watch.take_requests()
        assert b.ledger.debts() == []
        assert inbox.waiting(tmp_path) == ([], [])


def test_rubbish_in_the_inbox_is_told_and_left(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with bench(tmp_path) as b, caplog.at_level(logging.ERROR, "tiered.replay"):
        inbox.leave(tmp_path, REQUEST)
        bad = tmp_path / "inbox" / "zz.request"
        bad.write_text('{"ranges": [{"queue_id": 0, "start": 9, "end": 3}]}')
        b.watch.take_requests()
        b.watch.take_requests()
        assert bad.exists()
        assert len(b.ledger.debts()) == 2, "the good one is taken"
        assert len([r for r in caplog.records if "cannot be taken" in r.message]) == 1
