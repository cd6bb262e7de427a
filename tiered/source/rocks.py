"""RocksDB stores of the broker, read beside it: without its lock, and without a byte written among its files.

The engine is given a directory of links to the broker's files. What it and its wrapper write for themselves lands there, so the
broker's directory may be one that this user can only read. What the broker deletes meanwhile makes the reading fail, and it is
made again.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tiered.errors import TieredError, Unavailable, of_local_disk
from tiered.source.locks import held_by_another

_Found = TypeVar("_Found")
_TRIES = 5
_OPEN_FILES = 64
_OF_USE = (ValueError, TypeError, AttributeError, KeyError)
_CURRENT, _LOCK = "CURRENT", "LOCK"
_OF_CONTENT = (".sst", ".log")
_NOT_LINKED = (_LOCK, "rocksdict-config.json")
"""What is written under these names would be written through a link."""


def is_rocks(directory: str) -> bool:
    """Whether a RocksDB store lies in this directory."""
    return os.path.isfile(os.path.join(directory, _CURRENT))


def opened_ns(directory: str) -> int:
    """When the store was opened last, by its change time in ns; 0 if there is none. Every opening writes ``CURRENT`` anew."""
    try:
        return os.stat(os.path.join(directory, _CURRENT)).st_mtime_ns
    except OSError:
        return 0


def changes(directory: str) -> object:
    """What tells one content of a store from another: its tables, its manifest, and its log, which grows with every write;
    ``None`` while its files come and go."""
    found = []
    try:
        with os.scandir(directory) as files:
            for file in files:
                if (
                    file.name == _CURRENT
                    or file.name.startswith("MANIFEST")
                    or file.name.endswith(_OF_CONTENT)
                ):
                    seen = file.stat()
                    found.append((file.name, seen.st_ino, seen.st_size, seen.st_mtime_ns))
    except FileNotFoundError:
        return None
    return tuple(sorted(found))


def in_use(directory: str) -> bool:
    """Whether a running broker has this store open; true where nobody can tell."""
    try:
        with open(os.path.join(directory, _LOCK), "rb") as file:
            return held_by_another(file.fileno())
    except FileNotFoundError:
        return False
    except OSError:
        return is_rocks(directory)


def scan(directory: str, family: str, use: Callable[[Iterator[tuple[bytes, bytes]]], _Found]) -> _Found:
    """What ``use`` makes of all pairs of one column family, in the order of their keys.

    They are those on disk: what a running broker wrote without a log and did not flush yet is not among them. ``use`` may be
    called again from the beginning; its errors of form pass. ``Unavailable`` if the pairs cannot be read, or not to their end:
    a log whose last record is damaged or cut off hides what was written there, and is no answer until it is whole again.
    """
    problem: Exception | None = None
    for _ in range(_TRIES):
        try:
            with tempfile.TemporaryDirectory(prefix="tiered-broker-") as place:
                return _read(directory, Path(place), family, use)
        except OSError as error:
            raise of_local_disk(
                "a RocksDB store of the broker cannot be read",
                error,
                hint="let this user read it",
                path=directory,
            ) from error
        except (TieredError, *_OF_USE):
            raise
        except Exception as error:  # noqa: BLE001 - the engine has one kind; most often a file went while it was opened
            problem = error
    raise Unavailable(
        "a RocksDB store of the broker cannot be read",
        path=directory,
        found=problem,
        hint="it is tried again; where it stays so, this user may not read it, it is damaged, or a newer RocksDB wrote it",
    )


def _read(
    directory: str, place: Path, family: str, use: Callable[[Iterator[tuple[bytes, bytes]]], _Found]
) -> _Found:
    import rocksdict

    for name in os.listdir(directory):
        if name not in _NOT_LINKED:
            (place / name).symlink_to(os.path.abspath(os.path.join(directory, name)))
    options = rocksdict.Options(raw_mode=True)
    options.set_max_open_files(_OPEN_FILES)
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.absolute_consistency())
    families = rocksdict.Rdict.list_cf(str(place), options)
    if family not in families:
        return use(iter(()))
    db = rocksdict.Rdict(
        str(place),
        options=options,
        column_families={name: rocksdict.Options(raw_mode=True) for name in families},
        access_type=rocksdict.AccessType.read_only(),
    )
    try:
        return use(_all(db.get_column_family(family).iter()))
    finally:
        db.close()


def _all(cursor: Any) -> Iterator[tuple[bytes, bytes]]:
    """All pairs. At a damaged block a cursor ends as if there was nothing more, and only its status says so."""
    cursor.seek_to_first()
    while cursor.valid():
        yield cursor.key(), cursor.value()
        cursor.next()
    cursor.status()
