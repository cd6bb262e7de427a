"""Cold reads: one reader, sixteen, ahead or not, shared, filtered, the first message, and a thousand readers' memory."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.bench.cold import (
    MIB,
    PULL_MESSAGES,
    TOPIC,
    ColdArchive,
    Piece,
    Watched,
    cold,
    ranges,
    raw_gets,
    read_queue,
)
from tests.bench.run import Row, expect
from tests.kit.oracle import opened
from tiered.clock import SystemClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.filter.tags import tag_filter
from tiered.model import MessageQueue
from tiered.settings import Fetch
from tiered.source.generator.store import GeneratorOptions, StoreGenerator
from tiered.store import MessageStore

ROUNDS = 3
FAR_SECONDS, FIRST_SECONDS = 0.020, 0.050


@dataclass(frozen=True, slots=True)
class Rate:
    """Stored bytes fetched and message bytes given a second, by the clock; CPU seconds of this process a stored GB."""

    per_second: float
    cpu_per_gb: float
    messages_per_second: float = 0.0


def cold_read(work: Path, messages: int) -> list[Row]:
    """One reader of one queue, and sixteen of sixteen, beside their own GETs made by the same client and thrown away."""
    rows = []
    for queues, compression, target in ((1, "none", "≥ 0.8"), (16, "none", "≥ 0.8"), (1, "zstd", "-")):
        with cold(work / f"q{queues}{compression}", messages, queues, compression=compression) as archive:
            what = f"{queues} cold reader{'s' * (queues > 1)}, {archive.record_bytes / 1e9:.2f} GB, compression {compression}"
            rows += _against_raw(archive, what, target)
            if compression == "none" and queues == 1:
                small, pieces = _read_all(archive, count=32)
                rows += _beside(
                    "the same, 32 messages a pull", small, _raw_rate(archive, pieces), "the same GETs", "-"
                )
    return rows  # fmt: skip


def _against_raw(archive: ColdArchive, what: str, target: str) -> list[Row]:
    """Rounds in turn, so that whatever else the machine does meets both."""
    ours: list[Rate] = []
    same: list[Rate] = []
    large: list[Rate] = []
    for _ in range(ROUNDS):
        read, pieces = _read_all(archive)
        ours.append(read)
        same.append(_raw_rate(archive, pieces))
        large.append(_raw_rate(archive, None))
    return [
        *_beside(what, _best(ours), _best(same), "the same GETs", target),
        *_beside("… beside the whole objects", _best(ours), _best(large), "GETs of 8 MiB", "-")[:1],
    ]


def _beside(what: str, ours: Rate, raw: Rate, gets: str, target: str) -> list[Row]:
    ratio = f"{ours.per_second / raw.per_second:.2f}"
    cpu_ratio = f"{raw.cpu_per_gb / ours.cpu_per_gb:.2f}"
    said = f"{ours.per_second / 1e6:.0f} MB/s stored, {ours.messages_per_second / 1e6:.0f} of messages"
    return [
        Row(what, said, f"{raw.per_second / 1e6:.0f} MB/s (raw, {gets})", ratio, target),
        Row("… in CPU time", f"{ours.cpu_per_gb:.2f} s/GB", f"{raw.cpu_per_gb:.2f} s/GB", cpu_ratio, "-"),
    ]


def _best(rates: list[Rate]) -> Rate:
    """Other work on the machine comes and goes."""
    return Rate(
        max(r.per_second for r in rates),
        min(r.cpu_per_gb for r in rates),
        max(r.messages_per_second for r in rates),
    )


def _raw_rate(archive: ColdArchive, pieces: Sequence[Piece] | None) -> Rate:
    """Raw concurrent GETs of ``pieces``, or of all objects in the largest requests; as many at once as the fetcher's may be."""
    provider, fetch = archive.provider(), Fetch()
    wanted = ranges(provider, fetch.request_bytes) if pieces is None else pieces
    raw_gets(provider, wanted[:1], 1)  # the store, too, has its client before the clock runs
    cpu = time.process_time()
    seconds, size = raw_gets(provider, wanted, fetch.threads)
    cpu = time.process_time() - cpu
    provider.close()
    return Rate(size / seconds, cpu / size * 1e9)


