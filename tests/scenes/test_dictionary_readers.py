"""Blocks compressed with a dictionary, read by a key-value view, by replay, by read nodes; what each does without one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kit.gatewaydesk import at_default_level
from tests.kit.gatewaykit import on_loop
from tests.kit.kvscene import KeyValueScene
from tests.kit.merging import merge_all
from tests.kit.readstore import READER, Cold, cold
from tests.kit.replaying import bench
from tiered.archive.read.objects import ObjectReader
from tiered.clock import SystemClock
from tiered.codec.format.sections import SectionKind
from tiered.errors import Corrupt, Refused
from tiered.fetch.pull import Pull
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.nodes.reads import open_reads
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus
from tiered.node.answers import NodeAnswers
from tiered.node.server import NodeServer
from tiered.replay.base import GroupQueue, NewDebt
from tiered.settings import KIB, Gateway, Serve

TOPIC, QUEUES, ROWS = "Orders", 60, 8
SIZE = 1024
CLOCK = SystemClock()


def withhold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody finds a dictionary from now on."""
    monkeypatch.setattr(ObjectReader, "dictionary", lambda reader, item: None)


@pytest.fixture(params=["as written", "merged"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cold]:
    """Many quiet queues, archived in two flushes."""
    dispatch = {"block_bytes": 4096, "inline_bytes": 0, "dictionary_bytes": SIZE}
    with cold(tmp_path, dispatch=dispatch, open_now=False) as found:
        for row in range(ROWS):
            for queue_id in range(QUEUES):
                body = b'{"order":%d,"state":"created"}' % (row * QUEUES + queue_id)
                found.broker.send(TOPIC, queue_id, body, properties={"seq": str(row), "UNIQ_KEY": f"U{row}"})
            if row % (ROWS // 2) == ROWS // 2 - 1:
                found.archive()
        if request.param == "merged":
            merge_all(found.daemon, dictionary_bytes=SIZE)
        objects = [item for item in found.daemon.state.objects() if item.references]
        with_one = [item for item in objects if SectionKind.DICTIONARY in item.sections]
        assert sum(item.references for item in with_one) >= QUEUES, (
            "each queue has a part compressed with one"
        )
        found.open()
        yield found


def given_by_a_node(made: Cold, queue_id: int) -> tuple[list[bytes], float]:
    """What a gateway with a read node gives of a queue, and how many of its reads the node answered."""
    metrics, given = Metrics(), list[GetMessageResult]()

    async def read() -> None:
        with ThreadPoolExecutor(4) as pool:
            store, serve = at_default_level(made.store), replace(Serve(), listen="127.0.0.1:0")
            node = NodeServer(serve, NodeAnswers(store, serve, metrics, CLOCK, pool), CLOCK, metrics)
            node.open()
            try:
                settings = replace(Gateway(), read_nodes=(node.address,))
                reads = open_reads(store, Asking(pool, 10.0), settings, CLOCK, metrics)
                given.append(
                    await reads.read(Pull(READER, TOPIC, queue_id, 0, 32, 64 * KIB, None), None, 10.0)
                )
            finally:
                await node.close()

    on_loop(asyncio.wait_for(read(), 30))
    assert given[0].status is GetMessageStatus.FOUND
    return [bytes(record) for record in given[0].records], metrics.node_reads.labels("given")._value.get()


def test_a_read_node_gives_what_the_broker_wrote(made: Cold) -> None:
    for queue_id in (0, QUEUES // 2, QUEUES - 1):
        assert given_by_a_node(made, queue_id) == (made.raws(TOPIC, queue_id), 1)


def test_without_its_dictionary_no_read_node_gives_anything(
    made: Cold, monkeypatch: pytest.MonkeyPatch
) -> None:
    withhold(monkeypatch)
    with pytest.raises(Corrupt, match="dictionary"):
        given_by_a_node(made, 0)


@dataclass(frozen=True)
class Replayed:
    """What a group was given (number and body of each message), and what became of its debt."""

    given: list[tuple[str, bytes]]
    drained: int
    holes: int


def replayed(made: Cold, directory: Path) -> Replayed:
    """A group is owed all of queue 7; the drain takes a few steps."""
    directory.mkdir()
    with bench(directory, store=made.store) as b:
        b.ledger.look({}, [NewDebt(GroupQueue("G", TOPIC, 7), 0, ROWS)])
        for _ in range(5):
            with suppress(Corrupt):
                b.drain.step()
            b.clock.advance(10)
        [debt] = b.ledger.books().debts.values()
        given = [(sent.properties["seq"], sent.body) for sent in b.broker.sent(f"%RETRY%G_{TOPIC}")]
        return Replayed(given, debt.drained, debt.holes)


def test_replay_gives_what_the_broker_wrote(made: Cold, tmp_path: Path) -> None:
    wrote = [(m.properties["seq"], m.body) for m, _ in made.broker.sent if m.queue_id == 7]
    assert replayed(made, tmp_path / "replay") == Replayed(wrote, ROWS, 0)


def test_without_its_dictionary_nothing_is_replayed_and_all_is_owed(
    made: Cold, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    withhold(monkeypatch)
    assert replayed(made, tmp_path / "replay") == Replayed([], 0, 0)


@pytest.fixture
def history(tmp_path: Path) -> KeyValueScene:
    """A namespace's whole history, in an archive alone."""
    scene = KeyValueScene(tmp_path, file_bytes=1 << 20)
    scene.puts(400)
    small = ("dispatch.block_bytes=4KiB", "dispatch.inline_bytes=0", f"dispatch.dictionary_bytes={SIZE}")
    scene.archive(*small)
    return scene


def test_a_view_of_the_archive_has_what_was_put(history: KeyValueScene) -> None:
    with ExitStack() as stack:
        view = history.view(stack, with_log=False)
        history.follow(view)
        history.check(view)


def test_without_its_dictionary_a_view_has_nothing(
    history: KeyValueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    withhold(monkeypatch)
    with ExitStack() as stack:
        view = history.view(stack, with_log=False)
        with pytest.raises(Corrupt, match="dictionary"):
            history.follow(view)
        with pytest.raises(Refused, match="not whole yet"):
            history.stored_keys(view)
