"""`make demo-consumer`: a Java consumer that is far behind reads through the gateway what its broker has deleted.

The unmodified Java client sends to a broker from the published jars; the daemon archives that broker's store to a directory;
the broker deletes nearly all of it. Then two push consumers start at the first offset, one at the broker's own name server and
one at the gateway, and what each was handed is compared with what the producer was promised.
"""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.table import Table

from tests.kit.client import Running
from tests.kit.coldscene import TOPIC, ColdScene, cold_scene
from tests.kit.delivery import Delivery, compare
from tests.kit.demo import work_directory


def consume(scene: ColdScene, name_server: str, name: str) -> Running:
    """A push consumer of a new group, from the first offset; it ends when nothing comes any more."""
    client = scene.client(name_server=name_server)
    return client.start("push", topic=TOPIC, group=scene.group(name), idle=5)


def run(scene: ColdScene, console: Console) -> int:
    """Both consumers, and the table; 0 if the one behind the gateway got everything, once, in order and as it was sent."""
    console.print(
        f"the broker has deleted {scene.cold():,} of {len(scene.sent):,} messages; the archive has them all"
    )
    console.print("a consumer at the broker, and one at the gateway, both from the first offset …")
    with scene.gateway().running() as gateway:
        running = {
            "broker only": consume(scene, scene.name_server.address, "demo-direct"),
            "gateway": consume(scene, gateway.address, "demo-gateway"),
        }
        found = {name: compare(scene.sent, consumer.wait().lines()) for name, consumer in running.items()}
    console.print(picture(found))
    good = found["gateway"].exact
    if not good:
        console.print(f"[red]{found['gateway']}[/]")
    console.print(f"skipped: {len(found['gateway'].skipped)}")
    return 0 if good else 1


def picture(found: dict[str, Delivery]) -> Table:
    """The comparison as a table."""
    table = Table(title="a push consumer that is far behind")
    kinds = ("skipped", "repeated", "disordered", "different")
    for name in ("consumer", "sent", "received", *kinds):
        table.add_column(name, justify="left" if name == "consumer" else "right")
    for name, delivery in found.items():
        counts = [len(getattr(delivery, kind)) for kind in kinds]
        cells = [f"[red]{count:,}[/]" if count else "[green]0[/]" for count in counts]
        table.add_row(name, f"{delivery.expected:,}", f"{delivery.received:,}", *cells)
    return table


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--keep", action="store_true", help="leave store and archive on disk and say where")
    options = parser.parse_args()
    console = Console()
    with work_directory(options.keep) as work:
        console.print(
            "starting name server, broker and daemon; a broker deletes nothing in its first minute …"
        )
        with cold_scene(work, messages=options.messages) as scene:
            return run(scene, console)


if __name__ == "__main__":
    sys.exit(main())
