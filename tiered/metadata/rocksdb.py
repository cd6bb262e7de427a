"""The ordered map in RocksDB (``rocksdict``): the default, for any size. Memory is bounded by
``cache_bytes``.

Keys that begin with 00 are the driver's own (``applied`` and the version stamp) and shown to nobody. Every
batch is one atomic ``WriteBatch``, synced through the write-ahead log before ``put_many`` returns.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

import rocksdict

from tiered import durable
from tiered.crashpoint import MetadataPoint, reach
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.metadata.jsonfile import unusable
from tiered.metadata.rockscursors import FIRST, RocksDbPairs, RocksDbSnapshot, chunk_of, frozen, span
from tiered.metadata.rockserrors import meaning
from tiered.metadata.rocksfamilies import POINTS, FamilyRange, OpenFamilies, ranges
from tiered.metadata.rocksload import Loading, remove_left
from tiered.metadata.rocksoptions import YOUNG_FILES, EngineOptions
from tiered.metadata.rocksstamp import APPLIED, STAMP, stamp_of

_LAST = b"\xff" * 32
_DAMAGED = ".damaged"
"""Beside a store that was found damaged: what was found."""
_PROBE = ".probe"
_PROBE_BYTES = 256 * 1024
"""Written beside the store before it is opened again: a disk with less room would refuse it at once."""
_WRAPPER_FILE = "rocksdict-config.json"


class RocksDbStore:
    """A ``MetadataStore`` in a RocksDB directory. ``open`` opens it; the constructor does nothing.

    ``cleared`` says why an older content was removed at ``open``, ``None`` if it was not.
    """

    def __init__(
        self,
        directory: Path,
        cache_bytes: int,
        stamp: str,
        points: bytes = b"",
        young_files: int = YOUNG_FILES,
    ) -> None:
        """``points``: the first byte of keys that are looked up one by one, if there are such."""
        self._directory = directory
        self._note = directory.with_name(directory.name + _DAMAGED)
        self._stamp = stamp_of(stamp, points)
        self._first = points
        self._engine = EngineOptions(cache_bytes, young_files)
        self._db: rocksdict.Rdict | None = None
        self._families: OpenFamilies | None = None
        self._unsynced = rocksdict.WriteOptions()
        self._failed: TieredError | None = None  # the first write that failed: the engine takes no other then
        self._cursors: WeakSet[RocksDbPairs | RocksDbSnapshot] = WeakSet()
        self._cursors_changed = threading.Lock()
        self._writing = threading.Lock()  # what is read of several families at once is of one moment
        self._renewing = threading.RLock()
        self.cleared: str | None = None

    def open(self) -> None:
        """Open or create. ``Unavailable`` if another process has it, ``Corrupt``, ``Invalid`` for a bad
        directory."""
        families = {POINTS: self._engine.points} if self._first else {}
        try:
            durable.make_directory(self._directory.parent)
            self._db = rocksdict.Rdict(
                str(self._directory), options=self._engine.scanned, column_families=families
            )
            self._families = OpenFamilies(self._db, self._first)
            self._sync_names()
            remove_left(self._directory)
            self._check_note()
        except Exception as e:
            with suppress(TieredError):
                self.close()
            if isinstance(e, OSError):
                raise unusable(self._directory, e) from e
            raise self._error(e, opening=True) from e
        found = self._call(lambda db: db.get(STAMP))
        if found != self._stamp:
            if next(self._pairs(b"", None, False), None) is not None:
                self.cleared = f"written with stamp {found!r}, this program uses {self._stamp!r}"
            self.clear()

    def _check_note(self) -> None:
        """Once the engine's lock is held: nobody removes a damaged store under a process that has it open."""
        if self._note.exists():
            raise Corrupt(
                "the metadata store was found damaged",
                hint="stop the daemon and delete this directory and the note beside it: it is rebuilt from the bucket",
                path=str(self._directory),
                found=self._note.read_text(errors="replace"),
            )

    def make_anew(self) -> None:
        """Remove what is there, damaged as it may be, and open an empty store."""
        with suppress(TieredError):
            self.close()
        try:
            if self._directory.exists():
                shutil.rmtree(self._directory)
            self._note.unlink(missing_ok=True)
        except OSError as e:
            raise unusable(self._directory, e) from e
        self._failed = None
        self.open()

    def _sync_names(self) -> None:
        """The engine syncs what it writes, neither the name of its directory nor the wrapper's own file in it."""
        for path in (self._directory / _WRAPPER_FILE, self._directory, self._directory.parent):
            durable.sync(path)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        if not keys:
            return []
        self._come_back()
        found: list[bytes | None] = self._call(lambda db: self._open().get_many(keys))
        return found

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """See ``MetadataView``; an iterator sees the store as it was when it was first asked."""
        return self._pairs(prefix, start, reverse)

    def applied(self) -> bytes | None:
        self._come_back()
        found: bytes | None = self._call(lambda db: db.get(APPLIED))
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
        self._write(self._batch(puts, deletes, applied))

    def load(self, batches: Iterable[Sequence[tuple[bytes, bytes]]]) -> None:
        """See ``MetadataStore``: files of the engine's own are written, and taken in all at once."""
        loading = Loading(self._directory, self._first, self._engine)
        try:
            for batch in batches:
                self._call(lambda db, pairs=batch: loading.add(pairs))
            self._call(lambda db: loading.take_in(self._open()))
        finally:
            loading.close()

    def _batch(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes],
        applied: bytes | None,
        spans: Iterable[tuple[bytes, bytes]] = (),
    ) -> rocksdict.WriteBatch:
        families, batch = self._open(), rocksdict.WriteBatch(raw_mode=True)
        for first, end in spans:
            families.delete_range(batch, first, end)
        families.delete(batch, deletes)
        families.put(batch, puts)
        if applied is not None:
            batch.put(APPLIED, applied)
        return batch

    def _write(self, batch: rocksdict.WriteBatch) -> None:
        """What comes of this is durable, or remembered as a failure."""
        reach(MetadataPoint.BEFORE_LOGGED)
        try:
            with self._writing:
                self._call(lambda db: db.write(batch, self._unsynced))
            reach(MetadataPoint.AFTER_LOGGED)
            self._call(lambda db: db.flush_wal(True))
        except TieredError as e:
            self._failed = e
            raise

    def _renew(self, failed: TieredError) -> None:
        """Close and open again after ``failed``; while the disk takes no bytes an error says so, and readers go on."""
        self._see_room(failed)
        with self._renewing:
            try:
                with suppress(TieredError):  # it says once more that it failed
                    self.close()
                self.open()
                self._failed = None
            except BaseException:
                self._failed = failed
                raise

    def _come_back(self) -> None:
        """Open again what a failed write closed, where that did not succeed at once: somebody was reading just then, say. A
        writer reads before it writes, so it would not come to ``_renew``."""
        failed = self._failed
        if self._db is None and failed is not None and self._renewing.acquire(blocking=False):
            try:
                self._renew(failed)
            finally:
                self._renewing.release()

    def _see_room(self, failed: TieredError) -> None:
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

    def _let_go(self) -> None:
        """Take from all who read what keeps the engine's lock: one of them may be waiting for a write that failed, or be a
        local variable of an error's traceback."""
        with self._cursors_changed:
            held = list(self._cursors)
            self._cursors.clear()
        for each in held:
            each.let_go()

    def _know(self, cursor: RocksDbPairs | RocksDbSnapshot) -> None:
        """For as long as it is in use."""
        with self._cursors_changed:
            self._cursors.add(cursor)

    def snapshot(self) -> RocksDbSnapshot:
        """A frozen view of now. It keeps old versions on disk, and the store's lock, until it is garbage; after a failed write
        it is ``Unavailable``."""
        self._come_back()
        with self._writing:
            made: RocksDbSnapshot = self._call(lambda db: frozen(self._open(), self._error, APPLIED))
        self._know(made)
        return made

    def clear(self) -> None:
        """Remove everything."""
        if self._note.exists():
            self.make_anew()
            return
        empty = self.applied() is None and next(self._pairs(b"", None, False), None) is None
        # What deletes nothing would lie over all that is loaded next.
        everything = [] if empty else [(b"", _LAST)]
        batch = self._batch((), (), None, everything)
        batch.put(STAMP, self._stamp)
        self._write(batch)
        if not empty:
            self._call(lambda db: self._open().compact())

    def close(self) -> None:
        """Release files and lock, whoever still reads. Twice is harmless."""
        self._failed = None
        if self._db is not None:
            opened, self._families, self._db = self._families or self._db, None, None
            self._let_go()
            try:
                opened.close()
            except Exception as e:
                raise self._error(e) from e

    def _call(self, use: Any) -> Any:
        if self._db is None:
            raise Unavailable("the metadata store is closed", path=str(self._directory))
        try:
            return use(self._db)
        except Exception as e:
            raise self._error(e) from e

    def _open(self) -> OpenFamilies:
        if self._families is None:
            raise Unavailable("the metadata store is closed", path=str(self._directory))
        return self._families

    def _pairs(self, prefix: bytes, start: bytes | None, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        """Pairs of the live store, all of one moment. The upper bound keeps the engine from walking over dead keys behind the
        prefix (``set_iterate_lower_bound`` of rocksdict 0.3 sets the upper one too, so it is not used)."""
        self._come_back()
        parts = ranges(self._first, *span(prefix, start, reverse))
        with self._writing if len(parts) > 1 else nullcontext():
            walks = [(part, self._call(lambda db, part=part: self._walk(part, reverse))) for part in parts]
        for part, pairs in reversed(walks) if reverse else walks:
            yield from pairs.all(part)

    def _walk(self, part: FamilyRange, reverse: bool) -> RocksDbPairs:
        db, family = self._db, self._open().of(part)
        assert db is not None
        options = rocksdict.ReadOptions()
        if part.end is not None:
            options.set_iterate_upper_bound(part.end)
        while True:
            moment = db.latest_sequence_number()
            first = chunk_of(family.iter(options), part, reverse, FIRST)
            if len(first) < FIRST:
                return RocksDbPairs(first, None, self._error)
            rest: Iterator[Any] = family.items(backwards=reverse, from_key=first[-1][0], read_opt=options)
            next(rest, None)  # the last of the first ones
            if db.latest_sequence_number() == moment:
                break
        check = partial(self._check_behind, part, reverse, options)
        pairs = RocksDbPairs(first, (rest, check), self._error)
        self._know(pairs)
        return pairs

    def _check_behind(
        self, part: FamilyRange, reverse: bool, options: rocksdict.ReadOptions, last: bytes
    ) -> None:
        behind = part._replace(end=last) if reverse else part._replace(low=last + b"\0")
        self._call(lambda db: chunk_of(self._open().of(part).iter(options), behind, reverse, 1))

    def _error(self, error: Exception, *, opening: bool = False) -> TieredError:
        """What an exception means. Damage that is met in the middle of the work is remembered: opened again, the store says so
        at once, instead of when that place is read the next time."""
        found = meaning(error, self._directory, opening=opening)
        if isinstance(found, Corrupt) and not opening:
            with suppress(OSError):
                durable.replace(self._note, str(found).encode())
        return found
