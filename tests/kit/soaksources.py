"""What the randomised campaign writes with, a generated broker store that can lose its tail or a real broker, and where to."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.client import Running
from tests.kit.faultbroker import KIB, FaultBroker
from tests.kit.faultproxy import Action, Rule
from tests.kit.oracle import Oracle, scan_log
from tests.kit.s3archive import IMPATIENT, FaultyS3, faulty_s3
from tests.kit.s3server import versitygw
from tiered.clock import SystemClock
from tiered.settings import ONE_DAY_MS

BODIES = (10, 400, 1000, 1000, 5000, 60_000)
CHUNK_MESSAGES = 400
DAY_SECONDS = 3.0
"""In which a day of the generated broker passes, so that days get over; longer in campaigns that would take too many."""
MOST_DAYS = 3000
TRIMMED_TOPIC = "Noise"
"""The topic that retention shortens."""

STORE_FAULTS: tuple[tuple[Rule, ...], ...] = (
    (Rule(Action.STATUS, 0.5, status=503),),
    (Rule(Action.STATUS, 0.5, method="PUT", status=500),),
    (Rule(Action.CUT_BEFORE_ANSWER, 0.6, method="PUT"),),
    (Rule(Action.SWALLOW, 0.4, method="PUT", times=3),),
    (Rule(Action.CUT_REQUEST, 0.5, after_bytes=300),),
    (Rule(Action.CUT_ANSWER, 0.5, after_bytes=30),),
    (Rule(Action.BLACK_HOLE, 0.5, times=4),),
    (Rule(Action.REFUSE, 0.6),),
    (Rule(Action.DELAY, 0.7, seconds=0.3),),
    (Rule(Action.THROTTLE, bytes_per_second=100_000),),
)
LAG = Rule(Action.LAG, method="GET", path_contains="list-type", seconds=3)
THIRD_OF_DELETES = (
    Rule(Action.STATUS, 1 / 3, method="DELETE"),
    Rule(Action.STATUS, 1 / 3, method="POST", path_contains="?delete"),
)


class SoakSource(Protocol):
    """A broker under fire. ``oracle`` is true after ``settle``."""

    store: Path
    oracle: Oracle
    messages: int
    """Written in all, those that were lost again included."""
    of_old_days: bool
    """Whether the messages are of days that are over, so that they can be sealed and trimmed."""

    def now_ms(self) -> int:
        """The broker's clock."""
        ...

    def write(self, chance: random.Random) -> None:
        """Let some messages be written."""
        ...

    def restart(self) -> None:
        """kill -9 and start."""
        ...

    def lose_tail(self, chance: random.Random) -> int:
        """Lose power: records that were lost; 0 if this broker cannot."""
        ...

    def expire(self, proven: int, held: set[tuple[int, int]]) -> int:
        """Delete old files that are archived or held (device, inode); how many."""
        ...

    def settle(self) -> int:
        """Stop writing; the log's end."""
        ...


class PastClock(SystemClock):
    """Shows times of some years ago at which a day passes in seconds; waiting takes as long as ever."""

    def __init__(self, campaign_seconds: float) -> None:
        self._day_seconds = max(DAY_SECONDS, campaign_seconds / MOST_DAYS)
        days = 2 * campaign_seconds / self._day_seconds + 400
        self._begin_ms, self._began = super().now_ms() - round(days * ONE_DAY_MS), time.monotonic()

    def now_ms(self) -> int:
        """See ``Clock``."""
        return self._begin_ms + round((time.monotonic() - self._began) / self._day_seconds * ONE_DAY_MS)


