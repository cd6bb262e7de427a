"""The door to the metadata drivers: a kind and a directory become an open store."""

from __future__ import annotations

from pathlib import Path

from tiered.errors import Invalid
from tiered.metadata.base import MetadataStore
from tiered.metadata.jsonfile import JsonFileStore
from tiered.metadata.memory import MemoryStore


def open_metadata(kind: str, directory: str | Path, cache_bytes: int, *, stamp: str = "1") -> MetadataStore:
    """Open or create the store of ``kind`` (``memory``, ``json``, ``rocksdb``) under ``directory``.

    ``cache_bytes`` bounds RocksDB's memory. ``stamp`` names what the content means: a store written with
    another one, or by another version of the driver, is emptied here (it is a cache) and says so in its
    ``cleared`` attribute.

    Raises ``Unavailable`` if another process holds it, ``Corrupt`` (with the directory to delete) and
    ``Invalid``.
    """
    if kind == "memory":
        return MemoryStore()
    if kind == "json":
        store = JsonFileStore(Path(directory) / "json", stamp)
        store.open()
        return store
    if kind == "rocksdb":
        # Imported here so that a program that never opens one runs without the engine.
        from tiered.metadata.rocksdb import RocksDbStore

        rocks = RocksDbStore(Path(directory) / "rocksdb", cache_bytes, stamp)
        rocks.open()
        return rocks
    raise Invalid("state.metadata is not a known kind", expected="rocksdb, json or memory", found=kind)
