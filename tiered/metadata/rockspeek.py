"""A look into a RocksDB store that another process has open: as a secondary of it, which reads its files and its log."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path

import rocksdict

from tiered.metadata.peek import cannot_be_read, check_stamp
from tiered.metadata.rockscursors import frozen
from tiered.metadata.rockserrors import meaning
from tiered.metadata.rocksfamilies import OpenFamilies
from tiered.metadata.rocksoptions import EngineOptions
from tiered.metadata.rocksstamp import APPLIED, STAMP, stamp_of

_TRIES = 5
"""The process may delete a file between the moment that its list of files is read and the one that the file is opened."""
_LOOKS = 200
"""It may also write a memtable to a file and delete its log between the moments that the list of files and the logs are read:
what was in that log alone is then in neither, though what came after it is. A look during which no log went has all."""
_CACHE_BYTES = 1 << 20


class RocksDbLook:
    """A frozen ``MetadataView`` of a store as it was when this was made; to be closed, or let
    go. ``Unavailable`` if it cannot be read just
    now, ``NotFound`` if it has another stamp."""

    def __init__(self, root: Path, stamp: str, points: bytes = b"") -> None:
        own = tempfile.mkdtemp(prefix="tiered-peek-")  # the engine's own notes of this look
        self._remove = weakref.finalize(self, shutil.rmtree, own, ignore_errors=True)
        self._families = _opened(root, own, points)
        self._view = frozen(self._families, lambda error: meaning(error, root), APPLIED)
        try:
            check_stamp(root, stamp_of(stamp, points), self._view.get_many([STAMP])[0])
        except BaseException:
            self.close()
            raise

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """See ``MetadataView``."""
        return self._view.get_many(keys)

    def iterate(
        self, prefix: bytes, *, start: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """See ``MetadataView``."""
        return self._view.iterate(prefix, start=start, reverse=reverse)

    def applied(self) -> bytes | None:
        """See ``MetadataView``."""
        return self._view.applied()

    def close(self) -> None:
        """Give back files and memory; nothing can be read of it any more."""
        self._view.let_go()
        self._families.close()
        self._remove()


def _opened(root: Path, own: str, points: bytes) -> OpenFamilies:
    options = EngineOptions(_CACHE_BYTES).scanned
    options.create_if_missing(False)
    options.create_missing_column_families(False)
    options.set_max_open_files(-1)  # what is open stays there, though the other process deletes it
    for left in reversed(range(_TRIES)):
        try:
            logs = _logs(root)
            db = rocksdict.Rdict(str(root), options, access_type=rocksdict.AccessType.secondary(own))
            catch_up(db, root, logs)
            return OpenFamilies(db, points)
        except Exception as error:
            if not left:
                raise cannot_be_read(root, error) from error
    raise AssertionError("the last try raises")


def catch_up(db: rocksdict.Rdict, root: Path, logs: set[str]) -> None:
    """Look again until no log went meanwhile. ``logs``: what there were before it was opened."""
    for _ in range(_LOOKS):
        before, logs = logs, _logs(root)
        if before <= logs:
            return
        db.try_catch_up_with_primary()
    db.close()
    raise OSError(f"its log begins anew all the time, {_LOOKS} times while it was read")


def _logs(root: Path) -> set[str]:
    return {path.name for path in root.glob("*.log")}
