"""A look into another process's metadata store, without its lock: for showing, never for deciding."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiered.errors import NotFound, Unavailable
from tiered.metadata.jsonfile import FILE_NAME


class Peek:
    """Point lookups in a store that a daemon may have open. What it shows is what was durable when it was opened."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Values in the order of ``keys``; ``None`` where absent."""
        return [self._values.get(key) for key in keys]


def peek(kind: str, directory: str | Path) -> Peek:
    """``NotFound`` if there is no store (or one in memory only), ``Unavailable`` if it cannot be read just now."""
    root = Path(directory) / kind
    if kind == "memory" or not root.exists():
        raise NotFound("no local metadata here", path=str(root))
    if kind == "json":
        tree = json.loads((root / FILE_NAME).read_bytes())
        return Peek({k.encode("latin-1"): base64.b64decode(v) for k, v in tree["pairs"]})
    import rocksdict

    try:
        options = rocksdict.Options(raw_mode=True)
        return Peek(rocksdict.Rdict(str(root), options=options, access_type=rocksdict.AccessType.read_only()))
    except Exception as error:
        raise Unavailable("the local metadata cannot be read just now", path=str(root)) from error
