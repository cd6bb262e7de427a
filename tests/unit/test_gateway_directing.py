"""Routes that name read nodes: who is named to whom, who is sent where, who comes back, and who is not heard of again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.gatewaydesk import BROKER, Desk, pull, simple
from tests.kit.javaroutes import MASTER, brokers_of, whom_to_ask
from tests.kit.replacing import replace
from tests.kit.sendingdesk import ADDRESSES, BEGIN, CLIENT, PLACE, REFUSED, Sending
from tiered.clock import ManualClock
from tiered.codec.remoting.codes import RequestCode
from tiered.codec.remoting.frame import RESPONSE, Command, decode_command
from tiered.codec.remoting.nodebeat import DRAINING, JOINING, LAST_WIRE, NodeBeat, Vouch
from tiered.daemon.routing import open_broker
from tiered.errors import Invalid, Unavailable
from tiered.gateway.knowledge.openbroker import OpenBroker, why_closed
from tiered.gateway.knowledge.peers import ALONE, LOST, ROUTED
from tiered.gateway.ports import HOLD, ConnectionInfo
from tiered.gateway.pull.directing import MOST_NAMED, NODES, broker_id
from tiered.gateway.pull.sent import LOST_SECONDS, MAX_SENT, RESTS, START_SECONDS, UNNAMED, SentConsumers
from tiered.gateway.routes.nameserver import Brokers, RouteAnswers
from tiered.gateway.routes.rewriting import with_nodes
from tiered.metrics import Metrics
from tiered.model import MessageQueue
from tiered.settings import Gateway

WIRE = Path(__file__).parent.parent / "data" / "wire"


@pytest.fixture
def sending() -> Iterator[Sending]:
    made = Sending()
    made.nodes(*ADDRESSES)
    yield made
    made.desk.close()


IDS = {broker_id(address): address for address in ADDRESSES}


# ---- who is sent


def test_an_answer_from_the_archive_names_the_node_that_has_the_queue(sending: Sending) -> None:
    chosen = sending.fleet.choose(MessageQueue("T", 0), ())
    assert chosen is not None
    for offset in range(0, 640, 64):
        assert IDS[sending.suggested(pull(offset=offset))] == chosen.place.address, (
            "always the same: it has the cache"
        )
    assert sending.count("sent") == 10
    assert chosen.sent == 1, "it counts as a read under way"


@pytest.mark.parametrize(
    ("case", "request_"),
    [
        ("another language", replace(pull(offset=0), language=2)),
        ("an access key", pull(offset=0, AccessKey="reader", Signature="x")),
        ("a static topic", pull(offset=0, lo="true")),
        ("who does not wait", pull(offset=0, sysFlag="4")),
        ("SQL", pull(offset=0, kind="SQL92", subscription="a = 1")),
        ("near the broker's begin", pull(offset=BEGIN - 64)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_who_is_not_sent(sending: Sending, case: str, request_: Command) -> None:
    made = sending.desk.ask(request_, REFUSED)
    if isinstance(made, Command):
        assert made.ext["suggestWhichBrokerId"] == "0", case
    assert sending.count("sent") == 0


def test_a_push_consumer_without_expression_is_sent_if_its_group_takes_all(sending: Sending) -> None:
    assert sending.suggested(pull(offset=0, subscription=None)) == MASTER, "nobody has said what it takes"
    sending.desk.heartbeat("G", "T", "tag")
    made = sending.desk.ask(pull(offset=0, subscription=None), REFUSED)
    assert not isinstance(made, Command) or made.ext["suggestWhichBrokerId"] == "0"
    sending.desk.heartbeat("G", "T", "*", version=2)
    assert sending.suggested(pull(offset=0, subscription=None)) in IDS


def test_what_the_archive_does_not_have_is_not_a_nodes(sending: Sending) -> None:
    sending.desk.archive.fill("T", 0, 0, 32)
    assert sending.suggested(pull(offset=0)) == MASTER, "the next one is not archived"


def test_nobody_is_sent_while_it_is_not_known_that_the_broker_is_open(sending: Sending) -> None:
    sending.closed = "the broker asks for rights"
    assert sending.suggested(pull(offset=0)) == MASTER
    assert sending.named() == set()
    sending.beats(1.0)
    assert [wire.vouches[-1] for wire in sending.wires.values()] == [None] * 3
    assert sending.directing.status()["problem"] == sending.closed


def test_by_default_nothing_of_this_happens() -> None:
    made = Sending(namesrv_routes="gateway")
    made.fleet.vouch = lambda address, tick: None
    made.nodes(*ADDRESSES)
    assert made.suggested(pull(offset=0)) == MASTER
    assert made.named() == set()
    assert made.desk.answers.reads.fleet.vouch("a:1", "t") is None
    assert made.directing.status() == {"routes": "gateway"}
    made.desk.close()


# ---- who is named


def test_a_node_that_dies_is_named_no_more_and_nobody_is_sent_there(sending: Sending) -> None:
    assert sending.named() == set(ADDRESSES)
    first = IDS[sending.suggested(pull(offset=0))]
    sending.wires[first].brings = Unavailable("connection refused")
    sending.beats(1.0)
    assert sending.named() == set(ADDRESSES) - {first}
    assert sending.suggested(pull(offset=64)) in {broker_id(one) for one in set(ADDRESSES) - {first}}


def test_a_node_that_hangs_is_named_no_more(sending: Sending) -> None:
    for _ in range(8):
        sending.beats(1.0)
    sending.wires[ADDRESSES[0]].brings = None
    for _ in range(8):
        sending.beats(1.0)
    assert sending.named() == set(ADDRESSES[1:])


@pytest.mark.parametrize("state", [DRAINING, JOINING])
def test_a_node_that_drains_or_joins_is_not_named(sending: Sending, state: str) -> None:
    wire = sending.wires[ADDRESSES[0]]
    wire.brings = NodeBeat(1, LAST_WIRE, state, clients=True, tick="a-1")
    sending.beats(1.0)
    assert sending.named() == set(ADDRESSES[1:])
    assert all(sending.suggested(pull(offset=n)) != broker_id(ADDRESSES[0]) for n in (0, 64, 96))


def test_a_node_without_clients_or_without_room_is_not_named_and_still_read_from(sending: Sending) -> None:
    for address in ADDRESSES:
        sending.wires[address].brings = NodeBeat(1, LAST_WIRE)
    sending.beats(1.0)
    assert sending.named() == set()
    assert sending.suggested(pull(offset=0)) == MASTER
    assert sending.fleet.choose(MessageQueue("T", 0), ()) is not None


def test_the_map_moves_and_the_next_answer_says_so(sending: Sending) -> None:
    """Whoever reads at a node is back after a second; then the order of who is there now counts."""
    sending.nodes(ADDRESSES[0])
    assert IDS[sending.suggested(pull(offset=0))] == ADDRESSES[0]
    sending.nodes(*ADDRESSES[1:])
    moved = sending.suggested(pull(offset=320))
    assert IDS[moved] in ADDRESSES[1:]


def test_not_more_than_so_many_are_named_and_fronts_that_see_the_same_name_the_same() -> None:
    many = [f"10.1.{n // 200}.{n % 200}:10930" for n in range(3 * MOST_NAMED)]
    found = []
    for order in (many, many[::-1]):
        made = Sending()
        made.nodes(*order)
        found.append(made.directing.routes(CLIENT))
        made.desk.close()
    assert found[0] == found[1]
    assert len(found[0]) == MOST_NAMED
    assert all(broker_id(address) == number for number, address in found[0].items())


# ---- the word that nodes get


def test_a_node_hears_the_word_with_what_it_said_last(sending: Sending) -> None:
    assert [wire.vouches for wire in sending.wires.values()] == [[None]] * 3, "nothing was heard before"
    sending.beats(1.0)
    vouch = sending.wires[ADDRESSES[0]].vouches[-1]
    assert vouch == Vouch(PLACE.archive_id, PLACE.commit, broker_id(ADDRESSES[0]), 1000, 5000, "a-1")


def test_without_an_archive_there_is_no_word(sending: Sending) -> None:
    sending.desk.archive.place = lambda: None
    sending.beats(1.0)
    assert sending.wires[ADDRESSES[0]].vouches[-1] is None


def test_slow_beats_make_the_word_hold_for_three_of_them() -> None:
    made = Sending(node_beat_ms=4000)
    made.nodes(*ADDRESSES)
    made.beats(4.0)
    vouch = made.wires[ADDRESSES[0]].vouches[-1]
    assert vouch is not None
    assert vouch.hold_ms == 12_000
    made.desk.close()


# ---- who comes back


def test_who_got_messages_is_sent_again(sending: Sending) -> None:
    for offset in (0, 320, 640):
        assert sending.suggested(pull(offset=offset)) in IDS
    assert (sending.count("sent"), sending.count("came_back")) == (3, 0)


def test_who_got_nothing_stays_for_longer_each_time(sending: Sending) -> None:
    sending.suggested(pull(offset=0))
    stays = []
    for _ in range(8):
        assert sending.suggested(pull(offset=32)) == MASTER, "a node had nothing for it at 32"
        waited = 0.0
        while sending.suggested(pull(offset=0)) == MASTER:
            sending.desk.clock.advance(0.5)
            waited += 0.5
        stays.append(waited)
    assert stays == [1, 2, 4, 8, 16, 32, 60, 60] == [min(RESTS[0] * 2**n, RESTS[1]) for n in range(8)]
    assert sending.count("came_back") == 8
    assert sending.suggested(pull(offset=640)) in IDS, "it got messages"
    sending.suggested(pull(offset=672))
    sending.desk.clock.advance(1.0)
    assert sending.suggested(pull(offset=0)) in IDS, "as the first time"


def test_groups_of_one_process_are_told_apart(sending: Sending) -> None:
    other = replace(pull(offset=0), ext={**pull(offset=0).ext, "consumerGroup": "H"})
    sending.suggested(pull(offset=0))
    assert sending.suggested(other) in IDS
    assert sending.count("came_back") == 0
    sending.suggested(pull(offset=32))
    assert sending.count("came_back") == 1


# ---- who is not heard of again


def test_a_node_that_a_machine_cannot_reach_is_not_named_to_it(
    sending: Sending, caplog: pytest.LogCaptureFixture
) -> None:
    assert sending.named() == set(ADDRESSES)
    node = IDS[sending.suggested(pull(offset=0))]
    with caplog.at_level(logging.WARNING, "tiered.gateway"):
        for _ in range(int(LOST_SECONDS)):
            sending.beats(1.0)
        assert sending.named() == set(ADDRESSES)
        for _ in range(3):
            sending.beats(1.0)
    assert sending.named() == set(ADDRESSES) - {node}
    assert sending.named("10.0.0.8:1") == set(ADDRESSES), "others are told"
    assert sending.count("lost") == 1
    assert sum("not heard of" in record.message for record in caplog.records) == 1
    assert sending.directing.status()["not_named"] == [f"{node} to 10.0.0.9"]
    # With its next route the client has lost the node, and asks the master, where it stands.
    assert sending.suggested(pull(offset=32)) == MASTER
    sending.desk.clock.advance(2.0)
    assert IDS[sending.suggested(pull(offset=32))] != node
    sending.desk.clock.advance(UNNAMED[0])
    assert node in sending.named()


def test_who_reads_at_a_node_or_is_gone_is_not_lost(sending: Sending) -> None:
    sending.suggested(pull(offset=0))
    for second in range(60):
        sending.beats(1.0)
        assert sending.suggested(pull(offset=64 * (second % 20) + 160)) in IDS
    assert sending.count("lost") == 0
    assert sending.suggested(pull(offset=64)) in IDS
    sending.desk.answers.closed(sending.desk.connection)
    for _ in range(60):
        sending.beats(1.0)
    assert sending.count("lost") == 0
    assert sending.named() == set(ADDRESSES)


def test_who_came_back_for_good_is_not_lost(sending: Sending) -> None:
    """By a pull that the broker itself answers, and by one whose answer nobody holds."""
    sending.suggested(pull(offset=0))
    sending.desk.answers.observe(pull(offset=BEGIN + 5), sending.desk.connection)
    for _ in range(60):
        sending.beats(1.0)
    assert sending.count("lost") == 0


def test_where_the_brokers_answer_stands_in_a_consumer_is_seen_too(sending: Sending) -> None:
    sending.suggested(pull(offset=0))
    sending.desk.clock.advance(0.5)
    assert sending.unasked(pull(offset=320)) in IDS
    assert sending.unasked(pull(offset=352)) == MASTER
    assert sending.count("came_back") == 1


class Told:
    """Peers that write down what they are told."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, tuple[str | int, ...], Any]] = []

    def tell(self, kind: str, key: tuple[str | int, ...], value: Any) -> None:
        self.notes.append((kind, key, value))

    async def spread(self, notes: Any) -> None:
        raise AssertionError


