"""A RocksDB store that is damaged, lost files, or is of a later version: said clearly, made again where that is asked for."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import rocksdict

from tests.kit.rocks import DISK_FULL
from tiered.errors import Corrupt, Unavailable
from tiered.metadata.base import MetadataStore
from tiered.metadata.open import open_metadata
from tiered.metadata.rocksload import Loading

CACHE = 1 << 20
PAIRS = [(b"%c%05d" % (first, number), os.urandom(100)) for first in b"aq" for number in range(3000)]


def filled(directory: Path) -> MetadataStore:
    store = open_metadata("rocksdb", directory, CACHE, points=b"q")
    store.load([PAIRS])
    store.put_many([(b"h", b"head")], applied=b"p")
    return store


def later_files(path: Path) -> None:
    for file in path.glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[-12:-8] = struct.pack("<I", 99)  # the format version, in front of the magic
        file.write_bytes(data)


def later_family(path: Path) -> None:
    db = rocksdict.Rdict(str(path), options=rocksdict.Options(raw_mode=True))
    db.create_column_family("of-a-later-version", rocksdict.Options(raw_mode=True))
    db.close()


def flipped(pattern: str) -> Callable[[Path], None]:
    def flip(path: Path) -> None:
        file = max(path.glob(pattern), key=lambda found: found.stat().st_size)
        data = bytearray(file.read_bytes())
        for at in (len(data) // 3, *range(len(data) - 2000, len(data) - 100, 50)):
            data[at if at > 0 else 0] ^= 0xFF
        file.write_bytes(data)

    return flip


def cut(path: Path) -> None:
    file = max(path.glob("*.sst"), key=lambda found: found.stat().st_size)
    os.truncate(file, file.stat().st_size // 2)


def lost(pattern: str) -> Callable[[Path], None]:
    return lambda path: next(path.glob(pattern)).unlink()


def strange_current(path: Path) -> None:
    (path / "CURRENT").write_bytes(b"MANIFEST-999999\n")


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "files of a later engine": (later_files, "of a later version, or damaged"),
    "a family of a later program": (later_family, "of a later version, or damaged"),
    "a flipped index": (flipped("*.sst"), "damaged"),
    "a flipped manifest": (flipped("MANIFEST*"), "damaged"),
    "a file cut short": (cut, "damaged"),
    "a lost file": (lost("*.sst"), "damaged"),
    "a lost manifest": (lost("MANIFEST*"), "damaged"),
    "a strange pointer": (strange_current, "damaged"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_said_and_the_store_made_again(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage, message = DAMAGE[what]
    filled(tmp_path).close()
    damage(tmp_path / "rocksdb")
    with pytest.raises(Corrupt, match=message) as found:
        open_metadata("rocksdb", tmp_path, CACHE, points=b"q")
    assert "rebuilt from the bucket" in (found.value.hint or "")
    store = open_metadata("rocksdb", tmp_path, CACHE, points=b"q", anew=True)
    assert (list(store.iterate(b"")), store.applied()) == ([], None)
    assert message in (store.cleared or "")
    assert [record.getMessage() for record in caplog.records] == [
        "a local store was emptied: it is made again"
    ]
    store.load([PAIRS])
    assert len(list(store.iterate(b""))) == len(PAIRS)
    store.close()
    store = open_metadata("rocksdb", tmp_path, CACHE, points=b"q", anew=True)
    assert (store.cleared, len(list(store.iterate(b"")))) == (None, len(PAIRS))
    store.close()


def test_a_lost_pointer_to_the_manifest_is_an_empty_store(tmp_path: Path) -> None:
    """The engine takes such a directory for a new one."""
    filled(tmp_path).close()
    lost("CURRENT")(tmp_path / "rocksdb")
    store = open_metadata("rocksdb", tmp_path, CACHE, points=b"q", anew=True)
    assert (list(store.iterate(b"")), store.applied()) == ([], None)
    store.load([PAIRS])
    store.close()


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("prefix", [b"a", b"q", b""])
def test_a_walk_that_meets_damage_does_not_end_as_if_that_was_all(
    tmp_path: Path, prefix: bytes, reverse: bool
) -> None:
    """As the engine's own iterators do."""
    store = filled(tmp_path)
    for file in (tmp_path / "rocksdb").glob("*.sst"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)
    for view in (store, store.snapshot()):
        with pytest.raises(Corrupt, match="checksum mismatch"):
            list(view.iterate(prefix, reverse=reverse))
    store.close()


def met_while_reading(directory: Path) -> MetadataStore:
    """A store whose files were damaged behind its back, and which has met that."""
    store = filled(directory)
    for file in (directory / "rocksdb").glob("*.sst"):
        data = bytearray(file.read_bytes())
        for at in range(0, len(data) - 4096, 1024):
            data[at] ^= 0xFF
        file.write_bytes(data)
    with pytest.raises(Corrupt, match="damaged"):
        list(store.iterate(b""))
    return store


def test_damage_met_while_it_is_read_is_remembered(tmp_path: Path) -> None:
    """The engine checks a block when it is read: opened again it would go on until somebody asks for that one."""
    met_while_reading(tmp_path).close()
    with pytest.raises(Corrupt, match="was found damaged"):
        open_metadata("rocksdb", tmp_path, CACHE, points=b"q")
    store = open_metadata("rocksdb", tmp_path, CACHE, points=b"q", anew=True)
    assert (list(store.iterate(b"")), "was found damaged" in (store.cleared or "")) == ([], True)
    store.close()
    assert [path.name for path in tmp_path.iterdir()] == ["rocksdb"]


def test_a_damaged_store_can_be_cleared_while_it_is_open(tmp_path: Path) -> None:
    store = met_while_reading(tmp_path)
    store.clear()
    store.load([PAIRS])
    assert list(store.iterate(b"")) == PAIRS
    store.close()


def test_a_store_that_another_process_has_open_is_not_removed(tmp_path: Path) -> None:
    store = met_while_reading(tmp_path)
    with pytest.raises(Unavailable, match="another process"):
        open_metadata("rocksdb", tmp_path, CACHE, points=b"q", anew=True)
    store.put_many([(b"h", b"still there")])
    assert store.get_many([b"h"]) == [b"still there"]
    store.close()


def test_a_full_disk_while_it_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_metadata("rocksdb", tmp_path, CACHE, points=b"q")

    def add(self: Loading, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        raise Exception(DISK_FULL)

    with monkeypatch.context() as full:
        full.setattr(Loading, "add", add)
        with pytest.raises(Unavailable, match=r"disk .* is full.*free disk space"):
            store.load([PAIRS])
    assert (list(store.iterate(b"")), store.applied()) == ([], None)
    assert not list(tmp_path.rglob("*.load"))
    store.load([PAIRS])
    assert list(store.iterate(b"")) == PAIRS
    store.close()


def test_json_that_is_damaged_is_made_again(tmp_path: Path) -> None:
    store = open_metadata("json", tmp_path, CACHE)
    store.put_many([(b"a", b"1")], applied=b"p")
    store.close()
    (tmp_path / "json" / "metadata.json").write_bytes(b"{")
    store = open_metadata("json", tmp_path, CACHE, anew=True)
    assert (list(store.iterate(b"")), store.applied()) == ([], None)
    assert "cannot be read" in (store.cleared or "")
    store.close()
