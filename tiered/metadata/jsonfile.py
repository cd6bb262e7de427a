"""The ordered map as one JSON file: readable with any tool, for small archives and for looking into one.

The trade-off: it lives in memory and *every* batch rewrites the whole file (temporary file, fsync, rename,
fsync of the directory), so it suits some thousands of keys. Layout, UTF-8::

    {"format": "rocketmq-tiered metadata", "version": 1, "stamp": "…", "applied": hex or null, "crc32": …,
     "pairs": [[key as Latin-1, value as base64], …]}

``crc32`` is the CRC-32 of all keys and values in order, each preceded by its length as u4 little-endian.
"""

from __future__ import annotations

import base64
import fcntl
import json
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any

from tiered import durable
from tiered.errors import Corrupt, TieredError, Unavailable, of_local_disk
from tiered.metadata.memory import MemoryStore

FORMAT = "rocketmq-tiered metadata"
VERSION = 1
FILE_NAME = "metadata.json"
_LOCK_NAME = "metadata.lock"
_HINT = "stop the daemon and delete this directory: it is rebuilt from the bucket"


class JsonFileStore(MemoryStore):
    """A ``MetadataStore`` in ``<directory>/metadata.json``. ``open`` reads it; the constructor does nothing.

    ``cleared`` says why an older file was put aside at ``open``, ``None`` if it was not.
    """

    def __init__(self, directory: Path, stamp: str) -> None:
        super().__init__()
        self._path = directory / FILE_NAME
        self._stamp = stamp
        self._guard: IO[bytes] | None = None

    def open(self) -> None:
        """Lock the directory and read the file. ``Unavailable`` if another process has it, ``Corrupt``,
        ``Invalid``."""
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
            self._load()
        except BaseException:
            self.close()
            raise

    def make_anew(self) -> None:
        """Remove what is there, damaged as it may be, and open an empty store."""
        try:
            self._path.unlink(missing_ok=True)
        except OSError as e:
            raise unusable(self._path, e) from e
        self.open()

    def _load(self) -> None:
        try:
            text = self._path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as e:
            raise unusable(self._path, e) from e
        try:
            tree: dict[str, Any] = json.loads(text)
            if tree["format"] != FORMAT:
                raise ValueError(f"format {tree['format']!r}")
            if tree["version"] != VERSION or tree["stamp"] != self._stamp:
                self.cleared = f"written as version {tree['version']}, stamp {tree['stamp']!r}"
                return
            pairs = [(k.encode("latin-1"), base64.b64decode(v, validate=True)) for k, v in tree["pairs"]]
            applied = None if tree["applied"] is None else bytes.fromhex(tree["applied"])
            expected, found = tree["crc32"], _sum(pairs)
        except (ValueError, KeyError, TypeError, AttributeError) as e:
            raise Corrupt(
                "the metadata file cannot be read", hint=_HINT, path=str(self._path), found=str(e)
            ) from e
        if expected != found:
            raise Corrupt(
                "the metadata file does not match its checksum",
                hint=_HINT,
                path=str(self._path),
                expected=expected,
                found=found,
            )
        super().put_many(pairs, applied=applied)

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        applied: bytes | None = None,
    ) -> None:
        """See ``MetadataStore``: the file is replaced first, memory changes after it."""
        pairs, gone = list(puts), list(deletes)
        merged = dict(self._values)
        for key in gone:
            merged.pop(key, None)
        merged.update(pairs)
        self._write(sorted(merged.items()), applied if applied is not None else self._applied)
        super().put_many(pairs, gone, applied=applied)

    def load(self, batches: Iterable[Sequence[tuple[bytes, bytes]]]) -> None:
        """See ``MetadataStore``: the file is written once."""
        self.put_many(chain.from_iterable(batches))

    def clear(self) -> None:
        """Remove everything."""
        self._write([], None)
        super().clear()

    def close(self) -> None:
        """Release the lock."""
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def _write(self, pairs: Sequence[tuple[bytes, bytes]], applied: bytes | None) -> None:
        if self._guard is None:
            raise Unavailable("the metadata file is not open", path=str(self._path))
        tree = {
            "format": FORMAT,
            "version": VERSION,
            "stamp": self._stamp,
            "applied": None if applied is None else applied.hex(),
            "crc32": _sum(pairs),
            "pairs": [[k.decode("latin-1"), base64.b64encode(v).decode()] for k, v in pairs],
        }
        try:
            durable.replace(self._path, json.dumps(tree).encode())
        except OSError as e:
            raise Unavailable(
                f"cannot write the metadata file: {e.strerror or e}",
                hint="free disk space or make state.directory writable; the daemon tries again",
                path=str(self._path),
            ) from e


def _sum(pairs: Iterable[tuple[bytes, bytes]]) -> int:
    value = 0
    for pair in pairs:
        for part in pair:
            value = zlib.crc32(part, zlib.crc32(len(part).to_bytes(4, "little"), value))
    return value


def held(directory: Path) -> Unavailable:
    """The error for a directory that another process has open."""
    return Unavailable(
        "another process has this metadata directory open",
        hint="is it the daemon of this archive? Then leave it the work, or stop it first",
        path=str(directory),
    )


def unusable(path: Path, error: OSError) -> TieredError:
    """A directory or file of the store that cannot be used: ``Unavailable`` if its disk is full, else ``Invalid``."""
    hint = "set state.directory to a writable directory"
    return of_local_disk("cannot use the metadata directory", error, hint=hint, path=str(path))