def connection(number: int, host: str = "10.0.0.9") -> ConnectionInfo:
    return ConnectionInfo(number, f"{host}:{number}", "b:1", BROKER)


READER = ("G", MessageQueue("T", 0))


def test_workers_tell_each_other_whom_they_lost() -> None:
    clock, told = ManualClock(), Told()
    here = SentConsumers(clock, Metrics(), told, 1.0)
    there = Sending(clock=clock)
    here.hear_routed("10.0.0.9")
    here.send(connection(1), READER, ADDRESSES[0], 5)
    clock.advance(1.0 + LOST_SECONDS)
    here.look()
    assert told.notes == [(LOST, ("10.0.0.9", ADDRESSES[0]), UNNAMED[0])]
    there.nodes(*ADDRESSES)
    assert there.named() == set(ADDRESSES)
    there.desk.answers.hear(*told.notes[0])
    assert there.named() == set(ADDRESSES[1:])
    assert there.named("10.0.0.8:1") == set(ADDRESSES)
    there.desk.close()


def test_who_asks_for_routes_by_another_address_is_told_with_everybody() -> None:
    """As behind a translator of addresses that stands before the name-server front alone."""
    clock, told = ManualClock(), Told()
    sent = SentConsumers(clock, Metrics(), told, 1.0)
    sent.routed("192.168.0.1")
    sent.send(connection(1), READER, "n:1", 5)
    clock.advance(1.0 + LOST_SECONDS)
    sent.look()
    assert not sent.may_name("192.168.0.1", "n:1")
    assert sent.may_name("192.168.0.1", "n:2")
    assert sent.unnamed() == ["n:1 to *"]
    sent.came(connection(1), READER, 99)
    assert sent.may_name("192.168.0.1", "n:1"), "it was only slow"


