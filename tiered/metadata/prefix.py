"""Ranges of ordered byte keys."""

from __future__ import annotations


def prefix_end(prefix: bytes) -> bytes | None:
    """The smallest key above every key that starts with ``prefix``; ``None`` if there is none."""
    trimmed = prefix.rstrip(b"\xff")
    return trimmed[:-1] + bytes([trimmed[-1] + 1]) if trimmed else None
