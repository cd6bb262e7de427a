"""Where the index lies."""

from __future__ import annotations

import os

_DIRECTORY = "consumequeue"


def index_directory(state_directory: str) -> str:
    """Below a daemon's state directory."""
    return os.path.join(state_directory, _DIRECTORY)
