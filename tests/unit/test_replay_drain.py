"""The drain of replay: what is sent, in what portions, what is entered, and what happens when the broker does not want it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.kit.fakebroker import FakeBroker, Stored
from tests.kit.replaying import Bench, FakeArchive, bench
from tiered.crashpoint import ReplayPoint, install
from tiered.errors import Corrupt, Unavailable
from tiered.fetch.pull import Pull
from tiered.model import GetMessageResult
from tiered.replay.base import DebtReason, GroupQueue, NewDebt
from tiered.replay.drain import BATCH

Q0, Q1 = GroupQueue("G", "T", 0), GroupQueue("G", "T", 1)
RETRY = "%RETRY%G_T"


def owe(b: Bench, queue: GroupQueue, start: int, end: int) -> None:
    """A debt, and its messages in the archive."""
    b.archive.put(queue.topic, queue.queue_id, range(start, end))
    b.ledger.look({}, [NewDebt(queue, start, end)])


def test_everything_owed_is_sent_in_order(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 20, 220)
        b.drained()
        assert b.seqs(RETRY) == list(range(20, 220))
        [debt] = b.ledger.books().debts.values()
        assert (debt.drained, debt.sent, debt.holes, debt.filtered, debt.refused) == (220, 200, 0, 0, 0)
        assert b.metrics.value("tiered_replay_settled_messages_total", outcome="sent") == 200
        b.drain.step()
        assert b.metrics.value("tiered_replay_owed_messages") == 0


def test_a_message_keeps_what_it_is_and_loses_what_would_move_it(tmp_path: Path) -> None:
    properties = {
        "KEYS": "k1 k2", "user": "größe", "TRAN_MSG": "true", "PGROUP": "p", "DELAY": "3", "TIMER_DELIVER_MS": "1",
        "TIMER_OUT_MS": "2", "INNER_NUM": "1", "POP_CK": "x", "__CRC32#": "0000000000",
    }  # fmt: skip
    with bench(tmp_path) as b:
        b.archive.put(
            "T", 0, range(5, 6), properties=properties, flag=9, sys_flag=0x1 | 0x8 | 0x300, body=b"\x00\xff"
        )
        b.ledger.look({}, [NewDebt(Q0, 5, 6)])
        b.drained()
        [sent] = b.broker.sent(RETRY)
        assert sent.body == b"\x00\xff"
        assert sent.properties == {
            "seq": "5", "TAGS": "C", "UNIQ_KEY": "U5", "KEYS": "k1 k2", "user": "größe", "ORIGIN_GROUP": "G",
        }  # fmt: skip
        wanted = {
            "flag": "9",
            "sysFlag": str(0x301),
            "bornTimestamp": "1005",
            "queueId": "0",
            "reconsumeTimes": "0",
        }
        assert {k: sent.ext[k] for k in wanted} == wanted


def test_a_cold_retry_topic_is_sent_to_itself_and_keeps_its_tries(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.archive.put(RETRY, 0, range(5), reconsume_times=3)
        b.archive.put("%RETRY%G+T", 0, range(5, 7), reconsume_times=2)
        b.ledger.look(
            {}, [NewDebt(GroupQueue("G", RETRY, 0), 0, 5), NewDebt(GroupQueue("G", "%RETRY%G+T", 0), 5, 7)]
        )
        b.drained()
        assert [s.ext["reconsumeTimes"] for s in b.broker.sent(RETRY)] == ["3"] * 5 + ["2"] * 2


def test_the_window_of_messages(tmp_path: Path) -> None:
    with bench(tmp_path, window_messages=50) as b:
        owe(b, Q0, 0, 120)
        assert b.drain.step() == 50
        assert b.drain.waits_for_groups
        b.clock.advance(1)
        assert b.drain.step() == 0
        b.broker.committed[f"{RETRY}@G"] = {0: 30}
        b.clock.advance(1)
        assert b.drain.step() == 30
        assert len(b.broker.sent(RETRY)) == 80
        b.broker.committed[f"{RETRY}@G"] = {0: 80}
        b.clock.advance(1)
        assert b.drain.step() == 40
        assert b.ledger.debts() == []


def test_a_group_that_does_not_come_is_asked_about_less_and_less(tmp_path: Path) -> None:
    with bench(tmp_path, window_messages=50) as b:
        owe(b, Q0, 0, 120)
        for _ in range(600):
            b.drain.step()
            b.clock.advance(0.1)
        assert b.broker.asked[30] < 25, "a minute"
        b.broker.committed[f"{RETRY}@G"] = {0: 50}
        b.clock.advance(5)
        assert b.drain.step() == 50
        asked = b.broker.asked[30]
        for _ in range(10):
            b.broker.committed[f"{RETRY}@G"][0] += 1
            b.clock.advance(0.11)
            b.drain.step()
        assert b.broker.asked[30] == asked + 10, "one that moves is asked about again and again"


def test_the_window_of_bytes_lets_one_large_message_through(tmp_path: Path) -> None:
    with bench(tmp_path, window_bytes=65_536) as b:
        b.archive.put("T", 0, range(4), body=b"x" * 100_000)
        b.ledger.look({}, [NewDebt(Q0, 0, 4)])
        for taken in range(1, 5):
            assert b.drain.step() == 1
            b.clock.advance(1)
            assert b.drain.step() == 0
            b.clock.advance(1)
            b.broker.committed[f"{RETRY}@G"] = {0: taken}
        assert b.ledger.debts() == []


def test_what_lay_in_the_retry_queue_before_counts(tmp_path: Path) -> None:
    with bench(tmp_path, window_messages=50) as b:
        b.broker.fill(RETRY, 0, 1000, 900)
        b.broker.committed[f"{RETRY}@G"] = {0: 100}
        owe(b, Q0, 0, 120)
        assert b.drain.step() == 0, (
            "100 lie there: from the queue's minimum on, not from where the group stood"
        )
        b.broker.committed[f"{RETRY}@G"] = {0: 990}
        b.clock.advance(1)
        assert b.drain.step() == 40


def test_filtered_messages_are_not_sent_while_clients_tell_what_they_want(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 90)
        told: dict[str, Any] = {"consumeType": "CONSUME_POP", "connectionSet": []}
        b.broker.consumers["G"] = {
            **told,
            "subscriptionTable": {"T": {"expressionType": "TAG", "subString": "B"}},
        }
        b.groups.learn(b.asking, "G")
        b.drained()
        assert b.seqs(RETRY) == list(range(1, 90, 3))
        [debt] = b.ledger.books().debts.values()
        assert (debt.sent, debt.filtered) == (30, 60)
        owe(b, Q1, 0, 9)
        b.broker.consumers["G"] = {
            **told,
            "subscriptionTable": {"T": {"expressionType": "SQL92", "subString": "((("}},
        }
        b.groups.learn(b.asking, "G")
        b.drained()
        assert len(b.seqs(RETRY)) == 39, "what is not understood filters nothing"


def test_holes_are_counted_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with bench(tmp_path) as b:
        b.archive.put("T", 0, range(10, 20))
        b.archive.put("T", 0, range(25, 60))
        b.ledger.look({}, [NewDebt(Q0, 0, 50)])
        b.drained()
        assert b.seqs(RETRY) == [*range(10, 20), *range(25, 50)]
        [debt] = b.ledger.books().debts.values()
        assert (debt.holes, debt.hole_ranges, debt.sent) == (15, ((0, 10), (20, 25)), 35)
        said = [r for r in caplog.records if "in no archive" in r.message]
        assert [(r.start, r.end) for r in said] == [(0, 10), (20, 25)]  # type: ignore[attr-defined]


def test_what_is_not_archived_yet_waits_and_holds_up_nothing_else(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 40)
        b.ledger.look({}, [NewDebt(Q0, 40, 50)])
        owe(b, Q1, 0, 5)
        b.drain.step()
        assert len(b.seqs(RETRY)) == 45
        [debt] = b.ledger.debts()
        assert (debt.drained, debt.end) == (40, 50)
        assert "not archived yet" in b.drain.troubles()[0]
        reads = len(b.archive.reads)
        b.drain.step()
        assert len(b.archive.reads) == reads, "not asked about all the time"
        b.archive.put("T", 0, range(40, 60))
        b.drained()
        assert b.seqs(RETRY)[-10:] == list(range(40, 50))
        b.drain.step()
        assert b.drain.troubles() == []


def test_damage_in_the_archive_stops_its_queue_only(tmp_path: Path) -> None:
    class Damaged(FakeArchive):
        def get_message(self, pull: Pull) -> GetMessageResult:
            if pull.queue_id == 0:
                raise Corrupt("a block is damaged", key="data/x", position=7)
            return super().get_message(pull)

    with bench(tmp_path, archive=Damaged()) as b:
        owe(b, Q0, 0, 5)
        owe(b, Q1, 0, 5)
        b.drain.step()
        assert [d.queue for d in b.ledger.debts()] == [Q0]
        assert "data/x" in b.drain.troubles()[0]


@pytest.mark.parametrize("code", [2, 14, 215])
def test_a_busy_or_full_broker_is_left_alone_and_nothing_is_lost(tmp_path: Path, code: int) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 100)
        b.broker.answers.extend([(0, "")] * 10 + [(code, "disk full")] + [(0, "")] * 5 + [(code, "")] * 100)
        with pytest.raises(Unavailable, match="takes no messages now") as caught:
            b.drain.step()
        assert "disk full" in str(caught.value)
        [debt] = b.ledger.debts()
        assert (debt.drained, debt.sent) == (10, 10)
        b.broker.answers.clear()
        b.drained()
        assert sorted(b.seqs(RETRY)) == list(range(100)), (
            "those that were stored out of turn are not sent again"
        )


def test_an_answer_that_never_comes_is_sent_again(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 40)
        b.broker.answers.extend([(0, "")] * 3 + [None] + [(0, "")] * 4)
        with pytest.raises(Unavailable, match="in time"):
            b.drain.step()
        b.drained()
        sent = b.seqs(RETRY)
        assert set(sent) == set(range(40))
        assert len(sent) == 41, "the one that was not answered came twice"


def test_stored_but_not_flushed_is_stored(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 3)
        b.broker.answers.extend([(10, "flush"), (11, "slave"), (12, "slave")])
        b.drained()
        assert b.seqs(RETRY) == [0, 1, 2]


def test_a_message_the_broker_never_takes_does_not_stop_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 10)
        b.broker.answers.extend([(0, "")] * 4 + [(13, "too long")])
        b.drained()
        assert b.seqs(RETRY) == [0, 1, 2, 3, 5, 6, 7, 8, 9]
        [debt] = b.ledger.books().debts.values()
        assert (debt.sent, debt.refused) == (9, 1)
        assert any("for good" in r.message for r in caplog.records)


def test_a_batch_in_one_record_is_refused_and_counted(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.archive.put("T", 0, range(1), sys_flag=0x80, properties={"INNER_NUM": "1"})
        b.archive.put("T", 0, range(1, 3))
        b.ledger.look({}, [NewDebt(Q0, 0, 3)])
        b.drained()
        [debt] = b.ledger.books().debts.values()
        assert (debt.sent, debt.refused) == (2, 1)


def test_a_missing_group_of_the_retry_topic_is_made(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 3)
        b.broker.answers.append((26, "no such group"))
        b.drained()
        assert b.broker.created == ["G_T"]
        assert sorted(b.seqs(RETRY)) == [0, 1, 2]


def test_one_refused_lane_does_not_stop_another(tmp_path: Path) -> None:
    fake = FakeBroker()
    other = GroupQueue("H", "T", 0)

    def refuse_g(stored: Stored) -> None:
        if stored.ext["topic"] == RETRY:
            raise AssertionError

    with bench(tmp_path, broker=fake) as b:
        owe(b, Q0, 0, 3)
        owe(b, other, 0, 3)
        b.broker.answers.extend([(16, "no permission")] * 3)
        b.drain.step()
        b.drain.step()
        done = {d.queue.group for d in b.ledger.books().debts.values() if d.left == 0}
        assert len(done) == 1
        assert "refuses messages to a retry topic" in b.drain.troubles()[0]
        b.drained()


def test_an_archive_that_is_away_is_waited_for(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 3)
        b.archive.error = Unavailable("the store does not answer")
        with pytest.raises(Unavailable, match="does not answer"):
            b.drain.step()
        b.archive.error = None
        b.drained()


def test_a_fifo_range_is_never_sent(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.archive.put("T", 0, range(10))
        b.ledger.look({}, [NewDebt(Q0, 0, 10, DebtReason.FIFO)])
        assert b.drain.step() == 0
        assert b.broker.asked[10] == 0


class Crash(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("point", [ReplayPoint.AFTER_SEND, ReplayPoint.AFTER_SETTLED])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_crash_repeats_at_most_one_batch(tmp_path: Path, point: ReplayPoint, times: int) -> None:
    archive = FakeArchive()
    archive.put("T", 0, range(300))
    seen: list[int] = []
    left = [times]

    def hook(reached: object) -> None:
        if reached is point:
            left[0] -= 1
            if left[0] == 0:
                raise Crash

    with bench(tmp_path, archive=archive) as b:
        b.ledger.look({}, [NewDebt(Q0, 0, 300)])
        install(hook)
        try:
            with pytest.raises(Crash):
                b.drained()
        finally:
            install(None)
        seen += b.seqs(RETRY)
    with bench(tmp_path, archive=archive) as b:
        b.drained()
        seen += b.seqs(RETRY)
    assert set(seen) == set(range(300))
    assert len(seen) - 300 == (BATCH if point is ReplayPoint.AFTER_SEND else 0)


def test_a_cut_connection_is_made_again(tmp_path: Path) -> None:
    with bench(tmp_path, window_messages=50) as b:
        owe(b, Q0, 0, 100)
        b.drain.step()
        b.broker.cut()
        b.broker.committed[f"{RETRY}@G"] = {0: 50}
        b.clock.advance(1)
        with pytest.raises(Unavailable):
            b.drain.step()
        b.drained()
        assert set(b.seqs(RETRY)) == set(range(100))


def test_the_report_says_what_was_done(tmp_path: Path) -> None:
    from tiered.replay.report import rows, summary

    with bench(tmp_path) as b:
        owe(b, Q0, 0, 10)
        b.ledger.look({}, [NewDebt(Q1, 5, 9, DebtReason.FIFO)])
        b.drained()
        books = b.ledger.books()
    told = summary(books)
    assert (told["sent"], told["open_debts"], told["owed_messages"]) == (10, 0, 0)
    assert told["fifo_skipped"] == [
        {
            "group": "G",
            "topic": "T",
            "queue_id": 1,
            "start": 5,
            "end": 9,
            "messages": 4,
            "noticed_ms": 1_700_000_000_000,
        }
    ]
    assert [row["state"] for row in rows(books.debts.values())] == ["done", "told"]
    json.dumps([told, rows(books.debts.values())])
