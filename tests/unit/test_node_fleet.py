"""Who of a gateway's read nodes is asked: what takes a node out, what brings it back, and what is said of it, once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.kit.gatewaykit import on_loop
from tiered.clock import ManualClock
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Command
from tiered.codec.remoting.nodebeat import LAST_WIRE, NodeBeat, beat_command, common_wire
from tiered.errors import Corrupt, Refused, Unavailable
from tiered.gateway.nodes.fleet import NodeFleet, NodePlace, ReadNode, Standing
from tiered.gateway.nodes.slow import ENOUGH, RESTS
from tiered.metrics import Metrics
from tiered.model import MessageQueue

QUEUE = MessageQueue("t", 1)


class Wire:
    """The way to one node: what its beats bring, and whether it was closed."""

    def __init__(self) -> None:
        self.brings: NodeBeat | Exception | None = NodeBeat(1, LAST_WIRE)
        self.beats = 0
        self.closed = False

    async def beat(self, seconds: float) -> NodeBeat | None:
        self.beats += 1
        if isinstance(self.brings, Exception):
            raise self.brings
        return self.brings

    def close(self) -> None:
        self.closed = True


class World:
    """A fleet on a clock that a test moves. ``beat``: a second passes, and everybody is asked for a heartbeat."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.wires: dict[str, Wire] = {}
        self.fleet = NodeFleet(
            self._connect, self.clock, self.metrics, node_seconds=2.0, **{"slow_factor": 4, **settings}
        )  # type: ignore[arg-type]

    def _connect(self, address: str) -> Any:
        return self.wires.setdefault(address, Wire())

    def node(self, name: str) -> ReadNode:
        return self.fleet._nodes[name]

    def places(self, *names: str, **changed: Any) -> None:
        self.fleet.set_nodes([NodePlace(name, f"{name}:1", **changed) for name in names])

    async def beat(self, seconds: int = 1, asleep: float = 0.0) -> None:
        for _ in range(seconds):
            began = self.fleet.ask_beats()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            self.clock.advance(asleep + 1.0)
            self.fleet.woke(began)

    def asked(self) -> set[str]:
        """Who is asked for one of many queues."""
        found = [self.fleet.choose(MessageQueue("t", number), ()) for number in range(60)]
        return {node.name for node in found if node is not None}

    def standing(self, name: str) -> Standing:
        return self.node(name).standing(self.clock.monotonic())[0]

    def counted(self, state: Standing) -> float | None:
        self.fleet.publish()
        return self.metrics.value("tiered_gateway_nodes", state=state.value)


def play(scene: Callable[[World], Awaitable[None]], **settings: Any) -> None:
    async def inner() -> None:
        await scene(World(**settings))

    on_loop(inner())


def test_a_node_that_hangs_is_taken_out_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        world.places("a", "b", "c")
        await world.beat(10)
        assert world.asked() == {"a", "b", "c"}
        world.wires["b:1"].brings = None
        await world.beat(2)
        assert world.asked() == {"a", "b", "c"}, "one late beat is nothing"
        await world.beat(4)
        assert world.standing("b") is Standing.AWAY
        assert world.asked() == {"a", "c"}
        assert "silent (phi" in world.fleet.nodes()["b"]
        assert (world.counted(Standing.LIVE), world.counted(Standing.AWAY)) == (2, 1)
        await world.beat(60)
        world.wires["b:1"].brings = NodeBeat(1, LAST_WIRE)
        await world.beat(2)
        assert world.asked() == {"a", "b", "c"}
        world.wires["b:1"].brings = None
        await world.beat(6)
        assert world.standing("b") is Standing.AWAY, "as soon as the first time"

    with caplog.at_level(logging.INFO, "tiered.gateway"):
        play(scene)
    said = [(record.levelname, record.message.split(":")[0]) for record in caplog.records]
    assert said == [
        ("WARNING", "a read node is left alone"), ("INFO", "a read node is asked again"),
        ("WARNING", "a read node is left alone"),
    ]  # fmt: skip


def test_a_node_that_cannot_be_reached_is_out_at_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(world: World) -> None:
        world.places("a", "b")
        await world.beat(3)
        world.wires["a:1"].brings = Unavailable("connection refused")
        await world.beat(30)
        assert world.asked() == {"b"}
        assert "refused" in world.fleet.nodes()["a"]
        world.wires["a:1"].brings = NodeBeat(1, LAST_WIRE)
        await world.beat()
        assert world.asked() == {"a", "b"}

    with caplog.at_level(logging.INFO, "tiered.gateway"):
        play(scene)
    assert len(caplog.records) == 2


def test_when_all_are_gone_nobody_is_asked() -> None:
    async def scene(world: World) -> None:
        world.places("a", "b")
        for wire in world.wires.values():
            wire.brings = Unavailable("gone")
        await world.beat()
        assert world.fleet.choose(QUEUE, ()) is None

    play(scene)


def test_a_gateway_that_slept_takes_nobody_out() -> None:
    async def scene(world: World) -> None:
        world.places("a", "b")
        await world.beat(5)
        for wire in world.wires.values():
            wire.brings = None
        await world.beat(asleep=3600.0)
        assert world.asked() == {"a", "b"}
        await world.beat(5)
        assert world.asked() == set()

    play(scene)


def test_it_watches_until_it_is_ended() -> None:
    async def scene(world: World) -> None:
        world.places("a")
        watching = asyncio.create_task(world.fleet.watch())
        async with asyncio.timeout(20):
            while world.wires["a:1"].beats < 3:
                await asyncio.sleep(0.001)
        watching.cancel()
        world.fleet.close()
        assert world.wires["a:1"].closed

    play(scene, beat_seconds=0.001)


