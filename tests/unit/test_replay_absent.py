"""The watch of replay where the broker names no position: queues never popped, groups that are gone, questions refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.fakebroker import FakeBroker
from tests.kit.replaying import Bench, bench
from tiered.codec.remoting.frame import Command
from tiered.errors import Unavailable
from tiered.replay.base import DebtReason, GroupPosition, GroupQueue
from tiered.replay.watch import FORGET_SECONDS

Q0 = GroupQueue("G", "T", 0)
RETRY = "%RETRY%G_T"
RETRY_QUEUE = GroupQueue("G", RETRY, 0)


def far_behind(broker: FakeBroker, minimum: int) -> None:
    """G stands at 20 in a queue of 5000; the broker has it from ``minimum`` on."""
    broker.fill("T", 0, 5000, minimum)
    broker.committed["T@G"] = {0: 20}


def lose(b: Bench) -> None:
    """All that is in the retry topic is archived, then deleted by the broker."""
    queue = b.broker.queues[RETRY][0]
    for offset, stored in queue.sent.items():
        b.archive.put(RETRY, 0, range(offset, offset + 1), properties={"seq": stored.properties["seq"]})
    queue.sent.clear()
    queue.minimum = queue.maximum


@pytest.mark.parametrize("patterns", [("G",), ()])
def test_what_is_deleted_from_a_retry_topic_that_was_never_popped_is_owed_again(
    tmp_path: Path, patterns: tuple[str, ...]
) -> None:
    with bench(tmp_path, *patterns, window_messages=50) as b:
        far_behind(b.broker, 0)
        b.ledger.look({Q0: GroupPosition(20, 20, 0)})
        b.watch.look()
        b.broker.delete("T", 0, 270)
        b.archive.put("T", 0, range(20, 270))
        b.watch.look()
        assert b.drain.step() == 50
        b.watch.look()
        lose(b)
        [debt] = b.watch.look()
        assert (debt.queue, debt.start, debt.end, debt.reason) == (RETRY_QUEUE, 0, 50, DebtReason.SKIPPED)
        for _ in range(7):
            b.clock.advance(10)
            b.drain.step()
            b.watch.look()
            lose(b)
        got: list[int] = []
        for _ in range(30):  # the group is back and takes all there is
            b.watch.look()
            b.clock.advance(60)
            b.drain.step()
            got += b.seqs(RETRY)
            b.broker.committed[f"{RETRY}@G"] = {0: b.broker.queues[RETRY][0].maximum}
            lose(b)
            if not b.ledger.debts():
                break
        assert set(got) == set(range(20, 270))


def test_a_group_with_a_position_in_its_retry_topic_is_not_flooded(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 300)
        b.archive.put("T", 0, range(300))
        b.watch.look()
        b.drained()
        b.watch.look()
        assert b.ledger.position(RETRY_QUEUE) == GroupPosition(280, 280, 0)
        lose(b)
        del b.broker.committed[f"{RETRY}@G"]
        assert b.watch.look() == [], "it stands where it stood"
        b.broker.fill(RETRY, 0, 100, 50)
        [debt] = b.watch.look()
        assert (debt.start, debt.end) == (0, 50), "a retry topic made anew begins anew"


def test_an_old_position_of_a_group_made_again_is_forgotten(tmp_path: Path) -> None:
    with bench(tmp_path, "G", "H") as b:
        far_behind(b.broker, 0)
        b.broker.committed |= {"T@H": {0: 4999}, "T@G": {0: 20, 1: 7}}
        b.broker.fill("T", 1, 10, 0)
        b.watch.look()
        b.broker.committed["T@G"] = {1: 7}
        b.clock.advance(FORGET_SECONDS / 2)
        b.watch.look()
        b.clock.advance(FORGET_SECONDS)
        b.watch.look()
        assert b.ledger.position(Q0) is None
        assert b.ledger.position(GroupQueue("G", "T", 1)) is not None
        assert b.groups.asked("G")
        del b.broker.committed["T@G"]
        for _ in range(3):
            b.clock.advance(FORGET_SECONDS)
            b.watch.look()
        assert {q.group for q in b.ledger.books().positions} == {"H"}
        assert not b.groups.asked("G")
        b.broker.delete("T", 0, 4000)
        b.broker.committed["T@G"] = {0: 4500}
        assert b.watch.look() == []
    with bench(tmp_path, "G") as b:
        assert b.ledger.position(Q0) == GroupPosition(4500, 4500, 4000)
        assert b.ledger.position(GroupQueue("G", "T", 1)) is None


def test_a_short_absence_an_empty_answer_and_a_new_connection_forget_nothing(tmp_path: Path) -> None:
    with bench(tmp_path, "G", "H") as b:
        far_behind(b.broker, 0)
        b.broker.committed["T@H"] = {0: 4999}
        b.watch.look()
        del b.broker.committed["T@G"]
        b.watch.look()
        b.broker.committed.clear()
        for _ in range(5):
            b.clock.advance(FORGET_SECONDS)
            b.watch.look()
        assert b.ledger.position(Q0) is not None, "a broker that knows no group at all has just been set up"
        b.broker.committed["T@H"] = {0: 4999}
        b.watch.look()
        b.clock.advance(FORGET_SECONDS - 1)
        b.watch.look()
        b.broker.cut()
        with pytest.raises(Unavailable):
            b.watch.look()
        b.clock.advance(2)
        b.watch.look()
        assert b.ledger.position(Q0) is not None
        b.broker.committed["T@G"] = {0: 20}
        b.watch.look()
        del b.broker.committed["T@G"]
        b.clock.advance(FORGET_SECONDS)
        b.watch.look()
        assert b.ledger.position(Q0) is not None, "the time begins anew"


def test_where_a_never_popped_retry_topic_stands_is_not_forgotten(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 300)
        b.archive.put("T", 0, range(300))
        b.watch.look()
        b.drain.step()
        for _ in range(4):
            b.clock.advance(FORGET_SECONDS)
            b.watch.look()
        assert b.ledger.position(RETRY_QUEUE) == GroupPosition(0, 0, 0)


def test_a_refused_question_about_order_is_no_answer(tmp_path: Path) -> None:
    with bench(tmp_path, "G") as b:
        far_behind(b.broker, 300)
        b.broker.ordered.add("G")
        b.broker.instead = lambda asked: Command(1, remark="broken") if asked.code == 352 else None
        with pytest.raises(Unavailable, match="GET_SUBSCRIPTION_GROUP"):
            b.watch.look()
        assert b.ledger.books().debts == {}
        b.broker.instead = lambda _: None
        [debt] = b.watch.look()
        assert debt.reason is DebtReason.FIFO
        b.broker.instead = lambda asked: Command(26, remark="no group") if asked.code == 352 else None
        assert not b.asking.is_ordered("G")
