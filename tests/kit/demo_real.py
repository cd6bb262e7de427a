"""`make demo-real`: the demo against a real RocketMQ broker and a real S3 server.

The unmodified Java client sends to a broker from the published jars; the daemon archives that broker's store to an S3 server
over HTTP and is killed with `kill -9` twice; then every queue is read back and compared with the broker's own files, and
every message that the broker acknowledged to the client is looked for.
"""

from __future__ import annotations

import hashlib
import struct
import sys
from pathlib import Path

from rich.console import Console

from tests.kit.client import Running
from tests.kit.demo import Demo, parse, work_directory
from tests.kit.stack import Stack, real_stack, start_load

TOPIC = "Orders"


class RealDemo(Demo):
    """The same story; store, archive and writer are real."""

    def __init__(self, work: Path, stack: Stack, messages: int, rate: int, console: Console) -> None:
        super().__init__(work, messages, rate, console)
        self.stack = stack
        self.store = Path(stack.broker.store_dir)
        self.archive = stack.archive_url
        self.environment |= stack.environment
        self.limit_seconds = 240.0
        self.load: Running | None = None

    def start_generator(self) -> None:
        """Let the Java client send."""
        self.load = start_load(self.stack, topic=TOPIC, messages=self.messages, rate=self.rate)

    def written(self) -> bool:
        """Whether the client has sent everything."""
        return self.load is not None and not self.load.child.running

    def archived(self, now: dict[str, object]) -> bool:
        """The broker writes records of its own too, so the count alone does not say it: no byte may be behind."""
        lag = now.get("lag")
        return isinstance(lag, dict) and lag.get("bytes") == 0 and super().archived(now)

    def read_cold(self, expected: dict[tuple[str, int], list[bytes]]) -> bool:
        """Not here: this broker lives, and its files are its own to delete."""
        return True

    def missing(self, expected: dict[tuple[str, int], list[bytes]]) -> str:
        """Every acknowledged message must lie in the broker's store at its place, body and all."""
        assert self.load is not None
        outcome = self.load.wait()
        sent = [line for line in outcome.lines() if line.get("kind") == "normal"]
        for line in sent:
            records = expected.get((line["topic"], line["queue_id"]), [])
            if line["queue_offset"] >= len(records):
                return f"acknowledged and not in the store: {line}"
            if body_sha256(records[line["queue_offset"]]) != line["body_sha256"]:
                return f"another body than the client sent: {line}"
        self.console.print(
            f"{len(sent):,} messages acknowledged to the Java client, all found with their bodies"
        )
        return (
            "" if len(sent) == self.messages else f"only {len(sent):,} of {self.messages:,} were acknowledged"
        )


def body_sha256(record: bytes) -> str:
    """Digest of a record's body, IPv4 hosts."""
    length = struct.unpack_from(">i", record, 84)[0]
    return hashlib.sha256(record[88 : 88 + length]).hexdigest()


def main() -> int:
    """Run the demo; 0 if every byte is proved."""
    options = parse(__doc__, messages=60_000, rate=4_000)
    console = Console()
    with work_directory(options.keep) as work:
        console.print("starting name server, broker and S3 server …")
        with real_stack(work / "real") as stack:
            demo = RealDemo(work, stack, options.messages, options.rate, console)
            try:
                return demo.run()
            finally:
                demo.end()


if __name__ == "__main__":
    sys.exit(main())
