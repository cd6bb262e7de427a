"""Consumers that ask a read node themselves, over its sockets and a real archive: messages, or back to the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.aged import Stage, aged_cold
from tests.kit.gatewaydesk import BROKER, asking, at_default_level, heartbeat, offsets_of, pull
from tests.kit.gatewaykit import Peer, on_loop
from tests.kit.readstore import Cold
from tiered.clock import SystemClock
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import Command, encode_command
from tiered.codec.remoting.nodebeat import DRAINING, JOINING, LIVE, NodeBeat, Vouch, beat_command
from tiered.metrics import Metrics
from tiered.node import crowd, server
from tiered.node.answers import NodeAnswers
from tiered.node.server import NodeServer
from tiered.settings import Fetch, Serve, Settings

TOPIC = "Orders"
QUEUE = 1
CLOCK = SystemClock()
BACK = ResponseCode.PULL_RETRY_IMMEDIATELY
ID = 0x4000_0001


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Cold]:
    """Two hundred messages in two queues, in four flushes."""
    with aged_cold(tmp_path, Stage.FRESH, open_now=False) as cold:
        for _ in range(4):
            fill(cold)
        cold.open()
        yield cold


def fill(cold: Cold) -> None:
    for number in range(50):
        cold.broker.time_ms += 10
        cold.broker.send(queue_id=number % 2, body=b"%d" % number, properties={"TAGS": "ab"[number // 2 % 2]})
    cold.archive()


@dataclass
class Node:
    """A read node, and connections to it."""

    store: Any
    answers: NodeAnswers
    server: NodeServer
    metrics: Metrics
    state: str = LIVE
    peers: list[Peer] = field(default_factory=list)

    async def connect(self) -> Peer:
        host, _, port = self.server.address.rpartition(":")
        peer = Peer(*await asyncio.open_connection(host, int(port)))
        self.peers.append(peer)
        return peer

    async def ask(self, peer: Peer, request: Command) -> Command:
        await peer.send(b"".join(encode_command(request)))
        return await peer.command()

    async def vouch(self, peer: Peer | None = None, **changed: Any) -> NodeBeat:
        """As a gateway does it: a beat, and one with the word; what the node says of itself."""
        peer = peer or await self.connect()
        said = NodeBeat.parse(await self.ask(peer, beat_command(1, "")))
        place = self.store.place()
        told = replace(Vouch(place.archive_id, place.commit, ID, 60_000, 60_000, said.tick), **changed)
        return NodeBeat.parse(await self.ask(peer, beat_command(2, "", told)))

    def count(self, status: str) -> float:
        return self.metrics.value("tiered_node_answers_total", status=status) or 0.0


@asynccontextmanager
async def node(store: Any, **settings: Any) -> AsyncIterator[Node]:
    chosen = replace(Serve(), **{"listen": "127.0.0.1:0", "clients": True, **settings})
    metrics = Metrics()
    with ThreadPoolExecutor(2) as pool:
        state = [LIVE]
        answers = NodeAnswers(store, chosen, metrics, CLOCK, pool, lambda: made.state, None, BROKER)
        serving = NodeServer(chosen, answers, CLOCK, metrics)
        made = Node(store, answers, serving, metrics, state[0])
        serving.open()
        try:
            yield made
        finally:
            for peer in made.peers:
                peer.writer.transport.abort()
            await serving.close()


def asks(offset: int, count: int = 7, **more: str) -> Command:
    return pull(TOPIC, QUEUE, offset, count=count, **more)


async def read_all(served: Node, peer: Peer, offset: int = 0, **more: str) -> tuple[list[int], int]:
    """Read on until sent back: the offsets that came, and the one to go on at."""
    found: list[int] = []
    while True:
        answer = await served.ask(peer, asks(offset, **more))
        following = int(answer.ext["nextBeginOffset"])
        if answer.code == ResponseCode.SUCCESS:
            found += offsets_of(answer)
        elif following == offset:
            assert answer.code == BACK
            assert answer.ext["suggestWhichBrokerId"] == "0"
            return found, offset
        offset = following


def test_a_consumer_reads_what_is_archived_and_is_sent_back_before_its_end(scene: Cold) -> None:
    async def test() -> None:
        async with node(at_default_level(scene.store)) as served:
            await served.vouch()
            consumer = await served.connect()
            assert (await served.ask(consumer, heartbeat("G", TOPIC))).code == ResponseCode.SUCCESS
            answer = await served.ask(consumer, asks(0))
            assert answer.body == b"".join(scene.raws(TOPIC, QUEUE)[:7])
            assert answer.ext["suggestWhichBrokerId"] == str(ID)
            assert answer.ext["maxOffset"] == "100"
            offsets, end = await read_all(served, consumer)
            assert offsets == list(range(end))
            assert 90 < end < 100, "the last answer would have reached the end"
            for offset in (100, 1000, 1 << 40):
                back = await served.ask(consumer, asks(offset))
                assert (back.code, back.ext["nextBeginOffset"]) == (BACK, str(offset))
                assert int(back.ext["maxOffset"]) > offset
            assert (await served.ask(consumer, pull("Nobody", 5, 3))).code == BACK
            assert served.count("direct") > 10
            assert served.count("sent_back") == 5

    on_loop(test())


def test_a_filter_is_followed_and_skips_nothing_that_it_takes(scene: Cold) -> None:
    async def test() -> None:
        async with node(at_default_level(scene.store)) as served:
            await served.vouch()
            offsets, _ = await read_all(served, await served.connect(), subscription="b")
            assert offsets == [n for n in range(99) if n % 25 % 2 and n <= max(offsets)]
            assert max(offsets) > 80

    on_loop(test())


def test_a_node_that_is_behind_gives_what_is_there_only_when_it_came_to_the_word(scene: Cold) -> None:
    async def test() -> None:
        seldom = replace(Settings(), fetch=replace(Fetch(), follow_ms=3_600_000))
        behind = at_default_level(scene.open(settings=seldom))
        before = behind.place()
        fill(scene)
        scene.fresh()
        ahead = at_default_level(scene.store)
        assert ahead.follow()
        now = ahead.place()
        assert before is not None
        assert now is not None
        assert before.commit < now.commit
        async with node(behind) as served:
            consumer = await served.connect()
            await served.vouch(commit=now.commit)
            offsets, end = await read_all(served, consumer)
            assert offsets == list(range(end))
            assert end > 110, "it looked for what the gateway knows"
            await served.vouch(commit=now.commit + 1)
            assert await read_all(served, consumer) == ([], 0), "it cannot come there"

    on_loop(test())


def test_without_a_word_and_with_one_of_another_archive_everybody_goes_back(scene: Cold) -> None:
    async def test() -> None:
        async with node(at_default_level(scene.store)) as served:
            consumer = await served.connect()
            assert await read_all(served, consumer) == ([], 0)
            await served.vouch(archive_id=bytes(16))
            assert await read_all(served, consumer) == ([], 0)
            await served.vouch(tick="0-0")
            assert await read_all(served, consumer) == ([], 0)
            await served.vouch(hold_ms=1500)
            assert (await served.ask(consumer, asks(0))).code == ResponseCode.SUCCESS
            await asyncio.sleep(1.6)
            assert await read_all(served, consumer) == ([], 0)

    on_loop(test())


@pytest.mark.parametrize("state", [DRAINING, JOINING])
def test_a_node_that_is_not_live_sends_back(scene: Cold, state: str) -> None:
    async def test() -> None:
        async with node(at_default_level(scene.store)) as served:
            await served.vouch()
            consumer = await served.connect()
            assert (await served.ask(consumer, asks(0))).code == ResponseCode.SUCCESS
            served.state = state
            reads = served.answers.reads
            assert await read_all(served, consumer) == ([], 0)
            assert served.answers.reads == reads, "who is sent back does not keep it from leaving"

    on_loop(test())


def test_nothing_but_pulls_and_heartbeats_is_taken(scene: Cold) -> None:
    """A position that was committed here would be lost."""

    async def test() -> None:
        async with node(at_default_level(scene.store)) as served:
            await served.vouch()
            consumer = await served.connect()
            for code in (
                RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.SEND_MESSAGE,
                RequestCode.GET_MAX_OFFSET, RequestCode.GET_MIN_OFFSET,
            ):  # fmt: skip
                request = asking(code, topic=TOPIC, queueId="1", consumerGroup="G", commitOffset="5")
                assert (await served.ask(consumer, request)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            committing = asks(5, sysFlag="7", commitOffset="5")
            assert (await served.ask(consumer, committing)).code == BACK
            assert (await served.ask(consumer, asking(35))).code == ResponseCode.SUCCESS

    on_loop(test())


def test_an_archive_that_fails_sends_back(scene: Cold) -> None:
    class Fails:
        def __init__(self, store: Any) -> None:
            self.place = store.place

        def get_message_async(self, asked: Any) -> Any:
            raise RuntimeError("a fault of ours")

    async def test() -> None:
        async with node(Fails(at_default_level(scene.store))) as served:
            await served.vouch()
            assert await read_all(served, await served.connect()) == ([], 0)
            nonsense = asks(0)
            del nonsense.ext["queueOffset"]
            answer = await served.ask(await served.connect(), nonsense)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "queueOffset" in str(answer.remark)

    on_loop(test())


def test_without_the_setting_a_node_answers_gateways_only(scene: Cold) -> None:
    async def test() -> None:
        async with node(at_default_level(scene.store), clients=False) as served:
            said = await served.vouch()
            assert (said.clients, said.tick) == (False, "")
            answer = await served.ask(await served.connect(), asks(0))
            assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED

    on_loop(test())


# ---- connections


def test_one_consumer_too_many_is_answered_that_it_goes_back_and_hung_up_on(
    scene: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed at once it would ask again and again, and read nothing."""
    monkeypatch.setattr(server, "TURNED_SECONDS", 1.5)

    async def test() -> None:
        async with node(at_default_level(scene.store), max_clients_per_host=2) as served:
            await served.vouch()
            first, second, third = [await served.connect() for _ in range(3)]
            for peer in (first, second):
                assert (await served.ask(peer, asks(0))).code == ResponseCode.SUCCESS
            assert (await served.ask(third, heartbeat("G", TOPIC))).code == ResponseCode.SUCCESS
            assert await read_all(served, third) == ([], 0)
            assert await third.at_end()
            assert (await served.ask(first, asks(7))).code == ResponseCode.SUCCESS
            assert (await served.vouch()).clients, "gateways and other machines have room"
            await first.close()
            async with asyncio.timeout(5):
                while served.server.crowd.taken == 2:
                    await asyncio.sleep(0.01)
            fourth = await served.connect()
            assert (await served.ask(fourth, asks(0))).code == ResponseCode.SUCCESS

    on_loop(test())


