"""Parts of the gateway's transport alone: routes, ports, budgets, pending requests, the late archive, floors, TLS settings."""

from __future__ import annotations

import asyncio
import json
import stat
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.clock import ManualClock, SystemClock
from tiered.codec.remoting.frame import Command, decode_command
from tiered.errors import Corrupt, Invalid, Refused, TieredError, Unavailable
from tiered.fetch.base import ReaderId
from tiered.filter.storagelevels import StorageLevel
from tiered.gateway.app import GatewayApp
from tiered.gateway.knowledge.opening import LateArchive
from tiered.gateway.knowledge.questions import Floors, commitlog_begin
from tiered.gateway.knowledge.turns import fair_budget
from tiered.gateway.ports import HOLD, ConnectionInfo
from tiered.gateway.routes.nameserver import Brokers, RouteAnswers
from tiered.gateway.routes.rewriting import PortBook, addresses_in, port_range, rewrite
from tiered.gateway.transport.limits import PENDING_PER_CONNECTION, ByteBudget, Seats, Slots, Sparse, Traffic
from tiered.gateway.transport.pending import PENDING_SECONDS, Pending
from tiered.gateway.transport.tls import server_context, upstream_context
from tiered.metrics import Metrics
from tiered.settings import Fetch, Gateway, Tenants
from tiered.store import MessageStore
from tiered.text.addresses import split_address, split_addresses

WIRE = Path(__file__).parent.parent / "data" / "wire"


def body(name: str) -> bytes:
    return bytes(decode_command((WIRE / name).read_bytes()[4:]).body)


# ---- routes


@pytest.mark.parametrize(
    "name",
    ["route-105", "raw-route-105-standard-json", "raw-route-105-no-flag", "cluster-106", "raw-cluster-106"],
)
def test_recorded_routes(name: str) -> None:
    recorded = body(f"{name}.answer.bin")
    assert addresses_in(recorded) == {"127.0.0.1:10911": "broker-a"}
    assert rewrite(recorded, {}) == recorded
    patched = rewrite(recorded, {"127.0.0.1:10911": "10.0.0.9:12911"})
    assert patched == recorded.replace(b"127.0.0.1:10911", b"10.0.0.9:12911")


def test_bare_keys_slaves_filter_servers_and_texts_that_look_like_addresses() -> None:
    route = (
        b'{"orderTopicConf":"\\"brokerAddrs\\":{0:\\"1.1.1.1:1\\"}","brokerDatas":[{"brokerAddrs":'
        b'{0:"1.1.1.1:1", 1 : "2.2.2.2:2","-1":"1.1.1.1:11"},"brokerName":"b","cluster":"1.1.1.1:1"},'
        b'{"brokerName":"c","brokerAddrs":{}}],"filterServerTable":{"1.1.1.1:1":["9.9.9.9:9"]},"x":"1.1.1.1:1"}'
    )
    assert addresses_in(route) == {"1.1.1.1:1": "b", "2.2.2.2:2": "b", "1.1.1.1:11": "b"}
    patched = rewrite(route, {"1.1.1.1:1": "g:1", "2.2.2.2:2": "g:2"})
    assert patched == (
        b'{"orderTopicConf":"\\"brokerAddrs\\":{0:\\"1.1.1.1:1\\"}","brokerDatas":[{"brokerAddrs":'
        b'{0:"g:1", 1 : "g:2","-1":"1.1.1.1:11"},"brokerName":"b","cluster":"1.1.1.1:1"},'
        b'{"brokerName":"c","brokerAddrs":{}}],"filterServerTable":{"g:1":["9.9.9.9:9"]},"x":"1.1.1.1:1"}'
    )


def test_addresses_are_found_in_what_is_no_json() -> None:
    assert addresses_in(b'garbage "brokerAddrs":{0:"h:1"} garbage') == {"h:1": None}


@given(
    st.one_of(
        st.binary(max_size=300), st.binary(max_size=60).map(lambda b: b'{"brokerAddrs":{0:"' + b + b'"}}')
    )
)
def test_any_body(data: bytes) -> None:
    found = addresses_in(data)
    assert rewrite(data, {address: address for address in found}) == data


@given(
    st.dictionaries(st.sampled_from(["1.1.1.1:1", "2.2.2.2:22", "h:3"]), st.sampled_from(["g:1", "gg:22"]))
)
def test_only_addresses_change(ours: dict[str, str]) -> None:
    route = '{"brokerAddrs":{0:"1.1.1.1:1",1:"2.2.2.2:22"},"brokerName":"1.1.1.1:1"}'
    first, second = (ours.get(address, address) for address in ("1.1.1.1:1", "2.2.2.2:22"))
    expected = f'{{"brokerAddrs":{{0:"{first}",1:"{second}"}},"brokerName":"1.1.1.1:1"}}'
    assert rewrite(route.encode(), ours) == expected.encode()


