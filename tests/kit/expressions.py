"""Random filter expressions, sound and unsound, and property maps that make them interesting."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

NAMES = ("a", "b", "c", "TAGS", "_x$1", "missing")
STRINGS = (
    "",
    "1",
    "x",
    "red",
    "it's",
    "-5",
    "2.5",
    "true",
    "TRUE",
    "1e3",
    "0x1p3",
    "é",
    "𝄞",
    "NaN",
    "12 ",
    "5000000000",
)
NUMBERS = (
    "0", "1", "2", "10", "5l", "5000000000", "2147483647", "2147483648", "9223372036854775807", "9223372036854775808",
    "1.0", "2.5", "5.", ".5", "1e3", "1E-3", "0.0", "1e400", "1e-400", "007", "0L", "4.9e-324", "12abc",
)  # fmt: skip
VALUES = (
    *STRINGS, "0", "10", "+5", "5", "1.0", " 2.5 ", "2147483648", "9223372036854775808", "-0.0", "Infinity", "1f", "١",
    "false", "1_0", "99999999999999999999", "1e999", "--", "00012", "−5",
)  # fmt: skip
ORDERS = (">", ">=", "<", "<=")
WORDS = (
    "AND",
    "OR",
    "NOT",
    "BETWEEN",
    "IN",
    "IS",
    "NULL",
    "TRUE",
    "FALSE",
    "CONTAINS",
    "STARTSWITH",
    "ENDSWITH",
)
NEWER_WORDS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
SCRAPS = (*WORDS, *NAMES, "(", ")", ",", "+", "-", "=", "<>", *ORDERS, "'", "''", "'x'", "--", "/*", "*/", "\n", "!", "#",
          "0", "1.5", "1e", ".", "é", "\x00")  # fmt: skip


def property_maps(random: Random, count: int) -> list[dict[str, str]]:
    """Maps of some of the names to some of the values; the first is empty. As in a record, no value is empty."""
    values = [value for value in VALUES if value]
    maps: list[dict[str, str]] = [{}]
    while len(maps) < count:
        maps.append({name: random.choice(values) for name in NAMES[:-1] if random.random() < 0.75})
    return maps


def expression(random: Random, depth: int = 3, *, words: Sequence[str] = NEWER_WORDS) -> str:
    """An expression that mostly means something; sometimes RocketMQ refuses it. ``words``: the searching operators to use."""
    if depth > 0 and random.random() < 0.6:
        left, right = expression(random, depth - 1, words=words), expression(random, depth - 1, words=words)
        joined = f"{left} {_case(random, random.choice(('AND', 'OR')))} {right}"
        return f"({joined})" if random.random() < 0.5 else joined
    if depth > 0 and random.random() < 0.2:
        return f"NOT ({expression(random, depth - 1, words=words)})"
    return _test(random, words)


def damaged(random: Random, text: str) -> str:
    """``text`` with a few pieces lost, doubled, or put in."""
    pieces = text.split(" ")
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(pieces) + 1)
        match random.randrange(3):
            case 0:
                del pieces[at : at + 1]
            case 1:
                pieces[at:at] = pieces[at : at + 1]
            case _:
                pieces.insert(at, random.choice(SCRAPS))
    return random.choice((" ", " ", "")).join(pieces)


def _test(random: Random, words: Sequence[str]) -> str:
    left = random.choice(NAMES) if random.random() < 0.85 else _operand(random)
    no = random.choice(("", "", "NOT "))
    match random.randrange(9):
        case 0 | 1:
            return f"{left} {random.choice(('=', '<>'))} {_operand(random)}"
        case 2 | 3:
            return f"{left} {random.choice(ORDERS)} {_number(random)}"
        case 4:
            return f"{left} {random.choice(('=', '<>', *ORDERS))} {random.choice(NAMES)}"
        case 5:
            return f"{left} IS {no}NULL"
        case 6:
            return f"{left} {no}{_case(random, 'BETWEEN')} {_number(random)} AND {_number(random)}"
        case 7:
            listed = " , ".join(_string(random) for _ in range(random.randint(1, 7)))
            return f"{left} {no}IN ( {listed} )"
        case _:
            if not words:
                return random.choice((left, "TRUE", "FALSE"))
            return f"{left} {no}{_case(random, random.choice(words))} {_string(random)}"


def _operand(random: Random) -> str:
    match random.randrange(8):
        case 0 | 1:
            return _string(random)
        case 2 | 3 | 4:
            return _number(random)
        case 5:
            return random.choice(("TRUE", "false", "Null"))
        case 6:
            return f"({_test(random, ())})"
        case _:
            return random.choice(NAMES)


def _number(random: Random) -> str:
    sign = random.choice(("", "", "", "-", "+", "- "))
    return sign + random.choice(NUMBERS if random.random() < 0.6 else NUMBERS[:4])


def _string(random: Random) -> str:
    return "'" + random.choice(STRINGS).replace("'", "''") + "'"


def _case(random: Random, word: str) -> str:
    return random.choice((word, word, word.lower(), word.title()))