def test_workers_tell_each_other_who_asks_for_routes_now_and_then() -> None:
    clock, told = ManualClock(), Told()
    here = SentConsumers(clock, Metrics(), told, 1.0)
    for _ in range(60):
        here.routed("10.0.0.9")
        clock.advance(1.0)
    assert [note[:2] for note in told.notes] == [(ROUTED, ("10.0.0.9",))] * 2
    there = Sending(clock=clock)
    there.desk.answers.hear(*told.notes[0])
    sent = there.directing.sent
    sent.send(connection(1), READER, "n:1", 5)
    clock.advance(1.0 + LOST_SECONDS)
    sent.look()
    assert sent.unnamed() == ["n:1 to 10.0.0.9"]
    there.desk.close()


def test_a_node_that_stays_out_of_reach_is_named_ever_more_seldom() -> None:
    clock = ManualClock()
    sent = SentConsumers(clock, Metrics(), ALONE, 1.0)
    pauses = []
    for number in range(12):
        sent.hear_routed("10.0.0.9")
        sent.send(connection(number), READER, "n:1", 5)
        clock.advance(1.0 + LOST_SECONDS)
        sent.look()
        began = clock.monotonic()
        while not sent.may_name("10.0.0.9", "n:1"):
            clock.advance(100.0)
        pauses.append(clock.monotonic() - began)
        sent.closed(connection(number))
    assert pauses == [min(UNNAMED[0] * 2**n, UNNAMED[1]) for n in range(12)]


