"""``replace``: a dataclass, or a remoting command, with some fields changed."""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def replace(made: T, **fields: Any) -> T:
    """A copy of ``made`` with these fields."""
    if isinstance(made, msgspec.Struct):
        return msgspec.structs.replace(made, **fields)
    copied: T = dataclasses.replace(made, **fields)  # type: ignore[type-var]
    return copied
