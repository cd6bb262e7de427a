"""Values in filter expressions, by Java's rules, since RocketMQ's broker lets Java compare them.

A value is ``None`` (unknown), a ``bool``, an ``int`` (Java's 32-bit Integer), a ``Long``, a ``float`` (Double) or a
``str``. All properties are strings; they become numbers or booleans only beside one.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

INTEGER_BITS = 32
LONG_BITS = 64


class Long(int):
    """A Java Long: what does not fit 32 bits when it is written down."""


Value = None | bool | int | float | str


class Unevaluable(Exception):
    """The comparison fails on these properties: the broker then does not deliver the message."""


_DIGITS = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(
    r"[\x00-\x20]*(?P<sign>[+-]?)(?:(?P<special>NaN|Infinity)"
    r"|(?P<decimal>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(?P<hex>0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)[\x00-\x20]*"
)


def parse_whole(text: str, bits: int) -> int:
    """``Integer.valueOf`` or ``Long.valueOf``: an optional sign and digits (of any script, outside surrogate pairs)."""
    if not _DIGITS.fullmatch(text) or any(character > "\uffff" for character in text):
        raise Unevaluable
    sign, digits = text[: text[0] in "+-"], text[text[0] in "+-" :].lstrip("0")
    if len(digits) > bits:  # 64 digits are beyond a Long, and Python bounds how many it converts
        raise Unevaluable
    value = int(sign + (digits or "0"))
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Unevaluable
    return value


def parse_double(text: str) -> float:
    """``Double.valueOf``: decimal or hexadecimal, NaN, Infinity, a type suffix, blanks around it."""
    found = _DOUBLE.fullmatch(text)
    if found is None:
        raise Unevaluable
    if found["hex"] is not None:
        try:
            value = float.fromhex(found["hex"])
        except OverflowError:
            value = math.inf
    elif found["special"] is not None:
        value = math.nan if found["special"] == "NaN" else math.inf
    else:
        value = float(found["decimal"])
    return -value if found["sign"] == "-" else value


def _parse_boolean(text: str) -> bool:
    return text.lower() == "true"


def _parse_integer(text: str) -> int:
    return parse_whole(text, INTEGER_BITS)


def _parse_long(text: str) -> int:
    return parse_whole(text, LONG_BITS)


def _fail(_: object) -> Value:
    raise Unevaluable


def _same(value: Value) -> Value:
    return value


_Convert = Callable[..., Value]
_CONVERSIONS: dict[tuple[type, type], tuple[_Convert, _Convert]] = {
    (bool, str): (_fail, _same),
    (int, Long): (_same, _same),
    (int, float): (float, _same),
    (int, str): (_same, _parse_integer),
    (Long, int): (_same, _same),
    (Long, float): (float, _same),
    (Long, str): (_same, _parse_long),
    (float, int): (_same, float),
    (float, Long): (_same, float),
    (float, str): (_same, parse_double),
    (str, bool): (_parse_boolean, _same),
    (str, int): (_parse_integer, _same),
    (str, Long): (_parse_long, _same),
    (str, float): (parse_double, _same),
}
"""How two values of different kinds are made one kind; other pairs are just different."""


def compare(left: Value, right: Value) -> int:
    """Negative, zero or positive, as the broker compares two known values; ``Unevaluable`` when a string is not such a number.

    Kinds that have nothing in common compare as *less*.
    """
    kinds = (type(left), type(right))
    if kinds[0] is not kinds[1]:
        conversion = _CONVERSIONS.get(kinds)
        if conversion is None:
            return -1
        left, right = conversion[0](left), conversion[1](right)
    if isinstance(left, float) and isinstance(right, float):
        return _compare_doubles(left, right)
    return (left > right) - (left < right)  # type: ignore[operator]


def _compare_doubles(left: float, right: float) -> int:
    """Java's total order: -0.0 before 0.0, NaN behind everything and equal to itself."""
    if left < right:
        return -1
    if left > right:
        return 1
    a = (math.isnan(left), math.copysign(1.0, left) if left == 0 else 0.0)
    b = (math.isnan(right), math.copysign(1.0, right) if right == 0 else 0.0)
    return (a > b) - (a < b)


def negate(value: Value) -> Value:
    """Minus a number; anything else becomes unknown."""
    if isinstance(value, Long):
        return Long(-value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return -value