# ---- ports


def nobody(port: int) -> bool:
    return False


def test_a_gateway_may_stand_for_its_own_broker_only() -> None:
    given: list[str] = []

    def ensure(address: str, name: str | None) -> str:
        given.append(address)
        return "gateway:1"

    route = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"1.1.1.1:1",1:"1.1.1.2:1"},"brokerName":"a"},'
        b'{"brokerAddrs":{0:"2.2.2.2:2"},"brokerName":"b"}]}'
    )
    own = Brokers(ensure, "a")
    assert own.in_answer(route) == {"1.1.1.1:1": "a", "1.1.1.2:1": "a"}, "its replicas too"
    assert Brokers(ensure).in_answer(route).keys() == {"1.1.1.1:1", "1.1.1.2:1", "2.2.2.2:2"}
    assert own.in_answer(b'garbage "brokerAddrs":{0:"h:1"} garbage') == {"h:1": None}, "it may be the one"
    request = Command(105, 1, ext={"topic": "T"})
    connection = ConnectionInfo(1, "c:1", "n:1")
    made = asyncio.run(RouteAnswers(own).answer(request, Command(0, 1, 1, body=route), HOLD, connection))
    assert made is not None
    assert made.body == route.replace(b"1.1.1.1:1", b"gateway:1").replace(b"1.1.1.2:1", b"gateway:1")
    assert given == ["1.1.1.1:1", "1.1.1.2:1"]
    others = route.replace(b'"brokerName":"a"', b'"brokerName":"c"')
    assert (
        asyncio.run(RouteAnswers(own).answer(request, Command(0, 1, 1, body=others), HOLD, connection))
        is None
    )


def test_ports_are_given_out_and_remembered() -> None:
    with tempfile.TemporaryDirectory() as directory:
        clock = ManualClock()
        book = PortBook(range(100, 103), Path(directory) / "state", clock)
        book.load()
        for address in ("a:1", "b:1"):
            book.note(address, next(book.candidates(address, nobody)), None)
        book.note("b:1", 101, "broker-b")
        again = PortBook(range(100, 103), Path(directory) / "state", clock)
        again.load()
        assert [again.places[name].port for name in ("a:1", "b:1")] == [100, 101]
        assert again.places["b:1"].name == "broker-b"
        assert next(again.candidates("a:1", nobody)) == 100
        assert next(again.candidates("c:1", nobody)) == 102

        clock.advance(8 * 86_400)
        later = PortBook(range(100, 103), Path(directory) / "state", clock)
        later.load()
        assert later.places == {}


def test_a_full_range_takes_from_whom_was_not_seen_longest() -> None:
    clock = ManualClock()
    book = PortBook(range(100, 102), None, clock)
    book.note("old:1", 100, None)
    clock.advance(60)
    book.note("new:1", 101, None)
    assert list(book.candidates("third:1", nobody)) == [100, 101]
    assert list(book.candidates("third:1", {100, 101}.__contains__)) == []
    book.note("third:1", 100, None)
    assert set(book.places) == {"new:1", "third:1"}


def test_seen_is_written_down_now_and_then() -> None:
    with tempfile.TemporaryDirectory() as directory:
        clock = ManualClock()
        book = PortBook(range(100, 102), Path(directory), clock)
        book.note("a:1", 100, None)
        written = (Path(directory) / PortBook.FILE).read_text()
        clock.advance(600)
        book.note("a:1", 100, None)
        assert (Path(directory) / PortBook.FILE).read_text() == written
        clock.advance(3600)
        book.note("a:1", 100, None)
        assert (Path(directory) / PortBook.FILE).read_text() != written


@pytest.mark.parametrize("text", ["", "{", "[]", '{"brokers":{"a:1":{}}}', '{"brokers":7}', "\x00\xff"])
def test_a_broken_file_of_ports_is_left_out(text: str, tmp_path: Path) -> None:
    (tmp_path / PortBook.FILE).write_text(text)
    book = PortBook(None, tmp_path, ManualClock())
    book.load()
    assert book.places == {}
    assert next(book.candidates("a:1", nobody)) == 0


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    book = PortBook(None, file / "below", ManualClock())
    book.note("a:1", 100, None)
    assert book.places["a:1"].port == 100
    assert stat.S_ISREG(file.stat().st_mode)


