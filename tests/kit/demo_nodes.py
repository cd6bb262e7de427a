"""`make demo-read-nodes`: consumers read through a gateway what read nodes read for them, while nodes die, come and go.

A real broker has deleted nearly everything; an S3 server has the archive; three read nodes are named in the gateway's settings.
A group of two unmodified Java consumers and one made with RocketMQ's client for Go start at the first offset. Then one node is
killed, a fourth is added and another one drained: the gateway reads its file again at a SIGHUP. What every consumer was handed
is compared with what the producer was promised.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Callable
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
from tests.kit.s3server import versitygw

RATE = 250
"""Messages a second of each Java consumer: slow enough for everything to happen while they read."""
HELD = 256
"""Messages of a queue that a consumer has taken in already: what it gets next behind them, the gateway has to read."""
QUEUES = 4


class Fleet:
    """Read nodes, and the file in which the gateway finds those that it is to ask."""

    def __init__(self, scene: ColdScene, stack: ExitStack) -> None:
        self.file = scene.directory / "gateway.toml"
        self.nodes: dict[str, ReadNode] = {}
        self._scene = scene
        self._stack = stack

    def start(self, name: str) -> ReadNode:
        """One more node, running."""
        archive = self._scene.archives["s3"]
        node = ReadNode(
            self._scene.directory, archive.url, name,
            environment=archive.environment, **{"source.broker": self._scene.broker.name},  # type: ignore[arg-type]
        )  # fmt: skip
        self.nodes[name] = self._stack.enter_context(node.running())
        return node

    def write(self, *names: str) -> None:
        """Name these to the gateway."""
        addresses = [self.nodes[name].address for name in names]
        self.file.write_text(f"[gateway]\nread_nodes = {json.dumps(addresses)}\n")


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
        """Do it, and wait until the consumers are beyond what they held already: by how much that is later than their pace."""
        before, began = self.taken(), time.monotonic()
        what()
        wanted = before + HELD * QUEUES
        self._readers[0].child.wait_until(lambda: self.taken() >= wanted, 60, "more messages")
        late = time.monotonic() - began - HELD * QUEUES / (RATE * len(self._readers))
        self.stalls[name] = max(late, 0.0)
        self._console.print(f"  {name}: readers waited {self.stalls[name]:.1f} s")

    def take_over(self, *names: str) -> None:
        """Have the gateway ask these from now on."""
        self._fleet.write(*names)
        self._gateway.child.send(signal.SIGHUP)
        wanted = {self._fleet.nodes[name].address for name in names}
        self._gateway.child.wait_until(
            lambda: set(self._gateway.status().get("read_nodes", {})) == wanted, 20, "its nodes"
        )

    def play(self) -> None:
        """One node killed, one added, one drained."""
        nodes = self._fleet.nodes
        self.act("one is killed", nodes["node-1"].kill)

        def add() -> None:
            self._fleet.start("node-4")
            self.take_over("node-2", "node-3", "node-4")

        self.act("one is added", add)

        def drain() -> None:
            self.take_over("node-3", "node-4")
            nodes["node-2"].stop()

        self.act("one is drained", drain)


def run(scene: ColdScene, console: Console) -> int:
    """Everything, and the tables; 0 if nobody missed a message."""
    console.print(
        f"the broker has deleted {scene.cold():,} of {len(scene.sent):,} messages; the archive is on an S3 server"
    )
    with ExitStack() as stack:
        fleet = Fleet(scene, stack)
        for number in (1, 2, 3):
            fleet.start(f"node-{number}")
        fleet.write(*fleet.nodes)
        gateway = scene.gateway("s3")
        gateway.configured_by(fleet.file)
        stack.enter_context(gateway.running())
        console.print(
            "three read nodes; two Java consumers of one group, and one written in Go, from the first offset …"
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
    console.print(f"skipped: {skipped}; the longest wait: {max(demo.stalls.values()):.1f} s")
    return 0 if good else 1


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
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
