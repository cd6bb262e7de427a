"""Watch and drain in one thread, against the fake broker and an archive that is a dictionary; the clock moves when told to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.kit.fakebroker import FakeBroker
from tiered.broker.client import Dial, RemotingClient
from tiered.broker.questions import Broker, BrokerFacts
from tiered.clock import ManualClock
from tiered.codec.record.message import Message, encode_message
from tiered.fetch.pull import Pull
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue, QueueOffset, Records
from tiered.replay.broker import check_suitable
from tiered.replay.drain import Drain
from tiered.replay.groups import Groups
from tiered.replay.ledger import Ledger
from tiered.replay.watch import Watch
from tiered.settings import Replay
from tiered.store import MessageStore

S = GetMessageStatus


@dataclass
class FakeArchive:
    """Records by (topic, queue id) and offset; what lies between two and is not there is a hole."""

    records: dict[tuple[str, int], dict[int, bytes]] = field(default_factory=dict)
    reads: list[tuple[str, int, int, int]] = field(default_factory=list)
    generations: dict[tuple[str, int], int] = field(default_factory=dict)
    """Of queues that were made anew; the others are of the first."""
    error: Exception | None = None

    def put(self, topic: str, queue_id: int, offsets: range, **fields: Any) -> None:
        """Messages with their offset as ``seq`` and tags A, B, C in turn."""
        queue = self.records.setdefault((topic, queue_id), {})
        for offset in offsets:
            properties = {"seq": str(offset), "TAGS": "ABC"[offset % 3], "UNIQ_KEY": f"U{offset}"}
            properties |= fields.get("properties", {})
            others = {key: value for key, value in fields.items() if key != "properties"}
            body = others.pop("body", b"body %d" % offset)
            queue[offset] = encode_message(
                Message(
                    topic,
                    queue_id,
                    offset,
                    offset * 1000,
                    body,
                    properties,
                    born_timestamp=1000 + offset,
                    **others,
                )
            )

    def get_message(self, pull: Pull) -> GetMessageResult:
        """As the store answers."""
        offset, row_filter = pull.offset, pull.row_filter
        self.reads.append((pull.topic, pull.queue_id, offset, pull.max_count))
        if self.error is not None:
            raise self.error
        queue = self.records.get((pull.topic, pull.queue_id))
        if not queue:
            return _answer(S.NO_MATCHED_LOGIC_QUEUE, offset, 0, 0)
        low, high = min(queue), max(queue) + 1
        if offset < low:
            return _answer(S.OFFSET_TOO_SMALL, low, low, high)
        if offset >= high:
            return _answer(
                S.OFFSET_OVERFLOW_ONE if offset == high else S.OFFSET_OVERFLOW_BADLY, high, low, high
            )
        if offset not in queue:
            return _answer(S.OFFSET_FOUND_NULL, min(o for o in queue if o > offset), low, high)
        taken, size, following = [], 0, offset
        while following in queue and len(taken) < pull.max_count:
            record = memoryview(queue[following])
            if row_filter is None or row_filter.accepts(record):
                size += len(record)
                if taken and size > pull.max_bytes:
                    break
                taken.append((QueueOffset(following), record))
            following += 1
        status = S.FOUND if taken else S.NO_MATCHED_MESSAGE
        return GetMessageResult(
            status, QueueOffset(following), QueueOffset(low), QueueOffset(high),
            Records.of([r for _, r in taken]), tuple(o for o, _ in taken),
        )  # fmt: skip

    def loaded(self, queue: MessageQueue) -> Any:
        """Just enough of the store's: the queue's generation."""
        key = (queue.topic, queue.queue_id)
        return SimpleNamespace(generation=self.generations.get(key, 1)) if self.records.get(key) else None

    def follow(self) -> bool:
        """Nothing to look for."""
        return False


def _answer(status: GetMessageStatus, following: int, low: int, high: int) -> GetMessageResult:
    return GetMessageResult(status, QueueOffset(following), QueueOffset(low), QueueOffset(high))


@dataclass
class Bench:
    """Everything, wired; ``watch.look()``, ``drain.step()`` and the clock are the test's."""

    broker: FakeBroker
    archive: FakeArchive
    ledger: Ledger
    groups: Groups
    watch: Watch
    drain: Drain
    clock: ManualClock
    metrics: Metrics
    directory: Path
    asking: Broker

    def drained(self, most: int = 200) -> None:
        """Drain until nothing is owed; every group takes what is there at once."""
        for _ in range(most):
            if not self.ledger.debts():
                return
            self.drain.step()
            for topic in [t for t in self.broker.queues if t.startswith("%RETRY%")]:
                group = topic[len("%RETRY%") :].partition("_")[0]
                self.broker.committed[f"{topic}@{group}"] = {0: self.broker.queues[topic][0].maximum}
            self.clock.advance(10)
        raise AssertionError(self.ledger.debts())

    def seqs(self, topic: str) -> list[int]:
        """``seq`` of the messages that were sent to a topic, in order."""
        return [int(stored.properties["seq"]) for stored in self.broker.sent(topic)]


@contextmanager
def bench(
    path: Path,
    *patterns: str,
    broker: FakeBroker | None = None,
    archive: FakeArchive | None = None,
    store: MessageStore | None = None,
    **settings: Any,
) -> Iterator[Bench]:
    """A wired bench; ``settings`` of the replay section. A second one on the same path is a restart.

    ``store``: what is owed comes out of a real one.
    """
    with broker or FakeBroker() as fake:
        clock, metrics = ManualClock(), Metrics()
        clients = [RemotingClient(fake.address, clock, Dial(0.5, section="replay")) for _ in range(3)]
        ledger, groups = Ledger(path, clock), Groups(patterns, clock)
        ledger.open()
        fake_archive = archive or FakeArchive()
        watch = Watch(Broker(clients[0]), ledger, groups, path, clock, metrics, check=check)
        drain = Drain(
            Broker(clients[1]), ledger, groups, lambda: store or fake_archive, clock, metrics, Replay(**settings),  # type: ignore[arg-type, return-value]
            check=check, send_seconds=0.5,
        )  # fmt: skip
        try:
            yield Bench(
                fake, fake_archive, ledger, groups, watch, drain, clock, metrics, path, Broker(clients[2])
            )
        finally:
            for client in clients:
                client.close()
            ledger.close()


def check(facts: BrokerFacts) -> None:
    """The broker that the fake one says it is."""
    check_suitable(facts, "DefaultCluster", "broker-a")