def test_a_slow_node_rests_and_is_tried_again() -> None:
    async def scene(world: World) -> None:
        world.places("a", "b", "c")

        def read(**seconds: float) -> None:
            for name, took in seconds.items():
                for _ in range(ENOUGH):
                    world.node(name).times.took(took, world.clock.monotonic())

        await world.beat(2)
        read(a=0.05, b=0.05, c=1.0)
        await world.beat()
        assert world.asked() == {"a", "b"}
        assert world.standing("c") is Standing.SLOW
        await world.beat(round(RESTS.seconds(1)))
        assert world.asked() == {"a", "b", "c"}
        read(a=0.05, b=0.05, c=0.06)
        await world.beat()
        assert world.asked() == {"a", "b", "c"}

    play(scene)


def test_one_that_drains_or_joins_is_not_asked_whoever_says_so() -> None:
    async def scene(world: World) -> None:
        world.places("a", "b")
        await world.beat()
        world.wires["a:1"].brings = NodeBeat(1, LAST_WIRE, "draining")
        world.wires["b:1"].brings = NodeBeat(1, LAST_WIRE, "joining")
        await world.beat()
        assert (world.standing("a"), world.standing("b")) == (Standing.DRAINING, Standing.JOINING)
        assert world.asked() == set()
        world.wires["a:1"].brings = world.wires["b:1"].brings = NodeBeat(1, LAST_WIRE)
        await world.beat()
        world.places("a", "b", state="draining")
        assert world.asked() == set(), "the registry's word is enough"
        world.places("a", "b", state="joining")
        assert world.asked() == {"a", "b"}, "a beat is newer than a look at the registry"

    play(scene)


def test_nodes_of_other_versions() -> None:
    async def scene(world: World) -> None:
        world.fleet.set_nodes(
            [NodePlace("old", "old:1"), NodePlace("new", "new:1", wire_from=LAST_WIRE + 1, wire_to=9)]
        )
        assert world.asked() == {"old"}, "known from the registry, before a word was spoken"
        unsupported = Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, 1, RESPONSE)
        world.wires["old:1"].brings = NodeBeat.parse(unsupported)
        world.wires["new:1"].brings = NodeBeat(LAST_WIRE + 1, 9)
        await world.beat(20)
        assert world.asked() == {"old"}
        assert "understands versions 3 to 9" in world.fleet.nodes()["new"]
        world.wires["new:1"].brings = NodeBeat(LAST_WIRE, 9)
        await world.beat()
        assert world.asked() == {"old", "new"}

    play(scene)


def test_a_node_with_another_token_is_there_and_a_liar_is_not() -> None:
    async def scene(world: World) -> None:
        world.places("a", "b")
        world.wires["a:1"].brings = Refused("a read node wants another token")
        world.wires["b:1"].brings = Corrupt("makes no sense")
        await world.beat(20)
        assert (world.standing("a"), world.standing("b")) == (Standing.LIVE, Standing.AWAY)

    play(scene)


def test_a_name_at_another_address_is_another_connection_and_the_same_share() -> None:
    async def scene(world: World) -> None:
        world.places("a", "b")
        queues = [MessageQueue("t", number) for number in range(50)]
        before = [node.name for queue in queues if (node := world.fleet.choose(queue, ())) is not None]
        world.fleet.set_nodes([NodePlace("a", "elsewhere:9"), NodePlace("b", "b:1")])
        after = [node.name for queue in queues if (node := world.fleet.choose(queue, ())) is not None]
        assert before == after
        assert world.node("a").connection is world.wires["elsewhere:9"]  # type: ignore[comparison-overlap]
        assert world.node("b").connection is world.wires["b:1"]  # type: ignore[comparison-overlap]

    play(scene)


def test_load_is_bounded_and_what_was_asked_is_not_asked_again() -> None:
    async def scene(world: World) -> None:
        world.places("a", "b", "c")
        first = world.fleet.choose(QUEUE, ())
        assert first is not None
        first.reads = 4
        second = world.fleet.choose(QUEUE, ())
        assert second is not None
        assert second is not first
        third = world.fleet.choose(QUEUE, (first.name, second.name))
        assert third is not None
        assert {first.name, second.name, third.name} == {"a", "b", "c"}
        assert world.fleet.choose(QUEUE, ("a", "b", "c")) is None

    play(scene)


def test_the_answer_to_a_beat_over_the_wire() -> None:
    question = beat_command(7, "secret")
    assert (question.code, question.opaque, question.ext["rtToken"]) == (RequestCode.HEART_BEAT, 7, "secret")
    said = NodeBeat(1, 2, "draining", "0.1.0")
    answer = Command(ResponseCode.SUCCESS, 7, RESPONSE, ext=said.fields())
    assert NodeBeat.parse(answer) == said
    assert (
        NodeBeat.parse(
            Command(ResponseCode.SUCCESS, 7, RESPONSE, ext={**said.fields(), "rtState": "odd"})
        ).state
        == "draining"
    )
    with pytest.raises(Refused, match="token"):
        NodeBeat.parse(Command(ResponseCode.NO_PERMISSION, 7, RESPONSE))
    for wrong in ({}, {**said.fields(), "rtWire": "x"}):
        with pytest.raises(Corrupt):
            NodeBeat.parse(Command(ResponseCode.SUCCESS, 7, RESPONSE, ext=wrong))
    assert [common_wire(*known) for known in ((1, 1), (1, 9), (2, 2), (3, 9))] == [1, 2, 2, None]
