"""What there is to collect in an archive of many objects: the plan's time and memory, in a process of its own.

The fold lies in RocksDB, as a daemon's does; the bucket is a listing that is made as it is read, and costs nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.readers import peak_bytes
from tests.bench.run import Row, expect
from tests.kit.assemble import KEYS
from tests.kit.histories import ARCHIVE_ID
from tiered.archive.log.identity import ArchiveIdentity
from tiered.archive.log.reader import LogReader
from tiered.archive.rewrite.collection import Collectable, look
from tiered.archive.state.cached import open_fold
from tiered.archive.state.keys import HEAD, OBJECT_PATH, RETIRED, U8, U8_U4, object_key
from tiered.archive.state.values import Head, ObjectState, pack_object
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.model import ObjectRef
from tiered.provider.base import Stored
from tiered.provider.memory import MemoryProvider
from tiered.settings import MIB, Gc

UNREFERENCED, NAMED, ORPHANS = 10, 20, 1000
"""One object of so many is unreferenced, named for deletion, no object of the fold at all."""
_CACHE_BYTES = 64 * MIB
_BATCH = 20_000


def path_of(number: int) -> str:
    """Of an object, ascending."""
    return f"data/0000000001-00000000-0000-4000-8000-{number:012x}"


class Bucket(MemoryProvider):
    """Lists ``objects`` objects; everything else is as it is."""

    objects = 0

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        if not prefix.endswith("data/"):
            return super().list(prefix, start_after=start_after, limit=limit)
        return (Stored(KEYS.key(path_of(n)), 1, 1, 1) for n in range(self.objects))


def build(directory: Path, objects: int) -> None:
    """A fold of so many objects, less the orphans."""
    store = open_fold("rocksdb", directory, _CACHE_BYTES)
    head = Head(
        ARCHIVE_ID, objects, bytes(16), 2, bytes(16), 1, 1, 0, "h", "commitlog", "master", None, 1, 1, (), 0, 0, {}
    )  # fmt: skip
    pairs: list[tuple[bytes, bytes]] = [(HEAD, head.pack())]
    for number in range(objects):
        if number % ORPHANS == 0:
            continue
        ref, path = ObjectRef(number, 0), path_of(number)
        named = number % NAMED == 1
        references = 0 if named or number % UNREFERENCED == 2 else 3
        sections = {kind: (kind * 1000, 900, 7) for kind in range(1, 6)}
        state = ObjectState(ref, path, b"o" * 16, 1, 9000, sections, references, 1 if named else None)
        pairs.append((object_key(ref), pack_object(state)))
        pairs.append((OBJECT_PATH + path.encode(), U8_U4.pack(number, 0)))
        if named:
            pairs.append((RETIRED + path.encode(), U8.pack(1)))
        if len(pairs) >= _BATCH:
            store.put_many(pairs)
            pairs = []
    store.put_many(pairs, applied=head.position())
    store.close()


def plan(directory: Path, objects: int) -> None:
    """Print what planning took, as JSON."""
    clock = ManualClock()
    bucket = Bucket("", clock)
    bucket.objects = objects
    bucket.put(KEYS.commit(1), [b"it named keys"])
    clock.advance(10 * 86_400)
    store = open_fold("rocksdb", directory, _CACHE_BYTES)
    reader = LogReader(bucket, KEYS, ArchiveIdentity(ARCHIVE_ID, KEYS.cluster, KEYS.broker, 0))
    idle_bytes, began, cpu = peak_bytes(), time.monotonic(), time.process_time()
    found = look(reader, ArchiveState(store), Gc(enabled="true"), clock)
    told = {
        "seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu, "peak_bytes": peak_bytes(),
        "idle_bytes": idle_bytes, "listed": found.listed, "nameable": found.nameable, "due": found.due,
    }  # fmt: skip
    print(json.dumps(told))
    _check(found, objects)
    store.close()


def _check(found: Collectable, objects: int) -> None:
    strays = len(range(0, objects, ORPHANS))
    free = sum(1 for n in range(objects) if n % ORPHANS and n % UNREFERENCED == 2 and n % NAMED != 1)
    expect(found.listed, objects, "objects were listed")
    expect(found.orphans, strays, "orphans were found")
    expect(found.unreferenced, free, "objects that nothing refers to were found")
    expect(found.due, len(range(1, objects, NAMED)), "keys are past their grace")


def collecting(work: Path, objects: int) -> list[Row]:
    """The plan over so many objects, beside one walk over the fold's paths."""
    build(work / "fold", objects)
    words = [sys.executable, "-m", "tests.bench.collecting", str(work / "fold"), str(objects)]
    said = subprocess.run(words, check=True, capture_output=True, text=True)
    told = json.loads(said.stdout.splitlines()[0])
    what = f"gc plan, {objects:,} objects"
    return [
        Row(f"{what}: wall, CPU", f"{told['seconds']:.1f} s, {told['cpu_seconds']:.1f} s", "-", "-", "≤ 60 s"),
        Row(
            f"{what}: peak memory", f"{told['peak_bytes'] / MIB:.0f} MiB",
            f"{told['idle_bytes'] / MIB:.0f} MiB before it", "-", "≤ 512 MiB",
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    plan(Path(sys.argv[1]), int(sys.argv[2]))
