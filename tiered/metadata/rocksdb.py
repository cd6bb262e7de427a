"""The ordered map in RocksDB (``rocksdict``): the default, for any size. Memory is bounded by
``cache_bytes``.

Keys that begin with 00 are the driver's own (``applied`` and the version stamp) and shown to nobody. Every
batch is one atomic ``WriteBatch``, synced through the write-ahead log before ``put_many`` returns.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import rocksdict

from tiered import durable
from tiered.errors import Corrupt, Invalid, TieredError, Unavailable
from tiered.metadata.jsonfile import held, unusable
from tiered.metadata.prefix import prefix_end

VERSION = 1
_APPLIED = b"\0applied"
_STAMP = b"\0stamp"
_OWN = b"\0"
_LAST = b"\xff" * 32
_OPEN_FILES = 256
_CHUNK = 512
_BLOCK_BYTES = 16 * 1024
_FULL = ("no space", "disk quota")
_AFTER_A_FAILED_WRITE = "writer has previous error"
"""What every write says after the one that met a full disk."""
_PROBE = ".probe"
_PROBE_BYTES = 256 * 1024
"""Written beside the store before it is opened again: a disk with less room would refuse it at once."""
_WRAPPER_FILE = "rocksdict-config.json"


class RocksDbStore:
    """A ``MetadataStore`` in a RocksDB directory. ``open`` opens it; the constructor does nothing.

    ``cleared`` says why an older content was removed at ``open``, ``None`` if it was not.
    """

    def __init__(self, directory: Path, cache_bytes: int, stamp: str) -> None:
        self._directory = directory
        self._cache_bytes = cache_bytes
        self._stamp = f"{VERSION} {stamp}".encode()
        self._db: rocksdict.Rdict | None = None
        self._sync = rocksdict.WriteOptions()
        self._sync.sync = True
        self._unsynced = rocksdict.WriteOptions()
        self._failed: TieredError | None = None  # the first write that failed: the engine takes no other then
        self.cleared: str | None = None

    def open(self) -> None:
        """Open or create. ``Unavailable`` if another process has it, ``Corrupt``, ``Invalid`` for a bad
        directory."""
        try:
            durable.make_directory(self._directory.parent)
            self._db = rocksdict.Rdict(str(self._directory), options=self._options())
            self._sync_names()
        except OSError as e:
            raise unusable(self._directory, e) from e
        except Exception as e:
            raise self._error(e, opening=True) from e
        found = self._call(lambda db: db.get(_STAMP))
        if found is None or found != self._stamp:
            empty = next(self._pairs(b"", None, False), None) is None
            if not empty:
                self.cleared = f"written with stamp {found!r}, this program uses {self._stamp!r}"
            self.clear()

    def _sync_names(self) -> None:
        """The engine syncs what it writes, neither the name of its directory nor the wrapper's own file in it."""
        for path in (self._directory / _WRAPPER_FILE, self._directory, self._directory.parent):
            durable.sync(path)

    def _options(self) -> rocksdict.Options:
        """A quarter for the memtables (two may wait to be flushed), half for the block cache, the rest is
        headroom."""
        options = rocksdict.Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_write_buffer_size(max(256 * 1024, self._cache_bytes // 12))
        options.set_max_write_buffer_number(3)
        none, lz4 = rocksdict.DBCompressionType.none(), rocksdict.DBCompressionType.lz4()
        options.set_compression_per_level(
            [none, none, *[lz4] * 5]
        )  # the young levels are rewritten in no time
        options.set_max_background_jobs(2)
        options.set_max_open_files(_OPEN_FILES)
        options.set_max_total_wal_size(max(1 << 20, self._cache_bytes))
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_stats_dump_period_sec(0)
        options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.point_in_time())
        blocks = rocksdict.BlockBasedOptions()
        blocks.set_block_cache(rocksdict.Cache(max(512 * 1024, self._cache_bytes // 2)))
        blocks.set_block_size(_BLOCK_BYTES)
        blocks.set_bloom_filter(10, False)
        blocks.set_cache_index_and_filter_blocks(True)
        options.set_block_based_table_factory(blocks)
        return options

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        found: list[bytes | None] = self._call(lambda db: db.get(list(keys)))
        return found

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """See ``MetadataView``; an iterator sees the store as it was when it was first asked."""
        return self._pairs(prefix, start, reverse)

    def applied(self) -> bytes | None:
        found: bytes | None = self._call(lambda db: db.get(_APPLIED))
        return found

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        applied: bytes | None = None,
    ) -> None:
        """See ``MetadataStore``. The log is synced by a second call: ``write`` would keep the interpreter lock meanwhile.

        After a write that failed the engine takes no other: the next call opens it again, once its disk takes bytes.
        """
        if self._failed is not None:
            self._renew(self._failed)
        batch = rocksdict.WriteBatch(raw_mode=True)
        for key in deletes:
            batch.delete(key)
        put = batch.put
        for key, value in puts:
            put(key, value)
        if applied is not None:
            put(_APPLIED, applied)
        try:
            self._call(lambda db: db.write(batch, self._unsynced))
            self._call(lambda db: db.flush_wal(True))
        except TieredError as e:
            self._failed = e
            raise

    def _renew(self, failed: TieredError) -> None:
        """Close and open again after ``failed``; while the disk takes no bytes an error says so, and readers go on."""
        probe = self._directory.with_name(self._directory.name + _PROBE)
        try:
            with open(probe, "wb") as file:
                file.write(bytes(_PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        except OSError as e:
            raise Unavailable(
                f"cannot write the metadata store: {e.strerror or e}",
                hint="free disk space or make state.directory writable; the daemon tries again",
                path=str(self._directory),
                found=failed.fields.get("found", failed),
            ) from e
        finally:
            with suppress(OSError):
                probe.unlink(missing_ok=True)
        with suppress(TieredError):  # it says once more that it failed
            self.close()
        self.open()
        self._failed = None

    def snapshot(self) -> RocksDbSnapshot:
        """A frozen view of now. It keeps old versions on disk, and the store's lock, until it is garbage."""
        return RocksDbSnapshot(self, self._call(lambda db: db.iter()))

    def clear(self) -> None:
        """Remove everything."""
        batch = rocksdict.WriteBatch(raw_mode=True)
        batch.delete_range(b"", _LAST)
        batch.put(_STAMP, self._stamp)
        self._call(lambda db: db.write(batch, self._sync))
        self._call(lambda db: db.compact_range(None, None))

    def close(self) -> None:
        """Release files and lock. Twice is harmless."""
        if self._db is not None:
            db, self._db = self._db, None
            try:
                db.close()
            except Exception as e:
                raise self._error(e) from e

    def _call(self, use: Any) -> Any:
        if self._db is None:
            raise Unavailable("the metadata store is closed", path=str(self._directory))
        try:
            return use(self._db)
        except Exception as e:
            raise self._error(e) from e

    def _pairs(self, prefix: bytes, start: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Pairs of the live store. The upper bound keeps the engine from walking over dead keys behind the
        prefix (``set_iterate_lower_bound`` of rocksdict 0.3 sets the upper one too, so it is not used)."""
        first, low, end = _span(prefix, start, reverse)
        options = rocksdict.ReadOptions()
        if end is not None:
            options.set_iterate_upper_bound(end)
        at = None if first == end else first
        try:
            for pair in self._call(lambda db: db.items(backwards=reverse, from_key=at, read_opt=options)):
                if pair[0] < low:
                    return
                yield pair
        except Exception as e:
            raise self._error(e) from e

    def _error(self, error: Exception, *, opening: bool = False) -> TieredError:
        """The engine knows one kind of exception; its text tells damage, a held lock and everything else
        apart."""
        if isinstance(error, TieredError):
            return error
        text = str(error)
        lowered = text.lower()
        path = str(self._directory)
        full = any(word in lowered for word in _FULL)
        if opening and not full and "lock" in lowered and "block" not in lowered:
            return held(self._directory)
        if (
            "corrupt" in lowered
            or "checksum" in lowered
            or (opening and "no such file" in lowered and "sst" in lowered)
        ):
            return Corrupt(
                "the metadata store is damaged",
                hint="stop the daemon and delete this directory: it is rebuilt from the bucket",
                path=path,
                found=text,
            )
        if opening and not full and _AFTER_A_FAILED_WRITE not in lowered:
            return Invalid(
                "the metadata store cannot be opened",
                hint="set state.directory to a writable directory, or delete this one: it is rebuilt",
                path=path,
                found=text,
            )
        return Unavailable(
            "the disk of the metadata store is full" if full else "the metadata store does not answer",
            hint="free disk space; the daemon tries again" if full else None,
            path=path,
            found=text,
        )


def _span(prefix: bytes, start: bytes | None, reverse: bool) -> tuple[bytes | None, bytes, bytes | None]:
    """Where to seek (``None``: the last key), the lowest key wanted, and the key behind the highest
    (``None``: no such)."""
    low, end = max(prefix, b"\x01"), prefix_end(prefix)
    if reverse:
        return end if start is None or (end is not None and start >= end) else start, low, end
    return low if start is None else max(low, start), low, end


class RocksDbSnapshot:
    """A frozen ``MetadataView`` of a RocksDB store: one iterator of the engine, which sees the moment it was
    made.

    (The iterators of a rocksdict 0.3 ``Snapshot`` are not frozen.) Readers take turns at it, some hundred
    pairs each.
    """

    def __init__(self, store: RocksDbStore, cursor: Any) -> None:
        self._store = store
        self._cursor = cursor
        self._lock = threading.Lock()

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See ``MetadataView``; one seek per key."""
        with self._lock, self._door():
            return list(map(self._get, keys))

    def _get(self, key: bytes) -> bytes | None:
        cursor = self._cursor
        cursor.seek(key)
        if not cursor.valid():
            cursor.status()
            return None
        found: bytes | None = cursor.value() if cursor.key() == key else None
        return found

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        first, low, end = _span(prefix, start, reverse)
        resume, inclusive = first, not reverse or first != end
        while True:
            with self._lock, self._door():
                chunk = self._chunk(resume, inclusive, low, end, reverse)
            yield from chunk
            if len(chunk) < _CHUNK:
                return
            resume, inclusive = chunk[-1][0], False

    def _chunk(
        self, at: bytes | None, inclusive: bool, low: bytes, end: bytes | None, reverse: bool
    ) -> list[tuple[bytes, bytes]]:
        cursor = self._cursor
        if at is None:
            cursor.seek_to_last()
        elif reverse:
            cursor.seek_for_prev(at)
        else:
            cursor.seek(at)
        step = cursor.prev if reverse else cursor.next
        if not inclusive and cursor.valid() and cursor.key() == at:
            step()
        chunk: list[tuple[bytes, bytes]] = []
        while len(chunk) < _CHUNK and cursor.valid():
            key = cursor.key()
            if key < low or (end is not None and key >= end):
                return chunk
            chunk.append((key, cursor.value()))
            step()
        if not cursor.valid():
            cursor.status()  # raises if the engine stopped for a reason
        return chunk

    def applied(self) -> bytes | None:
        return self.get_many((_APPLIED,))[0]

    @contextmanager
    def _door(self) -> Iterator[None]:
        try:
            yield
        except Exception as e:
            raise self._store._error(e) from e
