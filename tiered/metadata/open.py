"""The door to the metadata drivers: a kind and a directory become an open store."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from tiered.errors import Corrupt, Invalid
from tiered.metadata.base import MetadataStore, RedoStore
from tiered.metadata.jsonfile import JsonFileStore
from tiered.metadata.memory import MemoryRedoStore, MemoryStore

if TYPE_CHECKING:
    from tiered.metadata.mapfile import MapRedoStore
    from tiered.metadata.rocksdb import RocksDbStore
    from tiered.metadata.rocksredo import RocksDbRedoStore

log = logging.getLogger("tiered.metadata")

MAP_BYTES = 1 << 30
"""What a map holds where nobody says otherwise."""


def open_metadata(
    kind: str,
    directory: str | Path,
    cache_bytes: int,
    *,
    stamp: str = "1",
    points: bytes = b"",
    anew: bool = False,
    seldom_read: bool = False,
) -> MetadataStore:
    """Open or create the store of ``kind`` (``memory``, ``json``, ``rocksdb``) under ``directory``.

    ``cache_bytes`` bounds RocksDB's memory. ``stamp`` names what the content means: a store written with
    another one, or by another version of the driver, is emptied here (it is a cache) and says so in its
    ``cleared`` attribute. ``points`` is the first byte of keys that are looked up one by one, thousands at a time. With
    ``anew`` a store that is damaged, or of a later version, is emptied in the same way. ``seldom_read``: it is written to all
    the time and walked over now and then, so what was written is merged seldom.

    Raises ``Unavailable`` if another process holds it, ``Corrupt`` (with the directory to delete) and
    ``Invalid``.
    """
    if kind == "memory":
        return MemoryStore()
    if kind == "json":
        return _opened(JsonFileStore(Path(directory) / "json", stamp), anew)
    if kind == "rocksdb":
        # Imported here so that a program that never opens one runs without the engine.
        from tiered.metadata.rocksdb import RocksDbStore
        from tiered.metadata.rocksoptions import SELDOM_MERGED, YOUNG_FILES

        young_files = SELDOM_MERGED if seldom_read else YOUNG_FILES
        made = RocksDbStore(Path(directory) / "rocksdb", cache_bytes, stamp, points, young_files)
        return _opened(made, anew)
    raise Invalid("state.metadata is not a known kind", expected="rocksdb, json or memory", found=kind)


def open_redo(
    kind: str,
    directory: str | Path,
    cache_bytes: int,
    *,
    stamp: str = "1",
    map_bytes: int = MAP_BYTES,
    read_one_by_one: bool = False,
) -> RedoStore:
    """Open or create a store without a log, of ``kind`` (``memory``, ``map`` or ``rocksdb``), under ``directory``.

    ``cache_bytes`` and ``stamp``: see ``open_metadata``. ``map_bytes`` bounds what ``map`` holds. ``read_one_by_one``:
    entries are asked for singly, at random, so that RocksDB unpacks little for each. One that is damaged, or of another stamp,
    is emptied: redo fills it.

    Raises ``Unavailable`` if another process holds it, and ``Invalid``.
    """
    if kind == "memory":
        return MemoryRedoStore()
    if kind == "map":
        from tiered.metadata.mapfile import MapRedoStore

        return _opened(MapRedoStore(Path(directory) / "map", map_bytes, stamp), anew=True)
    if kind != "rocksdb":
        raise Invalid(
            "a store without a log is of no such kind", expected="rocksdb, map or memory", found=kind
        )
    from tiered.metadata.rocksredo import RocksDbRedoStore

    made = RocksDbRedoStore(Path(directory) / "rocksdb", cache_bytes, stamp, read_one_by_one=read_one_by_one)
    return _opened(made, anew=True)


Driver = TypeVar("Driver", "JsonFileStore", "RocksDbStore", "RocksDbRedoStore", "MapRedoStore")


def _opened(store: Driver, anew: bool) -> Driver:
    try:
        store.open()
    except Corrupt as error:
        if not anew:
            raise
        store.make_anew()
        store.cleared = f"{error.message}: {error.fields.get('found')}"
    if store.cleared is not None:
        log.warning("a local store was emptied: it is made again", extra={"reason": store.cleared})
    return store
