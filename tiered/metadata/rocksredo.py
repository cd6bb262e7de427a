"""An ordered map in RocksDB that is written without a write-ahead log and brought up to date by redo.

One family of columns holds everything, the position included, because its memtables become files one after the other and
each holds whole batches: so what a crash leaves is the map as it was right behind *one* batch, whose position ``applied``
tells. Two families would need both of their memtables to be written at once, which the engine does only where it decides
so itself, not for ``flush``. A database of its own can be damaged, cleared and made again without the fold beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import rocksdict

from tiered.crashpoint import MetadataPoint, reach
from tiered.errors import TieredError, Unavailable
from tiered.metadata.base import StoreSize
from tiered.metadata.rocksdb import RocksDbStore
from tiered.metadata.rocksoptions import EngineOptions
from tiered.metadata.rocksstamp import APPLIED


class RocksDbRedoStore(RocksDbStore):
    """A ``RedoStore`` in a RocksDB directory. ``open`` opens it; the constructor does nothing."""

    def __init__(
        self, directory: Path, cache_bytes: int, stamp: str, *, read_one_by_one: bool = False
    ) -> None:
        super().__init__(directory, cache_bytes, stamp)
        if read_one_by_one:
            self._engine = EngineOptions(cache_bytes, read_one_by_one=True)
        unlogged: Any = self._unsynced  # a property, of which the wrapper's types say that it is a method
        unlogged.disable_wal = True
        self._flushed: bytes | None = None

    def open(self) -> None:
        super().open()
        self._flushed = self.applied()

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[tuple[bytes, bytes]] = (),
        applied: bytes | None = None,
    ) -> None:
        """See ``RedoStore``. Memtables that are full are written by the engine, in its own threads."""
        if self._failed is not None:
            raise Unavailable(
                "an earlier write of a store without a log failed: what is there may end before it",
                hint="free disk space; it is opened again and brought up to date",
                path=str(self._directory),
                found=self._failed,
            )
        batch = self._batch(puts, deletes, applied, ranges)
        try:
            self._call(lambda db: db.write(batch, self._unsynced))
        except TieredError as e:
            self._failed = e
            raise
        reach(MetadataPoint.AFTER_REDO_WRITE)

    def load(self, batches: Iterable[Sequence[tuple[bytes, bytes]]], *, applied: bytes | None = None) -> None:
        """See ``RedoStore``: the position lies in the first of the files, and all of them are taken in at once."""
        first = [] if applied is None else [[(APPLIED, applied)]]
        super().load(chain(first, batches))
        self._flushed = self.applied()

    def _come_back(self) -> None:
        """Only ``reopen`` does: it ends earlier then, and whoever feeds it must know."""

    def reopen(self) -> None:
        """See ``RedoStore``."""
        if self._failed is not None:
            self._renew(self._failed)

    def flush(self) -> None:
        """See ``RedoStore``."""
        applied = self.applied()
        reach(MetadataPoint.BEFORE_REDO_FLUSH)
        try:
            self._call(lambda db: db.flush(True))
        except TieredError as e:
            self._failed = e
            raise
        self._flushed = applied
        reach(MetadataPoint.AFTER_REDO_FLUSH)

    def flushed(self) -> bytes | None:
        """See ``RedoStore``."""
        return self._flushed

    def size(self) -> StoreSize:
        """See ``RedoStore``: the engine's own estimates."""
        names = (
            "rocksdb.estimate-num-keys",
            "rocksdb.total-sst-files-size",
            "rocksdb.cur-size-all-mem-tables",
        )
        keys, files, buffers = (
            self._call(lambda db, n=name: db.property_int_value(n) or 0) for name in names
        )
        return StoreSize(int(keys), int(files) + int(buffers))

    def close(self) -> None:
        """Flush, and release files and lock. Twice is harmless."""
        try:
            if self._db is not None and self._failed is None:
                self.flush()
        finally:
            super().close()

    def _write(self, batch: rocksdict.WriteBatch) -> None:
        """What was cleared must not come back."""
        self._call(lambda db: db.write(batch, self._unsynced))
        self._call(lambda db: db.flush(True))
        self._flushed = None
