"""Cold reads of an archive fresh, merged and sealed: a thousand interleaved queues, and the first message of one of them."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tests.bench.cold import MIB, PULL_BYTES, TOPIC, ColdArchive, Piece, Watched, cold, raw_gets, read_queue
from tests.bench.read import memory_row
from tests.bench.run import QUIET, TIERED, Row, expect
from tests.kit.measured import measure
from tests.kit.oracle import opened
from tiered.clock import ManualClock, SystemClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.settings import Fetch
from tiered.source.generator.store import GeneratorOptions, StoreGenerator, topic_names
from tiered.store import MessageStore

READERS = 16
ROUNDS = 2
FIRST_SECONDS = 0.050
DAYS_AGO_MS = 2 * 86_400_000
GIB = 1 << 30


def aged_read(work: Path, messages: int, queues: int) -> list[Row]:
    """The same messages read by sixteen readers, queue after queue, at every stage, beside the GETs that were made for it, as
    many at once; sealed also by one reader, beside the same GETs one after the other; and how long the first message of a
    sealed queue takes from a store 50 ms away."""
    source = work / "store"
    size = two_days_ago(source, messages, queues)
    with cold(work, messages, queues, store=source, compression="zstd") as made:
        archive, rows, at_rest = replace(made, record_bytes=size), list[Row](), list[int]()
        for stage, sets, target in (
            ("fresh", None, "-"),
            ("merged", ("seal.enabled=false",), "≥ 0.5"),
            ("sealed", ("seal.enabled=true",), "≥ 0.5"),
        ):
            if sets is not None:
                maintain(archive, source, work / "state", *sets)
            for where, place in archive.places:
                rows += _stage(place, f"{stage}, from {where}", target, READERS, Fetch().threads)
                if stage == "sealed":  # in turn, the GETs too
                    rows += _stage(place, f"{stage}, from {where}", target, 1, 1)
            at_rest.append(_at_rest(archive))
            ratio, wanted = at_rest[-1] / at_rest[0], "≤ 0.85" if stage == "sealed" else "-"
            rows.append(Row(
                f"… bytes at rest a message of {size // messages}", f"{at_rest[-1] / messages:.0f}",
                f"{at_rest[0] / messages:.0f} fresh", f"{ratio:.2f}", wanted,
            ))  # fmt: skip
        return [*rows, *_first_message(archive), memory_row(archive, 64 * MIB, "readers of sealed queues")]


def two_days_ago(store: Path, messages: int, queues: int) -> int:
    """A stored backlog of a day that is over; its bytes of records."""
    options = GeneratorOptions(
        store_dir=store, messages=messages, topics=topic_names(1, "Bench"), queues=queues, body_bytes=1024,
        file_bytes=GIB, queue_file_units=max(64, messages // queues + 64),
    )  # fmt: skip
    with StoreGenerator(options, ManualClock(SystemClock().now_ms() - DAYS_AGO_MS)) as generator:
        generator.append(messages)
        return generator.physical_offset


def maintain(archive: ColdArchive, store: Path, state: Path, *sets: str) -> None:
    """What ``tiered maintain --once`` finds to do there. ``sets``: settings."""
    flags = [part for pair in sets for part in ("--set", pair)]
    command = (
        *TIERED,
        "maintain",
        "--once",
        "--store",
        str(store),
        "--archive",
        archive.url,
        "--state",
        str(state),
    )
    measure((*command, *QUIET, "--set", "hold.max_disk_percent=99", *flags), archive.server.environment())


def _stage(archive: ColdArchive, stage: str, target: str, readers: int, threads: int) -> list[Row]:
    """``readers`` at once, beside ``threads`` of the same GETs at once."""
    ours, raw, cpu, raw_cpu, gets, stored = 0.0, 0.0, 1e9, 1e9, 0, 0
    for _ in range(ROUNDS):  # in turn, so that whatever else the machine does meets both
        seconds, busy, pieces, stored = _read_all(archive, readers)
        provider = archive.provider()
        raw_gets(provider, pieces[:1], 1)
        before = time.process_time()
        alone, size = raw_gets(provider, pieces, threads)
        raw_cpu = min(raw_cpu, time.process_time() - before)
        provider.close()
        ours, raw = max(ours, stored / seconds), max(raw, size / alone)
        cpu, gets = min(cpu, busy), len(pieces)
    given = ours * archive.record_bytes / stored
    per_gib, each = gets * GIB / archive.record_bytes, stored / gets
    cpu_per_gb, raw_per_gb = cpu / archive.record_bytes * 1e9, raw_cpu / stored * 1e9
    beside = f"{raw / 1e6:.0f} MB/s, {raw_per_gb:.2f} s of CPU a GB, the same GETs, {threads} at once"
    reading = f"{readers} cold readers" if readers > 1 else "one cold reader"
    what = f"{archive.queues:,} interleaved queues, {stage}, {reading}"
    said = f"{ours / 1e6:.0f} MB/s stored, {cpu_per_gb:.1f} s of CPU a GB of messages"
    return [
        Row(
            f"{what}, bytes of messages",
            f"{given / 1e6:.0f} MB/s",
            beside,
            f"{given / raw:.2f}, CPU {raw_per_gb / cpu_per_gb:.2f}",
            target,
        ),
        Row("… stored bytes", said, beside, f"{ours / raw:.2f}, CPU {raw_cpu / cpu:.2f}", "-"),
        Row("… GETs a GiB of messages", f"{per_gib:.0f}, {each / 1024:.0f} KiB each", "-", "-", "-"),
    ]


def _at_rest(archive: ColdArchive) -> int:
    """Bytes of all objects that runs lie in, with their tables and footers."""
    view = opened(archive.url, archive.server.store())
    return sum(item.length for item in view.state.objects() if item.references)


def _read_all(archive: ColdArchive, readers: int) -> tuple[float, float, list[Piece], int]:
    """Seconds, CPU seconds, GETs, their bytes."""
    with archive.opened() as (store, watched), ThreadPoolExecutor(readers) as pool:
        started, cpu = time.monotonic(), time.process_time()
        found = list(pool.map(lambda q: read_queue(store, ReaderId(f"bench-{q}"), q), range(archive.queues)))
        took, cpu = time.monotonic() - started, time.process_time() - cpu
        asked, stored = watched.asked, watched.get_bytes
    expect(sum(count for count, _ in found), archive.messages)
    return took, cpu, asked, stored


def _first_message(archive: ColdArchive) -> list[Row]:
    """Of queues whose bands were not read yet, of a segment whose footer was: with what bands of a row group share already
    here, and where it came beside the band. The baseline makes the larger of the GETs."""
    took: dict[int, list[float]] = {1: [], 2: []}
    singles: dict[int, list[float]] = {1: [], 2: []}
    for number in range(ROUNDS):
        with archive.opened(seconds=FIRST_SECONDS, read_ahead=False) as (store, watched):
            _first(store, watched, archive.queues - 1)
            for part in range(1, 6):
                seconds, asked = _first(store, watched, archive.queues * part // 7 + number)
                if len(asked) not in took:
                    continue
                took[len(asked)].append(seconds)
                piece = max(asked, key=lambda p: p[2] or 0)
                provider = Watched(archive.provider(), FIRST_SECONDS)
                provider.get(*piece)
                started = time.monotonic()
                provider.get(*piece)
                singles[len(asked)].append(time.monotonic() - started)
    return [
        _first_row(how, took[gets], singles[gets])
        for gets, how in ((1, "its place known"), (2, "and the head of its row group fetched beside"))
        if took[gets]
    ]


def _first_row(how: str, took: list[float], singles: list[float]) -> Row:
    ours, single = statistics.median(took), statistics.median(singles)
    what = f"first message from a sealed file, store 50 ms away, {how}"
    return Row(
        what, f"{ours * 1000:.1f} ms", f"{single * 1000:.1f} ms, one GET", f"{ours / single:.2f}", "≤ 1.6"
    )


def _first(store: MessageStore, watched: Watched, queue_id: int) -> tuple[float, list[Piece]]:
    """Seconds until the first message is there, and the GETs that were made for it."""
    time.sleep(2 * FIRST_SECONDS)
    watched.reset()
    started = time.monotonic()
    result = store.get_message(Pull(ReaderId(f"first-{queue_id}"), TOPIC, queue_id, 0, 1, PULL_BYTES))
    took = time.monotonic() - started
    assert len(result.records) == 1, result
    return took, list(watched.asked)
