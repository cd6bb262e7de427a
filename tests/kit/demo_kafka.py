"""`make demo-kafka`: a real RocketMQ broker's live log flows into a real Kafka, exactly once, through kills.

The unmodified Java client sends to a broker from the published jars; the daemon archives its log to an S3 server, and a sink
gives it to Kafka. The daemon is killed with `kill -9` twice, Kafka once. Then a plain Kafka consumer at `read_committed` reads
all of the topic, and every queue is compared with the broker's own files: message by message, in order.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.kit.demo import TIERED, parse, work_directory
from tests.kit.demo_real import TOPIC, RealDemo
from tests.kit.kafkabroker import KafkaBroker, committed, kafka_broker
from tests.kit.stack import Stack, real_stack
from tiered.codec.record.message import decode_message

SINK = "to-kafka"
LOOK = ("--set", "sinks.look_ms=500")
"""Orders are looked for often: nobody waits for a demo."""


class KafkaDemo(RealDemo):
    """The story of ``demo-real``, with a sink: what is proved is what Kafka has."""

    def __init__(
        self, work: Path, stack: Stack, kafka: KafkaBroker, messages: int, rate: int, console: Console
    ) -> None:
        super().__init__(work, stack, messages, rate, console)
        self.kafka = kafka
        self.kafka_kills = 0
        self.added = False
        self.more = LOOK

    def start_daemon(self) -> None:
        """And order the sink, once there is an archive."""
        super().start_daemon()
        if not self.added:
            self._add_sink()

    def status(self) -> dict[str, object]:
        """Kafka is killed half-way between the two ends of the daemon."""
        now = super().status()
        done = int(str(now.get("messages", 0)))
        if not self.kafka_kills and done >= self.messages // 2:
            self.kafka.kill()
            self.kafka_kills += 1
            self.console.print(f"  [red]kill -9[/] Kafka at {done:,} messages")
            time.sleep(1)
            self.kafka.start()
            self.console.print("  [green]restarted[/] Kafka, on its directory")
        return now

    def archived(self, now: dict[str, object]) -> bool:
        """And given to Kafka: the sink says so, which is proved afterwards."""
        if not super().archived(now):
            return False
        end = [
            topic.partitions
            for name, topic in self.kafka.admin().list_topics(timeout=30).topics.items()
            if name == TOPIC
        ]
        return bool(end) and len(committed(self.kafka.address, TOPIC)) >= self.messages

    def prove(self) -> int:
        """Read Kafka's topic from outside, and compare."""
        expected = {queue: records for queue, records in self._expected().items() if queue[0] == TOPIC}
        reads: dict[int, list[tuple[int, bytes, int]]] = {}
        for read in committed(self.kafka.address, TOPIC):
            place = dict(read.headers)
            queue, offset = int(place["rocketmq.queue"]), int(place["rocketmq.offset"])
            reads.setdefault(queue, []).append((offset, read.value or b"", read.partition))
        table = Table(
            title="read from Kafka by a plain consumer at read_committed, compared with the broker's store"
        )
        for name in (
            "queue",
            "messages",
            "partition",
            "sha256 of the bodies",
            "lost",
            "doubled",
            "reordered",
        ):
            table.add_column(name, justify="left" if name in ("queue", "sha256 of the bodies") else "right")
        sums, same = Counter[str](), True
        for (topic, queue), records in sorted(expected.items()):
            bodies = [decode_message(record).body for record in records]
            found = reads.pop(queue, [])
            counts = judged(len(bodies), [offset for offset, _, _ in found])
            partitions = sorted({partition for _, _, partition in found})
            first = list({offset: body for offset, body, _ in reversed(found)}.items())
            same = same and sorted(first) == list(enumerate(bodies)) and len(partitions) <= 1
            digest = hashlib.sha256(b"".join(body for _, body, _ in found)).hexdigest()[:16]
            table.add_row(
                f"{topic}/{queue}", f"{len(found):,}", ", ".join(map(str, partitions)), digest,
                *(f"{counts[name]:,}" for name in ("lost", "doubled", "reordered")),
            )  # fmt: skip
            sums.update(counts)
        self.console.print()
        self.console.print(table)
        total = sum(map(len, expected.values()))
        good = same and not any(sums.values()) and not reads and total == self.messages
        verdict = "[green]every body as the client sent it[/]" if good else "[red]FAILED[/]"
        self.console.print(
            f"{total:,} messages in {len(expected)} queues, daemon killed {len(self.kills)} times, Kafka "
            f"{self.kafka_kills}: lost {sums['lost']}, doubled {sums['doubled']}, reordered {sums['reordered']}; {verdict}"
        )
        wrong = self.missing(expected)
        if wrong:
            self.console.print(f"[red]{wrong}[/]")
        return 0 if good and not wrong else 1

    def _add_sink(self) -> None:
        command = [
            *TIERED, "sink", "add", SINK, "--kind", "kafka", "--topic", TOPIC, "--archive", self.archive,
            "--option", f"brokers={self.kafka.address}", "--option", "partitions=4", "--option", "replication=1",
            "--option", "timeout_ms=15000",
        ]  # fmt: skip
        deadline = time.monotonic() + 60
        while True:
            done = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                break
            if time.monotonic() > deadline:  # until then there may be no archive yet
                raise SystemExit(f"the sink could not be added:\n{done.stdout}{done.stderr}")
            time.sleep(0.5)
        self.added = True
        self.console.print(f"  sink {SINK}: topic {TOPIC} to Kafka at {self.kafka.address}")


def judged(wanted: int, offsets: list[int]) -> Counter[str]:
    """How many of the messages 0 … are lost, doubled, or behind a later one."""
    seen: set[int] = set()
    doubled, reordered, highest = 0, 0, -1
    for offset in offsets:
        doubled += offset in seen
        reordered += offset < highest and offset not in seen
        seen.add(offset)
        highest = max(highest, offset)
    return Counter(lost=len(set(range(wanted)) - seen), doubled=doubled, reordered=reordered)


def main() -> int:
    """Run the demo; 0 if nothing is lost, doubled or reordered."""
    options = parse(__doc__, messages=60_000, rate=2_000)
    console = Console()
    with work_directory(options.keep) as work:
        console.print("starting Kafka, name server, broker and S3 server …")
        with kafka_broker(work / "kafka") as kafka, real_stack(work / "real") as stack:
            demo = KafkaDemo(work, stack, kafka, options.messages, options.rate, console)
            try:
                return demo.run()
            finally:
                demo.end()


if __name__ == "__main__":
    sys.exit(main())
