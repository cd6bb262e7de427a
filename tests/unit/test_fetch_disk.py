"""The disk tier: bounded, believed in nothing, never in the way."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from unittest.mock import patch

from tiered.fetch.disk import DiskTier

KIB = 1024


def name(block: int, number: int = 7) -> str:
    return DiskTier.name_of(bytes([number]) * 16, block)


def test_what_was_put_comes_back_also_for_the_next_process(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "tier", 64 * KIB)
    assert tier.get(name(1)) is None
    tier.put(name(1), memoryview(b"one"))
    tier.put(name(2), b"two" * 4000)
    assert tier.get(name(1)) == b"one"
    assert tier.used_bytes == 4 * 4096
    again = DiskTier(tmp_path / "tier", 64 * KIB)
    assert again.get(name(2)) == b"two" * 4000
    assert again.used_bytes == 4 * 4096
    assert tier.errors == again.errors == 0


def test_it_keeps_its_own_budget_oldest_use_first(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 4 * 4096)
    for block in range(4):
        tier.put(name(block), bytes(4096))
    assert tier.get(name(0)) is not None
    tier.put(name(4), bytes(4096))
    assert [block for block in range(5) if tier.get(name(block)) is not None] == [0, 2, 3, 4]
    assert sum(path.stat().st_size for path in tmp_path.rglob("*-*")) == 4 * 4096
    tier.put(name(9), bytes(3 * 4096))
    assert tier.get(name(9)) is None, "one block is not worth half the tier"


def test_a_smaller_budget_after_a_restart(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 8 * 4096)
    for block in range(8):
        tier.put(name(block), bytes(4096))
        os.utime(tmp_path / name(block), (block, block))
    smaller = DiskTier(tmp_path, 2 * 4096)
    assert [block for block in range(8) if smaller.get(name(block)) is not None] == [6, 7]
    assert len(list(tmp_path.rglob("*-*"))) == 2


def test_leftovers_and_strangers(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 64 * KIB)
    tier.put(name(1), b"one")
    torn = tmp_path / f"{name(2)}-123.partial"
    torn.write_bytes(b"half")
    (tmp_path / "notes").write_text("not ours")
    again = DiskTier(tmp_path, 64 * KIB)
    assert again.get(name(1)) == b"one"
    assert not torn.exists()
    assert (tmp_path / "notes").exists()


def test_dropped_and_vanished_files_are_not_here(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 64 * KIB)
    tier.put(name(1), b"one")
    tier.put(name(2), b"two")
    tier.drop(name(1))
    tier.drop(name(1))
    (tmp_path / name(2)).unlink()
    assert tier.get(name(1)) is None
    assert tier.get(name(2)) is None
    assert tier.errors == 1
    assert tier.used_bytes == 0


def test_a_directory_that_cannot_be_made_is_a_tier_that_has_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    tier = DiskTier(tmp_path / "file" / "tier", 64 * KIB)
    tier.put(name(1), b"one")
    assert tier.get(name(1)) is None
    assert tier.errors >= 2
    assert tier.used_bytes == 0


def test_a_reader_between_entry_and_file_leaves_nothing_uncounted(tmp_path: Path) -> None:
    """Somebody looks for the block just when its file gets its name."""
    tier = DiskTier(tmp_path, 64 * KIB)
    looked = []

    def look(self: Path, target: Path) -> Path:
        reader = threading.Thread(target=lambda: looked.append(tier.get(name(1))))
        reader.start()
        reader.join(0.2)
        os.rename(self, target)
        waiting.append(reader)
        return target

    waiting: list[threading.Thread] = []
    with patch.object(Path, "replace", look):
        tier.put(name(1), b"one")
    for reader in waiting:
        reader.join()
    files = [path for path in tmp_path.rglob("*-*") if path.is_file()]
    assert tier.used_bytes == 4096 * len(files)
    assert looked in ([b"one"], [None])
