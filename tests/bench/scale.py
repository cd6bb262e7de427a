"""What a large fleet would ask of a bucket, by this program's defaults and list prices: ``python -m tests.bench.scale``.

Nothing here was run at that size. Sums are formulas over settings' defaults and over sizes that were measured; where no formula
is enough, who reads what is simulated with the program's own hashing. docs/scale.md holds what this prints.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tiered.archive.log.readback import READ_BACK_COMMITS, READ_BACK_SECONDS
from tiered.gateway.nodes.placement import ranked
from tiered.membership.base import RENEWALS, Card, MemberState
from tiered.membership.bucket import encode_lease
from tiered.model import MessageQueue
from tiered.placement.history import MOST_QUEUES
from tiered.placement.table import PlacementTable, encode_table
from tiered.settings import KIB, MIB, Settings
from tiered.text.prices import Price, read_prices

MONTH_SECONDS = 2_628_000
DAY_SECONDS = 86_400
DEFAULTS = Settings()

STATE_BYTES, CHECKPOINT_BYTES = 620, 89
"""Of a queue with three runs, in a fold and in a checkpoint: measured, tests/bench/README.md, "A million queues"."""


@dataclass(frozen=True, slots=True)
class LargeFleet:
    """The assumptions. A read node's process reads one broker's archive, so an archive has ``readers`` of them, each on another
    host."""

    brokers: int = 1_000
    queues: int = 1_000_000
    hosts: int = 100
    readers: int = 2
    keep_days: int = 30
    stored_share: float = 0.4
    topics_a_broker: int = 125
    rewrites: int = 3
    cold_share: float = 0.05

    @property
    def processes(self) -> int:
        """Read nodes, all archives together."""
        return self.brokers * self.readers


FLEET = LargeFleet()
PACES = (("quiet", 20 * KIB), ("middling", 200 * KIB), ("busy", 2 * MIB))
"""Bytes of records a second and broker."""


@dataclass(frozen=True, slots=True)
class Written:
    """Of one broker at a pace: requests that write and read a month, objects that lie there, bytes at rest."""

    writes: float
    reads: float
    commits: float
    objects: float
    stored_bytes: float


def written(pace: int, interval_seconds: float) -> Written:
    """By the sums of deploy/costs.md. Every interval has a flush; what is merged or sealed is read and written again in pieces
    of ``dispatch.object_bytes``; days are sealed, at least one file a topic. Commits are read back in
    listings, which are charged as writes, and each object by itself."""
    settings, flushes = DEFAULTS.dispatch, MONTH_SECONDS / interval_seconds
    flush_bytes = pace * interval_seconds
    data = 0 if flush_bytes <= settings.inline_bytes else -(-flush_bytes // settings.object_bytes)
    checkpoints = max(
        flushes / DEFAULTS.archive.checkpoint_commits,
        MONTH_SECONDS * 1000 / DEFAULTS.archive.checkpoint_interval_ms,
    )
    pieces = FLEET.rewrites * pace * FLEET.stored_share * MONTH_SECONDS / settings.object_bytes
    stored = pace * FLEET.stored_share * DAY_SECONDS * FLEET.keep_days
    commits = DEFAULTS.gc.commit_retention_ms / 1000 / interval_seconds
    looks = min(flushes, max(flushes / READ_BACK_COMMITS, MONTH_SECONDS / READ_BACK_SECONDS))
    files = FLEET.topics_a_broker * FLEET.keep_days + stored / DEFAULTS.seal.segment_bytes
    return Written(
        writes=flushes * (1 + data) + 2 * checkpoints + pieces + looks,
        reads=flushes * (1 + data) + pieces,
        commits=commits,
        objects=commits + data * DAY_SECONDS / interval_seconds + files,
        stored_bytes=stored,
    )


def cold_reads(pace: int) -> tuple[float, float]:
    """Requests and bytes a month that cold readers of one broker cost, if nothing of it is cached."""
    size = FLEET.cold_share * pace * FLEET.stored_share * MONTH_SECONDS
    return size / DEFAULTS.fetch.request_bytes, size


def money(amount: float) -> str:
    """Whole dollars, or cents where there are few."""
    return f"{amount:,.0f} USD" if amount >= 100 else f"{amount:,.2f} USD"


def count(value: float) -> str:
    """With what people can read."""
    for unit, size in (("billion", 1e9), ("million", 1e6)):
        if value >= size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.0f}"


def size_of(value: float) -> str:
    """Bytes, likewise."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:,.0f} {unit}" if value >= 10 or unit == "bytes" else f"{value:.1f} {unit}"


Rows = Sequence[Sequence[str]]


def bucket(price: Price) -> Rows:
    """Objects, requests and money of all brokers together."""
    rows: list[Sequence[str]] = [
        ("pace of a broker", "a flush every", "objects", "of these commits", "writes a month", "at rest",
         "a month: writes", "reads", "storage", "together")
    ]  # fmt: skip
    for name, pace in PACES:
        for seconds in (1.0, 10.0):
            one, n = written(pace, seconds), FLEET.brokers
            requests, _ = cold_reads(pace)
            costs = (
                n * one.writes / 1000 * price.put_per_1000,
                n * (one.reads + requests) / 1000 * price.get_per_1000,
                n * one.stored_bytes / price.bytes_per_gb * price.storage_gb_month,
            )
            rows.append(
                (
                    f"{name}, {size_of(pace)}/s", f"{seconds:.0f} s", count(n * one.objects), count(n * one.commits),
                    count(n * one.writes), size_of(n * one.stored_bytes), *map(money, costs), money(sum(costs)),
                )
            )  # fmt: skip
    return rows