@pytest.mark.parametrize(("text", "ports"), [("0", None), ("5-7", range(5, 8)), ("9", range(9, 10))])
def test_port_ranges(text: str, ports: range | None) -> None:
    assert port_range(text) == ports


@pytest.mark.parametrize("text", ["", "a-b", "7-5", "0-5", "1-70000", "-5", "1-2-3", "1-"])
def test_wrong_port_ranges(text: str) -> None:
    with pytest.raises(Invalid, match="broker_listen_ports"):
        port_range(text)


def test_addresses() -> None:
    assert split_address("h:1", key="k") == ("h", 1)
    assert split_address("[::1]:2", key="k") == split_address("::1:2", key="k") == ("::1", 2)
    assert split_addresses("a:1; b:2;", key="k") == (("a", 1), ("b", 2))
    for wrong in ("", "h", ":1", "h:", "h:x", "h:70000"):
        with pytest.raises(Invalid, match="k"):
            split_address(wrong, key="k")
    with pytest.raises(Invalid, match="k"):
        split_addresses(" ; ", key="k")


# ---- limits


def test_slots_and_sparse_lines() -> None:
    slots = Slots(1)
    assert slots.take()
    assert not slots.take()
    slots.give_back()
    assert slots.take()
    sparse = Sparse(10)
    assert [sparse.due("a", now) for now in (0, 1, 2, 10, 11, 30)] == [0, None, None, 2, None, 1]
    assert sparse.due("b", 30) == 0


def test_what_needs_no_room_never_waits_for_room_that_is_there() -> None:
    async def test() -> None:
        budget = ByteBudget(10)
        assert await asyncio.wait_for(budget.take(0), 10) == 0
        assert await asyncio.wait_for(budget.take(20), 10) == 10
        assert budget.take_at_once(1) is None
        assert (budget.take_at_once(0), budget.taken) == (0, 10)
        waiting = asyncio.create_task(budget.take(4))
        await asyncio.sleep(0)
        assert budget.take_at_once(0) is None, "others came first"
        budget.give_back(10)
        assert await asyncio.wait_for(waiting, 10) == 4

    asyncio.run(test())


def test_a_budget_is_first_come_first_served() -> None:
    async def test() -> None:
        budget = ByteBudget(10)
        assert await budget.take(8) == 8
        order: list[str] = []

        async def ask(name: str, size: int) -> int:
            got = await budget.take(size)
            order.append(name)
            return got

        large, small = asyncio.create_task(ask("large", 99)), asyncio.create_task(ask("small", 1))
        gone = asyncio.create_task(ask("gone", 5))
        await asyncio.sleep(0)
        assert order == []
        gone.cancel()
        budget.give_back(8)
        assert await large == 10
        assert not small.done()
        budget.give_back(10)
        assert await small == 1
        budget.give_back(1)
        await asyncio.gather(gone, return_exceptions=True)
        assert (budget.taken, order) == (0, ["large", "small"])

    asyncio.run(test())


def test_answers_take_turns_by_tenant_and_group() -> None:
    """Who waits a hundred times is one of those who wait; what was cancelled has no turn."""

    async def test() -> None:
        budget = fair_budget(10, Tenants(topics=("pay=Pay*",)))
        await budget.take(10)
        order: list[str] = []

        async def ask(name: str, topic: str, group: str) -> None:
            await budget.take(10, topic, group)
            order.append(name)

        asked = [("greedy", "Orders", "g")] * 100 + [("quiet", "Orders", "q"), ("pays", "PayIn", "g")]
        tasks = [asyncio.create_task(ask(*one)) for one in asked]
        await asyncio.sleep(0)
        for gone in tasks[1:4]:
            gone.cancel()
        for _ in range(99):
            budget.give_back(10)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        budget.give_back(10)
        assert set(order[:3]) == {"greedy", "quiet", "pays"}
        assert (len(order), order.count("greedy"), budget.taken) == (99, 97, 0)

    asyncio.run(test())


def test_a_taker_that_is_cancelled_at_the_last_moment_loses_nothing() -> None:
    async def test() -> None:
        budget = ByteBudget(10)
        await budget.take(10)
        waiting = asyncio.create_task(budget.take(4))
        await asyncio.sleep(0)
        budget.give_back(10)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert budget.taken == 0

    asyncio.run(test())


