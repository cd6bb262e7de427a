"""Read nodes over a real archive, and a gateway's reads by them: equal to its own, whatever the nodes do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.kit.aged import Stage, aged_cold
from tests.kit.gatewaydesk import at_default_level
from tests.kit.gatewaykit import FakeServer, Peer, on_loop
from tests.kit.readstore import READER, Cold
from tests.kit.replacing import replace
from tiered.clock import ManualClock, SystemClock
from tiered.codec.remoting.codes import TAG, RequestCode, ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Command, decode_command, encode_command
from tiered.codec.remoting.nodebeat import beat_command
from tiered.codec.remoting.nodepull import NodePull
from tiered.errors import Corrupt, Unavailable
from tiered.fetch.allowance import OverBudget
from tiered.fetch.fair import TenantGroup
from tiered.fetch.pull import Pull
from tiered.filter.tags import row_filter
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.clients import Subscription
from tiered.gateway.knowledge.opening import LateStore
from tiered.gateway.nodes import reads
from tiered.gateway.nodes.placement import ranked
from tiered.gateway.nodes.reads import Reads, open_reads
from tiered.gateway.transport.upstream import Upstream
from tiered.metrics import Metrics
from tiered.model import ArchiveCommit, GetMessageResult, GetMessageStatus, MessageQueue
from tiered.node.answers import NodeAnswers
from tiered.node.server import MAX_REQUEST_BYTES, NodeServer
from tiered.placement.readloads import FORGOTTEN, STEP_SECONDS, STEPS_AN_HOUR, ReadLoads
from tiered.placement.table import queue_digest
from tiered.settings import KIB, MIB, Fetch, Gateway, Serve, Settings, Tenants

TOPIC = "Orders"
CLOCK = SystemClock()


@pytest.fixture(params=[Stage.FRESH, Stage.SEALED, Stage.MIXED], ids=lambda stage: stage.value)
def aged(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cold]:
    """Two hundred messages in two queues, in four flushes."""
    with made(tmp_path, request.param) as scene:
        yield scene


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Cold]:
    with made(tmp_path, Stage.FRESH) as scene:
        yield scene


def made(directory: Path, stage: Stage) -> Any:
    """As a context: the scene with a reader open."""

    @contextmanager
    def inner() -> Iterator[Cold]:
        with aged_cold(directory, stage, open_now=False) as cold:
            for flush in range(4):
                fill(cold, flush)
            cold.open()
            yield cold

    return inner()


def fill(cold: Cold, flush: int) -> None:
    for number in range(50):
        cold.broker.time_ms += 10
        cold.broker.send(
            queue_id=number % 2, body=b"%d" % (50 * flush + number),
            properties={"KEYS": f"k{number % 4}", "UNIQ_KEY": f"U{50 * flush + number}", "TAGS": "ab"[flush % 2]},
        )  # fmt: skip
    cold.archive()


class Local:
    """What a gateway has of the archive itself: how often it read is counted, and who it is may be changed."""

    def __init__(self, store: LateStore) -> None:
        self.store = store
        self.reads = 0
        self.claims: ArchiveCommit | None = None

    def place(self) -> ArchiveCommit | None:
        return self.claims or self.store.place()

    def get_message_async(self, pull: Pull) -> Future[GetMessageResult]:
        self.reads += 1
        return self.store.get_message_async(pull)


@dataclass
class Fleet:
    """Read nodes, and a gateway's reads by them."""

    local: Local
    metrics: Metrics
    pool: ThreadPoolExecutor
    servers: list[NodeServer] = field(default_factory=list)
    reads: Reads = field(init=False)

    async def node(self, store: Any = None, **settings: Any) -> str:
        """One more node, and its address."""
        chosen = replace(Serve(), listen="127.0.0.1:0", **settings)
        answers = NodeAnswers(store or self.local.store, chosen, self.metrics, CLOCK, self.pool)
        server = NodeServer(chosen, answers, CLOCK, self.metrics)
        server.open()
        self.servers.append(server)
        return server.address

    def by(self, *addresses: str, node_ms: int = 10_000, **settings: Any) -> Reads:
        """The gateway's reads by nodes at these addresses."""
        chosen = replace(Gateway(), read_nodes=addresses, read_node_timeout_ms=node_ms, **settings)
        asking = Asking(self.pool, 10.0)
        self.reads = open_reads(self.local, asking, chosen, CLOCK, self.metrics)  # type: ignore[arg-type]
        return self.reads

    async def get(self, offset: int, count: int = 7, wanted: Subscription | None = None) -> GetMessageResult:
        """A read of queue 1."""
        chosen = None if wanted is None else row_filter(wanted.expression, wanted.expression_type)
        pull = Pull(READER, TOPIC, 1, offset, count, 64 * KIB, chosen)
        return await self.reads.read(pull, wanted, 10.0)

    def outcome(self, name: str) -> float:
        """How many reads by nodes ended so."""
        value = self.metrics.node_reads.labels(name)._value.get()
        return float(value)


