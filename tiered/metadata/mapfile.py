"""An ordered map that lives in memory and is written to one file as a whole, now and then; redo brings it up to date.

``flush`` replaces the file: a crash leaves what one flush wrote, whole. It writes a frozen view, block by block, so neither
readers nor the writer wait for it. A frozen view costs a pointer for some thousand keys when it is made; while it lives, the
writer keeps for it what it changes. New keys are brought in order when a look needs it, or when they are some hundred thousand.
"""

from __future__ import annotations

import fcntl
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO
from weakref import WeakSet

from tiered import durable
from tiered.codec.format.pairs import Columns
from tiered.crashpoint import MetadataPoint, reach
from tiered.errors import Refused, TieredError, Unavailable
from tiered.metadata.base import StoreSize
from tiered.metadata.jsonfile import held, unusable
from tiered.metadata.keyorder import KeyOrder, sorted_keys
from tiered.metadata.mapformat import MapReader, encode
from tiered.metadata.mapview import MapView

FILE_NAME = "map.rmqt"
ENTRY_BYTES = 200
"""What an entry costs besides the bytes of its key and its value, at most: two objects, a place among others by its hash, and
one in the order."""
_LOCK_NAME = "map.lock"
_UNORDERED = 256 * 1024
"""Most new keys that are not in order yet: what a look at the order waits for at most. The more come to each list of the order
at one time, the less each costs."""
_AT_ONCE = 16 * 1024
"""Keys that are brought in order while the lock is held; who wants values by their keys waits no longer."""


