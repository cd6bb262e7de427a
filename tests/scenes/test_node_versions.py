"""Nodes and gateways of two versions, what beats say over the wire, a node that drains and one that turns slow."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.aged import Stage
from tests.kit.gatewaykit import FakeServer, Peer, on_loop
from tests.kit.process import PATIENCE
from tests.kit.readstore import READER, Cold
from tests.scenes.test_read_nodes import CLOCK, TOPIC, Fleet, Slow, fleet, made
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Command, decode_command, encode_command
from tiered.codec.remoting.nodebeat import LAST_WIRE, NodeBeat
from tiered.codec.remoting.nodepull import NodeAnswer, NodeStatus
from tiered.fetch.pull import Pull
from tiered.gateway.knowledge.opening import LateStore
from tiered.gateway.nodes.fleet import NodePlace
from tiered.model import ArchiveCommit, GetMessageResult, GetMessageStatus
from tiered.node.answers import NodeAnswers
from tiered.node.server import NodeServer
from tiered.settings import MIB, Serve
from tiered.version import __version__


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Cold]:
    with made(tmp_path, Stage.FRESH) as scene:
        yield scene


async def beaten(nodes: Fleet, holds: Callable[[str], bool]) -> None:
    """Everybody is asked for heartbeats until that holds of what is said of the only node."""
    async with asyncio.timeout(10 * PATIENCE):
        while not holds(*nodes.reads.nodes().values()):
            nodes.reads.fleet.woke(nodes.reads.fleet.ask_beats())
            await asyncio.sleep(0.01)


def is_beat(frame: bytes) -> bool:
    return decode_command(frame[4:]).code == RequestCode.HEART_BEAT


def test_a_node_that_is_too_new_is_not_asked_and_the_gateway_reads_itself(scene: Cold) -> None:
    async def newer(peer: Peer, frame: bytes) -> None:
        assert is_beat(frame), "no read was to come here"
        fields = NodeBeat(LAST_WIRE + 1, LAST_WIRE + 5).fields()
        answer = Command(ResponseCode.SUCCESS, decode_command(frame[4:]).opaque, RESPONSE, ext=fields)
        await peer.send(b"".join(encode_command(answer)))

    async def test() -> None:
        async with fleet(scene) as nodes, FakeServer(newer) as server:
            nodes.by(server.address)
            await beaten(nodes, lambda said: "understands versions 3 to 7" in said)
            for offset in range(5):
                assert (await nodes.get(offset)).queue_offsets[0] == offset
            assert nodes.local.reads == 5
            assert nodes.outcome("failed") == 0

    on_loop(test())


def test_a_node_that_knows_no_beats_is_asked(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            answers = NodeAnswers(nodes.local.store, Serve(), nodes.metrics, CLOCK, nodes.pool)
            beats = []

            async def older(peer: Peer, frame: bytes) -> None:
                request = decode_command(frame[4:])
                if is_beat(frame):
                    beats.append(request)
                    answer = Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, request.opaque, RESPONSE)
                else:
                    answer = await answers.answer(request)
                await peer.send(b"".join(encode_command(answer)))

            async with FakeServer(older) as server:
                nodes.by(server.address)
                for _ in range(3):
                    nodes.reads.fleet.ask_beats()
                    assert (await nodes.get(3)).queue_offsets[0] == 3
                assert beats
                assert nodes.local.reads == 0
                assert nodes.reads.problems() == {}

    on_loop(test())


def test_a_status_that_is_not_known_has_the_gateway_read_itself(scene: Cold) -> None:
    async def newer(peer: Peer, frame: bytes) -> None:
        fields = {**NodeAnswer(NodeStatus.ELSEWHERE).fields(), "rtStatus": "LATER_PERHAPS"}
        opaque = decode_command(frame[4:]).opaque
        answer = Command(ResponseCode.PULL_NOT_FOUND, opaque, RESPONSE, ext=fields, binary=True)
        await peer.send(b"".join(encode_command(answer)))

    async def test() -> None:
        async with fleet(scene) as nodes, FakeServer(newer) as server:
            nodes.by(server.address)
            assert (await nodes.get(5)).status is GetMessageStatus.FOUND
            assert (nodes.local.reads, nodes.outcome("elsewhere")) == (1, 1)
            assert nodes.reads.problems() == {}, "it is no fault of the node"

    on_loop(test())


def test_what_a_node_says_in_its_beats(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            state = ["joining"]
            settings = replace(Serve(), listen="127.0.0.1:0", token="right")
            answers = NodeAnswers(
                nodes.local.store, settings, nodes.metrics, CLOCK, nodes.pool, lambda: state[0]
            )
            server = NodeServer(settings, answers, CLOCK, nodes.metrics)
            server.open()
            nodes.servers.append(server)
            nodes.by(server.address, read_node_token="right")
            await beaten(nodes, lambda said: said == "its archive is not open")
            state[0] = "live"
            await beaten(nodes, lambda said: said == "answers")
            (status,) = nodes.reads.fleet.status()
            assert (status["version"], status["wire"], status["state"]) == (
                __version__,
                [1, LAST_WIRE],
                "live",
            )
            assert (await nodes.get(1)).queue_offsets[0] == 1
            state[0] = "draining"
            await beaten(nodes, lambda said: said == "it drains, and leaves")
            assert (await nodes.get(1)).queue_offsets[0] == 1
            assert nodes.local.reads == 1
            nodes.by(server.address, read_node_token="wrong")
            nodes.reads.fleet.ask_beats()
            assert (await nodes.get(1)).queue_offsets[0] == 1
            assert "serve.token" in nodes.reads.problems()[server.address]

    on_loop(test())


def test_a_draining_node_answers_until_gateways_have_turned_away(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            address = await nodes.node()
            nodes.by(address)
            (server,) = nodes.servers
            assert (await nodes.get(0)).queue_offsets[0] == 0
            quiet = asyncio.create_task(server.quiet(60.0, 0.3))
            for offset in range(20):
                await asyncio.sleep(0.05)
                assert (await nodes.get(offset)).queue_offsets[0] == offset
            assert not quiet.done(), "it goes on while it is asked"
            async with asyncio.timeout(20 * PATIENCE):
                await quiet
            assert nodes.local.reads == 0
            began = CLOCK.monotonic()
            nodes.reads.fleet.close()
            while server.sessions:
                await asyncio.sleep(0.01)
            await server.quiet(60.0, 30.0)
            assert CLOCK.monotonic() - began < 25 * PATIENCE, "without a gateway nobody is waited for"

    on_loop(test())


def test_a_node_at_another_address_is_reached_there(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            one, two = await nodes.node(), await nodes.node()
            reads = nodes.by()
            for address in (one, two):
                reads.fleet.set_nodes([NodePlace("a", address)])
                assert (await nodes.get(2)).queue_offsets[0] == 2
                assert reads.nodes() == {"a": "answers"}
            assert nodes.local.reads == 0

    on_loop(test())


def test_a_node_that_turns_slow_rests_and_the_others_read(scene: Cold) -> None:
    class Late:
        """An archive that answers late."""

        def __init__(self, store: LateStore) -> None:
            self.store = store

        def place(self) -> ArchiveCommit | None:
            return self.store.place()

        def get_message_async(self, pull: Pull) -> Future[GetMessageResult]:
            future: Future[GetMessageResult] = Future()
            made = self.store.get_message_async(pull).result()
            asyncio.get_running_loop().call_later(0.3, future.set_result, made)
            return future

    async def test() -> None:
        async with fleet(scene) as nodes:
            late = await nodes.node(Late(nodes.local.store))
            fast = [await nodes.node(), await nodes.node()]
            reads = nodes.by(late, *fast, node_load_percent=1, node_slow_factor=2)
            async with asyncio.timeout(20 * PATIENCE):
                while reads.nodes()[late] == "answers":
                    found = await asyncio.gather(*(nodes.get(offset) for offset in range(30)))
                    assert [one.queue_offsets[0] for one in found] == list(range(30))
                    reads.fleet.judge()
            standing = {status["name"]: status["state"] for status in reads.fleet.status()}
            assert standing == {late: "slow", **dict.fromkeys(fast, "live")}
            assert "slow beside the others" in reads.problems()[late]
            assert nodes.local.reads == 0
            assert (await nodes.get(3)).queue_offsets[0] == 3

    on_loop(test())


def test_a_busy_node_answers_beats_before_its_reads(scene: Cold) -> None:
    """Its reads have all the bytes that it may have under way, and more wait for them."""

    async def test() -> None:
        async with fleet(scene) as nodes:
            store = Slow(nodes.local.store)
            reads = nodes.by(await nodes.node(store, answer_bytes=MIB))
            pull = Pull(READER, TOPIC, 1, 0, 5, MIB, None)
            reading = [asyncio.create_task(reads.read(pull, None, 60.0)) for _ in range(3)]
            async with asyncio.timeout(10 * PATIENCE):
                while not store.waiting or nodes.servers[0].budget.taken < MIB:
                    await asyncio.sleep(0.01)
                reads.fleet.ask_beats()
                while not reads.fleet.status()[0]["version"]:
                    await asyncio.sleep(0.01)
                assert not any(task.done() for task in reading)
                while not all(task.done() for task in reading):
                    store.go_on()
                    store.waiting.clear()
                    await asyncio.sleep(0.01)
            assert [task.result().queue_offsets[0] for task in reading] == [0, 0, 0]

    on_loop(test())


def test_who_answers_reads_is_not_silent(scene: Cold) -> None:
    async def test() -> None:
        async with fleet(scene) as nodes:
            answers = NodeAnswers(nodes.local.store, Serve(), nodes.metrics, CLOCK, nodes.pool)

            async def deaf(peer: Peer, frame: bytes) -> None:
                if not is_beat(frame):
                    await peer.send(b"".join(encode_command(await answers.answer(decode_command(frame[4:])))))

            async with FakeServer(deaf) as server:
                reads = nodes.by(server.address, node_beat_ms=50)
                watching = asyncio.create_task(reads.fleet.watch())
                began = CLOCK.monotonic()
                while CLOCK.monotonic() - began < 1.0:
                    assert (await nodes.get(4)).queue_offsets[0] == 4
                    await asyncio.sleep(0.01)
                assert nodes.local.reads == 0, "twenty beats without an answer, and it is asked"
                async with asyncio.timeout(20 * PATIENCE):
                    while "silent" not in reads.nodes()[server.address]:
                        await asyncio.sleep(0.01)
                watching.cancel()

    on_loop(test())
