"""What an exception of the engine means: it knows one kind, whose text tells damage, a held lock and everything else apart."""

from __future__ import annotations

from pathlib import Path

from tiered.errors import Corrupt, Invalid, TieredError, Unavailable
from tiered.metadata.jsonfile import held

_FULL = ("no space", "disk quota")
_AFTER_A_FAILED_WRITE = "writer has previous error"
"""What every write says after the one that met a full disk."""
_DAMAGED = ("corrupt", "checksum")
_LOST_FILES = (".sst", "manifest-")
_NEWER = ("unsupported", "not supported", "column families not opened")
"""What the engine says of files of a later version of itself, and of what a later version of this program keeps beside."""
_HINT = "stop the daemon and delete this directory: it is rebuilt from the bucket"


def meaning(error: Exception, directory: Path, *, opening: bool = False) -> TieredError:
    """The error of the product for one of the engine's, met in the store in ``directory``."""
    if isinstance(error, TieredError):
        return error
    text, path = str(error), str(directory)
    lowered = text.lower()
    full = any(word in lowered for word in _FULL)
    if opening and not full and "lock" in lowered and "block" not in lowered:
        return held(directory)
    if opening and any(word in lowered for word in _NEWER):
        message = "the metadata store is of a later version, or damaged"
        return Corrupt(message, hint=_HINT, path=path, found=text)
    lost = opening and "no such file" in lowered and any(name in lowered for name in _LOST_FILES)
    if lost or any(word in lowered for word in _DAMAGED):
        return Corrupt("the metadata store is damaged", hint=_HINT, path=path, found=text)
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