class MapRedoStore(MapView):
    """A ``RedoStore`` in ``<directory>/map.rmqt``. ``open`` reads it; the constructor does nothing.

    ``cleared`` says why an older file was put aside at ``open``, ``None`` if it was not.
    """

    def __init__(self, directory: Path, most_bytes: int, stamp: str) -> None:
        """``most_bytes``: of keys and values, and ``ENTRY_BYTES`` for each entry."""
        super().__init__({}, KeyOrder(), None, threading.Lock())
        self._path = directory / FILE_NAME
        self._most_bytes, self._stamp = most_bytes, stamp
        self._guard: IO[bytes] | None = None
        self._unordered: list[bytes] = []
        self._views: WeakSet[MapView] = WeakSet()
        self._flushing = threading.Lock()  # one file is written at a time
        self._bytes = (
            0  # at least what there is: a replaced value and its key count twice until the next flush
        )
        self._exact = False  # they do not
        self._changed = False  # since the last flush
        self._failed: TieredError | None = None
        self._flushed: bytes | None = None
        self.cleared: str | None = None

    def open(self) -> None:
        """Lock the directory and read the file. ``Unavailable`` if another process has it, ``Corrupt``, ``Invalid``."""
        try:
            durable.make_directory(self._path.parent)
            guard = open(self._path.with_name(_LOCK_NAME), "ab")  # noqa: SIM115 - held until close
        except OSError as e:
            raise unusable(self._path.parent, e) from e
        try:
            fcntl.flock(guard, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            guard.close()
            raise held(self._path.parent) from e
        self._guard = guard
        try:
            self._read()
        except BaseException:
            self._release()
            raise

    def make_anew(self) -> None:
        """Remove what is there, damaged as it may be, and open an empty store."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as e:
            raise unusable(self._path, e) from e
        self.open()

    def _read(self) -> None:
        try:
            with open(self._path, "rb") as file:
                length = file.seek(0, 2)
                file.seek(0)
                reader = MapReader(file, str(self._path), length)
                values, order, size = _collected(reader.blocks())
        except FileNotFoundError:
            return
        except OSError as e:
            raise unusable(self._path, e) from e
        assert reader.end is not None
        if reader.end.stamp != self._stamp:
            self.cleared = f"written with stamp {reader.end.stamp!r}, this program uses {self._stamp!r}"
            return
        self._values, self._order, self._bytes = values, order, size
        self._applied = self._flushed = reader.end.applied

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[tuple[bytes, bytes]] = (),
        applied: bytes | None = None,
    ) -> None:
        """See ``RedoStore``. ``Refused`` if the map would hold more than it may; it is as before then, and takes others."""
        self._check_open()
        new, gone = dict(puts), set(deletes)
        for first, end in ranges:
            with self._lock:
                gone.update(self._in_order().between(first, end))
        gone.difference_update(new)
        # Nobody else changes the map, so it is looked at without the lock.
        lost = {key: self._values[key] for key in gone if key in self._values}
        size = self._bytes + _size(new, new.values(), len(new)) - _size(lost, lost.values(), len(lost))
        if self._exact or size > self._most_bytes:
            size = self._exact_size(new, lost)
        with self._lock:
            for view in self._views:
                deque(map(view.kept.setdefault, new, map(self._values.get, new)), maxlen=0)
                deque(map(view.kept.setdefault, lost, lost.values()), maxlen=0)
            self._remove(lost)
            self._put(new)
            self._bytes, self._changed = size, True
            if applied is not None:
                self._applied = applied
        if len(self._unordered) > _UNORDERED:
            self._bring_in_order()
        reach(MetadataPoint.AFTER_REDO_WRITE)

    def load(self, batches: Iterable[Sequence[tuple[bytes, bytes]]], *, applied: bytes | None = None) -> None:
        """See ``RedoStore``; ``Refused`` as of ``put_many``."""
        self._check_open()
        columns = (([key for key, _ in batch], [value for _, value in batch]) for batch in batches if batch)
        values, order, size = _collected(self._bounded(columns))
        with self._flushing:
            with self._lock:
                self._leave()
                self._values, self._order, self._bytes = values, order, size
                self._applied, self._exact, self._changed = applied, True, True
            try:
                reach(MetadataPoint.BEFORE_TAKEN_IN)
                self._flush()
                reach(MetadataPoint.AFTER_TAKEN_IN)
            except TieredError:
                with self._lock:
                    self._leave()
                raise

    def flush(self) -> None:
        """See ``RedoStore``: write the file, if anything was put since the last time."""
        with self._flushing:
            self._check_open()
            if self._changed:
                self._flush()

    def _flush(self) -> None:
        with self._lock:
            view, self._changed, counted = self._frozen(), False, self._bytes
        written = 0

        def blocks() -> Iterator[Columns]:
            nonlocal written
            for keys, values in view.blocks():
                written += _size(keys, values, len(keys))
                yield keys, values

        reach(MetadataPoint.BEFORE_REDO_FLUSH)
        try:
            durable.replace_by_parts(self._path, encode(blocks(), self._stamp, view.applied()))
        except OSError as e:
            self._failed = Unavailable(
                f"cannot write the file of a map store: {e.strerror or e}",
                hint="free disk space or make its directory writable; it is tried again",
                path=str(self._path),
            )
            raise self._failed from e
        with self._lock:
            if not self._exact:
                self._bytes -= counted - written
            self._exact = self._exact and written > self._most_bytes // 4 * 3
        self._flushed = view.applied()
        reach(MetadataPoint.AFTER_REDO_FLUSH)

    def flushed(self) -> bytes | None:
        """See ``RedoStore``."""
        return self._flushed

    def reopen(self) -> None:
        """See ``RedoStore``: what is in memory is whole, so it is written once more."""
        with self._flushing:
            if self._failed is not None:
                self._flush()
                self._failed = None

    def size(self) -> StoreSize:
        """See ``RedoStore``: what is bounded by ``most_bytes``."""
        return StoreSize(len(self._values), self._bytes)

    def snapshot(self) -> MapView:
        """A frozen view of now. What is changed while it lives is kept for it."""
        with self._lock:
            return self._frozen()

    def clear(self) -> None:
        """Remove everything."""
        with self._flushing:
            try:
                self._path.unlink(missing_ok=True)
                durable.sync(self._path.parent)
            except OSError as e:
                raise unusable(self._path, e) from e
            with self._lock:
                self._leave()
            self._failed = self._flushed = None

    def close(self) -> None:
        """Flush, and release the lock. Twice is harmless."""
        try:
            if self._guard is not None and self._failed is None:
                self.flush()
        finally:
            self._release()

    def _release(self) -> None:
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _leave(self) -> None:
        """Begin anew, and leave what is there to whoever has a view of it."""
        self._views.clear()
        self._values, self._order, self._unordered = {}, KeyOrder(), []
        self._bytes, self._exact, self._applied, self._changed = 0, False, None, False

    def _frozen(self) -> MapView:
        view = MapView(self._values, self._in_order().frozen(), self._applied, self._lock)
        self._views.add(view)
        return view

    def _bring_in_order(self) -> None:
        """Part by part: each new key is in the order or among those that are not yet, so others may look in between."""
        found = self._unordered
        ascending = sorted_keys(found)
        with self._lock:
            if self._unordered is found:  # nobody who looked brought them in order meanwhile
                self._unordered = ascending
        while self._unordered:
            with self._lock:
                self._order.add(self._unordered[-_AT_ONCE:])
                del self._unordered[-_AT_ONCE:]

    def _in_order(self) -> KeyOrder:
        if self._unordered:
            self._order.add(sorted_keys(self._unordered))
            self._unordered = []
        return self._order

    def _exact_size(self, new: dict[bytes, bytes], lost: dict[bytes, bytes]) -> int:
        """What the map will hold, where the sum that is kept says too much; ``Refused`` if it is too much indeed. From then on
        the sum is kept exactly, which takes a look at every entry that is replaced."""
        if not self._exact:
            self._bytes, self._exact = _size(self._values, self._values.values(), len(self._values)), True
        old = [value for value in map(self._values.get, new) if value is not None]
        fresh = [key for key in new if key not in self._values]
        size = self._bytes + _size(fresh, new.values(), len(fresh)) - sum(map(len, old))
        size -= _size(lost, lost.values(), len(lost))
        if size > max(self._most_bytes, self._bytes):
            raise self._too_large(size)
        return size

    def _put(self, new: dict[bytes, bytes]) -> None:
        before = len(self._values)
        self._values.update(new)
        # A dict keeps the order in which keys came to it: so nobody asks for each whether it was there.
        fresh = list(islice(reversed(self._values), len(self._values) - before))
        fresh.reverse()  # as they came: what comes ascending is not sorted
        self._unordered += fresh

    def _remove(self, lost: dict[bytes, bytes]) -> None:
        if lost:
            self._in_order().remove(sorted(lost))
        for key in lost:
            del self._values[key]

    def _bounded(self, blocks: Iterable[Columns]) -> Iterator[Columns]:
        size = 0
        for keys, values in blocks:
            size += _size(keys, values, len(keys))
            if size > self._most_bytes:
                raise self._too_large(size)
            yield keys, values

    def _check_open(self) -> None:
        if self._failed is not None:
            raise Unavailable(
                "an earlier flush of a store without a log failed",
                hint="free disk space; it is written again",
                path=str(self._path),
                found=self._failed,
            )
        if self._guard is None:
            raise Unavailable("the map store is closed", path=str(self._path))

    def _too_large(self, size: int) -> Refused:
        return Refused(
            "the map would hold more than it may: nothing of this batch was taken",
            hint="raise kv.map_bytes where there is memory for it, or set kv.store to rocksdb",
            setting="kv.map_bytes", expected=f"at most {self._most_bytes} bytes", found=f"{size} bytes",
        )  # fmt: skip


def _size(keys: Iterable[bytes], values: Iterable[bytes], count: int) -> int:
    return sum(map(len, keys)) + sum(map(len, values)) + ENTRY_BYTES * count


def _collected(blocks: Iterable[Columns]) -> tuple[dict[bytes, bytes], KeyOrder, int]:
    values: dict[bytes, bytes] = {}
    order, size = KeyOrder(), 0
    for keys, some in blocks:
        values.update(zip(keys, some, strict=True))
        order.extend(keys)
        size += _size(keys, some, len(keys))
    return values, order, size
