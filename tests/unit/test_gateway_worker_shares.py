"""Several workers of one gateway: their share of the budgets, what they tell each other, ports, pages."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit.fakearchive import RECORD_ROOM, time_of
from tests.kit.gatewaydesk import Desk, answered, asking, offsets_of, pull, simple, too_small
from tests.kit.ports import free_block
from tiered.clock import SystemClock
from tiered.daemon import gatewayworker, gatewayworkers
from tiered.daemon.gatewayworker import Colleagues, WorkerSeat
from tiered.daemon.gatewayworkers import GatewayWorkers, Worker
from tiered.daemon.keptnotes import KeptNotes
from tiered.daemon.notify import Notifier
from tiered.daemon.workerpages import merged
from tiered.daemon.workerports import WorkerPorts, hold_port
from tiered.daemon.workershare import check_workers, share_of
from tiered.daemon.workerwire import Message, Wire
from tiered.errors import Invalid, Unavailable
from tiered.gateway.answers.answers import Answers
from tiered.gateway.knowledge.peers import GRANT, Note
from tiered.settings import MIB, Settings

KEY = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
BODY = f'{{"offsetTable":{{{KEY}:100}}}}'.encode()
QUEUE = {"consumerGroup": "G", "topic": "T", "queueId": "0"}


class Told:
    """The other workers of a desk: those that ``hear`` what it tells, at once or, ``late``, when one of them asks for it."""

    def __init__(self) -> None:
        self.others: list[Answers] = []
        self.away = False
        self.late: list[Note] | None = None
        self.theirs: Told
        """What the other desk tells."""

    def tell(self, kind: str, key: tuple[str | int, ...], value: Any) -> None:
        if self.late is not None:
            self.late.append((kind, key, value))
            return
        for other in self.others:
            other.hear(kind, key, value)

    async def caught_up(self) -> None:
        if self.away:
            raise Unavailable("a worker does not answer")
        late, self.theirs.late = self.theirs.late, None
        for note in late or ():
            self.theirs.tell(*note)

    async def spread(self, notes: Sequence[Note]) -> None:
        if self.away:
            raise Unavailable("a worker has not heard it")
        for note in notes:
            self.tell(*note)


@pytest.fixture
def two() -> Iterator[tuple[Desk, Desk, Told]]:
    """Two workers: an operator's connection leads to the first, a consumer's to the second."""
    desks = []
    told = [Told(), Told()]
    for peers in told:
        desk = Desk()
        desk.archive.fill("T", 0, 10, 150)
        connection = desk.answers
        for part in (connection._resets, connection.clients, connection._rights, connection._pop):
            part._peers = peers
        connection._judge._minimums._peers = peers
        desks.append(desk)
    told[0].others, told[1].others = [desks[1].answers], [desks[0].answers]
    told[0].theirs, told[1].theirs = told[1], told[0]
    yield desks[0], desks[1], told[0]
    for desk in desks:
        desk.close()


def ordered(desk: Desk) -> object:
    ext = {"topic": "T", "group": "G", "timestamp": str(time_of(40)), "isForce": "true"}
    return desk.ask(asking(222, **ext), simple(0, None, BODY))


def position(desk: Desk, offset: int) -> str:
    """What a consumer is told of its group's position, of which the broker says ``offset``."""
    made = desk.ask(asking(14, **QUEUE), simple(0, None, b"", offset=str(offset)))
    assert not isinstance(made, str)
    return made.ext["offset"]


def test_a_reset_that_one_worker_corrected_is_delivered_by_another_once(two: tuple[Desk, Desk, Told]) -> None:
    operator, consumer, _ = two
    assert position(consumer, 100) == "100"
    ordered(operator)
    assert position(consumer, 100) == "40"
    pulled = asking(
        11, **QUEUE, queueOffset="500", maxMsgNums="32", sysFlag="0", commitOffset="0", subVersion="0"
    )
    moved = simple(21, "OFFSET_RESET", b"", nextBeginOffset="100", minOffset="90", maxOffset="150")
    made = consumer.ask(pulled, moved)
    assert not isinstance(made, str)
    assert made.ext["nextBeginOffset"] == "40"
    assert position(operator, 100) == "100", "the group has had it, wherever it asks now"