class GeneratedSource:
    """A ``FaultBroker``, whose messages are old."""

    of_old_days = True

    def __init__(self, work: Path, seed: int, campaign_seconds: float) -> None:
        self.store = work / "store"
        self._broker = FaultBroker(
            self.store, topics=("Orders", "Audits", TRIMMED_TOPIC), queues=4, seed=seed, file_bytes=256 * KIB
        )
        self._broker.clock = PastClock(campaign_seconds)
        self._broker.open()
        self.oracle = self._broker.oracle
        self.messages = 0

    def now_ms(self) -> int:
        return self._broker.clock.now_ms()

    def write(self, chance: random.Random) -> None:
        count = chance.randrange(1, 60)
        body = chance.choice(BODIES)
        if body > 10_000:
            count = 1 + count // 20
        self._broker.write(count, body_bytes=body)
        self.messages += count

    def restart(self) -> None:
        self._broker.restart()

    def lose_tail(self, chance: random.Random) -> int:
        starts = self._broker.starts()
        if len(starts) < 50:
            return 0
        lost = min(len(starts) - 1, chance.choice([1, 5, 40, 200]) + chance.randrange(10))
        self._broker.lose_tail(starts[-lost], zero=chance.random() < 0.4)
        return lost

    def expire(self, proven: int, held: set[tuple[int, int]]) -> int:
        done = 0
        while len(self._broker.bases()) > 4:
            base = self._broker.bases()[0]
            found = self._broker.log.path(base).stat()
            archived = base + self._broker.options.file_bytes <= proven
            if not archived and (found.st_dev, found.st_ino) not in held:
                break
            self._broker.expire()
            done += 1
        return done

    def settle(self) -> int:
        return self._broker.physical_offset

    def close(self) -> None:
        """Stop it."""
        self._broker.close()


class RealSource:
    """A RocketMQ broker from the published jars and its Java client, which sends until told to stop."""

    of_old_days = False

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.store = Path(broker.store_dir)
        self.oracle = Oracle(self.store)
        self.messages = 0
        self._load: Running | None = None
        broker.create_topic("Orders", 8)

    def now_ms(self) -> int:
        return SystemClock().now_ms()

    def write(self, chance: random.Random) -> None:
        if self._load is not None and self._load.child.running:
            return
        self._load = self._broker.client().start(
            "produce", topic="Orders", n=CHUNK_MESSAGES, rate=chance.choice([200, 500, 2000]), queues=8,
            min=10, max=4000, first=self.messages, threads=2, retry_seconds=120, timeout_ms=3000,
        )  # fmt: skip
        self.messages += CHUNK_MESSAGES

    def restart(self) -> None:
        self._broker.kill()
        self._broker.start()

    def lose_tail(self, chance: random.Random) -> int:
        return 0

    def expire(self, proven: int, held: set[tuple[int, int]]) -> int:
        return 0

    def settle(self) -> int:
        if self._load is not None:
            self._load.wait(180)
        self.oracle.look()
        return max(r.physical_offset + len(r.data) for _, r in scan_log(self.store / "commitlog"))


@dataclass(slots=True)
class Place:
    """Where the archive lies: a directory, or a bucket behind a proxy. ``lags``: its listing does, always."""

    url: str
    direct_url: str
    settings: dict[str, object]
    environment: dict[str, str]
    s3: FaultyS3 | None = None
    full: Path | None = None  # while this file exists, a directory's disk has no space left
    lags: bool = False

    def set_faults(self, *rules: Rule) -> None:
        """What the proxy does from now on; none: only what it always does."""
        if self.s3 is not None:
            self.s3.proxy.set(*rules, *((LAG,) if self.lags else ()))


@contextmanager
def place_of(work: Path, seed: int, *, s3: bool, lags: bool = False) -> Iterator[Place]:
    """A directory, or a bucket of a new S3 server; with a listing that ``lags``, which is weaker than the archive needs."""
    if not s3:
        url = f"file://{work / 'archive'}"
        yield Place(url, url, {}, {}, full=work / "archive.full")
        return
    with versitygw(work / "s3") as server, faulty_s3(server, seed=seed) as made:
        # The server keeps objects as files: reading those takes a tenth of the time.
        files = f"file://{server.data / made.bucket / 'archive'}"
        settings = {**IMPATIENT, "archive.accept_weak_store": lags}
        place = Place(made.url, files, settings, server.environment(), made, lags=lags)
        place.set_faults()
        yield place


@contextmanager
def generated(work: Path, seed: int, seconds: float) -> Iterator[GeneratedSource]:
    """A generated store for the block, and for a campaign of ``seconds``."""
    source = GeneratedSource(work, seed, seconds)
    try:
        yield source
    finally:
        source.close()


@contextmanager
def real(work: Path) -> Iterator[RealSource]:
    """A real broker for the block."""
    with (
        NameServer(cache.ROCKETMQ_5, work / "namesrv") as names,
        Broker(cache.ROCKETMQ_5, work / "broker", names) as broker,
    ):
        yield RealSource(broker)
