"""The drain of replay where brokers, topics and disks are not what they were: nothing is lost, flooded or sent elsewhere."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.fakebroker import FakeBroker
from tests.kit.replaying import Bench, bench
from tiered.broker.client import RemotingClient
from tiered.codec.remoting.frame import Command
from tiered.errors import Refused, Unavailable
from tiered.fetch.pull import Pull
from tiered.model import GetMessageResult
from tiered.replay.base import GroupQueue, NewDebt
from tiered.replay.drain import BATCH

Q0 = GroupQueue("G", "T", 0)
RETRY = "%RETRY%G_T"


def owe(b: Bench, queue: GroupQueue, start: int, end: int) -> None:
    """A debt, and its messages in the archive."""
    b.archive.put(queue.topic, queue.queue_id, range(start, end))
    b.ledger.look({}, [NewDebt(queue, start, end)])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"brokerName": "broker-b"}, "another one"),
        ({"enableRetryTopicV2": "true", "retrieveMessageFromPopRetryTopicV1": "false"}, "newer retry topics"),
    ],
)
def test_nothing_is_sent_to_a_broker_that_is_refused(
    tmp_path: Path, config: dict[str, str], words: str
) -> None:
    with bench(tmp_path, broker=FakeBroker(**config)) as b:
        owe(b, Q0, 0, 100)
        for _ in range(3):
            with pytest.raises(Refused, match=words):
                b.drain.step()
        assert b.broker.asked[10] == b.broker.asked[200] == 0


def test_who_answers_is_asked_again_on_a_new_connection(tmp_path: Path) -> None:
    with bench(tmp_path, window_messages=50) as b:
        owe(b, Q0, 0, 100)
        assert b.drain.step() == 50
        asked = b.broker.asked[26]
        b.broker.committed[f"{RETRY}@G"] = {0: 50}
        b.broker.config["brokerName"] = "broker-b"
        b.broker.cut()
        b.clock.advance(1)
        with pytest.raises(Unavailable):
            b.drain.step()
        with pytest.raises(Refused, match="another one"):
            b.drain.step()
        assert b.broker.asked[10] == 50
        b.broker.config["brokerName"] = "broker-a"
        b.drained()
        assert b.seqs(RETRY) == list(range(100))
        assert b.broker.asked[26] > asked


def test_a_ledger_that_cannot_be_written_sends_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with bench(tmp_path) as b:
        owe(b, Q0, 0, 100)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fdatasync", full)
            patch.setattr(os, "write", lambda descriptor, data: 0)
            for _ in range(20):
                with pytest.raises(Unavailable, match="ledger cannot be written"):
                    b.drain.step()
        assert len(b.seqs(RETRY)) == BATCH
        b.drained()
        assert b.seqs(RETRY) == list(range(100))
        [debt] = b.ledger.books().debts.values()
        assert debt.sent == 100


def test_what_is_left_of_a_topic_that_was_made_anew_is_a_hole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with bench(tmp_path, window_messages=50) as b:
        owe(b, Q0, 20, 900)
        assert b.drain.step() == 50
    with bench(tmp_path, window_messages=50) as b:
        b.archive.put("T", 0, range(1000), body=b"another topic's")
        b.archive.generations["T", 0] = 2
        b.drain.step()
        assert b.seqs(RETRY) == []
        [debt] = b.ledger.books().debts.values()
        assert (debt.left, debt.sent, debt.holes, debt.hole_ranges) == (0, 50, 830, ((70, 900),))
        [said] = [r for r in caplog.records if "created again" in r.message]
        assert (said.levelname, said.start, said.end, said.messages) == ("ERROR", 70, 900, 830)  # type: ignore[attr-defined]
        b.ledger.look({}, [NewDebt(Q0, 30, 40)])
        b.drained()
        assert b.seqs(RETRY) == list(range(30, 40)), "what is owed of the new topic is sent"


def test_a_topic_made_anew_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 10)
        real = b.archive.get_message

        def anew(pull: Pull) -> GetMessageResult:
            b.archive.generations["T", 0] = 2
            b.archive.get_message = real  # type: ignore[method-assign]
            return real(pull)

        b.archive.get_message = anew  # type: ignore[method-assign]
        assert b.drain.step() == 0
        assert "made anew" in b.drain.troubles()[0]
        b.drained()
        assert b.seqs(RETRY) == list(range(10))


def test_a_retry_topic_that_was_made_anew_opens_its_window(tmp_path: Path) -> None:
    with bench(tmp_path, window_messages=50) as b:
        owe(b, Q0, 0, 120)
        assert b.drain.step() == 50
        del b.broker.queues[RETRY]
        b.clock.advance(10)
        assert b.drain.step() == 0, "an end that lags is no end that is gone"
        b.clock.advance(10)
        assert b.drain.step() == 50
        assert b.seqs(RETRY) == list(range(50, 100))


def test_a_window_is_measured_anew_on_a_new_connection(tmp_path: Path) -> None:
    with bench(tmp_path, window_messages=50) as b:
        owe(b, Q0, 0, 120)
        assert b.drain.step() == 50
        del b.broker.queues[RETRY]
        b.broker.cut()
        b.clock.advance(10)
        with pytest.raises(Unavailable):
            b.drain.step()
        b.clock.advance(10)
        assert b.drain.step() == 50


def test_a_broker_that_stores_and_answers_too_late_is_sent_one_at_a_time(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        owe(b, Q0, 0, 100)
        b.broker.answers.extend([None] * (BATCH + 3))
        for _ in range(4):
            with pytest.raises(Unavailable, match="in time"):
                b.drain.step()
        assert len(b.seqs(RETRY)) == BATCH + 3, "a batch once, then one message each time"
        b.drained()
        sent = b.seqs(RETRY)
        assert set(sent) == set(range(100))
        assert len(sent) == 100 + BATCH + 3
        assert max(sent.count(seq) for seq in set(sent)) == 5


@pytest.mark.parametrize(
    ("config", "timeout_ms", "seconds"),
    [
        ({}, 300, 15.0),
        ({}, 20_000, 20.0),
        ({"syncFlushTimeout": "20000", "slaveTimeout": "10000"}, 300, 35.0),
    ],
)
def test_sends_wait_longer_than_the_broker_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: dict[str, str], timeout_ms: int, seconds: float
) -> None:
    waited: list[float | None] = []
    real = RemotingClient.ask_all

    def noted(client: RemotingClient, requests: Any, *, timeout_seconds: float | None = None) -> Any:
        if requests[0].code == 10:
            waited.append(timeout_seconds)
        return real(client, requests, timeout_seconds=timeout_seconds)

    with bench(tmp_path, broker=FakeBroker(**config), timeout_ms=timeout_ms) as b:
        owe(b, Q0, 0, 5)
        monkeypatch.setattr(RemotingClient, "ask_all", noted)
        monkeypatch.setattr(b.drain, "_send_seconds", None)
        b.drained()
        assert waited == [seconds]


def test_trouble_with_measuring_one_lane_stops_no_other(tmp_path: Path) -> None:
    def refuse(code: int) -> Callable[[Command], Command | None]:
        def instead(asked: Command) -> Command | None:
            mine = asked.code in (14, 30, 31) and asked.ext["topic"] == RETRY
            return Command(code, remark="not for you") if mine else None

        return instead

    with bench(tmp_path) as b:
        owe(b, Q0, 0, 5)
        owe(b, GroupQueue("H", "T", 0), 0, 5)
        b.broker.instead = refuse(16)
        for _ in range(3):
            b.drain.step()
        assert [d.queue.group for d in b.ledger.debts()] == ["G"]
        assert "not for you" in b.drain.troubles()[0]
        b.broker.instead = refuse(2)
        b.clock.advance(100)
        with pytest.raises(Unavailable):
            b.drain.step()
        b.broker.instead = lambda _: None
        b.clock.advance(100)
        b.drained()
        assert b.seqs(RETRY) == list(range(5))


@pytest.mark.parametrize(("length", "named"), [(30_000, True), (31_800, False), (32_600, False)])
def test_properties_near_their_limit_leave_no_room_for_the_group(
    tmp_path: Path, length: int, named: bool
) -> None:
    with bench(tmp_path) as b:
        b.archive.put("T", 0, range(1), properties={"long": "x" * length})
        b.ledger.look({}, [NewDebt(Q0, 0, 1)])
        b.drained()
        [sent] = b.broker.sent(RETRY)
        assert ("ORIGIN_GROUP" in sent.properties) is named
        assert sent.properties["long"] == "x" * length