def test_an_order_fails_while_a_worker_does_not_know_it(two: tuple[Desk, Desk, Told]) -> None:
    operator, _, told = two
    told.away = True
    assert ordered(operator) == "retry"


def test_a_group_that_went_on_at_another_worker_has_had_its_reset(two: tuple[Desk, Desk, Told]) -> None:
    operator, consumer, _ = two
    ordered(operator)
    for offset in (400, 300):  # it commits where it stood before, then went back and on
        consumer.answers._resets.committed({**QUEUE, "commitOffset": str(offset)})
    assert position(operator, 100) == "100"


def test_a_filter_is_known_wherever_a_pull_comes(two: tuple[Desk, Desk, Told]) -> None:
    one, other, _ = two
    one.heartbeat("G", "T", "paid")
    found = other.answers.clients.subscription("G", "T")
    assert found is not None
    assert found.expression == "paid"


KEYS = {"AccessKey": "reader-01", "Signature": "c2lnbmVk"}
UNCHECKED = {
    "lite pull": (pull(offset=40, count=2, code=361, **KEYS), too_small(100, 200)),
    "view": (asking(33, offset=str(40 * RECORD_ROOM), **KEYS), simple(1, "can not find message")),
}
"""Questions that brokers do not judge by their topic."""


@pytest.mark.parametrize("name", UNCHECKED)
def test_what_a_key_has_shown_to_one_worker_counts_for_its_next_question_to_another(
    two: tuple[Desk, Desk, Told], name: str
) -> None:
    """Though what workers tell each other comes a moment later."""
    one, other, told = two
    told.late = []
    one.ask(pull(offset=200, **KEYS), answered(19, "OFFSET_OVERFLOW_ONE", 200, 100, 200))
    assert GRANT in {kind for kind, _, _ in told.late}, "it is not told yet"
    made = other.ask(*UNCHECKED[name])
    assert not isinstance(made, str)
    assert made.code == 0, made.remark
    assert made.body
    if name == "lite pull":
        assert offsets_of(made) == [40, 41]


@pytest.mark.parametrize("name", UNCHECKED)
def test_what_no_worker_was_shown_is_refused_as_is_what_a_silent_one_may_know(
    two: tuple[Desk, Desk, Told], name: str
) -> None:
    one, other, told = two
    made = other.ask(*UNCHECKED[name])
    assert not isinstance(made, str)
    assert (made.code, bytes(made.body)) == (16, b"")
    told.late, told.theirs.away = [], True
    one.ask(pull(offset=200, **KEYS), answered(19, "OFFSET_OVERFLOW_ONE", 200, 100, 200))
    made = other.ask(*UNCHECKED[name])
    assert not isinstance(made, str)
    assert (made.code, bytes(made.body)) == (16, b"")


def test_each_has_its_share_of_the_budgets(tmp_path: Path) -> None:
    whole = Settings()
    whole = replace(
        whole,
        gateway=replace(whole.gateway, workers=4, http_listen="127.0.0.1:1"),
        fetch=replace(whole.fetch, disk_directory=str(tmp_path)),
    )
    shares = [share_of(whole, index) for index in range(4)]
    assert {share.fetch.budget_bytes for share in shares} == {64 * MIB}
    assert {share.gateway.max_connections for share in shares} == {1024}
    assert {share.tenants.bytes_per_second for share in shares} == {0}, "no bound stays none"
    assert [share.gateway.http_listen for share in shares] == ["127.0.0.1:1", "", "", ""]
    assert len({share.fetch.disk_directory for share in shares}) == 4


