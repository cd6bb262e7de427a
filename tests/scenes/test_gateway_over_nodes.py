"""The border between compute and storage: whoever is a store has its verbs, and a gateway answers alike over each."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.aged import Stage, aged_cold
from tests.kit.gatewaydesk import RETRY, Desk, at_default_level, pull, too_small
from tests.kit.gatewaykit import on_loop
from tests.kit.readstore import Cold
from tiered.clock import SystemClock
from tiered.codec.remoting.frame import Command
from tiered.errors import TieredError
from tiered.gateway.knowledge.opening import LateStore
from tiered.gateway.ports import PASS, NewBody
from tiered.metrics import Metrics
from tiered.node.answers import NodeAnswers
from tiered.node.server import NodeServer
from tiered.settings import Serve
from tiered.store.base import StoreOfMessages
from tiered.store.messages import MessageStore

TOPIC = "Orders"


@pytest.fixture(params=[Stage.FRESH, Stage.MIXED], ids=lambda stage: stage.value)
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cold]:
    """A hundred messages in two queues, in two flushes, and a reader."""
    with aged_cold(tmp_path, request.param, open_now=False) as made:
        for flush in range(2):
            for number in range(50):
                made.broker.time_ms += 10
                made.broker.send(
                    queue_id=number % 2, body=b"%d" % (50 * flush + number), properties={"TAGS": "ab"[flush]}
                )
            made.archive()
        made.open()
        yield made


@pytest.mark.parametrize("kind", [MessageStore, LateStore])
def test_every_store_has_the_verbs_of_the_border(kind: type) -> None:
    verbs = [name for name in vars(StoreOfMessages) | _inherited() if not name.startswith("_")]
    assert {"get_message_async", "query_message", "min_offset", "max_offset", "reach", "follow"} <= set(verbs)
    for name in verbs:
        assert callable(getattr(kind, name)), name
        assert kind is LateStore or name in vars(kind), f"{name} is the port's own, which does nothing"


def _inherited() -> dict[str, object]:
    return {
        name: each
        for base in StoreOfMessages.__mro__
        for name, each in vars(base).items()
        if inspect.isfunction(each)
    }


async def asked(desk: Desk, request: Command, answer: Command) -> object:
    """What reaches the client."""
    desk.answers.wants(request)
    desk.answers.observe(request, desk.connection)
    verdict = desk.judge(request, answer)
    if verdict is PASS:
        return "the broker's"
    try:
        made = await desk.answers.answer(request, answer, verdict, desk.connection)
    except TieredError:
        return RETRY
    if isinstance(made, NewBody):
        return bytes(made.body)
    return "the broker's" if made is None else (made.code, made.remark, dict(made.ext), bytes(made.body))


def test_a_gateway_answers_alike_over_its_own_store_and_over_a_node(scene: Cold) -> None:
    async def test() -> None:
        clock, store = SystemClock(), at_default_level(scene.store)
        with ThreadPoolExecutor(4) as pool:
            serve = replace(Serve(), listen="127.0.0.1:0")
            server = NodeServer(serve, NodeAnswers(store, serve, Metrics(), clock, pool), clock, Metrics())
            server.open()
            own, by_node = Desk(store), Desk(store, read_nodes=(server.address,))
            try:
                await compared(own, by_node)
            finally:
                by_node.answers.reads.fleet.close()
                await server.close()
                for desk in (own, by_node):
                    desk.close()

    on_loop(test())


async def compared(own: Desk, by_node: Desk) -> None:
    """Every offset, with and without a filter; the broker has begun in the middle, and at the archive's end."""
    found = []
    for offset in (*range(50), 50, 51, 1000):
        for count, subscription in ((7, "*"), (32, "b"), (32, "none")):
            for low in (25, 50):
                ask = pull(TOPIC, 1, offset, count=count, subscription=subscription)
                one, other = [await asked(desk, ask, too_small(low, 50)) for desk in (own, by_node)]
                assert one == other, (offset, count, subscription, low)
                found.append(one)
    kinds = {each if isinstance(each, str) else each[0] for each in found if isinstance(each, str | tuple)}
    assert {0, 20, RETRY} <= kinds, f"records, filters that took none, and what neither has: {kinds}"
    given = [desk.metrics.node_reads.labels("given")._value.get() for desk in (own, by_node)]
    assert given[0] == 0
    assert given[1] > 100