def _read_all(
    archive: ColdArchive, *, count: int = PULL_MESSAGES, seconds: float = 0.0, read_ahead: bool = True
) -> tuple[Rate, list[Piece]]:
    """A reader for each queue, all at once; and the GETs that were made for them."""
    with (
        archive.opened(seconds=seconds, read_ahead=read_ahead) as (store, watched),
        ThreadPoolExecutor(archive.queues) as pool,
    ):
        started, cpu = time.monotonic(), time.process_time()
        found = list(
            pool.map(lambda q: read_queue(store, ReaderId("bench"), q, count=count), range(archive.queues))
        )
        took, cpu = time.monotonic() - started, time.process_time() - cpu
        stored, asked = watched.get_bytes, watched.asked
    expect(sum(n for n, _ in found), archive.messages)
    size = sum(size for _, size in found)
    return Rate(stored / took, cpu / stored * 1e9, size / took), asked


def read_ahead(work: Path, messages: int) -> list[Row]:
    """The same reader with a store 20 ms away, read-ahead on and off."""
    with cold(work, messages, 1) as archive:
        rows = []
        for count in (PULL_MESSAGES, 32):
            on = _read_all(archive, seconds=FAR_SECONDS, count=count)[0].messages_per_second
            still, _ = _read_all(archive, seconds=FAR_SECONDS, count=count, read_ahead=False)
            off = still.messages_per_second
            title = f"read-ahead (AIMD), store 20 ms away, up to {count} messages a pull"
            rows.append(
                Row(title, f"{on / 1e6:.0f} MB/s", f"{off / 1e6:.0f} MB/s (off)", f"{on / off:.1f}", "≥ 3")
            )
        return rows


def shared_read(work: Path, messages: int, budget_bytes: int) -> list[Row]:
    """Ten groups read one topic at about the same place; the cache holds a part of it only."""
    with cold(work, messages, 1) as archive:
        fetched = {}
        for groups in (1, 10):
            with (
                archive.opened(budget_bytes=budget_bytes) as (store, watched),
                ThreadPoolExecutor(groups) as pool,
            ):
                jobs = [
                    pool.submit(read_queue, store, ReaderId(f"group-{n}"), count=32) for n in range(groups)
                ]
                for job in jobs:
                    expect(job.result()[0], messages)
                fetched[groups] = watched.get_bytes
    return [
        Row(
            f"GET bytes of ten groups on one topic, cache {budget_bytes // MIB} MiB",
            f"{fetched[10] / 1e6:.1f} MB", f"{fetched[1] / 1e6:.1f} MB (one group)",
            f"{fetched[10] / fetched[1]:.2f}", "≤ 1.1",
        )
    ]  # fmt: skip