def test_after_a_start_nobody_is_told_of_nodes_for_longer_than_clients_look_at_routes() -> None:
    """Who was sent to a node in the life before, and cannot reach it, is known to nobody."""
    clock, told = ManualClock(), Told()
    here, there = (SentConsumers(clock, Metrics(), peers, 1.0) for peers in (told, ALONE))
    here.begin()
    for note in told.notes:
        there.hear(*note[1], note[2])  # type: ignore[arg-type]
    for sent in (here, there):
        assert not sent.may_name("10.0.0.9", "n:1")
        assert sent.quiet() == START_SECONDS > 30 + 3
    clock.advance(START_SECONDS)
    assert here.may_name("10.0.0.9", "n:1")
    assert there.may_name("10.0.0.9", "n:1")


def test_a_front_that_has_started_sends_and_names_nobody_for_a_while(sending: Sending) -> None:
    sending.directing.sent.begin()
    assert sending.named() == set()
    assert sending.suggested(pull(offset=0)) == MASTER
    assert "started" in str(sending.directing.status()["problem"])
    sending.desk.clock.advance(START_SECONDS)
    assert sending.named() == set(ADDRESSES)
    assert sending.suggested(pull(offset=0)) in IDS


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiered.gateway.pull.sent.MAX_SENT", 3)
    sent = SentConsumers(ManualClock(), Metrics(), ALONE, 1.0)
    assert [sent.send(connection(n), READER, "n:1", 5) for n in range(5)] == [True] * 3 + [False] * 2
    assert sent.send(connection(0), READER, "n:1", 9), "one that is known"
    sent.closed(connection(1))
    assert sent.send(connection(4), READER, "n:1", 5)
    sent.came(connection(0), READER, 50)
    assert sent.send(connection(5), READER, "n:1", 5)
    assert not sent.send(connection(6), READER, "n:1", 5)
    assert MAX_SENT == 65_536


