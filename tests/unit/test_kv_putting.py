"""Writes of the key-value view: what is answered, by the broker and by redo, and what is said when that is not known."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

from tests.kit.fakebroker import FakeBroker, Stored
from tests.kit.kvlog import PREFIX, KeyValueLog, digest
from tiered.broker.client import Dial, RemotingClient
from tiered.broker.master import MasterFinder, master_in
from tiered.clock import SystemClock
from tiered.codec.remoting.frame import Command
from tiered.errors import Corrupt, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.keyvalue import ALWAYS, MAX_KEY_BYTES, Condition, WriteOutcome
from tiered.metadata.memory import MemoryRedoStore
from tiered.view.progress import KEPT_OUTCOMES, ViewProgress
from tiered.view.putting import NOT_DONE, UNKNOWN, Connections, PutLimits, Putter
from tiered.view.redo import KeyValueRedo

NS = "orders"
CLUSTER_INFO = 106
HA_STATUS = 907
SECONDS = 0.5


class Written:
    """A broker whose messages are applied as soon as they are stored; ``applies`` false: not."""

    def __init__(self, broker: FakeBroker, *, most: int = 4) -> None:
        self.broker = broker
        self.clock = SystemClock()
        self.log = KeyValueLog()
        self.store = MemoryRedoStore()
        self.redo = KeyValueRedo(self.store, PREFIX, 1 << 20)
        self.progress = ViewProgress(self.clock, {}, 0, usable=True)
        self.applies = True
        self.places: list[int | None] = []
        self.expected: list[bool] = []
        self.find: Callable[[], str] = lambda: broker.address
        broker.on_send = self._stored
        self.connections = Connections(
            lambda address: RemotingClient(address, self.clock, Dial(SECONDS)),
            lambda: self.find(),
            most,
            SECONDS,
        )
        ids = count()
        self.putter = Putter(
            self.connections, PREFIX, self.progress, self._told, PutLimits(SECONDS, 1000),
            lambda length: next(ids).to_bytes(length, "big"), self.clock,
        )  # fmt: skip

    def _stored(self, stored: Stored) -> None:
        began = len(self.log.records)
        self.log.message(stored.ext["topic"], stored.body, stored.properties)
        if self.applies:
            done = self.redo.apply(self.log.batch(began), with_ids=self.progress.writers > 0)
            self.progress.applied(done, self.redo.states)

    def _told(self, place: int | None) -> None:
        self.places.append(place)
        self.expected.append(self.progress.expected)

    def put(self, key: bytes = b"k", value: bytes = b"v", condition: Condition = ALWAYS) -> WriteOutcome:
        return self.putter.put(NS, key, value, condition, None)

    def refused(self, kind: type[TieredError]) -> TieredError:
        with pytest.raises(kind) as caught:
            self.put()
        return caught.value


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker() as made:
        yield made


@pytest.fixture
def written(broker: FakeBroker) -> Iterator[Written]:
    made = Written(broker)
    yield made
    made.connections.close()


def test_a_write_is_answered_with_what_redo_decided(written: Written) -> None:
    assert written.put() == WriteOutcome(True, 0)
    assert written.put(value=b"w", condition=Condition(version=0)) == WriteOutcome(True, 1)
    assert written.put(value=b"x", condition=Condition(version=0)) == WriteOutcome(False, 2, 1)
    assert written.put(value=b"", condition=Condition(value_sha256=digest(b"w"))) == WriteOutcome(True, 3)
    assert written.putter.delete(NS, b"k", Condition(absent=True)) == WriteOutcome(False, 4, 3)
    assert written.putter.delete(NS, b"k", Condition(value_sha256=digest(b""))) == WriteOutcome(True, 5)
    assert written.putter.delete(NS, b"k", ALWAYS) == WriteOutcome(True, 6)
    assert written.put(condition=Condition(version=5)) == WriteOutcome(False, 7, None)
    assert written.places == [None] * 8
    assert written.expected == [True] * 8, "who waits is known before redo looks"
    assert not written.progress.expected


@pytest.mark.parametrize(
    ("message_id", "place"),
    [
        ("7F00000100002A9F00000000000000FF", 255),
        ("0" * 40 + "7fffffffffffffff", (1 << 63) - 1),
        ("7F00000100002A9F00000000000000F", None),
        ("7F00000100002A9F00000000000000G0", None),
        ("", None),
    ],
)
def test_where_a_write_lies_is_told(
    written: Written, broker: FakeBroker, message_id: str, place: int | None
) -> None:
    broker.message_id = message_id
    written.put()
    assert written.places == [place]


def test_what_travels(written: Written, broker: FakeBroker) -> None:
    written.putter.put(NS, b"a\x00\xff", b"", ALWAYS, 5000)
    [sent] = broker.sent(PREFIX + NS)
    assert sent.body == b"-"
    assert sent.properties == {
        "kv_opType": "PUT", "key": "YQD/", "KEYS": "YQD/", "UNIQ_KEY": "0" * 32, "kv_ttlMs": "5000", "kv_empty": "true",
    }  # fmt: skip
    assert (sent.ext["queueId"], sent.ext["defaultTopicQueueNums"]) == ("0", "1")


@pytest.mark.parametrize("code", [10, 11, 12])
def test_what_is_stored_less_safely_than_it_should_be_is_not_success(
    written: Written, broker: FakeBroker, code: int
) -> None:
    broker.answers.append((code, ""))
    assert written.refused(Unavailable).fields["outcome"] == UNKNOWN


def test_without_an_answer_the_outcome_is_unknown_and_nothing_is_sent_again(
    written: Written, broker: FakeBroker
) -> None:
    broker.answers.append(None)
    assert written.refused(Unavailable).fields["outcome"] == UNKNOWN
    assert len(broker.sent(PREFIX + NS)) == 1
    assert written.put() == WriteOutcome(True, 1)


def test_a_connection_that_breaks_leaves_it_unknown(written: Written, broker: FakeBroker) -> None:
    written.put()
    broker.on_send = lambda stored: broker.cut()
    assert written.refused(Unavailable).fields["outcome"] == UNKNOWN


@pytest.mark.parametrize(
    ("code", "kind"), [(17, NotFound), (16, Refused), (13, Invalid), (14, Unavailable), (2, Unavailable), (1, Unavailable)]
)  # fmt: skip
def test_what_the_broker_declines_was_not_done(
    written: Written, broker: FakeBroker, code: int, kind: type[TieredError]
) -> None:
    broker.answers.append((code, "because"))
    error = written.refused(kind)
    assert (error.fields["outcome"], error.fields["remark"]) == (NOT_DONE, "because")


def test_nobody_there_is_not_done_and_the_master_is_asked_for_again(
    written: Written, broker: FakeBroker
) -> None:
    with FakeBroker() as gone:
        address = gone.address
    written.find = lambda: address
    assert written.refused(Unavailable).fields["outcome"] == NOT_DONE
    written.find = lambda: broker.address
    assert written.put() == WriteOutcome(True, 0)


def _role(broker: FakeBroker, *, master: bool, end: int) -> None:
    told = json.dumps({"master": master, "masterCommitLogMaxOffset": end}).encode()
    broker.instead = lambda asked: Command(0, body=told) if asked.code == HA_STATUS else None


def test_the_log_s_end_is_asked_of_whoever_is_the_master_now(written: Written, broker: FakeBroker) -> None:
    """After a switch the one who was asked before is gone, or is a slave: neither is asked a second time."""
    with FakeBroker() as gone:
        address = gone.address
    written.find = lambda: address
    with pytest.raises(Unavailable):
        written.putter.log_end()
    _role(broker, master=True, end=70)
    written.find = lambda: broker.address
    assert written.putter.log_end() == 70
    _role(broker, master=False, end=70)
    with pytest.raises(Unavailable, match="slave"):
        written.putter.log_end()
    with FakeBroker() as other:
        _role(other, master=True, end=90)
        written.find = lambda: other.address
        assert written.putter.log_end() == 90


def test_a_new_connection_goes_to_the_master_of_its_moment(written: Written, broker: FakeBroker) -> None:
    """Not to whom the last one went to: a broker may have come back as a slave, and nobody noticed that it was away."""
    _role(broker, master=True, end=70)
    assert written.putter.log_end() == 70
    with FakeBroker() as other, written.connections.one():
        _role(other, master=True, end=90)
        written.find = lambda: other.address
        assert written.putter.log_end() == 90


def test_a_connection_that_died_unseen_costs_no_read(written: Written, broker: FakeBroker) -> None:
    """All of them are dead after a switch; a question may be asked twice, unlike a write."""
    _role(broker, master=True, end=70)
    assert written.putter.log_end() == 70
    with FakeBroker() as other:
        _role(other, master=True, end=90)
        broker.cut()
        written.find = lambda: other.address
        assert written.putter.log_end() == 90


def test_redo_that_does_not_come_is_unknown(written: Written) -> None:
    written.applies = False
    error = written.refused(Unavailable)
    assert (error.fields["outcome"], error.fields["version"]) == (UNKNOWN, 0)


def test_another_message_in_the_write_s_place_is_not_taken_for_it(
    written: Written, broker: FakeBroker
) -> None:
    def other(stored: Stored) -> None:
        written.log.write(NS, b"k", b"theirs", unique_key="THEIRS")
        done = written.redo.apply(written.log.batch(len(written.log.records) - 1), with_ids=True)
        written.progress.applied(done, written.redo.states)

    broker.on_send = other
    error = written.refused(Unavailable)
    assert error.fields["outcome"] == UNKNOWN
    assert "another message" in error.message


@pytest.mark.parametrize("version", [10**18 - 1, 10**18, (1 << 63) - 1])
def test_a_version_that_nothing_can_have_is_a_condition_that_does_not_hold(
    written: Written, version: int
) -> None:
    written.put()
    assert written.put(value=b"w", condition=Condition(version=version)) == WriteOutcome(False, 1, 0)
    assert written.putter.delete(NS, b"k", Condition(version=version)) == WriteOutcome(False, 2, 0)


def test_only_what_redo_decided_is_an_outcome(written: Written) -> None:
    """What it cannot read as a write changed nothing; what it must not decide, another view may."""
    with pytest.raises(Invalid, match="not take the message for a write") as no_write:
        written.put(condition=Condition(version=1 << 63))
    assert no_write.value.fields["outcome"] == NOT_DONE
    written.redo.states = {NS: replace(written.redo.states[NS], broken="offset 0 is gone")}
    with pytest.raises(Corrupt, match="messages of the namespace before it are missing") as missing:
        written.put(condition=Condition(absent=True))
    assert missing.value.fields["outcome"] == UNKNOWN


def test_an_outcome_that_was_forgotten_is_unknown(written: Written) -> None:
    with written.progress.writing():
        for number in range(3):
            written.log.write(NS, b"k%d" % number, b"v", unique_key=f"ID{number}")
        written.progress.applied(written.redo.apply(written.log.batch(), with_ids=True), written.redo.states)
        assert written.progress.outcome(NS, 1, b"ID1") == WriteOutcome(True, 1)
        for number in range(KEPT_OUTCOMES):
            written.progress._outcomes[NS, 10 + number] = b"", WriteOutcome(True, 10 + number)
        written.progress.applied(written.redo.apply(written.log.batch(2)), written.redo.states)
        assert written.progress.outcome(NS, 1, b"ID1") is None
    assert not written.progress._outcomes


def test_too_many_at_one_time_are_told_so(broker: FakeBroker) -> None:
    written = Written(broker, most=1)
    with written.connections.one():
        error = written.refused(Unavailable)
    assert error.fields["outcome"] == NOT_DONE
    assert written.put() == WriteOutcome(True, 0)
    written.connections.close()


@pytest.mark.parametrize(
    ("namespace", "key", "value", "ttl_ms"),
    [("", b"k", b"", None), ("a%b", b"k", b"", None), ("n" * 101, b"k", b"", None), (NS, b"", b"", None),
     (NS, b"k" * (MAX_KEY_BYTES + 1), b"", None), (NS, b"k", b"v" * 1001, None), (NS, b"k", b"", 0), (NS, b"k", b"", 1 << 62)],
)  # fmt: skip
def test_what_is_out_of_limits_is_never_sent(
    written: Written, broker: FakeBroker, namespace: str, key: bytes, value: bytes, ttl_ms: int | None
) -> None:
    with pytest.raises(Invalid):
        written.putter.put(namespace, key, value, ALWAYS, ttl_ms)
    assert broker.asked[10] == 0


def test_the_largest_key_and_value_travel(written: Written) -> None:
    assert written.put(b"\xff" * MAX_KEY_BYTES, b"v" * 1000).applied


def test_many_writers_each_hear_of_their_own(written: Written) -> None:
    heard: list[WriteOutcome] = []

    def writer() -> None:
        heard.extend(written.put(b"k", b"v", Condition(absent=True)) for _ in range(10))

    threads = [threading.Thread(target=writer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcome.version for outcome in heard) == list(range(40))
    assert [outcome.version for outcome in heard if outcome.applied] == [0]
    assert {outcome.current for outcome in heard if not outcome.applied} == {0}


def test_a_namespace_is_made_once_with_one_queue(written: Written, broker: FakeBroker) -> None:
    asked: list[Command] = []

    def instead(command: Command) -> Command | None:
        if command.code == 17:
            asked.append(command)
            broker.fill(command.ext["topic"], 0, 0)
            return Command(0)
        return None

    broker.instead = instead
    assert written.putter.create(NS) is True
    assert written.putter.create(NS) is False
    [made] = asked
    assert (made.ext["topic"], made.ext["writeQueueNums"], made.ext["readQueueNums"]) == (
        PREFIX + NS,
        "1",
        "1",
    )


# ---------------------------------------------------------------------- who the master is


TABLE = b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:1",1:"127.0.0.1:2"}},"b":{"brokerAddrs":{1:"x"}}}}'


def test_the_master_in_a_name_server_s_table() -> None:
    assert master_in(TABLE, "broker-a") == "127.0.0.1:1"
    assert master_in(TABLE, "b") is None
    assert master_in(TABLE, "c") is None
    for broken in (b"[]", b"{}", b'{"brokerAddrTable":[]}', b'{"brokerAddrTable":{"b":3}}', b"<html>"):
        with pytest.raises(Corrupt):
            master_in(broken, "b")


def test_name_servers_are_asked_in_turn() -> None:
    with FakeBroker() as gone:
        away = gone.address
    with FakeBroker() as server:
        server.instead = lambda asked: Command(0, body=TABLE) if asked.code == CLUSTER_INFO else None
        finder = MasterFinder([away, server.address], "broker-a", SystemClock(), Dial(SECONDS))
        assert finder.ask() == "127.0.0.1:1"
        assert finder.ask() == "127.0.0.1:1"
        assert server.asked[CLUSTER_INFO] == 2
        nobody = MasterFinder([away, server.address], "other", SystemClock(), Dial(SECONDS))
        with pytest.raises(Unavailable, match="no master"):
            nobody.ask()
        finder.close()
        nobody.close()
    lost = MasterFinder([away], "broker-a", SystemClock(), Dial(SECONDS))
    with pytest.raises(Unavailable, match="no name server"):
        lost.ask()
