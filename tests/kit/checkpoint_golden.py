"""The golden checkpoint under ``tests/data/format/checkpoint``: a fixed history, its manifest and its shards.

``python -m tests.kit.checkpoint_golden`` writes it anew; do that only together with ``CHECKPOINT.md`` and ``FOLD_VERSION``.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.kit.histories import History
from tiered.archive.checkpoint.store import Manifest, write_checkpoint
from tiered.archive.keys import ArchiveKeys
from tiered.clock import ManualClock
from tiered.metadata.memory import MemoryStore
from tiered.provider.memory import MemoryProvider

DIRECTORY = Path(__file__).parents[1] / "data" / "format" / "checkpoint"
PAIRS = DIRECTORY.with_name("checkpoint-pairs.json")
KEYS = ArchiveKeys("golden", "broker-a")
SHARD_BYTES = 8192


def history() -> History:
    """Forty commits of every kind."""
    made = History(random.Random(2024))
    for _ in range(40):
        made.step()
    return made


def pairs() -> list[tuple[bytes, bytes]]:
    """What the golden checkpoint holds."""
    return [(bytes.fromhex(k), bytes.fromhex(v)) for k, v in json.loads(PAIRS.read_text())]


def fold() -> MemoryStore:
    """The same, in a store."""
    made = MemoryStore()
    made.put_many(pairs())
    return made


def provider(*, filled: bool) -> MemoryProvider:
    """A store with the golden objects, or an empty one."""
    made = MemoryProvider("golden", ManualClock())
    if filled:
        for path in sorted(p for p in DIRECTORY.rglob("*") if p.is_file()):
            made.put(KEYS.key(path.relative_to(DIRECTORY).as_posix()), [path.read_bytes()])
    return made


def write(to: MemoryProvider) -> Manifest:
    """The checkpoint of ``fold``; shard ids count up."""
    ids = iter(range(1, 1000))
    return write_checkpoint(
        to,
        KEYS,
        fold().snapshot(),
        None,
        lambda: KEYS.shard(7, bytes(15) + bytes([next(ids)])),
        shard_bytes=SHARD_BYTES,
    )


def main() -> None:
    """Write the files."""
    rows = [[k.hex(), v.hex()] for k, v in history().store.iterate(b"")]
    PAIRS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    store = provider(filled=False)
    write(store)
    for found in store.list(KEYS.root):
        path = DIRECTORY / found.key[len(KEYS.root) :]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(found.key).data)
        print(path.relative_to(DIRECTORY), found.length)


if __name__ == "__main__":
    main()
