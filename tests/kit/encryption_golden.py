"""Writes ``tests/data/format/encrypted/``: a data key, an object, a commit and a manifest as an encrypted archive has them.

Run ``python -m tests.kit.encryption_golden`` after a deliberate change of the format, look at the difference, and say why in
``docs/FORMAT.md``. Keys and chance are fixed, so a second run changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

from tests.kit import format_samples as samples
from tests.kit.assemble import KEYS
from tests.kit.encryption import encrypting
from tiered.clock import ManualClock
from tiered.codec.format.commit import encode_commit
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider

DIRECTORY = Path(__file__).resolve().parent.parent / "data" / "format" / "encrypted"
PLAIN = DIRECTORY / "plain.json"
ARCHIVE_ID = samples.ARCHIVE_ID
OBJECT_ID = b"object-id-number"
EPOCH = 2


def seeded(stored: Provider) -> None:
    """Put the samples into a store, encrypted."""
    chance = random.Random(11).randbytes
    provider = encrypting(stored, random_bytes=chance)
    provider.open_epoch(KEYS.root, ARCHIVE_ID, EPOCH)
    for key, parts in plain().values():
        provider.put(key, parts)


def plain() -> dict[str, tuple[str, list[bytes]]]:
    """Name, key and bytes of what is encrypted."""
    commit = samples.commit(samples.every_kind())
    return {
        "data.bin": (KEYS.data(EPOCH, OBJECT_ID), [bytes(range(256)) * 130]),
        "commit.bin": (KEYS.commit(commit.seq), [bytes(p) for p in encode_commit(commit)]),
        "manifest.bin": (KEYS.checkpoint(12), [b"a manifest"]),
    }


def files() -> dict[str, bytes]:
    """Every golden file's bytes, made now."""
    stored = MemoryProvider("", ManualClock())
    seeded(stored)
    keys = {key: name for name, (key, _) in plain().items()}
    return {keys.get(s.key, "datakey.json"): bytes(stored.get(s.key).data) for s in stored.list("")}


def write() -> None:
    """Write all of them, and what they decrypt to."""
    DIRECTORY.mkdir(exist_ok=True)
    stored = MemoryProvider("", ManualClock())
    seeded(stored)
    keys = {name: key for name, (key, _) in plain().items()}
    keys["datakey.json"] = next(s.key for s in stored.list(KEYS.root + "datakey/"))
    for name, data in files().items():
        (DIRECTORY / name).write_bytes(data)
    told = {name: hashlib.sha256(b"".join(parts)).hexdigest() for name, (_, parts) in plain().items()}
    PLAIN.write_text(json.dumps({"keys": keys, "sha256": told}, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()