def filtered_read(work: Path, messages: int) -> list[Row]:
    """A tag that 1 % of the messages have: all in one stretch of time, or anywhere."""
    rows = []
    rare, common = ("Rare-",), ("Often",)
    scattered = tuple(f"Tag{n:02d}" for n in range(100))
    stretches = [(common, messages * 4 // 10), (rare, messages // 100), (common, messages * 59 // 100)]
    for name, parts, tag, target in (
        ("clustered in time", stretches, "Rare-", "≤ 0.05"),
        ("scattered", [(scattered, messages)], "Tag00", "≤ 1"),
    ):
        source = work / tag / "store"
        for tags, count in parts:
            _append(source, count, tags)
        with cold(work / tag, messages, 1, source) as archive:
            plain, _ = _filtered(archive, "*")
            ours, found = _filtered(archive, tag)
            assert found, "the filter found nothing"
            rows.append(
                Row(
                    f"GET bytes, tag filter selecting {found / messages:.1%}, {name}", f"{ours / 1e6:.2f} MB",
                    f"{plain / 1e6:.2f} MB (unfiltered)", f"{ours / plain:.3f}", target,
                )
            )  # fmt: skip
    return rows


def _append(store: Path, messages: int, tags: tuple[str, ...]) -> None:
    options = GeneratorOptions(
        store_dir=store, messages=messages, topics=(TOPIC,), queues=1, tags=tags, body_bytes=1024
    )
    with StoreGenerator(options, SystemClock()) as generator:
        generator.append(messages)


def _filtered(archive: ColdArchive, expression: str) -> tuple[int, int]:
    with archive.opened() as (store, watched):
        found, _ = read_queue(store, ReaderId("bench"), row_filter=tag_filter(expression))
        return watched.get_bytes, found


def first_message(work: Path, messages: int) -> list[Row]:
    """How long a reader waits for its first cold message with a store 50 ms away, in units of one GET."""
    with cold(work, messages, 1) as archive:
        state = opened(archive.url, archive.server.store()).state
        queue = state.queue(MessageQueue(TOPIC, 0))
        assert queue is not None
        assert queue.generation is not None
        run = max(state.runs(queue.queue, queue.generation), key=lambda run: run.rows)
        places = [run.start + (run.end - run.start) * part // 8 for part in range(1, 7)]
        single = _one_get(archive)
        cached: list[tuple[float, int]] = []
        fresh: list[tuple[float, int]] = []
        for _ in range(ROUNDS):
            with archive.opened(seconds=FIRST_SECONDS) as (store, watched):
                for number, place in enumerate(places):
                    (cached if number else fresh).append(_first(store, watched, place, number))
    rows = []
    for what, found, target in (("cached", cached, "≤ 1.3"), ("not cached", fresh, "≤ 2.4")):
        took = statistics.median(seconds for seconds, _ in found)
        gets = statistics.mean(count for _, count in found)
        rows.append(
            Row(
                f"first cold message, store 50 ms away, block table {what}", f"{took * 1000:.1f} ms, {gets:.1f} GETs",
                f"{single * 1000:.1f} ms (one GET of a block)", f"{took / single:.2f}", target,
            )
        )  # fmt: skip
    return rows


def _first(store: MessageStore, watched: Watched, offset: int, number: int) -> tuple[float, int]:
    """Seconds and GETs until the message at ``offset`` is there; read-ahead has time to end before and after."""
    time.sleep(4 * FIRST_SECONDS)
    watched.reset()
    started = time.monotonic()
    result = store.get_message(Pull(ReaderId(f"first-{number}"), TOPIC, 0, offset, 1))
    took, gets = time.monotonic() - started, watched.gets
    assert len(result.records) == 1, result
    return took, gets


def _one_get(archive: ColdArchive) -> float:
    provider = Watched(archive.provider(), FIRST_SECONDS)
    key = next(iter(provider.list("DefaultCluster/broker-a/data/"))).key

    def once_more(number: int) -> float:
        started = time.monotonic()
        provider.get(key, number * (256 << 10), 256 << 10)
        return time.monotonic() - started

    return statistics.median(once_more(number) for number in range(9))


def read_memory(work: Path, messages: int, readers: int, budget_bytes: int) -> list[Row]:
    """Peak resident memory of a process in which ``readers`` groups read cold queues at once."""
    with cold(work, messages, readers) as archive:
        return [memory_row(archive, budget_bytes, "cold readers")]


def memory_row(archive: ColdArchive, budget_bytes: int, what: str) -> Row:
    """Peak resident memory of a process that reads every queue of an archive at once."""
    command = [
        sys.executable, "-m", "tests.bench.readers", archive.url, TOPIC, str(archive.queues), str(budget_bytes),
    ]  # fmt: skip
    environment = {**os.environ, **archive.server.environment()}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
    told = json.loads(done.stdout)
    expect(told["messages"], archive.messages)
    most = budget_bytes + 150 * MIB
    return Row(
        f"peak memory, {archive.queues:,} {what}, {told['bytes'] / 1e9:.2f} GB in {told['seconds']:.0f} s",
        f"{told['peak_bytes'] / MIB:.0f} MiB", f"{told['idle_bytes'] / MIB:.0f} MiB before the first read",
        f"{told['peak_bytes'] / most:.2f}", f"≤ {budget_bytes // MIB} + 150 MiB",
    )  # fmt: skip


def cases(quick: bool) -> dict[str, Callable[[Path], list[Row]]]:
    """These benchmarks by name."""
    few, many = (60_000, 60_000) if quick else (300_000, 1_000_000)
    return {
        "cold-read": lambda work: cold_read(work, many),
        "read-ahead": lambda work: read_ahead(work, few),
        "shared-read": lambda work: shared_read(work, few, (16 if quick else 64) * MIB),
        "filtered-read": lambda work: filtered_read(work, few),
        "first-message": lambda work: first_message(work, few),
        "read-memory": lambda work: read_memory(work, few, 1000, (16 if quick else 64) * MIB),
    }
