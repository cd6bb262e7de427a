"""Options of an order as values; whatever is wrong with one names it, what was found, and what would be right."""

from __future__ import annotations

from collections.abc import Sequence

from tiered.errors import Invalid, did_you_mean
from tiered.sink.order import SinkOrder
from tiered.text.values import one_of, size_bytes, whole


def known_options(order: SinkOrder, known: Sequence[str]) -> None:
    """``Invalid`` for an option that this kind does not have."""
    for name in order.options:
        if name not in known:
            raise Invalid(
                f"a sink of kind {order.kind} has no such option", field=f"options.{name}", found=name,
                hint=did_you_mean(name, known, "its options: "),
            )  # fmt: skip


def needed(order: SinkOrder, name: str, example: str) -> str:
    """An option that has to be there."""
    value = order.options.get(name, "")
    if not value:
        raise Invalid(
            f"a sink of kind {order.kind} needs an option", field=f"options.{name}", hint=f"{name}={example}"
        )
    return value


def choice_of(order: SinkOrder, name: str, choices: Sequence[str], default: str) -> str:
    """One of a few words."""
    return one_of(f"options.{name}", order.options.get(name, default), choices)


def switch_of(order: SinkOrder, name: str, *, default: bool) -> bool:
    """``true`` or ``false``."""
    return choice_of(order, name, ("true", "false"), "true" if default else "false") == "true"


def number_of(order: SinkOrder, name: str, default: int, *, least: int, most: int) -> int:
    """A whole number."""
    value = order.options.get(name)
    return default if value is None else whole(f"options.{name}", value, least, most)


def size_of(order: SinkOrder, name: str, default: int, *, least: int, most: int) -> int:
    """Bytes: a number, perhaps with KiB, MiB, GiB."""
    value = order.options.get(name)
    size = default if value is None else size_bytes(f"options.{name}", value, least=least)
    if size > most:
        raise Invalid("a size is too large", field=f"options.{name}", found=value, expected=f"≤ {most} bytes")
    return size


def refuse_order(order: SinkOrder, why: str) -> None:
    """``Invalid`` where the order of the whole log is wanted and the destination has none."""
    if order.in_order:
        raise Invalid(
            f"the order of the whole log cannot be kept: {why}", field="in_order", found=True,
            hint="leave it out: each queue's order is kept", kind=order.kind,
        )  # fmt: skip