def test_traffic_is_published_once() -> None:
    traffic, metrics = Traffic(), Metrics()
    for code in (10, 11, 361, 200050, 77, 78):
        traffic.seen(code)
    traffic.from_clients = 100
    for _ in range(2):
        traffic.publish(metrics)
    value = metrics.value
    assert value("tiered_gateway_requests_total", kind="pull") == 2
    assert value("tiered_gateway_requests_total", kind="pop") == 1
    assert value("tiered_gateway_requests_total", kind="other") == 2
    assert value("tiered_gateway_bytes_total", side="client") == 100
    assert len(traffic.codes) == 5


def test_pending_requests_are_bounded() -> None:
    clock = ManualClock()
    pending = Pending(clock.monotonic)
    for opaque in range(PENDING_PER_CONNECTION):
        pending.remember(Command(11, opaque), 100)
    with pytest.raises(Refused):
        pending.remember(Command(11, -1), 100)
    clock.advance(PENDING_SECONDS + 1)
    pending.remember(Command(11, -1), 100)
    assert len(pending) == 1
    assert pending.take(-1) == Command(11, -1)
    assert pending.take(-1) is None
    with pytest.raises(Refused):
        pending.remember(Command(11, 1), 17 << 20)


def test_an_opaque_waits_for_one_answer_only() -> None:
    """Else a client could have the answer to what it may ask taken for the answer to what it may not."""
    clock = ManualClock()
    pending = Pending(clock.monotonic)
    pending.remember(Command(11, 5, ext={"topic": "its own"}), 100)
    with pytest.raises(Refused, match="before its answer came"):
        pending.remember(Command(11, 5, ext={"topic": "another's"}), 100)
    assert pending.take(5) == Command(11, 5, ext={"topic": "its own"})
    pending.remember(Command(11, 5), 100)
    clock.advance(PENDING_SECONDS + 1)
    pending.remember(Command(34, 5), 100)
    assert pending.take(5) == Command(34, 5)


# ---- the archive that comes late


class FakeStore:
    """What the late archive needs of a store."""

    def __init__(self) -> None:
        self.away = True
        self.seen: list[int] = []

    @property
    def view(self) -> str:
        if self.away:
            raise Unavailable("away")
        return "view"

    def follow(self) -> bool:
        return False

    def observe(self, reader: ReaderId, topic: str, queue_id: int, offset: int) -> None:
        self.seen.append(offset)


def late(results: list[Callable[[], FakeStore]]) -> LateArchive:
    def open_store(stack: ExitStack) -> MessageStore:
        return results.pop(0)()  # type: ignore[return-value]

    return LateArchive(open_store, Fetch(topic_storage_levels=("A=DISABLE",)))


def fail(error: Exception) -> Callable[[], FakeStore]:
    def raise_it() -> FakeStore:
        raise error

    return raise_it


def test_an_archive_that_cannot_be_opened_is_tried_again() -> None:
    store = FakeStore()
    errors: list[Exception] = [Invalid("no url"), Refused("foreign"), Corrupt("bad"), RuntimeError("bug")]
    archive = late([*map(fail, errors), lambda: store])
    reader = ReaderId("g")
    waits = []
    for _ in errors:
        waits.append(archive.step().wait_seconds)
        with pytest.raises(Unavailable, match="not open"):
            archive.store.min_offset("T", 0)
        archive.store.observe(reader, "T", 0, 1)
        assert archive.store.storage_level("A") is StorageLevel.DISABLE
    assert waits == [1, 2, 4, 8]
    archive.step()
    assert archive.opened is store
    assert archive.problem == "away"
    assert archive.store.storage_level("A") is StorageLevel.DISABLE
    assert archive.store.storage_level("B") is StorageLevel.NOT_IN_DISK
    archive.set_levels(Fetch(storage_level="NOT_IN_MEM"))
    assert archive.store.storage_level("A") is StorageLevel.NOT_IN_MEM
    store.away = False
    assert archive.step().wait_seconds == 5
    assert archive.problem is None
    archive.store.observe(reader, "T", 0, 2)
    assert store.seen == [2]
    assert archive.store.storage_level("A") is StorageLevel.NOT_IN_MEM
    assert not archive.store.follow()
    archive.close()
    with pytest.raises(Unavailable):
        archive.store.follow()


def test_levels_that_were_changed_before_the_archive_was_there() -> None:
    store = FakeStore()
    archive = late([lambda: store])
    archive.set_levels(Fetch(storage_level="FORCE", topic_storage_levels=("B=DISABLE",)))
    assert archive.store.storage_level("A") is StorageLevel.FORCE
    assert archive.store.storage_level("B") is StorageLevel.DISABLE
    with pytest.raises(Invalid):
        archive.set_levels(Fetch(storage_level="NEVER"))
    archive.step()
    assert archive.opened is store
    assert archive.store.storage_level("A") is StorageLevel.FORCE
    assert archive.store.storage_level("B") is StorageLevel.DISABLE


