"""Filling an empty RocksDB store with all that a checkpoint holds: its files are written directly, and taken in all at once.

No log, no memtable and no compaction take part. What is not taken in, since the process died, is removed when the store is
opened or filled again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain, groupby, starmap
from pathlib import Path

import rocksdict

from tiered import durable
from tiered.crashpoint import MetadataPoint, reach
from tiered.metadata.rocksfamilies import OpenFamilies
from tiered.metadata.rocksoptions import EngineOptions

_SUFFIX = ".load"
_FILE_BYTES = 32 * 1024 * 1024
"""Of keys and values, before compression: what a file holds, and so the unit of later compaction."""
_AT_ONCE = 1024
"""Pairs that are given to the engine without a look at how much a file holds."""


class Loading:
    """Files that are being written beside those of the store in ``directory``; keys that begin with ``points`` apart."""

    def __init__(self, directory: Path, points: bytes, engine: EngineOptions) -> None:
        self._directory = directory
        self._first = points
        self._engine = engine
        self._writer: rocksdict.SstFileWriter | None = None
        self._points = False
        self._held = 0
        self._files: dict[bool, list[str]] = {False: [], True: []}
        remove_left(directory)

    def add(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Pairs, ascending, above all those before them."""
        if not self._first:
            self._add(False, pairs)
            return
        for points, some in groupby(pairs, key=lambda pair: pair[0][:1] == self._first):
            self._add(points, list(some))

    def _add(self, points: bool, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        for at in range(0, len(pairs), _AT_ONCE):
            if self._held >= _FILE_BYTES:
                self._finish()
            some = pairs[at : at + _AT_ONCE]
            deque(starmap(self._writer_of(points).__setitem__, some), maxlen=0)
            self._held += sum(map(len, chain.from_iterable(some)))

    def take_in(self, families: OpenFamilies) -> None:
        """Make everything that was added part of the store; durable when it returns."""
        self._finish()
        durable.sync(self._directory)
        reach(MetadataPoint.BEFORE_TAKEN_IN)
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        for points, family in ((True, families.points), (False, families.scanned)):
            if family is not None and self._files[points]:
                family.ingest_external_file(self._files[points], options)
                reach(MetadataPoint.AFTER_TAKEN_IN)

    def close(self) -> None:
        """Remove what was not taken in."""
        self._writer = None
        remove_left(self._directory)

    def _writer_of(self, points: bool) -> rocksdict.SstFileWriter:
        if self._writer is not None and points == self._points:
            return self._writer
        self._finish()
        path = str(self._directory / f"{sum(map(len, self._files.values())):06d}{_SUFFIX}")
        self._writer = rocksdict.SstFileWriter(self._engine.points if points else self._engine.scanned)
        self._writer.open(path)
        self._points, self._held = points, 0
        self._files[points].append(path)
        return self._writer

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.finish()
            self._writer, self._held = None, 0


def remove_left(directory: Path) -> None:
    """Remove the files of a filling that did not come to its end."""
    for path in directory.glob(f"*{_SUFFIX}"):
        with suppress(OSError):
            path.unlink()