@asynccontextmanager
async def fleet(scene: Cold) -> AsyncIterator[Fleet]:
    with ThreadPoolExecutor(4) as pool:
        made = Fleet(Local(at_default_level(scene.store)), Metrics(), pool)
        try:
            yield made
        finally:
            await asyncio.gather(*(server.close() for server in made.servers))


def test_reads_by_nodes_are_the_readers_own(aged: Cold) -> None:
    async def test() -> None:
        async with fleet(aged) as nodes:
            nodes.by(await nodes.node(), await nodes.node(), await nodes.node())
            wanted = [None, Subscription("b", TAG, 0), Subscription("TAGS = 'a' AND KEYS = 'k1'", "SQL92", 0)]
            for subscription in wanted:
                for offset in range(100):
                    found = await nodes.get(offset, wanted=subscription)
                    chosen = (
                        None
                        if subscription is None
                        else row_filter(subscription.expression, subscription.expression_type)
                    )
                    expected = aged.get(TOPIC, 1, offset, 7, max_bytes=64 * KIB, row_filter=chosen)
                    if expected.status in (GetMessageStatus.FOUND, GetMessageStatus.NO_MATCHED_MESSAGE):
                        assert found == expected
                        assert [bytes(one) for one in found.records] == [
                            bytes(one) for one in expected.records
                        ]
            assert nodes.local.reads == nodes.outcome("elsewhere")
            assert nodes.outcome("given") >= 250
            assert nodes.outcome("failed") == nodes.outcome("here") == 0

    on_loop(test())


