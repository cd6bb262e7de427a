"""Stores of the key-value view: writes, reads, a start after a crash, import of a snapshot, beside RocksDB's own bulk load."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from tests.bench.run import Row, expect
from tests.kit.assemble import KEYS
from tests.kit.rocks import killed
from tiered.clock import SystemClock
from tiered.metadata.base import RedoStore
from tiered.metadata.open import open_redo
from tiered.provider.posix import PosixProvider
from tiered.settings import MIB
from tiered.view.layout import entry_key, entry_value, namespace_key
from tiered.view.snapshot import list_snapshots, load_snapshot, write_snapshot

VALUE_BYTES = 100
BATCH = 20_000
CACHE_BYTES = 256 * MIB
SMALL_CACHE_BYTES = 32 * MIB
READERS = 16
GETS = 2_000
WARMING = 1_000
UNFLUSHED = 100_000
NAMESPACE = "bench"
_NOISE = random.Random(1).randbytes(16 * MIB)
Pair = tuple[bytes, bytes]


def opened(directory: Path | str, kind: str = "rocksdb", cache_bytes: int = CACHE_BYTES) -> RedoStore:
    """As the view opens its store."""
    return open_redo(kind, directory, cache_bytes, map_bytes=1 << 40, read_one_by_one=True)


def pair(number: int) -> Pair:
    """An entry of the view; its value does not compress."""
    at = number * VALUE_BYTES % (len(_NOISE) - VALUE_BYTES)
    value = entry_value(number, number, None, _NOISE[at : at + VALUE_BYTES])
    return entry_key(NAMESPACE, b"%012d" % number), value


def batches(count: int) -> Iterator[list[Pair]]:
    """Ascending, and then what is known of the namespace."""
    for low in range(0, count, BATCH):
        yield [pair(number) for number in range(low, min(count, low + BATCH))]
    yield [(namespace_key(NAMESPACE), b"{}")]


def key_value(work: Path, writes: int, keys: int) -> list[Row]:
    """``writes``: entries that are put; ``keys``: of the store that is read, opened and imported."""
    rows = putting(work / "put", writes)
    store = opened(work / "large")
    bulk = bulk_load(store, keys)
    rows += [getting(store, keys, pause) for pause in (0.002, 0.0)]
    rows.append(importing(work, store, keys, bulk))
    size = store.size().bytes
    store.close()
    return [*rows, *restarting(work / "large", keys), holding(work / "large", keys, size)]


def timed(call: object) -> float:
    """Seconds that ``call()`` takes."""
    started = time.perf_counter()
    call()  # type: ignore[operator]
    return time.perf_counter() - started


def bulk_load(store: RedoStore, count: int) -> float:
    """Seconds that RocksDB's own bulk load of so many pairs takes, without what making the pairs takes."""
    spent = 0.0

    def made() -> Iterator[list[Pair]]:
        nonlocal spent
        started = time.perf_counter()
        for batch in batches(count):
            spent += time.perf_counter() - started
            yield batch
            started = time.perf_counter()

    return timed(lambda: store.load(made(), applied=b"0")) - spent


def putting(work: Path, count: int) -> list[Row]:
    """New keys in ascending and in random order, then all of them again, in RocksDB and in the map."""
    numbers = random.Random(2).sample(range(count), count)
    rows = []
    bulk = opened(work / "bulk")
    baseline = count / bulk_load(bulk, count)
    bulk.close()
    for kind in ("rocksdb", "map"):
        for what, order in (("ascending", range(count)), ("at random", numbers)):
            store = opened(work / f"{kind}-{what}", kind)
            for again in ("", ", each again"):
                rate = _rate(store, order)
                if kind == "map":
                    expect(store.size().keys, count, "keys are there")
                rows.append(
                    Row(
                        f"put_many into {kind}, {count:,} keys {what}{again}",
                        f"{rate:,.0f}/s",
                        f"{baseline:,.0f}/s, RocksDB's bulk load",
                        f"{rate / baseline:.2f}",
                        "≥ 1,000,000/s" if kind == "map" else "≥ 300,000/s",
                    )
                )
            seconds = timed(store.flush)
            rows.append(Row(f"flush of {kind} then", f"{seconds:.2f} s", "-", "-", "report"))
            store.close()
    return rows


def _rate(store: RedoStore, order: range | list[int]) -> float:
    spent = 0.0
    for low in range(0, len(order), BATCH):
        pairs = [pair(number) for number in order[low : low + BATCH]]
        started = time.perf_counter()
        store.put_many(pairs, applied=b"%d" % low)
        spent += time.perf_counter() - started
    return len(order) / spent


