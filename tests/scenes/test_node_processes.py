"""Read nodes as processes that announce themselves in the bucket, and a gateway's reads by those that are there.

Reads go on all the time, each is compared with the archive's own; meanwhile nodes come, hang, drain and die.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from tests.kit.command import archive_once, tiered
from tests.kit.daemonproc import wait_for
from tests.kit.gatewaykit import on_loop
from tests.kit.nodeproc import ReadNode
from tests.kit.process import PATIENCE
from tiered.clock import SystemClock
from tiered.daemon.following import Following
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.nodes.reads import Reads, open_reads
from tiered.membership.open import open_membership
from tiered.metrics import Metrics
from tiered.model import GetMessageStatus
from tiered.service import Service
from tiered.settings import Archive, Gateway, Settings
from tiered.store import MessageStore

FAST = {"serve.membership": "bucket", "serve.lease_ms": 1500}


class Readers:
    """What a gateway does: it follows the membership, and reads all the time."""

    def __init__(self, store: MessageStore, reads: Reads, topic: str) -> None:
        self.store = store
        self.reads = reads
        self.topic = topic
        self.done = 0

    async def run(self) -> None:
        """Each read is the archive's own."""
        for number in itertools.count():
            queue, offset = number % 4, number % 40
            pull = Pull(ReaderId("g"), self.topic, queue, offset, 5, 1 << 20, None)
            found = await self.reads.read(pull, None, 60.0)
            assert found.status is GetMessageStatus.FOUND
            own = self.store.get_message(pull)
            assert [bytes(one) for one in found.records] == [bytes(one) for one in own.records]
            self.done += 1
            await asyncio.sleep(0.005)

    async def until(self, holds: Callable[[dict[str, str]], bool], what: str) -> None:
        """Until that holds of what is said of the nodes."""
        try:
            async with asyncio.timeout(8 * PATIENCE):
                while not holds(self.reads.nodes()):
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{what}: {self.reads.nodes()}") from None

    async def go_on(self) -> None:
        """Some more reads."""
        wanted = self.done + 20
        async with asyncio.timeout(8 * PATIENCE):
            while self.done < wanted:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def following(archive: str) -> AsyncIterator[Readers]:
    """A gateway's part over an archive, without a broker."""
    chosen = replace(
        Gateway(), membership="bucket", member_poll_ms=200, node_beat_ms=100, read_node_timeout_ms=500
    )
    settings = replace(Settings(), archive=Archive(url=archive), gateway=chosen)
    clock, metrics, loop = SystemClock(), Metrics(), asyncio.get_running_loop()
    with ExitStack() as stack:
        store = MessageStore.open(settings, clock, metrics, stack=stack)
        pool = stack.enter_context(ThreadPoolExecutor(4))
        reads = open_reads(store, Asking(pool, 60.0), chosen, clock, metrics)  # type: ignore[arg-type]
        membership = open_membership(settings, clock, look_seconds=0.2)
        follow = Following(
            membership, lambda places: loop.call_soon_threadsafe(reads.fleet.set_nodes, places), clock, metrics, 0.2
        )  # fmt: skip
        service = Service("members", follow.step, clock)
        service.start()
        readers = Readers(store, reads, next(iter(store.list_topics())).topic)
        tasks = [loop.create_task(readers.run()), loop.create_task(reads.fleet.watch())]
        try:
            yield readers
        finally:
            for task in tasks:
                task.cancel()
            reads.fleet.close()
            ended = await asyncio.gather(*tasks, return_exceptions=True)
            service.stop()
            follow.stop()
            await asyncio.to_thread(service.join, 10.0)
        assert [one for one in ended if not isinstance(one, asyncio.CancelledError)] == []


def test_nodes_come_hang_drain_and_die_while_everybody_reads(tmp_path: Path) -> None:
    archive = f"file://{tmp_path / 'archive'}"
    made = tiered("gen", "--store", tmp_path / "store", "--messages", 200, "--queues", 4, "--topics", 1)
    assert made.code == 0, made.err
    assert archive_once(tmp_path / "store", tmp_path / "archive").code == 0

    def node(name: str, **settings: object) -> ReadNode:
        return ReadNode(tmp_path, archive, name, **{**FAST, "serve.name": name, **settings})  # type: ignore[arg-type]

    async def play(nodes: dict[str, ReadNode]) -> None:
        async with following(archive) as readers:
            await readers.go_on()
            assert readers.reads.nodes() == {}, "nobody is there: it reads for itself"
            for name in ("one", "two"):
                await asyncio.to_thread(nodes[name].start)
            both = {"one": "answers", "two": "answers"}
            await readers.until(lambda said: said == both, "both came")
            await readers.go_on()

            for name in ("one", "two"):
                await asyncio.to_thread(wait_for, nodes[name].announced, "it is announced")
            listed = await asyncio.to_thread(tiered, "nodes", "--archive", archive, "--json")
            assert [(row["node"], row["state"], row["address"]) for row in listed.json] == [
                (name, "live", nodes[name].address) for name in ("one", "two")
            ]
            assert all(0 <= row["renewed_seconds_ago"] < 60 for row in listed.json)

            await asyncio.to_thread(nodes["one"].pause)
            await readers.until(lambda said: said.get("one") != "answers", "the one that hangs is out")
            await readers.go_on()
            await asyncio.to_thread(nodes["one"].resume)
            await readers.until(lambda said: said == both, "it is back")

            await asyncio.to_thread(nodes["two"].child.send, signal.SIGTERM)
            await readers.until(lambda said: said.get("two", "") != "answers", "it drains")
            assert await asyncio.to_thread(nodes["two"].child.wait, 30) == 0
            await readers.until(lambda said: said == {"one": "answers"}, "it has left")
            await asyncio.to_thread(nodes["three"].start)
            await readers.until(lambda said: said == {"one": "answers", "three": "answers"}, "one is added")
            await readers.go_on()
            for name in ("one", "three"):
                await asyncio.to_thread(nodes[name].kill)
            await readers.until(lambda said: said == {}, "the dead are gone by their silence")
            await readers.go_on()
            twin = await asyncio.to_thread(nodes["twin"].start)
            await readers.until(
                lambda said: said == {"three": "answers"}, "a node with the name of a dead one"
            )
            problem = twin.status()["membership"]
            assert (problem["name"], problem["state"], problem["problem"]) == ("three", "live", None)

    nodes = {name: node(name) for name in ("one", "two", "three")}
    nodes["twin"] = node("twin", **{"serve.name": "three"})
    try:
        on_loop(play(nodes))
        said = nodes["two"].log.read_text()
        assert '"state": "draining"' in said
        assert "the read node has stopped" in said
    finally:
        for one in nodes.values():
            one.kill()