def test_what_is_not_named_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tiered.gateway.pull.sent.MAX_UNNAMED", 3)
    sent = SentConsumers(ManualClock(), Metrics(), ALONE, 1.0)
    for number in range(5):
        sent.hear("h", f"n:{number}", 300.0)
    sent.hear("h", "n:2", 300.0)
    sent.hear("h", "n:5", 300.0)
    assert sent.unnamed() == ["n:2 to h", "n:4 to h", "n:5 to h"]


def test_counts_are_of_those_who_are_there_now() -> None:
    clock = ManualClock()
    sent = SentConsumers(clock, Metrics(), ALONE, 1.0)
    for number in range(4):
        sent.send(connection(number), READER, f"n:{number % 2}", 5)
    assert sent.counts() == {"n:0": 2, "n:1": 2}
    sent.came(connection(0), READER, 5)
    clock.advance(0.5)
    sent.look()
    assert sent.counts() == {"n:0": 1, "n:1": 2}
    clock.advance(1.1)
    sent.look()
    assert not any(sent.counts().values())


# ---- routes


def recorded(name: str) -> bytes:
    return bytes(decode_command((WIRE / f"{name}.answer.bin").read_bytes()[4:]).body)


@pytest.mark.parametrize("name", ["route-105", "raw-route-105-standard-json", "raw-route-105-no-flag"])
def test_recorded_routes_with_nodes(name: str) -> None:
    route = recorded(name)
    made = with_nodes(route, "broker-a", IDS)
    assert brokers_of(made, "broker-a") == {0: "127.0.0.1:10911", **IDS}
    quoted = b'{"0"' in route
    assert (b'"%d":' % min(IDS) in made) is quoted, "written as the master's own entry is"
    without = made
    for number, address in IDS.items():
        without = without.replace(b',"%d":"%s"' % (number, address.encode()), b"")
        without = without.replace(b',%d:"%s"' % (number, address.encode()), b"")
    assert without == route


