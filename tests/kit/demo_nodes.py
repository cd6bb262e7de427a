"""`make demo-read-nodes`: consumers read through a gateway what read nodes read for them, while nodes die, come and go.

A real broker has deleted nearly everything; an S3 server has the archive; three read nodes announce themselves by leases in the
bucket, where the gateway finds them. A group of two unmodified Java consumers and one made with RocketMQ's client for Go start
at the first offset. Then one node is killed, a fourth is started, another one hangs and comes back, and one is told to stop,
which drains it. Nobody tells the gateway. What every consumer was handed is compared with what the producer was promised.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.kit import cache
from tests.kit.client import Running
from tests.kit.coldscene import TOPIC, ColdScene, cold_scene
from tests.kit.delivery import Delivery, compare
from tests.kit.demo import work_directory
from tests.kit.demo_consumer import picture
from tests.kit.gatewayproc import Gateway
from tests.kit.goconsumer import GoConsumer
from tests.kit.nodeproc import ReadNode
from tests.kit.process import PATIENCE
from tests.kit.s3server import versitygw

RATE = 250
"""Messages a second of each Java consumer: slow enough for everything to happen while they read."""
HELD = 256
"""Messages of a queue that a consumer has taken in already: what it gets next behind them, the gateway has to read."""
QUEUES = 4
LEASE_MS = 10_000


class Fleet:
    """Read nodes, which the gateway finds by their leases."""

    def __init__(self, scene: ColdScene, stack: ExitStack) -> None:
        self.nodes: dict[str, ReadNode] = {}
        self._scene = scene
        self._stack = stack

    def start(self, name: str) -> ReadNode:
        """One more node, running."""
        archive = self._scene.archives["s3"]
        settings = {
            "source.broker": self._scene.broker.name, "serve.name": name,
            "serve.membership": "bucket", "serve.lease_ms": LEASE_MS,
        }  # fmt: skip
        node = ReadNode(
            self._scene.directory, archive.url, name,
            environment=archive.environment, **settings,  # type: ignore[arg-type]
        )  # fmt: skip
        self.nodes[name] = self._stack.enter_context(node.running())
        return node


class Demo:
    """What happens, and what it cost who reads meanwhile."""

    def __init__(
        self, scene: ColdScene, gateway: Gateway, fleet: Fleet, readers: list[Running], console: Console
    ) -> None:
        self._gateway = gateway
        self._fleet = fleet
        self._readers = readers
        self._console = console
        self.stalls: dict[str, float] = {}

    def taken(self) -> int:
        """Messages that the Java consumers have."""
        return sum(reader.taken() for reader in self._readers)

    def act(self, name: str, what: Callable[[], object]) -> None:
        """Do it, and look until the consumers are beyond what they held already: how long they got nothing, at the longest."""
        wanted, longest = self.taken() + HELD * QUEUES, 0.0
        seen, since = self.taken(), time.monotonic()
        deadline = since + 60 * PATIENCE
        with ThreadPoolExecutor(1) as pool:
            doing = pool.submit(what)
            while not doing.done() or seen < wanted:
                time.sleep(0.02)
                now, taken = time.monotonic(), self.taken()
                longest = max(longest, now - since)
                if taken != seen:
                    seen, since = taken, now
                if now > deadline:
                    raise SystemExit(f"{name}: the consumers do not go on at {seen:,} messages")
            doing.result()
        self.stalls[name] = longest
        self._console.print(f"  {name}: the longest time without a message {longest:.1f} s")

    def see(self, *names: str) -> None:
        """Wait until the gateway asks these nodes, and no other."""
        self._gateway.child.wait_until(lambda: self._asked() == set(names), 60, f"{', '.join(names)} asked")

    def play(self) -> None:
        """One node killed, one started, one that hangs, one drained."""
        nodes = self._fleet.nodes
        self.see("node-1", "node-2", "node-3")

        def kill() -> None:
            nodes["node-1"].kill()
            self.see("node-2", "node-3")

        def add() -> None:
            self._fleet.start("node-4")
            self.see("node-2", "node-3", "node-4")

        def hang() -> None:
            nodes["node-3"].pause()
            self.see("node-2", "node-4")
            nodes["node-3"].resume()
            self.see("node-2", "node-3", "node-4")

        def drain() -> None:
            nodes["node-2"].stop()
            self.see("node-3", "node-4")

        self.act("one is killed", kill)
        self.act("one is started", add)
        self.act("one hangs, and comes back", hang)
        self.act("one is told to stop", drain)

    def _asked(self) -> set[str]:
        said = self._gateway.status().get("read_nodes", {})
        return {name for name, word in said.items() if word == "answers"}


def run(scene: ColdScene, console: Console) -> int:
    """Everything, and the tables; 0 if nobody missed a message."""
    console.print(
        f"the broker has deleted {scene.cold():,} of {len(scene.sent):,} messages; the archive is on an S3 server"
    )
    with ExitStack() as stack:
        fleet = Fleet(scene, stack)
        for number in (1, 2, 3):
            fleet.start(f"node-{number}")
        gateway = scene.gateway("s3", **{"gateway.membership": "bucket", "gateway.member_poll_ms": 1000})
        stack.enter_context(gateway.running())
        console.print(
            "three read nodes, found by their leases; two Java consumers of one group and one in Go, from the first offset …"
        )
        group, client = scene.group("demo-java"), scene.client(name_server=gateway.address)
        java = [
            client.start("push", topic=TOPIC, group=group, idle=10, rate=RATE, cached=64, batch=16)
            for _ in range(2)
        ]
        go = GoConsumer(
            scene.directory, gateway.address, TOPIC, scene.group("demo-go"), n=len(scene.sent), orderly=True
        )
        stack.callback(go.kill)
        java[0].child.wait_until(lambda: all(reader.taken() > HELD for reader in java), 90, "both reading")
        demo = Demo(scene, gateway, fleet, java, console)
        demo.play()
        found = {
            "Java, two consumers": compare(
                scene.sent, [line for one in java for line in one.wait(300).lines()]
            ),
            "Go": compare(scene.sent, go.lines(300)),
        }
        counted = Table(title="reads by nodes", show_header=True)
        for column in ("node", "reads that it answered"):
            counted.add_column(column, justify="right" if column != "node" else "left")
        for name, node in fleet.nodes.items():
            alive = node.status()
            counted.add_row(name, f"{node.given():,.0f}" if alive else "gone")
        here = gateway.metric("tiered_node_reads_total", outcome="here") or 0
        counted.add_row("the gateway itself", f"{here:,.0f}")
        console.print(counted)
    console.print(picture(found))
    return judged(found, demo, console)


def judged(found: dict[str, Delivery], demo: Demo, console: Console) -> int:
    """0 if nothing was skipped or changed. What a group's rebalance repeats, RocketMQ repeats without us, too."""
    good = all(one.complete for one in found.values())
    for name, one in found.items():
        if not one.complete:
            console.print(f"[red]{name}: {one}[/]")
    skipped = sum(len(one.skipped) for one in found.values())
    console.print(
        f"skipped: {skipped}; the longest time without a message: {max(demo.stalls.values()):.1f} s"
    )
    return 0 if good else 1


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=30_000)
    parser.add_argument("--keep", action="store_true", help="leave store and archive on disk and say where")
    options = parser.parse_args()
    console = Console()
    if not cache.installed("rocketmq-go"):
        raise SystemExit("run python -m tests.kit.install rocketmq-go")
    with work_directory(options.keep) as work, versitygw(Path(work) / "server") as server:
        console.print(
            "starting name server, broker, S3 server and daemon; a broker deletes nothing in its first minute …"
        )
        with cold_scene(work, s3=server, messages=options.messages) as scene:
            return run(scene, console)


if __name__ == "__main__":
    sys.exit(main())
