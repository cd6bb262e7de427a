"""A verb of the program, its GETs counted: ``python -m tests.bench.counted FIGURES.json VERB …`` writes how many, how large."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tiered.cli.main import main
from tiered.provider import open as opening
from tiered.provider.base import Fetched
from tiered.provider.wrap import Wrapped

TOLD = {"gets": 0, "bytes": 0}


class CountingGets(Wrapped):
    """Counts what is read."""

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        """Counted."""
        TOLD["gets"] += 1
        fetched = self.inner.get(key, start, length)
        TOLD["bytes"] += len(fetched.data)
        return fetched


def counting() -> None:
    """Count the GETs of this process from now on."""
    bare: Any = opening.open_driver
    opening.open_driver = lambda *arguments: CountingGets(bare(*arguments))


if __name__ == "__main__":
    counting()
    try:
        code = main(sys.argv[2:])
    finally:
        Path(sys.argv[1]).write_text(json.dumps(TOLD))
    sys.exit(code)
