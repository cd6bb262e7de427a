"""A real broker's log into a real Kafka, through faults drawn by a seed, and whether a plain consumer finds all of it, once.

Killed are the daemon (at any moment, while it opens, at numbered points), Kafka, the broker and the S3 server. Connections are
cut, Kafka is paused, the broker loses its tail, a second daemon takes over while the first is stopped and wakes, files that no
sink has had yet are let go and deleted, and Kafka's topics, or the one with the sink's position, are deleted: then the sink
must stop and say so, and is told to give everything again.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.daemonproc import CRASHED, Daemon
from tests.kit.faultproxy import FaultProxy
from tests.kit.kafkabroker import KafkaBroker, Read, committed
from tests.kit.oracle import Oracle, Queue
from tests.kit.process import PATIENCE
from tests.kit.realdaemon import expire, log_end, lose_power, record_starts, tiered
from tests.kit.s3archive import IMPATIENT
from tests.kit.s3server import REGION
from tests.kit.sinkload import SinkLoad
from tests.kit.sinktruth import Had, Judgement, SinkTruth, by_queue
from tests.kit.soakdaemons import SoakError
from tests.kit.stack import Stack
from tiered.crashpoint import SinkPoint

SINK = "soaked"
UNAVAILABLE, FENCED, KILLED = 4, 7, -9
TOPICS = {"SoakOrders": 4, "SoakBills": 2}
DEAD = "SoakDead"
MOST_BYTES, LARGE_BYTES = 16_384, 40_000
"""Most that the sink may send to Kafka, and what some messages have."""
RATE, BURST_RATE = 150.0, 1_500.0
BUDGET_BYTES = 2 << 20
BURST_FILES = 4
SETTINGS: dict[str, object] = {
    **IMPATIENT,
    "store.read_timeout_ms": 3000,
    "store.connect_timeout_ms": 2000,
    "hold.max_bytes": BUDGET_BYTES,
    "sinks.look_ms": 200,
    "sinks.commit_ms": 300,
    "sinks.flush_ms": 50,
    "sinks.flush_bytes": 1 << 20,
    "sinks.batch_bytes": 262_144,
    "maintenance.merge_interval_ms": 5_000,
    "maintenance.max_wait_ms": 5_000,
}
"""Merging is always about, so that backfills meet merged runs, too: else a sink that is told to give everything again gets tens
of thousands of runs of a message or two, each a request."""
STILL_SECONDS = 90.0
"""How long nothing may come nearer to what is waited for; what does come nearer is waited for."""
UNKNOWN = 1 << 62
LONGEST_SECONDS = 600.0
SAMPLE = (
    "daemon killed", "daemon ended at a point", "Kafka killed", "broker killed", "S3 server killed", "connections to Kafka cut",
    "tail lost", "taken over", "topics deleted",
)  # fmt: skip
"""Each of them once is a campaign of less than a minute."""
KEPT_IN_KAFKA = ("topics deleted", "position deleted")
"""Not for a sink that keeps nothing there."""
CHEAP = ("daemon killed", "daemon killed while it opened", "S3 server killed", "connections to S3 cut")


@dataclass(slots=True)
class SinkOutcome:
    """What a campaign did and found."""

    seed: int
    steps: list[str] = field(default_factory=list)
    actions: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    compared: int = 0
    """Messages at the destination in all comparisons."""
    dead_letters: int = 0
    repeats: int = 0
    """Messages that were there once more when they were compared last, in mode idempotent."""
    lost_by_broker: int = 0
    """Messages at the destination that the broker lost afterwards."""
    said_lost: int = 0
    error: str | None = None
    seconds: float = 0.0

    @property
    def kills(self) -> int:
        """Of all processes."""
        return self.killed.total()

    @property
    def good(self) -> bool:
        """Whether nothing was wrong, and somebody looked."""
        return self.error is None and self.checks > 0 and self.compared > 0


class Nearing:
    """Waits as long as something comes nearer: a backlog is given in a time that grows with it, and one that stands still is
    seen all the same. ``now``: seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now, self._began = now, now()
        self._least, self._since = UNKNOWN, now()

    def spent(self, left: int) -> bool:
        """Whether it was waited enough, with so much still to come."""
        now = self._now()
        if left < self._least:
            self._least, self._since = left, now
        return now - self._since > STILL_SECONDS * PATIENCE or now - self._began > LONGEST_SECONDS * PATIENCE