# ---- floors


def test_many_askers_cost_one_request() -> None:
    async def test() -> None:
        clock, asked = ManualClock(), []
        answer = Command(0, body=json.dumps({"table": {"commitLogMinOffset": "4096"}}).encode())

        async def ask(address: str, request: Command, seconds: float) -> Command:
            asked.append(address)
            await asyncio.sleep(0)
            if address == "gone:1":
                raise KeyError(address)
            return answer

        floors = Floors(ask, clock)
        here = ConnectionInfo(1, "c:1", "b:1")
        assert await asyncio.gather(*(floors.floor(here) for _ in range(5))) == [4096] * 5
        assert await floors.floor(here) == 4096
        assert asked == ["b:1"]
        clock.advance(1.5)
        assert await floors.floor(here) == 4096
        assert asked == ["b:1", "b:1"]
        with pytest.raises(Unavailable):
            await floors.floor(ConnectionInfo(2, "c:1", "gone:1"))

    asyncio.run(test())


def test_where_a_commitlog_begins() -> None:
    assert commitlog_begin(decode_command((WIRE / "raw-runtime-28.answer.bin").read_bytes()[4:])) == 0
    for wrong in (
        b"",
        b"[]",
        b'{"table":{}}',
        b'{"table":{"commitLogMinOffset":"x"}}',
        b'{"table":{"commitLogMinOffset":"-1"}}',
    ):
        assert commitlog_begin(Command(0, body=wrong)) is None
    assert commitlog_begin(Command(1, body=b'{"table":{"commitLogMinOffset":"7"}}')) is None


# ---- settings


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"broker_listen_host": "0.0.0.0"}, "gateway.advertise_host"),
        ({"namesrv_upstream": "nowhere"}, "gateway.namesrv_upstream"),
        ({"broker_listen_ports": "x"}, "gateway.broker_listen_ports"),
        ({"tls_key": "/k"}, "gateway.tls_certificate"),
        ({"tls_certificate": "/nonexistent"}, "gateway.tls_certificate"),
        ({"tls_upstream": True, "tls_upstream_ca": "/nonexistent"}, "gateway.tls_upstream_ca"),
    ],
)
def test_wrong_settings_are_named(wrong: dict[str, object], named: str) -> None:
    chosen = {"namesrv_upstream": "127.0.0.1:1", **wrong}
    with pytest.raises(TieredError, match=named):
        GatewayApp(Gateway(**chosen), SystemClock(), Metrics(), None, None)  # type: ignore[arg-type]


def test_no_tls_unless_asked_for() -> None:
    assert server_context(Gateway()) is None
    assert upstream_context(Gateway()) is None
    context = upstream_context(Gateway(tls_upstream=True))
    assert context is not None
    assert not context.check_hostname


class Sitting:
    """A connection that has a seat."""

    def __init__(self, spoke: bool = False) -> None:
        self.spoke = spoke
        self.reason = ""

    def cut(self, reason: str, why: str) -> None:
        self.reason = reason


def test_the_oldest_that_never_sent_a_frame_gives_way() -> None:
    seats = Seats(16)
    silent = [Sitting() for _ in range(14)]
    assert all(seats.take(one, "10.0.0.1") for one in silent)
    silent[0].spoke = True
    assert seats.take(last := Sitting(), "10.0.0.1"), "of its own host"
    assert [one.reason for one in silent[:3]] == ["", "never_spoke", ""]
    assert seats.taken == 14
    others = [Sitting(spoke=True) for _ in range(7)]
    assert all(seats.take(one, "10.0.0.2") for one in others), (
        "the last eighth, and then in the place of the silent"
    )
    assert (seats.taken, last.reason) == (16, "")
    assert [one.reason for one in silent[2:8]] == ["never_spoke"] * 5 + [""]
    seats.give_back(silent[2])  # which is closed by now
    assert seats.taken == 16


def test_one_host_leaves_an_eighth_to_others_and_who_speaks_is_not_cut() -> None:
    seats = Seats(16)
    talking = [Sitting(spoke=True) for _ in range(20)]
    assert sum(seats.take(one, "10.0.0.1") for one in talking) == 14
    assert [seats.take(Sitting(spoke=True), "10.0.0.2") for _ in range(3)] == [True, True, False]
    assert not any(one.reason for one in talking)
    seats.give_back(talking[0])
    assert not seats.take(Sitting(), "10.0.0.1")
    assert seats.take(Sitting(), "10.0.0.3")
