"""The writer's local files: its id, and the record that it was fenced. Both live in the state directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

from tiered import durable
from tiered.errors import Fenced, Invalid, Refused, Unavailable, of_local_disk

WRITER_FILE = "writer-id"
FENCE_FILE = "fenced"
KNOWN_FILE = "archive"
DISTRUST_FILE = "fold-again"


def ensure_directory(directory: Path, key: str) -> None:
    """Make the directory; ``Invalid`` naming the setting when it cannot be made or written."""
    try:
        durable.make_directory(directory)
        if not os.access(directory, os.W_OK | os.X_OK):
            read_only = os.statvfs(directory).f_flag & os.ST_RDONLY
            raise (
                OSError(errno.EROFS, "a read-only file system")
                if read_only
                else PermissionError(errno.EACCES, "not writable")
            )
    except OSError as e:
        raise of_local_disk(
            f"cannot use the directory of {key}",
            e,
            hint=f"set {key} to a writable directory, or let the daemon's user write to this one",
            path=str(directory),
            expected="a directory this user can write to",
        ) from e


def _keep(path: Path, data: bytes) -> None:
    """Write a file of the state directory; ``Unavailable`` if its disk is full, ``Invalid`` if it may not be written."""
    try:
        durable.replace(path, data)
    except OSError as e:
        hint = "set state.directory to a writable directory"
        raise of_local_disk("cannot write to the state directory", e, hint=hint, path=str(path)) from e


def load_writer_id(directory: Path, random_bytes: Callable[[int], bytes]) -> bytes:
    """The 16 random bytes that name this writer; made and synced at the first call. A damaged file is replaced by a new id."""
    path = directory / WRITER_FILE
    try:
        data = bytes.fromhex(path.read_text().strip())
        if len(data) == 16:
            return data
    except (FileNotFoundError, ValueError):
        pass
    made = random_bytes(16)
    _keep(path, made.hex().encode() + b"\n")
    return made


def check_known_archive(directory: Path, url: str, identity: bytes | None) -> None:
    """Whether what lies at ``url`` is what this state directory opened there before, if it did.

    ``Unavailable`` while there is no archive (``None``), for a disk may be mounted late; ``Refused`` if there is another;
    ``Invalid`` if it knows one of another name in this store. A
    vanished archive must not be replaced by an empty one while the holds of the old are released.
    """
    try:
        known_url, _, known = (directory / KNOWN_FILE).read_text().strip().rpartition(" ")
    except FileNotFoundError:
        return
    if known_url != url:
        _check_names(directory, known_url, url)
        return
    if identity is not None and identity.hex() == known:
        return
    kind = Unavailable if identity is None else Refused
    raise kind(
        "the archive that this daemon wrote is gone",
        hint=f"mount or restore it; to begin another one here on purpose, delete {directory}",
        url=url,
        expected=known,
        found="no archive" if identity is None else identity.hex(),
    )


def _check_names(directory: Path, known: str, asked: str) -> None:
    """``Invalid`` where the archive asked for lies in the store of the known one, under another name: with
    a name mistyped everything would be archived again. An archive that moved to another store is known there by its id."""
    (store, _, name), (asked_store, _, asked_name) = known.rpartition("%20"), asked.rpartition("%20")
    if store and store == asked_store and name != asked_name:
        raise Invalid(
            "this state directory is of another broker's archive in the same store",
            hint=f"set source.cluster and source.broker to those of {name.rstrip('/')}; another archive on purpose has a"
            " state.directory of its own",
            key="source.broker", path=str(directory), expected=name, found=asked_name,
        )  # fmt: skip


def has_known_archive(directory: Path, url: str) -> bool:
    """Whether this state directory has opened an archive at ``url`` before."""
    try:
        return (directory / KNOWN_FILE).read_text().strip().rpartition(" ")[0] == url
    except FileNotFoundError:
        return False


def record_known_archive(directory: Path, url: str, identity: bytes) -> None:
    """Remember which archive lies at ``url``."""
    text = f"{url} {identity.hex()}\n".encode()
    path = directory / KNOWN_FILE
    if not path.exists() or path.read_bytes() != text:
        _keep(path, text)


def record_distrust(directory: Path) -> None:
    """Remember that the local fold is not the log's: the next start empties it and folds the log anew."""
    _keep(directory / DISTRUST_FILE, b"the local fold was not the fold of the log\n")


def empty_distrusted(directory: Path, clear: Callable[[], None]) -> bool:
    """Call ``clear`` if the local fold is not to be trusted, and forget that; true if it was called."""
    path = directory / DISTRUST_FILE
    if not path.exists():
        return False
    clear()
    path.unlink()
    return True


def record_fence(directory: Path, why: str) -> None:
    """Remember that this writer was fenced: a restart then waits for ``--take-over``, whatever restarts it."""
    _keep(directory / FENCE_FILE, why.encode() + b"\n")


def check_fence(directory: Path, *, take_over: bool) -> None:
    """``Fenced`` if a fence is recorded, unless told to take over. It stays recorded until ``forget_fence``."""
    path = directory / FENCE_FILE
    try:
        why = path.read_text().strip()
    except FileNotFoundError:
        return
    if not take_over:
        raise Fenced(
            "this daemon was fenced: another writer owns the archive",
            hint="is the other one meant to have it? Then stop this one; else stop that, and start this one with --take-over",
            path=str(path),
            found=why,
        )


def forget_fence(directory: Path) -> None:
    """The archive is this writer's again: its epoch is proven. Not before, or an end between would lift a fence that stands."""
    path = directory / FENCE_FILE
    if path.exists():
        path.unlink()
        durable.sync(directory)