def state() -> Rows:
    """What is known of queues, and where it lies."""
    a_broker = FLEET.queues // FLEET.brokers
    nodes = tuple(f"node-{n:04}" for n in range(FLEET.readers))
    table = PlacementTable(nodes, dict.fromkeys(range(min(a_broker, MOST_QUEUES)), nodes[0]), {}, 0)
    return (
        ("state", "of one broker", "of all"),
        ("fold beside a daemon", size_of(a_broker * STATE_BYTES), size_of(FLEET.queues * STATE_BYTES)),
        ("a checkpoint in the bucket", size_of(a_broker * CHECKPOINT_BYTES), size_of(FLEET.queues * CHECKPOINT_BYTES)),
        ("a table of placement", size_of(len(encode_table(table, 1))), size_of(FLEET.brokers * len(encode_table(table, 1)))),
        (
            "memory of read nodes: budget and tables",
            size_of(FLEET.readers * _node_bytes()), size_of(FLEET.processes * _node_bytes()),
        ),
        ("the same of one host", "–", size_of(FLEET.processes / FLEET.hosts * _node_bytes())),
    )  # fmt: skip


def _node_bytes() -> int:
    return DEFAULTS.fetch.budget_bytes + DEFAULTS.fetch.table_cache_bytes + DEFAULTS.serve.answer_bytes


def leases(price: Price) -> Rows:
    """Membership in the bucket: renewals of nodes, looks of gateways; deletions are free."""
    card = Card("node-0001", "10.0.0.1:10930", "0" * 32, "0.1.0", state=MemberState.LIVE)
    renewals = RENEWALS * 1000 / DEFAULTS.serve.lease_ms * FLEET.processes
    looks = 1000 / DEFAULTS.gateway.member_poll_ms * FLEET.brokers
    rows = [("membership in the bucket, by default", "a second", "a month", "USD a month")]
    for what, each in (
        (f"nodes renew: a put and a listing each, {len(encode_lease(card, 1, 0))} bytes", 2 * renewals),
        ("gateways look: a listing each", looks),
        ("gateways fetch what is new", renewals),
    ):
        paid = price.get_per_1000 if "fetch" in what else price.put_per_1000
        month = each * MONTH_SECONDS
        rows.append((what, f"{each:,.0f}", count(month), money(month / 1000 * paid)))
    return rows


def moves() -> Rows:
    """A host that goes and one that comes: simulated with the program's hashing, each archive on the first hosts of its order;
    brokers' loads by Zipf's law."""
    hosts = [f"host-{n:03}" for n in range(FLEET.hosts)]
    drawn, a_broker = random.Random(20), FLEET.queues // FLEET.brokers
    loads = [1 / rank**0.8 for rank in range(1, FLEET.brokers + 1)]
    drawn.shuffle(loads)
    before, after, more = (_readers(hosts), _readers(hosts[1:]), _readers([*hosts, "host-new"]))
    rows = [
        (
            "event",
            "archives that get another reader",
            "queues whose reader changes",
            "fetched anew, at most",
            "GETs, at least",
        )
    ]
    for what, then in (("a host goes", after), ("a host comes", more)):
        changed = [broker for broker in range(FLEET.brokers) if before[broker] != then[broker]]
        bytes_ = len(changed) * DEFAULTS.fetch.budget_bytes
        rows.append(
            (
                what, f"{len(changed)} of {FLEET.brokers:,}", count(len(changed) * a_broker / FLEET.readers),
                size_of(bytes_), count(bytes_ / DEFAULTS.fetch.request_bytes),
            )
        )  # fmt: skip
    held, work = Counter[str](), Counter[str]()
    for broker, readers in before.items():
        for host in readers:
            held[host] += 1
            work[host] += loads[broker]  # type: ignore[assignment]
    rows.append((
        "fullest host over the mean", f"processes {max(held.values()) * FLEET.hosts / FLEET.processes:.2f}",
        f"load {max(work.values()) * FLEET.hosts / sum(work.values()):.2f}", "–", "–",
    ))  # fmt: skip
    return rows


def _readers(hosts: Sequence[str]) -> dict[int, tuple[str, ...]]:
    return {
        broker: tuple(sorted(ranked(MessageQueue(f"broker-{broker}", 0), hosts)[: FLEET.readers]))
        for broker in range(FLEET.brokers)
    }


def tables() -> Iterator[str]:
    """Each table as Markdown."""
    price = read_prices(None).stores["s3-standard"]
    for rows in (bucket(price), state(), leases(price), moves()):
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|" + "---|" * len(rows[0]))
        yield "\n".join(lines)


def main() -> int:
    """Print them; 0."""
    print("\n\n".join(tables()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
