"""What a setting is: default, unit, bound, secrecy, one sentence; and the check of a section's values.

The sections are the single declaration: ``config/tiered.toml`` is generated from it (``tiered config default``), and
the loader (``daemon/config.py``) reads types, bounds, units and secrecy from it. A component receives its own
section and nothing else. A section that exists is valid: making one checks the type and bound of every value
and raises ``Invalid`` naming the key. Checks across sections, and the environment, belong to the loader.
"""

from __future__ import annotations

from dataclasses import Field, field, fields
from typing import Any

from tiered.errors import Invalid

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

ONE_DAY_MS = 86_400_000

STARS = "********"
"""What people see instead of a secret."""


def option(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    unit: str | None = None,
    choices: tuple[str, ...] | None = None,
    secret: bool = False,
    rocketmq: str | None = None,
    no_other: str | None = None,
) -> Any:
    """A setting: default, one sentence on the trade-off, inclusive bounds, unit, RocketMQ's own key.

    ``no_other``: why there are no choices beside those, for who asks for one.
    """
    names = ("doc", "low", "high", "unit", "choices", "secret", "rocketmq", "no_other")
    values = (doc, low, high, unit, choices, secret, rocketmq, no_other)
    return field(default=default, metadata=dict(zip(names, values, strict=True)))


def ms(default: int, doc: str, low: int, high: int, *, rocketmq: str | None = None) -> Any:
    """A duration in milliseconds; files may also say ``"500ms"``, ``"1s"``, ``"2m"``, ``"1h"``, ``"7d"``."""
    return option(default, doc, low=low, high=high, unit="ms", rocketmq=rocketmq)


def size(default: int, doc: str, low: int, high: int, *, rocketmq: str | None = None) -> Any:
    """A size in bytes; files may also say ``"32MiB"``."""
    return option(default, doc, low=low, high=high, unit="bytes", rocketmq=rocketmq)


class SettingsSection:
    """Base of every section: checks types and bounds when made, so a section that exists is valid."""

    __slots__ = ()

    def __post_init__(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            check_value(type(self).__name__, f, getattr(self, f.name))


def check_value(section: str, f: Field[Any], value: Any) -> None:
    """Raise ``Invalid`` naming key, value and bound if ``value`` may not stand in ``f`` of ``section``."""
    meta = f.metadata
    low, high, choices, unit = meta.get("low"), meta.get("high"), meta.get("choices"), meta.get("unit") or ""
    key = f"{section.lower()}.{f.name}"
    hint = f"`tiered config default` documents {key}"
    if type(value) is not type(f.default):
        wanted = {int: "a whole number", bool: "true or false", str: "text", tuple: "a list of texts"}[
            type(f.default)
        ]
        raise Invalid(f"{key} must be {wanted}", value=shown(f, value), found=type(value).__name__, hint=hint)
    if isinstance(value, tuple) and not all(isinstance(v, str) for v in value):
        raise Invalid(f"{key} must be a list of strings", value=shown(f, value), hint=hint)
    if choices and value not in choices:
        named = ", ".join(c or '""' for c in choices)
        wanted = f"one of {named}" if len(choices) > 1 else named
        raise Invalid(f"{key} must be {wanted}", value=shown(f, value), hint=meta.get("no_other") or hint)
    if isinstance(value, int) and not isinstance(value, bool):
        if low is not None and value < low:
            raise Invalid(f"{key} must be at least {low} {unit}".rstrip(), value=value, hint=hint)
        if high is not None and value > high:
            raise Invalid(f"{key} must be at most {high} {unit}".rstrip(), value=value, hint=hint)


def shown(f: Field[Any], value: Any) -> str:
    """``value`` as it may be shown to people: stars for a secret that is set."""
    return STARS if f.metadata.get("secret") and value else repr(value)