@pytest.mark.parametrize(
    ("section", "changes", "key"),
    [
        ("fetch", {"budget_bytes": 15 * MIB}, "fetch.budget_bytes"),
        ("fetch", {"threads": 1}, "fetch.threads"),
        ("tenants", {"requests_per_second": 1}, "tenants.requests_per_second"),
        ("tenants", {"limits": ("a=1/s",)}, "tenants.limits"),
    ],
)
def test_a_share_that_is_too_small_is_refused(section: str, changes: dict[str, Any], key: str) -> None:
    settings = Settings()
    settings = replace(settings, **{section: replace(getattr(settings, section), **changes)})  # type: ignore[arg-type]
    check_workers(settings)
    settings = replace(settings, gateway=replace(settings.gateway, workers=2))
    with pytest.raises(Invalid) as caught:
        check_workers(settings)
    assert caught.value.fields["key"] == key


@pytest.mark.parametrize("workers", [0, 65])
def test_nonsense_is_refused(workers: int) -> None:
    with pytest.raises(Invalid, match=r"gateway\.workers"):
        replace(Settings().gateway, workers=workers)


def test_a_platform_without_shared_ports_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(socket, "SO_REUSEPORT")
    check_workers(Settings())
    with pytest.raises(Invalid, match="SO_REUSEPORT"):
        check_workers(replace(Settings(), gateway=replace(Settings().gateway, workers=2)))


def test_what_is_over_is_not_told_to_later_workers_and_the_rest_is_bounded() -> None:
    kept = KeptNotes(most=1000)
    kept.take([("reset", ["G", "T", 0], [1, 2, 3, 4]), ("minimum", ["T", 0], 5)])
    kept.take([("reset", ["G", "T", 0], None)])
    assert kept.all() == [("minimum", ["T", 0], 5)]
    kept.take([("minimum", ["T", queue], queue) for queue in range(100)])
    assert [key for _, key, _ in kept.all()][-1] == ["T", 99]
    assert 1 < len(kept.all()) < 6


def test_samples_say_whose_they_are_and_lines_of_a_metric_stand_together() -> None:
    page = (
        '# HELP a_total x\n# TYPE a_total counter\na_total{b="c d"} 1.0\n# HELP g y\n# TYPE g gauge\ng 2.0\n'
    )
    assert merged(b"# HELP g y\n# TYPE g gauge\ng 0.0\n", {1: page.encode(), 0: page.encode()}).decode() == (
        '# HELP g y\n# TYPE g gauge\ng 0.0\ng{worker="0"} 2.0\ng{worker="1"} 2.0\n'
        '# HELP a_total x\n# TYPE a_total counter\na_total{worker="0",b="c d"} 1.0\na_total{worker="1",b="c d"} 1.0\n'
    )


def test_two_brokers_never_have_one_port_and_a_gateway_of_this_user_keeps_its_own(tmp_path: Path) -> None:
    def ports(name: str) -> WorkerPorts:
        gateway = replace(
            Settings().gateway, namesrv_listen="127.0.0.1:0", broker_listen_ports=f"{low}-{low + 1}"
        )
        made = WorkerPorts(gateway, tmp_path / name, SystemClock())
        made.open()
        return made

    low = free_block()
    one = ports("one")
    given = one.given({"10.0.0.1:1": "a", "10.0.0.2:1": "b", "10.0.0.3:1": "c"})["places"]
    assert len({place[0] for place in given.values()}) == len(given) == 2, "the third has none"
    with socket.socket() as worker:
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        worker.bind(("127.0.0.1", given["10.0.0.1:1"][0]))
        worker.listen()
        with pytest.raises(OSError, match="in use"):
            hold_port("127.0.0.1", given["10.0.0.1:1"][0])
    one.close()
    again = ports("one")
    assert again.said()["places"] == given, "the same after a restart"
    again.close()


def test_who_waits_hears_that_the_other_end_is_gone() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        taken: list[Message] = []

        def take(message: Message) -> Message | None:
            taken.append(message)
            return {"said": message["x"]} if message["x"] != "never" else None

        ends = []
        for end in (ours, theirs):
            reader, writer = await asyncio.open_unix_connection(sock=end)
            ends.append(Wire(reader, writer, take, "other"))
        running = [asyncio.create_task(end.run()) for end in ends]
        ends[0].send({"x": "first"})
        assert (await ends[0].ask({"x": "second"}, 5.0))["said"] == "second"
        assert [message["x"] for message in taken] == ["first", "second"], "in their order"
        waiting = ends[0].asked({"x": "third"})
        ends[1].close()
        with pytest.raises(Unavailable):
            while True:
                await waiting
                waiting = ends[0].asked({"x": "more"})
        await asyncio.gather(*running)

    asyncio.run(run())


