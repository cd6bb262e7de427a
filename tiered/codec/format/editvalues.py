"""What the OBJ columns of edits may hold (``edits.SCHEMA``): checked when written and when read.

So the fold meets only values of the declared form, whatever bytes a commit was made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tiered.codec.format.edits import SCHEMA, EditKind

_INT64 = range(-(2**63), 2**63)
_REWIND_TEXTS = ("topic",)
_REWIND_INTS = ("queue_id", "generation", "max_offset", "flat_end")
_SOURCE_INTS = ("commit_seq", "index", "start", "end")
_TARGET_INTS = tuple(name for name, _ in SCHEMA[EditKind.APPEND_RUN] if name != "topic")


def value_fault(column: str, value: Any) -> str | None:
    """What is wrong with a value of an OBJ column, or ``None``."""
    return None if _CHECKS[column](value) else f"{type(value).__name__} of another form in {column}"


def _is_int(value: Any) -> bool:
    return type(value) is int and value in _INT64


def _int_or_none(value: Any) -> bool:
    return value is None or _is_int(value)


def _all_of(values: Any, kinds: frozenset[type]) -> bool:
    """A list whose members have these types; ints fit 64 bits (msgpack's unsigned ones may not)."""
    if type(values) is not list or not kinds.issuperset(map(type, values)):
        return False
    ints = [v for v in values if type(v) is int] if len(kinds) > 1 else values
    return int not in kinds or not ints or (min(ints) in _INT64 and max(ints) in _INT64)


_TEXTS = frozenset({str})
_INTS = frozenset({int})
_INTS_OR_NONE = frozenset({int, type(None)})


def _texts(value: Any) -> bool:
    return _all_of(value, _TEXTS)


def _sections(value: Any) -> bool:
    return type(value) is dict and all(
        _is_int(number) and _all_of(entry, _INTS) and len(entry) == 3 and min(entry) >= 0
        for number, entry in value.items()
    )


def _columns(value: Any, **kinds: tuple[str, ...]) -> bool:
    """A dict of equally long lists: text, ints, ints or None."""
    names = {name for group in kinds.values() for name in group}
    if type(value) is not dict or value.keys() != names:
        return False
    types = {"texts": _TEXTS, "ints": _INTS, "optional": _INTS_OR_NONE}
    fits = all(_all_of(value[name], types[kind]) for kind, group in kinds.items() for name in group)
    return fits and len({len(value[name]) for name in names}) == 1


def _sink_position(value: Any) -> bool:
    """``[physical offset or None, None or [start, size, crc32c]]``."""
    if type(value) is not list or len(value) != 2 or not _int_or_none(value[0]):
        return False
    return value[1] is None or (_all_of(value[1], _INTS) and len(value[1]) == 3)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "broker_epoch": _int_or_none,
    "floor": _int_or_none,
    "required_features": _texts,
    "keys": _texts,
    "lite_queues": _texts,
    "alias_targets": lambda v: _columns(v, texts=("topic",), ints=("queue_id", "generation")),
    "sections": _sections,
    "sink_position": _sink_position,
    "sink_queues": lambda v: _columns(v, texts=("topic",), ints=("queue_id", "next"), optional=("physical",)),
    "queues": lambda v: _columns(v, texts=_REWIND_TEXTS, ints=_REWIND_INTS),
    "sources": lambda v: _columns(v, ints=_SOURCE_INTS, optional=("closed_by",)),
    "targets": lambda v: _columns(v, texts=("topic",), ints=_TARGET_INTS, optional=("closed_by",)),
}