def test_a_node_without_room_for_connections_says_so_to_gateways(scene: Cold) -> None:
    async def test() -> None:
        async with node(at_default_level(scene.store), max_connections=1, max_clients=2) as served:
            gateway = await served.connect()
            assert (await served.vouch(gateway)).clients
            mute = [await served.connect() for _ in range(2)]
            while len(served.server.sessions) < 3:
                await asyncio.sleep(0.01)
            assert not (await served.vouch(gateway)).clients
            assert await (await served.connect()).at_end()
            await mute[0].close()
            while len(served.server.sessions) == 3:
                await asyncio.sleep(0.01)
            assert (await served.vouch(gateway)).clients

    on_loop(test())


def test_connections_on_which_nobody_asks_are_ended_and_gateways_are_not(
    scene: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "IDLE_SECONDS", 2.5)

    async def test() -> None:
        async with node(at_default_level(scene.store), stall_timeout_ms=1000) as served:
            gateway, mute, silent, beats = [await served.connect() for _ in range(4)]
            await served.vouch(gateway)
            await served.ask(silent, heartbeat("G", TOPIC))
            ended = [asyncio.create_task(peer.at_end()) for peer in (mute, silent)]
            while not all(task.done() for task in ended):
                await served.ask(beats, heartbeat("G", TOPIC))
                await asyncio.sleep(0.3)
            assert [task.result() for task in ended] == [True, True]
            assert served.server.crowd.taken == 1
            assert (await served.vouch(gateway)).clients
            assert (await served.ask(beats, asks(0))).code == ResponseCode.SUCCESS

    on_loop(test())
    assert crowd.IDLE_SECONDS > 30