def getting(store: RedoStore, keys: int, pause_seconds: float) -> Row:
    """Single gets of keys at random by many threads at once, each with a pause behind each; the first ones do not count."""
    ready, resting = threading.Barrier(READERS), threading.Event()

    def reader(number: int) -> tuple[list[float], float]:
        draw, taken = random.Random(f"{number} {pause_seconds}"), []
        wanted = [entry_key(NAMESPACE, b"%012d" % draw.randrange(keys)) for _ in range(WARMING + GETS)]
        ready.wait()
        for place, key in enumerate(wanted):
            if place == WARMING:
                ready.wait()
                begun = time.perf_counter()
            started = time.perf_counter()
            (found,) = store.get_many([key])
            taken.append(time.perf_counter() - started)
            expect(found is not None, True, "keys were found")
            if pause_seconds:
                resting.wait(pause_seconds)
        return taken[WARMING:], time.perf_counter() - begun

    with ThreadPoolExecutor(READERS) as pool:
        done = list(pool.map(reader, range(READERS)))
    taken = np.array([each for some, _ in done for each in some])
    rate = len(taken) / max(seconds for _, seconds in done)
    middle, late, last = np.percentile(taken, (50, 99, 99.9)) * 1000
    how = f"with pauses of {pause_seconds * 1000:.0f} ms" if pause_seconds else "without pause"
    return Row(
        f"get among {keys:,} keys, {READERS} threads {how}: p50 / p99 / p99.9",
        f"{middle:.2f} / {late:.2f} / {last:.2f} ms, {rate:,.0f}/s",
        "-",
        "-",
        "p99 ≤ 1 ms" if pause_seconds else "report",
    )


def importing(work: Path, store: RedoStore, keys: int, bulk: float) -> Row:
    """A snapshot of all, from a local disk into an empty store."""
    provider = PosixProvider(str(work / "bucket"), SystemClock())
    provider.create_root()
    exporting = timed(
        lambda: write_snapshot(
            provider, KEYS, store.snapshot(), namespace=None, now_ms=1, snapshot_id=bytes(16)
        )
    )
    (found,) = list_snapshots(provider, KEYS)
    empty = opened(work / "imported")
    seconds = timed(lambda: load_snapshot(provider, KEYS, empty, found, namespace=None))
    expect(sum(count for count in found.entries.values()), keys, "entries were exported")
    expect(empty.get_many([pair(keys - 1)[0]]) == [pair(keys - 1)[1]], True, "last entries were imported")
    empty.close()
    return Row(
        f"import of a snapshot of {keys:,} keys ({found.stored_bytes >> 20} MiB; export {exporting:.1f} s)",
        f"{seconds:.1f} s",
        f"{bulk:.1f} s, RocksDB's bulk load",
        f"{seconds / bulk:.2f}",
        "≤ 30 s",
    )


def restarting(directory: Path, keys: int) -> list[Row]:
    """Killed with batches that were not flushed; opened, and these put again."""
    body = (
        "from tests.bench.keyvalue import *\n"
        f"store = opened({str(directory)!r})\n"
        f"for low in range(0, {UNFLUSHED}, BATCH):\n"
        f"    store.put_many([pair({keys} + low + n) for n in range(BATCH)], applied=b'%d' % (low + BATCH))\n"
        "die()"
    )
    killed(directory, "None", body)
    started = time.perf_counter()
    store = opened(directory)
    ready = time.perf_counter()
    for low in range(int(store.applied() or b"0"), UNFLUSHED, BATCH):
        store.put_many([pair(keys + low + n) for n in range(BATCH)], applied=b"%d" % (low + BATCH))
    done = time.perf_counter()
    expect(store.get_many([pair(keys + UNFLUSHED - 1)[0]]) != [None], True, "last entries are there")
    store.close()
    return [
        Row(
            f"restart after kill -9, {keys:,} keys and {UNFLUSHED:,} not flushed (opened alone)",
            f"{done - started:.2f} s ({ready - started:.2f} s)",
            "-",
            "-",
            "≤ 3 s",
        )
    ]


def holding(directory: Path, keys: int, size: int) -> Row:
    """Memory of a process that reads and writes a store many times as large as it may hold."""
    told = json.loads(
        subprocess.run(
            [sys.executable, "-m", "tests.bench.keyvalue", str(directory), str(keys)],
            check=True,
            capture_output=True,
        ).stdout
    )
    return Row(
        f"memory over the idle process, store of {size >> 20} MiB, cache_bytes {SMALL_CACHE_BYTES >> 20} MiB",
        f"{(told['peak'] - told['idle']) >> 20} MiB",
        "-",
        f"{(told['peak'] - told['idle']) / size:.3f} of the store",
        "≤ cache_bytes + 64 MiB",
    )


def _anonymous() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("no RssAnon in /proc/self/status")


def _hold(directory: str, keys: int) -> None:
    idle = peak = _anonymous()
    store, draw = opened(directory, cache_bytes=SMALL_CACHE_BYTES), random.Random(4)
    for number in range(200):
        wanted = [entry_key(NAMESPACE, b"%012d" % draw.randrange(keys)) for _ in range(500)]
        expect(len(store.get_many(wanted)), len(wanted))
        store.put_many([pair(draw.randrange(keys)) for _ in range(2_000)], applied=b"%d" % number)
        peak = max(peak, _anonymous())
    for number, _ in enumerate(store.iterate(b"")):
        if number % 100_000 == 0:
            peak = max(peak, _anonymous())
    store.close()
    print(json.dumps({"idle": idle, "peak": peak}))


if __name__ == "__main__":
    _hold(sys.argv[1], int(sys.argv[2]))
