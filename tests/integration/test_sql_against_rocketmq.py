"""Our filters against RocketMQ's own classes: thousands of expressions, each over many property maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import pytest

from tests.kit import cache, expressions, filters
from tiered.errors import Invalid
from tiered.filter.sql.expression import sql_filter
from tiered.filter.sql.grammar import parse
from tiered.filter.sql.nodes import Node
from tiered.filter.sql.values import Unevaluable

pytestmark = pytest.mark.broker

# What the two might read differently: where an expression ends, what NULL and TRUE may stand beside, signs, nesting.
CHOSEN = (
    "a", "NOT a", "a = a", "missing = b", "missing = missing", "NULL = a", "a = NULL", "NULL IS NULL", "TRUE IS NOT NULL",
    "(a = '1') IS NULL", "TRUE = TRUE", "TRUE = 1", "1 = TRUE", "1 = 1", "1 = 1.0", "2147483648 = 2147483648.0", "'a' = 'a'",
    "'a' = 1", "a = b = c", "a = TRUE = b", "a > 1 > 2", "a > -1", "a > - - 1", "a > +-+1", "-a = b", "-a IS NULL", "-TRUE = a",
    "-'x' = missing", "+a = '1'", "+a IN ('1')", "(a) IN ('1')", "-a IN ('1')", "NOT a IN ('1')", "NOT (a IN ('1'))",
    "a IN ()", "a IN (1)", "a IN ('1',)", "a BETWEEN 1 AND 1", "a BETWEEN 2 AND 1", "a NOT BETWEEN 2 AND 1",
    "a BETWEEN -1 AND -2", "a BETWEEN 'a' AND 'b'", "a BETWEEN TRUE AND FALSE", "a BETWEEN NULL AND 1", "a BETWEEN b AND c",
    "a BETWEEN 1 AND 2 > 3", "1 BETWEEN 0 AND 2", "a > 'x'", "a > TRUE", "a > b", "a >= NULL", "a CONTAINS ''",
    "a NOT CONTAINS ''", "a CONTAINS 'x' CONTAINS 'y'", "'abc' CONTAINS 'b'", "1 CONTAINS '1'", "missing NOT CONTAINS 'x'",
    "(a = '1') STARTSWITH 't'", "a = 1 CONTAINS 'x'", "a NOT = 1", "a = 1 b = 2", "a = 1 )", "a = 1 #", "a = 1 b #", "(a = 1",
    "a = 1 NOT", "a = 1 NOT b", "a = 1 IS", "a = 1 AND", "a = 1 -- end", "a = 1 -- end\n AND b = 2", "a /* b */ = 1",
    "a /* b = 1", "/**/a = 1", "/***/a = 1", "/* * / */a = 1", "a = 'x''y'", "a = 'x", "a = ''", "a = '''", "a=1AND b=1",
    "a=1 ANDb=1", "a IS NULLb", "is = 1", "contains = 'x'", "a = 00", "a = 1.5.5", "a = 1e5e", "a = 5L", "a = 0l", "a = 1 l",
    "a = 9223372036854775807", "a = -9223372036854775808", "a = 9223372036854775808", "a > 0.0", "a = 1e400", "TRUE", "NULL",
    "FALSE OR NULL", "NOT NULL", "1", "'x'", "-1", "(((a)))", "", " ", "*", "a\x0b= 1", "a = 1\x0b", "ſ = 1", "a ıS NULL",
    "a OR b OR c", "a = 1 OR a = 'x' OR TRUE", "TRUE OR a = 1", "a = 1 AND FALSE", "FALSE AND a = 1",
    " OR ".join(f"a = '{n}'" for n in range(500)), "(" * 80 + "a = 1" + ")" * 80, "NOT " * 60 + "a",
)  # fmt: skip


def letter(root: Node, properties: Mapping[str, str]) -> str:
    try:
        return {True: "T", False: "F", None: "N"}[root.evaluate(properties)]  # type: ignore[index]
    except Unevaluable:
        return "X"


def ours(expression: str, maps: Sequence[Mapping[str, str]]) -> str:
    try:
        compiled, root = sql_filter(expression), parse(expression)
    except Invalid:
        return filters.REFUSED
    letters = "".join(letter(root, one) for one in maps)
    assert [compiled.matches(one) for one in maps] == [answer == "T" for answer in letters]
    return letters


def differences(
    version: str, asked: Sequence[str], maps: Sequence[Mapping[str, str]]
) -> tuple[list[str], Counter[str]]:
    """Where the two differ, and how often each answer was given."""
    found, seen = [], Counter[str]()
    for expression, theirs in zip(asked, filters.evaluate(version, asked, maps), strict=True):
        mine = ours(expression, maps)
        seen.update(["refused"] if theirs == filters.REFUSED else theirs)
        if mine != theirs:
            found.append(f"{expression!r}: RocketMQ {theirs}, here {mine}")
    return found, seen


@pytest.mark.parametrize(
    ("version", "words"), [(cache.ROCKETMQ_5, expressions.NEWER_WORDS), (cache.ROCKETMQ_4, ())]
)
def test_every_expression_means_what_it_means_to_rocketmq(version: str, words: Sequence[str]) -> None:
    random = Random(f"filters {version}")
    maps = expressions.property_maps(random, 24)
    sound = [expressions.expression(random, random.randint(0, 3), words=words) for _ in range(2500)]
    broken = [expressions.damaged(random, text) for text in sound[:1500]]
    chosen = list(CHOSEN)
    if not words:  # before 5.x these words are names
        chosen, broken = [
            [e for e in some if not any(word.lower() in e.lower() for word in expressions.NEWER_WORDS)]
            for some in (chosen, broken)
        ]
    found, seen = differences(version, [*chosen, *sound, *broken], maps)
    assert found == []
    assert min(seen[answer] for answer in ("T", "F", "N", "X", "refused")) > 500, seen