def test_only_the_master_of_the_archived_broker_gets_nodes() -> None:
    route = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"g:1",1:"g:2"},"brokerName":"a"},'
        b'{"brokerAddrs":{0:"g:3"},"brokerName":"b"},{"brokerAddrs":{1:"g:4"},"brokerName":"c"}]}'
    )
    made = with_nodes(route, "a", {7: "n:7", 1: "n:1"})
    assert brokers_of(made, "a") == {0: "g:1", 1: "g:2", 7: "n:7"}, "a replica keeps its id"
    assert brokers_of(made, "b") == {0: "g:3"}
    assert with_nodes(route, "c", {7: "n:7"}) == route, "without a master clients would stay with nodes"
    assert with_nodes(route, "a", {}) == route
    assert with_nodes(b"no route", "a", {7: "n:7"}) == b"no route"


def test_only_routes_for_javas_clients_name_nodes() -> None:
    asked: list[str] = []

    def nodes(client: str) -> dict[int, str]:
        asked.append(client)
        return {7: "n:7"}

    route = b'{"brokerDatas":[{"brokerAddrs":{0:"b:1"},"brokerName":"a"}]}'
    brokers = Brokers(lambda address, name: "g:1", "a")

    def answered(request: Command, own: str | None = "a") -> dict[int, str]:
        routes = RouteAnswers(brokers, own, nodes)
        answer = Command(0, 1, RESPONSE, body=route)
        made = asyncio.run(routes.answer(request, answer, HOLD, ConnectionInfo(1, CLIENT, "n:1")))
        assert made is not None
        return brokers_of(bytes(made.body), "a")

    request = Command(105, 1, ext={"topic": "T"})
    assert answered(request) == {0: "g:1", 7: "n:7"}
    assert asked == [CLIENT]
    assert answered(replace(request, language=9)) == {0: "g:1"}, "Go's clients ask any, for everything"
    assert answered(replace(request, code=106)) == {0: "g:1"}, "who looks after clusters"
    assert answered(request, None) == {0: "g:1"}


@given(st.sets(st.integers(0, 99_999), max_size=MOST_NAMED), st.integers(0, 99_999))
def test_a_client_that_has_lost_its_node_asks_the_master(numbers: set[int], gone: int) -> None:
    named = {f"10.0.0.{n % 250}:{n}" for n in numbers} - {f"10.0.0.{gone % 250}:{gone}"}
    route = b'{"brokerDatas":[{"brokerAddrs":{0:"g:1"},"brokerName":"a"}]}'
    brokers = brokers_of(with_nodes(route, "a", {broker_id(one): one for one in named}), "a")
    assert whom_to_ask(brokers, broker_id(f"10.0.0.{gone % 250}:{gone}")) == "g:1"
    assert whom_to_ask(brokers, MASTER) == "g:1"
    assert all(whom_to_ask(brokers, broker_id(one)) == one for one in named)


def test_no_node_shares_the_masters_bucket_in_a_table_of_any_size() -> None:
    for number in range(2000):
        one = broker_id(f"10.0.{number % 250}.{number}:10930")
        assert (one ^ (one >> 16)) & 1
        assert one + 1 != broker_id(ADDRESSES[0])
        assert 1 << 30 < one < 1 << 31


# ---- whether the broker asks for rights


def configuration(**settings: str) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in {"brokerName": "a", **settings}.items()).encode()