@asynccontextmanager
async def colleagues(count: int) -> AsyncIterator[tuple[list[Colleagues], list[list[tuple[Any, ...]]]]]:
    """Workers that serve nobody, over the channels of the process that looks after them; and what each has heard."""
    whole = Settings()
    settings = replace(whole, gateway=replace(whole.gateway, workers=count))
    looking = GatewayWorkers(settings, lambda *_: (), {}, SystemClock(), Notifier.from_environment({}))
    made, heard, running = list[Colleagues](), list[list[tuple[Any, ...]]](), list[asyncio.Task[None]]()
    for worker in looking.workers:
        ours, theirs = socket.socketpair()
        pair = await asyncio.open_unix_connection(sock=ours)
        worker.wire, worker.serving = Wire(*pair, partial(looking._take, worker), "a worker"), True
        running.append(asyncio.create_task(worker.wire.run()))
        made.append(Colleagues(WorkerSeat(worker.index, theirs.detach())))
        heard.append([])
        worker.wire.send({"op": "begin", "places": {}})
        hear = partial(lambda found, *note: found.append(note), heard[-1])
        await made[-1].begin(hear, dict, lambda: None)
    yield made, heard
    for one in made:
        one.close()
    await asyncio.gather(*running)


def test_who_asks_what_the_others_were_told_hears_what_they_had_not_sent_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gatewayworker, "TELL_SECONDS", 3600.0)

    async def run() -> None:
        async with asyncio.timeout(20), colleagues(3) as (workers, heard):
            workers[0].tell("grant", ("reader", "T"), 1.0)
            workers[1].tell("grant", ("reader", "U"), 2.0)
            await workers[2].caught_up()
            assert sorted(heard[2]) == [("grant", ("reader", "T"), 1.0), ("grant", ("reader", "U"), 2.0)]

    asyncio.run(run())


def test_many_who_ask_at_once_are_answered_by_two_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Message] = []
    take = GatewayWorkers._take

    def counting(self: GatewayWorkers, worker: Worker, message: Message) -> Any:
        asked.append(message)
        return take(self, worker, message)

    monkeypatch.setattr(GatewayWorkers, "_take", counting)

    async def run() -> None:
        async with asyncio.timeout(20), colleagues(2) as (workers, _):
            first = asyncio.create_task(workers[1].caught_up())
            await asyncio.sleep(0)
            await asyncio.sleep(0)  # its round has begun
            await asyncio.gather(first, *(workers[1].caught_up() for _ in range(100)))
            assert [message["op"] for message in asked].count("settle") == 2

    asyncio.run(run())


def test_a_worker_that_stands_still_is_not_waited_for_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatewayworkers, "RELAY_SECONDS", 0.05)
    take = Colleagues._take

    async def run() -> None:
        still = asyncio.Event()

        async def stands_still() -> Message:
            await still.wait()
            return {}

        def taking(self: Colleagues, message: Message) -> Any:
            return stands_still() if message["op"] == "settle" else take(self, message)

        monkeypatch.setattr(Colleagues, "_take", taking)
        async with asyncio.timeout(20), colleagues(2) as (workers, _):
            with pytest.raises(Unavailable, match="not every worker"):
                await workers[1].caught_up()
            still.set()

    asyncio.run(run())


def test_a_worker_that_nobody_speaks_to_any_more_ends_at_once() -> None:
    """The process that started it was killed before it said where to listen."""

    async def run() -> None:
        ours, theirs = socket.socketpair()
        ended: list[bool] = []
        colleagues = Colleagues(WorkerSeat(1, theirs.detach()))
        ours.close()
        async with asyncio.timeout(10):
            with pytest.raises(Unavailable, match="gone before it said anything"):
                await colleagues.begin(lambda kind, key, value: None, dict, lambda: ended.append(True))
        assert ended == [True]
        colleagues.close()

    asyncio.run(run())
