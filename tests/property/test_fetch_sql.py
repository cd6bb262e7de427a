"""Filter expressions: any text is a filter or ``Invalid``, and three-valued logic keeps its laws."""

from __future__ import annotations

import contextlib
from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import expressions
from tiered.codec.record.message import Message, encode_message
from tiered.errors import Invalid
from tiered.filter.sql.expression import SqlFilter, sql_filter
from tiered.filter.tags import tag_filter

texts = st.text(st.sampled_from("ab1.eE'()=<>,-+*/ \n\tlxX$_#é\ud800") | st.characters(), max_size=40)
scraps = st.lists(st.sampled_from(expressions.SCRAPS), max_size=25).map(" ".join)
sound = st.integers(0, 1 << 32).map(lambda seed: expressions.expression(Random(seed), 3))
values = st.sampled_from([value for value in expressions.VALUES if value]) | st.text(min_size=1, max_size=8)
maps = st.dictionaries(st.sampled_from(expressions.NAMES), values, max_size=6)


def compiled(expression: str, *, whole: bool = False) -> SqlFilter | None:
    try:
        return sql_filter(expression, whole=whole)
    except Invalid as error:
        refusal = error
    assert refusal.hint
    assert 1 <= int(str(refusal.fields.get("position", 1))) <= len(expression) + 1
    return None


@settings(max_examples=400, deadline=None)
@given(texts | scraps, maps)
def test_any_text_is_a_filter_or_refused(expression: str, properties: dict[str, str]) -> None:
    made = compiled(expression)
    if made is not None:
        assert made.matches(properties) in (True, False)
    with contextlib.suppress(Invalid):
        tag_filter(expression)


@settings(max_examples=200, deadline=None)
@given(sound, maps)
def test_not_turns_true_and_false_and_leaves_the_rest(expression: str, properties: dict[str, str]) -> None:
    made = compiled(expression, whole=True)
    if made is not None:
        opposite = sql_filter(f"NOT ({expression})")
        assert not (made.matches(properties) and opposite.matches(properties))
        twice = sql_filter(f"NOT (NOT ({expression}))")
        assert twice.matches(properties) == made.matches(properties)


@settings(max_examples=200, deadline=None)
@given(sound, maps)
def test_columns_never_refuse_a_row_that_the_record_satisfies(
    expression: str, properties: dict[str, str]
) -> None:
    made = compiled(expression)
    stored = {name: value for name, value in properties.items() if not {"\x01", "\x02"} & set(name + value)}
    stored = {name: value for name, value in stored.items() if value.isascii()}
    if made is None or not made.accepts(memoryview(encode_message(Message("t", 0, 0, 0, b"", stored)))):
        return
    tags = (b"", stored.get("TAGS", "").encode())
    rows = {"tag": np.array([1 if tags[1] else 0])}
    assert made.may_match(rows, tags).tolist() == [True]