def test_that_nothing_is_there_is_never_a_nodes_word(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            nodes.by(await nodes.node())
            for offset, status in (
                (100, GetMessageStatus.OFFSET_OVERFLOW_ONE),
                (1000, GetMessageStatus.OFFSET_OVERFLOW_BADLY),
            ):
                before = nodes.local.reads
                assert (await nodes.get(offset)).status is status
                assert nodes.local.reads == before + 1
            assert nodes.outcome("elsewhere") == 2
            assert nodes.reads.problems() == {}

    on_loop(test())


def test_a_node_of_another_archive_gives_nothing(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            address = await nodes.node()
            nodes.by(address)
            known = nodes.local.store.place()
            assert known is not None
            nodes.local.claims = ArchiveCommit(bytes(16), known.commit)
            assert (await nodes.get(0)).status is GetMessageStatus.FOUND
            assert nodes.local.reads == 1
            assert "OTHER_ARCHIVE" in nodes.reads.problems()[address]

    on_loop(test())


def test_a_node_counts_the_bytes_that_it_gave_of_each_queue(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            nodes.by(await nodes.node())
            clock = ManualClock()
            loads = nodes.servers[0].answers.loads = ReadLoads(clock.monotonic)
            given = 0
            for offset in (0, 40, 10_000):
                given += sum(map(len, (await nodes.get(offset)).records))
            clock.advance(STEP_SECONDS)
            hourly = given * STEPS_AN_HOUR * (1 - FORGOTTEN)
            assert given > 0
            assert loads.said(5) == ((queue_digest(MessageQueue(TOPIC, 1)), round(hourly)),)

    on_loop(test())


def test_a_node_comes_to_the_commit_that_the_gateway_knows(scene: Cold) -> None:
    """However short ago it looked: by itself it would look again in an hour."""

    async def test() -> None:
        async with fleet(scene) as nodes:
            seldom = replace(Settings(), fetch=replace(Fetch(), follow_ms=3_600_000))
            behind = at_default_level(scene.open(settings=seldom))
            fill(scene, 4)
            scene.fresh()
            assert nodes.local.store.follow()
            stands = behind.place()
            knows = nodes.local.store.place()
            assert stands is not None
            assert knows is not None
            assert stands.commit < knows.commit
            nodes.by(await nodes.node(behind))
            found = await nodes.get(100, 32)
            assert [bytes(one) for one in found.records] == scene.raws(TOPIC, 1)[100:]
            assert nodes.local.reads == 0
            nodes.local.claims = ArchiveCommit(knows.archive_id, knows.commit + 1)
            assert (await nodes.get(0)).status is GetMessageStatus.FOUND
            assert nodes.local.reads == 1
            assert "BEHIND" in next(iter(nodes.reads.problems().values()))

    on_loop(test())


def test_a_tenant_over_a_nodes_budget_is_told_so_and_nobody_reads_around_it(
    scene: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def test() -> None:
        monkeypatch.setattr(reads.asyncio, "sleep", sleep)
        async with fleet(scene) as nodes:
            slow = replace(Settings(), tenants=Tenants(limits=("default=1KiB/s",), burst_ms=1000))
            store = scene.open(settings=slow, shared=True)
            nodes.by(await nodes.node(at_default_level(store)))
            store.shares.charge(TenantGroup("default", READER.group), 10**6)
            with pytest.raises(OverBudget):
                await nodes.get(7)
            assert nodes.local.reads == 0
            assert nodes.outcome("over_budget") == len(slept) == 1
            assert 0 < slept[0] <= 10
            monkeypatch.undo()
            assert nodes.reads.problems() == {}
            scene.clock.advance(1000)
            found = await nodes.get(7)
            assert [bytes(one) for one in found.records] == scene.raws(TOPIC, 1)[7:14]
            assert nodes.local.reads == 0

    on_loop(test())


def test_dead_and_hanging_nodes_are_left_alone_and_the_others_read(scene: Cold) -> None:
    async def silent(peer: Peer, frame: bytes) -> None:
        """Never answers."""

    async def test() -> None:
        async with fleet(scene) as nodes, FakeServer() as dead, AsyncExitStack() as stack:
            await dead.stop()
            live = await nodes.node()
            while True:  # until one is the first to be asked
                hanging = await stack.enter_async_context(FakeServer(silent))
                names = (hanging.address, dead.address, live)
                if ranked(MessageQueue(TOPIC, 1), names)[0] == hanging.address:
                    break
            nodes.by(*names, node_ms=200)
            for offset in range(20):
                found = await nodes.get(offset)
                assert [bytes(one) for one in found.records] == scene.raws(TOPIC, 1)[offset : offset + 7]
            assert len(hanging.frames) == 1
            # The first reads may end here, when both that were asked are not there.
            assert nodes.local.reads <= 1
            assert nodes.outcome("given") >= 19
            assert nodes.reads.problems().keys() <= {hanging.address, dead.address}

    on_loop(test())


def test_without_any_node_the_gateway_reads_and_a_node_that_comes_back_is_asked_again(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            address = await nodes.node()
            nodes.by(address)
            await nodes.servers.pop().close()
            assert (await nodes.get(0)).status is GetMessageStatus.FOUND
            assert (nodes.local.reads, nodes.outcome("here")) == (1, 1)
            assert address in nodes.reads.problems()
            again = replace(Serve(), listen=address)
            server = NodeServer(
                again,
                NodeAnswers(nodes.local.store, again, nodes.metrics, CLOCK, nodes.pool),
                CLOCK,
                nodes.metrics,
            )
            server.open()
            nodes.servers.append(server)
            async with asyncio.timeout(10):
                while nodes.outcome("given") == 0:
                    assert (await nodes.get(0)).status is GetMessageStatus.FOUND
                    await asyncio.sleep(0.05)
            assert nodes.reads.problems() == {}

    on_loop(test())


def test_nodes_come_and_go_while_it_reads(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            one, two = await nodes.node(), await nodes.node()
            reads = nodes.by(one)
            slow = Slow(nodes.local.store)
            three = await nodes.node(slow)
            assert (await nodes.get(0)).status is GetMessageStatus.FOUND
            reads.set_nodes((three,))
            reading = asyncio.create_task(nodes.get(1))
            async with asyncio.timeout(5):
                while not slow.waiting:
                    await asyncio.sleep(0.01)
            reads.set_nodes((two,))
            assert reads.nodes() == {two: "answers"}
            assert (await nodes.get(2)).queue_offsets[0] == 2
            slow.go_on()
            assert (await reading).queue_offsets[0] == 1, "a node that goes answers what it was asked"
            reads.set_nodes(())
            assert nodes.local.reads == 0
            assert (await nodes.get(3)).queue_offsets[0] == 3
            assert nodes.local.reads == 1

    on_loop(test())


def damage_body(answer: Command) -> None:
    body = bytearray(answer.body)
    body[len(body) // 2] ^= 1
    answer.body = bytes(body)


def damage_count(answer: Command) -> None:
    answer.ext["rtCount"] = str(int(answer.ext["rtCount"]) - 1)


def damage_next(answer: Command) -> None:
    answer.ext["nextBeginOffset"] = "0"


def damage_status(answer: Command) -> None:
    answer.ext["rtStatus"] = "NO_MATCHED_MESSAGE"


@pytest.mark.parametrize("damage", [damage_body, damage_count, damage_next, damage_status])
def test_what_a_node_gives_is_checked(scene: Cold, damage: Callable[[Command], None]) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            answers = NodeAnswers(nodes.local.store, Serve(), nodes.metrics, CLOCK, nodes.pool)

            async def lies(peer: Peer, frame: bytes) -> None:
                answer = await answers.answer(decode_command(frame[4:]))
                damage(answer)
                await peer.send(b"".join(encode_command(answer)))

            async with FakeServer(lies) as liar:
                nodes.by(liar.address)
                found = await nodes.get(5)
                assert [bytes(one) for one in found.records] == scene.raws(TOPIC, 1)[5:12]
                assert (nodes.local.reads, nodes.outcome("failed")) == (1, 1)
                assert liar.address in nodes.reads.problems()

    on_loop(test())


def test_records_of_another_place_are_not_believed(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            answers = NodeAnswers(nodes.local.store, Serve(), nodes.metrics, CLOCK, nodes.pool)

            async def elsewhere(peer: Peer, frame: bytes) -> None:
                request = decode_command(frame[4:])
                request.ext["queueOffset"] = "0"
                await peer.send(b"".join(encode_command(await answers.answer(request))))

            async with FakeServer(elsewhere) as liar:
                nodes.by(liar.address)
                found = await nodes.get(50)
                assert [bytes(one) for one in found.records] == scene.raws(TOPIC, 1)[50:57]
                assert nodes.outcome("failed") == 1

    on_loop(test())


def test_a_token_is_wanted(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            address = await nodes.node(token="right")
            for shown, local in (("wrong", 1), ("", 1), ("right", 0)):
                nodes.local.reads = 0
                nodes.by(address, read_node_token=shown)
                assert (await nodes.get(0)).status is GetMessageStatus.FOUND
                assert nodes.local.reads == local
                assert ("serve.token" in str(nodes.reads.problems())) is bool(local)
                assert "right" not in str(nodes.reads.problems())

    on_loop(test())


def test_whatever_else_is_asked_hears_that_it_is_not_supported(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            address = await nodes.node()
            host, _, port = address.rpartition(":")
            node = Upstream([(host, int(port))], None)
            for code in (RequestCode.PULL_MESSAGE, RequestCode.HEART_BEAT, RequestCode.SEND_MESSAGE, 9_999):
                for binary in (False, True):
                    answer = await node.ask(
                        Command(code, 3, ext={"topic": TOPIC}, binary=binary), seconds=5, max_frame_bytes=MIB
                    )
                    assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                    assert f"request type {int(code)} not supported" in (answer.remark or "")
            bad = NodePull(bytes(16), 0, TOPIC, 1, 0, 1, 1, "g").command(4, "")
            bad.ext["queueId"] = "x"
            answer = await node.ask(bad, seconds=5, max_frame_bytes=MIB)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "queueId" in (answer.remark or "")

    on_loop(test())


def test_bytes_that_are_no_question_end_the_connection_and_no_other(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            address = await nodes.node()
            nodes.by(address)
            host, _, port = address.rpartition(":")
            for sent in (
                b"GET / HTTP/1.1\r\n\r\n",
                (MAX_REQUEST_BYTES + 1).to_bytes(4, "big") + b"\0\0\0\0",
                b"\0\0\0\5\1\0\0\0\0",
            ):
                assert (await nodes.get(0)).status is GetMessageStatus.FOUND
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(sent)
                async with asyncio.timeout(5):
                    with suppress(ConnectionError):
                        assert await reader.read(1) == b""
                writer.close()
            assert nodes.local.reads == 0

    on_loop(test())


def test_many_reads_at_once_within_small_bounds_all_come(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            nodes.by(await nodes.node(max_reads=2, answer_bytes=MIB))
            found = await asyncio.gather(*(nodes.get(offset % 90) for offset in range(300)))
            raws = scene.raws(TOPIC, 1)
            for number, one in enumerate(found):
                assert [bytes(record) for record in one.records] == raws[number % 90 : number % 90 + 7]
            assert nodes.local.reads == 0
            assert nodes.servers[0].budget.taken == 0

    on_loop(test())


def test_a_gateway_that_takes_nothing_is_cut_off(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            address = await nodes.node(stall_timeout_ms=100)
            host, _, port = address.rpartition(":")
            place = nodes.local.store.place()
            assert place is not None
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            many = NodePull(*place, TOPIC, 1, 0, 100, MIB, "g")
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            server = nodes.servers[0]
            async with asyncio.timeout(20):
                while not server.sessions:
                    await asyncio.sleep(0.01)
                opaque = 0
                while server.sessions:
                    opaque += 1
                    writer.write(b"".join(encode_command(many.command(opaque, ""))))
                    await asyncio.sleep(0)
                writer.close()
                while server.budget.taken:
                    await asyncio.sleep(0.01)

    on_loop(test())


def test_one_connection_too_many_is_closed(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            address = await nodes.node(max_connections=1)
            nodes.by(address)
            assert (await nodes.get(0)).status is GetMessageStatus.FOUND
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            async with asyncio.timeout(5):
                assert await reader.read(1) == b""
            writer.close()
            assert (await nodes.get(1)).status is GetMessageStatus.FOUND
            assert nodes.local.reads == 0
            nodes.reads.fleet.close()  # and its place is another's
            another, beat = Upstream([(host, int(port))], None), beat_command(1, "")
            async with asyncio.timeout(5):
                answer = None
                while answer is None:
                    with suppress(Unavailable):
                        answer = await another.ask(beat, seconds=5, max_frame_bytes=MIB)
            assert answer.code == ResponseCode.SUCCESS

    on_loop(test())


def test_a_node_that_stops_answers_what_it_was_asked(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            store = Slow(nodes.local.store)
            nodes.by(await nodes.node(store))
            reading = asyncio.create_task(nodes.get(0))
            async with asyncio.timeout(5):
                while not store.waiting:
                    await asyncio.sleep(0.01)
            closing = asyncio.create_task(nodes.servers.pop().close())
            await asyncio.sleep(0.05)
            store.go_on()
            assert (await reading).status is GetMessageStatus.FOUND
            await closing
            assert nodes.local.reads == 0

    on_loop(test())


class Slow:
    """An archive that answers when it is told to."""

    def __init__(self, store: LateStore) -> None:
        self._store = store
        self.waiting: list[tuple[Pull, Future[GetMessageResult]]] = []

    def place(self) -> ArchiveCommit | None:
        return self._store.place()

    def get_message_async(self, pull: Pull) -> Future[GetMessageResult]:
        future: Future[GetMessageResult] = Future()
        self.waiting.append((pull, future))
        return future

    def go_on(self) -> None:
        for pull, future in self.waiting:
            future.set_result(self._store.get_message_async(pull).result())


def test_an_archive_that_is_away_is_a_busy_node(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:

            def away() -> Any:
                raise Unavailable("the archive is not open")

            late = LateStore(away, at_default_level(scene.store)._levels)
            address = await nodes.node(late)
            nodes.by(address)
            assert (await nodes.get(0)).status is GetMessageStatus.FOUND
            assert nodes.local.reads == 1
            assert "busy" in nodes.reads.problems()[address]

    on_loop(test())


def test_damage_that_a_node_meets_is_not_served(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:

            class Damaged(Slow):
                def get_message_async(self, pull: Pull) -> Future[GetMessageResult]:
                    raise Corrupt("an object is damaged", key="data/1")

            address = await nodes.node(Damaged(nodes.local.store))
            nodes.by(address)
            assert (await nodes.get(0)).status is GetMessageStatus.FOUND
            assert nodes.local.reads == 1

    on_loop(test())


def test_nodes_of_no_sense_are_named() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(Exception, match=r"gateway\.read_nodes"):
        settings = replace(Gateway(), read_nodes=("nowhere",))
        open_reads(None, Asking(pool, 1.0), settings, CLOCK, Metrics())  # type: ignore[arg-type]


def test_an_answer_that_nobody_waits_for_is_dropped(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            answers = NodeAnswers(nodes.local.store, Serve(), nodes.metrics, CLOCK, nodes.pool)

            async def twice(peer: Peer, frame: bytes) -> None:
                answer = await answers.answer(decode_command(frame[4:]))
                stray = replace(answer, opaque=answer.opaque + 1000)
                notice = Command(40, 7, 0)
                await peer.send(*(b"".join(encode_command(one)) for one in (notice, stray, answer, answer)))
                assert answer.flag & RESPONSE

            async with FakeServer(twice) as server:
                nodes.by(server.address)
                for offset in range(5):
                    assert (await nodes.get(offset)).queue_offsets[0] == offset
                assert nodes.local.reads == 0

    on_loop(test())