class SinkCampaign:
    """One broker, one archive behind a proxy, one Kafka behind another, two daemons of which one owns the archive.

    ``kafka`` advertises ``to_kafka`` to those who come from outside; ``to_s3`` stands before the stack's S3 server.
    """

    def __init__(
        self, work: Path, stack: Stack, kafka: KafkaBroker, to_kafka: FaultProxy, to_s3: FaultProxy, seed: int,
        say: Callable[[str], None] = lambda line: None, *, once: bool = True,
    ) -> None:  # fmt: skip
        """``once``: the sink's mode is transactional; else idempotent."""
        work.mkdir(parents=True, exist_ok=True)
        self._once = once
        self.stack, self.kafka = stack, kafka
        self.to_kafka, self.to_s3 = to_kafka, to_s3
        self.chance = random.Random(seed)
        self.outcome = SinkOutcome(seed)
        self._say, self._began = say, time.monotonic()
        bucket = stack.s3.bucket()
        self.archive = f"s3://{bucket}/archive?endpoint={to_s3.url}&region={REGION}"
        for topic, queues in TOPICS.items():
            stack.broker.create_topic(topic, queues)
        self.truth = SinkTruth(Oracle(stack.broker.store_dir), TOPICS, once=once)
        self.load = SinkLoad(
            stack.broker.address, TOPICS, seed, rate=RATE, large=LARGE_BYTES, large_every=150
        )
        self._owner, self._other = (
            Daemon(
                work, stack.broker.store_dir, self.archive, name=name, environment=stack.environment, **SETTINGS
            )
            for name in ("one", "two")
        )  # fmt: skip
        self._flags: tuple[str, ...] = ()
        self._actions: dict[str, tuple[int, Callable[[], None]]] = {
            "daemon killed": (8, self.kill_daemon),
            "daemon killed while it opened": (4, self.kill_opening),
            "daemon ended at a point": (5, self.crash_daemon),
            "Kafka killed": (4, self.kill_kafka),
            "broker killed": (2, self.kill_broker),
            "S3 server killed": (5, self.kill_s3),
            "connections to Kafka cut": (4, lambda: self.cut(self.to_kafka)),
            "connections to S3 cut": (3, lambda: self.cut(self.to_s3)),
            "Kafka paused": (2, self.pause_kafka),
            "tail lost": (3, self.lose_tail),
            "taken over": (2, self.take_over),
            "budget exceeded": (1, self.exceed_budget),
            "topics deleted": (1, self.delete_topics),
            "position deleted": (1, self.delete_position),
        }
        if not once:
            for name in KEPT_IN_KAFKA:
                del self._actions[name]

    # ---- the whole

    def run(
        self, *, kills: int, seconds: float, first: Sequence[str] = (), then: Collection[str] = ()
    ) -> SinkOutcome:
        """Until so many kills or seconds, comparisons included; actions of ``first`` come first, once each, in an order that is
        drawn; behind them come those of ``then``, or any."""
        outcome, self._began = self.outcome, time.monotonic()
        due, next_check = self.chance.sample(first, len(first)), 25
        try:
            self.load.start()
            self._start()
            self._wait_ready()
            self._order()
            while due or (outcome.kills < kills and time.monotonic() - self._began < seconds):
                self._act(due.pop() if due else self._drawn(then or self._actions))
                self._rest(self.chance.random() * self.chance.choice((0.2, 1.0, 2.0)))
                self._revive()
                if outcome.kills >= next_check:
                    self.check()
                    next_check = outcome.kills + 25
            self.check()
            self._stop()
        except Exception as error:  # the report is the product
            outcome.error = f"{type(error).__name__}: {error}"[-4000:]
        finally:
            self.load.end()
            self.to_kafka.up()
            self.to_s3.up()
            self._owner.kill()
            self._other.kill()
            outcome.sent = self.load.counts
            outcome.seconds = time.monotonic() - self._began
        return outcome

    def _act(self, name: str) -> None:
        self._tell(name)
        self._actions[name][1]()
        self.outcome.actions[name] += 1

    def _drawn(self, names: Collection[str]) -> str:
        weights = [self._actions[name][0] for name in names]
        return self.chance.choices(list(names), weights)[0]

    def _tell(self, what: str) -> None:
        line = f"{time.monotonic() - self._began:7.1f} s, {self.outcome.kills:3} kills: {what}"
        self.outcome.steps.append(line)
        self._say(line)

    # ---- the daemons

    def _start(self) -> None:
        self._owner.start(*self._flags, ready=False)

    def _revive(self) -> None:
        """Start the owner again if it ended in a way that is allowed."""
        if self._owner.alive:
            return
        code = self._owner.wait()
        if code not in (UNAVAILABLE, KILLED, CRASHED) or self._owner.said("Traceback"):
            raise SoakError(f"the daemon ended with {code}:\n{self._owner.output()[-3000:]}")
        self._start()

    def _wait(self, done: Callable[[], bool], what: str, left: Callable[[], int] = lambda: 0) -> None:
        """The owner is started again as often as it takes. ``left``: how much is still to come."""
        patience = Nearing()
        while not done():
            if patience.spent(left()):
                raise SoakError(f"{what}: not seen. {self._sink()}\n{self._owner.output()[-3000:]}")
            self._revive()
            time.sleep(0.1)

    def _wait_ready(self) -> None:
        self._wait(self._owner.ready, "a daemon that archives")

    def _stop(self) -> None:
        if (code := self._owner.stop()) != 0:
            raise SoakError(
                f"the daemon ended with {code} when told to stop:\n{self._owner.output()[-3000:]}"
            )

    def _kill_owner(self) -> None:
        self._owner.kill()
        self.outcome.killed["daemon"] += 1

    def _sink(self) -> dict[str, Any]:
        rows = (self._owner.status().get("sinks") or {}).get("sinks", [])
        return dict(rows[0]) if rows else {}

    def _backlog(self) -> int:
        """What the sink is still to be given of the archive; much, while nobody says."""
        told = self._sink().get("backlog_messages")
        return UNKNOWN if told is None else int(told)

    def _command(self, *words: str) -> None:
        """A verb of ``tiered sink``."""
        done = tiered("sink", *words, "--archive", self.archive, environment=self.stack.environment)
        if done.code:
            raise SoakError(f"{words}: {done.code}\n{done.out.decode()}{done.err}")

    def _order(self) -> None:
        options = {
            "brokers": self.to_kafka.address, "partitions": "4", "replication": "1", "timeout_ms": "8000",
            "transaction_timeout_ms": "10000", "max_message_bytes": str(MOST_BYTES), "dead_letter_topic": DEAD,
            "mode": "transactional" if self._once else "idempotent",
        }  # fmt: skip
        words = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
        topics = [word for topic in TOPICS for word in ("--topic", topic)]
        self._command("add", SINK, "--kind", "kafka", *topics, *words)

    # ---- what happens

    def _rest(self, seconds: float) -> None:
        time.sleep(seconds)

    def kill_daemon(self) -> None:
        """kill -9 at any moment."""
        self._kill_owner()
        self._rest(self.chance.random() * 0.5)
        self._start()
        if self.chance.random() < 0.7:
            self._wait_ready()

    def kill_opening(self) -> None:
        """kill -9 while daemon and sink open."""
        self._owner.kill()
        self._start()
        self._rest(0.3 + self.chance.random() * 3)
        self._kill_owner()
        self._start()

    def crash_daemon(self) -> None:
        """End it at a point of the sink's, the first to tenth time it comes there; or kill it if it never does."""
        self._owner.kill()
        at, times = self.chance.choice(tuple(SinkPoint)), self.chance.choice((1, 1, 2, 4, 10))
        self._owner.start(*self._flags, crash=at, times=times, ready=False)
        until = time.monotonic() + 8
        while self._owner.alive and time.monotonic() < until:
            time.sleep(0.05)
        self._kill_owner()
        self._start()

    def kill_kafka(self) -> None:
        """kill -9 of Kafka, and start; sometimes with the daemon beside it."""
        both = self.chance.random() < 0.3
        self.kafka.kill()
        self.outcome.killed["Kafka"] += 1
        self._rest(self.chance.random() * 2)
        if both:
            self._kill_owner()
            self._start()
        self.kafka.start()

    def kill_broker(self) -> None:
        """kill -9 of the broker, and start: what it wrote is in the page cache."""
        self.stack.broker.kill()
        self.outcome.killed["broker"] += 1
        self._rest(self.chance.random())
        self.stack.broker.start()

    def kill_s3(self) -> None:
        """kill -9 of the S3 server, and start on its data."""
        self.stack.s3.kill()
        self.outcome.killed["S3 server"] += 1
        self._rest(self.chance.random() * 2)
        self.stack.s3.start()

    def cut(self, proxy: FaultProxy) -> None:
        """Every connection is reset, some in the middle of a request; for a while nobody listens."""
        for _ in range(self.chance.choice((1, 1, 3))):
            proxy.down()
            self._rest(self.chance.random() * self.chance.choice((0, 0.5, 3)))
            proxy.up()
            self._rest(self.chance.random() * 0.3)

    def pause_kafka(self) -> None:
        """SIGSTOP, perhaps for longer than the sink waits for an answer, or a transaction may be open."""
        os.kill(self.kafka.pid, signal.SIGSTOP)
        self._rest(self.chance.choice((0.5, 2.0, 9.0)))
        os.kill(self.kafka.pid, signal.SIGCONT)

    def lose_tail(self) -> None:
        """The broker is killed and its newest messages are gone, perhaps beside a daemon that is down."""
        broker, store = self.stack.broker, self.stack.broker.store_dir
        down = self.chance.random() < 0.3
        if self.chance.random() < 0.7:
            self._wait(lambda: self._sink().get("phase") == "live", "a sink that is live", self._backlog)
        self.load.rest()
        if down:
            self._kill_owner()
        end = log_end(broker)
        broker.kill()
        self.outcome.killed["broker"] += 1
        starts = record_starts(store, end)
        records = min(len(starts) // 2, self.chance.choice((1, 5, 30, 100)))
        if records:
            self.truth.oracle.look(end)
            self.truth.cut(lose_power(store, end, lost_records=records, leftovers=False))
        broker.start()
        self.load.go()
        if down:
            self._rest(self.chance.random())
            self._start()

    def take_over(self) -> None:
        """SIGSTOP the owner, let the other take over, wake the first: it must be fenced, by the archive or by Kafka."""
        self._wait_ready()
        old = self._owner
        old.pause()
        self._owner, self._other = self._other, old
        self._flags = ("--take-over",)
        self._start()
        self._wait_ready()
        self._rest(self.chance.choice((0.0, 1.0, 4.0)))
        old.resume()
        until = time.monotonic() + 60 * PATIENCE
        while old.alive and time.monotonic() < until:
            time.sleep(0.1)
        code = None if old.alive else old.wait(1)
        if code not in (FENCED, UNAVAILABLE):
            raise SoakError(f"the stopped daemon woke and ended with {code}:\n{old.output()[-3000:]}")

    def exceed_budget(self) -> None:
        """Kafka is away until the log has grown beyond the hold's budget and the broker has deleted its old files: the sink
        finds in the archive what it had not had."""
        self.kafka.kill()
        self.outcome.killed["Kafka"] += 1
        target = log_end(self.stack.broker) + BUDGET_BYTES + (BURST_FILES << 20)
        self.load.rate = BURST_RATE
        self._wait(lambda: log_end(self.stack.broker) > target, "a log beyond the hold's budget")
        self.load.rate = RATE
        self.load.rest()
        end = log_end(self.stack.broker)
        self._wait(lambda: (self._owner.status().get("proven_offset") or 0) >= end, "everything is archived")
        self.truth.oracle.look(end)
        expire(self.stack.broker)
        self.load.go()
        self.kafka.start()

    def delete_topics(self) -> None:
        """Kafka's topics are deleted, and perhaps made anew with other partitions."""
        self.check()
        names = [*TOPICS, DEAD] if self.chance.random() < 0.5 else [next(iter(TOPICS))]
        self._delete(names)
        if self.chance.random() < 0.5:
            self.kafka.create(names[0], 6)
        self._begin_again()

    def delete_position(self) -> None:
        """The topic with the sink's position is deleted, and perhaps made anew, by somebody who knows no better."""
        self.check()
        [name] = [topic for topic in self._there() if topic.startswith("__tiered.")]
        self._delete([name])
        if self.chance.random() < 0.5:
            self.kafka.create(name, 1, cleanup_policy="compact")
        self._begin_again()

    def _begin_again(self) -> None:
        """The sink must stop by itself, and say so; then it is told to give everything again to new topics."""
        if self.chance.random() < 0.5:
            self._kill_owner()
            self._start()
        self._wait(lambda: self._sink().get("phase") == "stopped", "a sink that stops")
        self._tell(f"the sink says: {self._sink().get('why')}")
        self.load.rest()
        self._delete([*TOPICS, DEAD])
        self.truth.oracle.look(log_end(self.stack.broker))
        self.truth.anew()
        self.load.go()
        self._command("rewind-to", SINK, "start")
        self._wait(lambda: self._sink().get("phase") in ("live", "backfilling"), "a sink that begins again")

    def _there(self) -> set[str]:
        return set(self.kafka.admin().list_topics(timeout=60).topics)

    def _delete(self, names: list[str]) -> None:
        for name in names:
            if name in self._there():
                self.kafka.delete(name)

    # ---- what must hold

    def check(self) -> None:
        """No more is sent; everything must come to Kafka, each once and in order, and what the broker lost must be said."""
        self.load.rest()
        end = log_end(self.stack.broker)
        self.truth.oracle.look(end)
        patience = Nearing()
        while True:
            self._revive()
            main, dead = self._judged()
            if main.wrong or dead.wrong:
                raise SoakError(f"Kafka has what it must not have: {main}\ndead letters: {dead}")
            if main.good and dead.good:
                break
            if patience.spent(main.lost + dead.lost):
                raise SoakError(
                    f"lost: {main}\ndead letters: {dead}\n{self._sink()}\n{self._owner.output()[-3000:]}"
                )
            time.sleep(0.5)
        outcome = self.outcome
        outcome.checks += 1
        outcome.compared += main.messages + dead.messages
        outcome.dead_letters += dead.messages
        outcome.repeats = main.repeats + dead.repeats
        self._check_said(main.lost_by_broker + dead.lost_by_broker)
        never = self.load.acknowledged - self.truth.ever
        if never:
            raise SoakError(
                f"{len(never)} acknowledged messages were never in the broker's log: {sorted(never)[:3]}"
            )
        self._tell(f"checked: {main}; {dead.messages:,} dead letters")
        self.load.go()

    def _check_said(self, given: int) -> None:
        """Messages that Kafka has and the broker lost must have been reported; perhaps twice, by two daemons. Not by a sink
        whose position is the archive's alone: what it gave behind that is not known to have been given."""
        self.outcome.lost_by_broker = given
        words = "the broker lost messages that a sink has had"

        def said() -> int:
            lines = [
                json.loads(line)
                for daemon in (self._owner, self._other)
                if daemon.log.exists()
                for line in daemon.log.read_text(errors="replace").splitlines()
                if words in line and line.startswith("{")
            ]
            return sum(int(line["messages"]) for line in lines)

        if self._once:
            self._wait(lambda: said() >= given, f"{given} messages that the broker lost, reported")
        self.outcome.said_lost = said()

    def _judged(self) -> tuple[Judgement, Judgement]:
        there = self._there()
        had = by_queue(
            item
            for topic in TOPICS
            if topic in there
            for item in map(_had, committed(self.kafka.address, topic))
        )
        dead = by_queue(map(_had, committed(self.kafka.address, DEAD) if DEAD in there else ()))
        return self.truth.judge(had, LARGE_BYTES - 1, dead=False), self.truth.judge(
            dead, LARGE_BYTES - 1, dead=True
        )


def _had(read: Read) -> tuple[Queue, Had]:
    headers = dict(read.headers)
    digest = None if read.value is None else hashlib.sha256(read.value).digest()
    queue = headers["rocketmq.topic"].decode(), int(headers["rocketmq.queue"])
    return queue, Had(int(headers["rocketmq.offset"]), headers["UNIQ_KEY"], digest)


@contextmanager
def proxies(stack: Stack, kafka: KafkaBroker, seed: int = 0) -> Iterator[tuple[FaultProxy, FaultProxy]]:
    """One before Kafka's outer listener, which advertises it, and one before the S3 server. Kafka is started: again, if it
    runs, so a new one is best left to this."""
    with (
        FaultProxy(kafka.outside, http=False, seed=seed) as to_kafka,
        FaultProxy(f"127.0.0.1:{stack.s3.port}", http=False, seed=seed) as to_s3,
    ):
        kafka.advertised = to_kafka.address
        kafka.kill()
        kafka.start()
        yield to_kafka, to_s3
