"""msgpack, strict and bounded.

Values are ``None``, bool, int (64 bits), str, bytes, list and dict. Text is UTF-8; bytes of a topic that
are not valid UTF-8 travel as lone surrogates (``surrogateescape``), so that whatever a broker called a
topic comes back unchanged.
"""

from __future__ import annotations

from typing import Any, NoReturn

import msgpack
import numpy as np

from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Invalid

MAX_ITEMS = 1 << 20
"""Longest list or dict."""


def pack(value: Any) -> bytes:
    """The bytes of a value; numpy integers and arrays become ints and lists. ``Invalid`` if it is not such a
    value.
    """
    try:
        packed: bytes = msgpack.packb(value, default=_plain, unicode_errors="surrogateescape")
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid("a value cannot be written", found=str(error)) from error
    return packed


def unpack(data: Buffer, *, what: str, key: str, position: int | None) -> Any:
    """The one value that ``data`` holds; ``Corrupt`` if it holds none, more than one, or a foreign type."""
    items = min(len(data), MAX_ITEMS)
    try:
        return msgpack.unpackb(
            data,
            strict_map_key=False,
            unicode_errors="surrogateescape",
            ext_hook=_no_extension,
            max_array_len=items,
            max_map_len=items,
            max_ext_len=0,
        )
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise Corrupt(
            f"{what} is not msgpack", key=key, position=position, expected="one value", found=str(error)
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.integer):
        return int(value)
    raise TypeError(f"{type(value).__name__} has no form in msgpack")


def _no_extension(code: int, data: bytes) -> NoReturn:
    raise ValueError(f"extension type {code}, {len(data)} bytes")