@pytest.mark.parametrize(
    ("settings", "closed"),
    [
        ({"aclEnable": "false"}, False),
        ({"authenticationEnabled": "false", "authorizationEnabled": "false"}, False),
        ({"aclEnable": "true"}, True),
        ({"aclEnable": "false", "authenticationEnabled": "true"}, True),
        ({"authenticationEnabled": "false", "authorizationEnabled": " TRUE "}, True),
        ({"aclEnable": "perhaps"}, True),
        ({"aclEnable": ""}, True),
        ({}, True),
    ],
)
def test_what_a_brokers_configuration_says(settings: dict[str, str], closed: bool) -> None:
    assert (why_closed(configuration(**settings)) is not None) is closed


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        ({}, "no address"),
        ({"a:1": simple(0, None, configuration(aclEnable="false"))}, None),
        (
            {
                "a:1": simple(0, None, configuration(aclEnable="false")),
                "a:2": simple(0, None, configuration(aclEnable="true")),
            },
            "aclEnable",
        ),
        ({"a:1": simple(16, "No accessKey is configured")}, "refuses to say"),
        ({"a:1": Unavailable("the broker is away")}, "does not say"),
        ({"a:1": KeyError("a:1")}, "does not say"),
    ],
    ids=["nobody", "open", "one asks", "refuses", "away", "unknown"],
)
def test_all_addresses_must_be_open(answers: dict[str, Any], said: str | None) -> None:
    async def ask(address: str, request: Command, seconds: float) -> Command:
        assert request.code == RequestCode.GET_BROKER_CONFIG
        if isinstance(answers[address], Exception):
            raise answers[address]
        return answers[address]  # type: ignore[no-any-return]

    opened = OpenBroker(ask)
    assert opened.problem is not None, "what is not known is taken for a broker that asks"
    asyncio.run(opened.look(list(answers)))
    assert opened.problem is None if said is None else said in str(opened.problem)


def test_a_broker_that_begins_to_ask_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    said = ["false", "false", "true"]
    slept: list[float] = []

    async def ask(address: str, request: Command, seconds: float) -> Command:
        return simple(0, None, configuration(aclEnable=said[len(slept)]))

    async def sleep(seconds: float) -> None:
        found.append(opened.problem)
        slept.append(seconds)
        if len(slept) == len(said):
            raise asyncio.CancelledError

    found: list[str | None] = []
    opened = OpenBroker(ask)
    monkeypatch.setattr("tiered.gateway.knowledge.openbroker.asyncio.sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(opened.watch(lambda: [connection(1)]))
    assert found[:2] == [None, None]
    assert "aclEnable" in str(found[2])


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"access_key": "k", "secret_key": "s"}, "gateway.access_key"),
        ({"tls_certificate": "c", "tls_key": "k"}, "gateway.tls_certificate"),
        ({"cold_recheck_ms": 0}, "gateway.cold_recheck_ms"),
    ],
)
def test_settings_with_which_nodes_cannot_be_named(settings: dict[str, Any], key: str) -> None:
    async def ask(address: str, request: Command, seconds: float) -> Command:
        raise AssertionError

    chosen = replace(Gateway(), namesrv_routes=NODES, **settings)
    with pytest.raises(Invalid, match="routes cannot name read nodes") as caught:
        open_broker(chosen, ask)
    assert key in str(caught.value)
    assert open_broker(replace(chosen, namesrv_routes="gateway"), ask) is None
    assert open_broker(replace(Gateway(), namesrv_routes=NODES), ask) is not None


def test_a_front_that_starts_again_names_nobody_until_it_has_looked() -> None:
    made = Sending()
    made.directing.problem = Desk(namesrv_routes=NODES).answers.directing.problem
    made.nodes(*ADDRESSES)
    made.beats(1.0)
    assert made.named() == set()
    assert made.suggested(pull(offset=0)) == MASTER
    assert made.wires[ADDRESSES[0]].vouches[-1] is None
    made.directing.problem = lambda: None
    assert made.named() == set(ADDRESSES)
    made.desk.close()
