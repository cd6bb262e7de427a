"""A look into another process's metadata store, beside it and without its lock: for showing, never for deciding."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tiered.errors import NotFound, Unavailable
from tiered.metadata.base import MetadataView
from tiered.metadata.jsonfile import FILE_NAME
from tiered.metadata.memory import MemoryView

if TYPE_CHECKING:
    from tiered.metadata.rockspeek import RocksDbLook


@contextmanager
def peek(
    kind: str, directory: str | Path, *, stamp: str = "1", points: bytes = b""
) -> Iterator[MetadataView]:
    """What a store that a daemon may have open held at the moment of this call; it is closed with the block. Each batch of the
    daemon is there whole or not at all.

    ``stamp`` and ``points``: as the store is opened with. ``NotFound`` if there is no store with them (or one in memory only),
    ``Unavailable`` if it cannot be read just now.
    """
    root = Path(directory) / kind
    if kind == "memory" or not root.exists():
        raise NotFound("no local metadata here", path=str(root))
    if kind == "json":
        yield _of_json(root, stamp)
        return
    from tiered.metadata.rockspeek import RocksDbLook

    with closing(RocksDbLook(root, stamp, points)) as view:
        yield view


def peek_redo(directory: str | Path, stamp: str) -> RocksDbLook:
    """A look into a store of ``open_redo``: what was flushed when it was made; to be closed, or let go. ``NotFound`` and
    ``Unavailable`` as of ``peek``."""
    root = Path(directory) / "rocksdb"
    if not root.exists():
        raise NotFound("no such local store here", path=str(root))
    from tiered.metadata.rockspeek import RocksDbLook

    return RocksDbLook(root, stamp)


def _of_json(root: Path, stamp: str) -> MetadataView:
    try:
        tree = json.loads((root / FILE_NAME).read_bytes())
        values = {k.encode("latin-1"): base64.b64decode(v) for k, v in tree["pairs"]}
        applied = None if tree["applied"] is None else bytes.fromhex(tree["applied"])
        found = tree["stamp"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise cannot_be_read(root, error) from error
    check_stamp(root, stamp, found)
    return MemoryView(values, sorted(values), applied)


def check_stamp(root: Path, expected: object, found: object) -> None:
    """``NotFound`` if what a store holds means something else to this program."""
    if found != expected:
        message = "the local metadata here is of another version, or of another archive"
        raise NotFound(message, path=str(root), expected=expected, found=found)


def cannot_be_read(root: Path, error: Exception) -> Unavailable:
    """The error for a store that a look did not succeed at."""
    return Unavailable("the local metadata cannot be read just now", path=str(root), found=error)
