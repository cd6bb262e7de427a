"""The driver's own keys, and what it calls the meaning of a store's content."""

from __future__ import annotations

VERSION = 2

APPLIED = b"\0applied"
STAMP = b"\0stamp"


def stamp_of(stamp: str, points: bytes) -> bytes:
    """The value of ``STAMP``: a store with another one is emptied."""
    return f"{VERSION}{points.hex()} {stamp}".encode()
