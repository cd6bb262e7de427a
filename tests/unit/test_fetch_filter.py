"""Tag filters and SQL92 filters on records and on columns."""

from __future__ import annotations

import numpy as np
import pytest

from tiered.codec.javahash import java_hash
from tiered.codec.record.message import Message, encode_message, record_properties
from tiered.errors import Corrupt, Invalid
from tiered.filter.tags import TagFilter, row_filter, sql_filter, tag_filter

TAGS = (b"", b"red", b"blue", b"Aa", b"BB", "grün".encode())


def record(**properties: str) -> memoryview:
    return memoryview(encode_message(Message("topic", 0, 0, 0, b"body", properties)))


def tags(expression: str) -> TagFilter:
    found = tag_filter(expression)
    assert found is not None
    return found


@pytest.mark.parametrize("expression", ["*", ""])
def test_every_message_needs_no_filter(expression: str) -> None:
    assert tag_filter(expression) is None


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("red", {"red"}),
        ("red || blue", {"red", "blue"}),
        (" red||  ||blue ||", {"red", "blue"}),
        ("a b || *", {"a b", "*"}),
        (" * ", {"*"}),
        (" ", set()),
        ("a|b", {"a|b"}),
        ("a|||b", {"a", "|b"}),
    ],
)
def test_a_tag_expression_is_split_as_rocketmq_does(expression: str, wanted: set[str]) -> None:
    assert tags(expression).tags == wanted


@pytest.mark.parametrize("expression", ["||", "||||", "x" * 70_000])
def test_a_tag_expression_without_tags_is_refused(expression: str) -> None:
    with pytest.raises(Invalid) as refusal:
        tag_filter(expression)
    assert refusal.value.hint


def test_the_tag_column_decides_without_collisions() -> None:
    assert java_hash("Aa") == java_hash("BB")
    rows = {"tag": np.array([0, 1, 2, 3, 4, 5, 1], np.int32)}
    assert tags("Aa || grün").may_match(rows, TAGS).tolist() == [
        False,
        False,
        False,
        True,
        False,
        True,
        False,
    ]
    assert tags(" ").may_match(rows, TAGS).tolist() == [False] * 7


def test_tag_codes_alone_may_match_too_much_and_never_too_little() -> None:
    known = ["", "red", "blue", "Aa", "BB", "violet"]
    codes = np.array([java_hash(tag) for tag in known], np.int64)
    assert codes[5] < 0  # sign extended to 64 bits, as in the consume queue
    found = tags("Aa || violet").may_match({"tags_code": codes}, ())
    assert found.tolist() == [False, False, False, True, True, True]


def test_a_record_is_accepted_by_its_exact_tag() -> None:
    wanted = tags("Aa||red")
    assert wanted.accepts(record(TAGS="Aa", KEYS="k"))
    assert not wanted.accepts(record(TAGS="BB"))
    assert not wanted.accepts(record(TAGS="red "))
    assert not wanted.accepts(record())
    zero = tags("f5a5a608")  # a tag whose hash code is that of no tag
    assert zero.codes == {0}
    assert not zero.accepts(record())


@pytest.mark.parametrize(
    ("born", "store"), [("127.0.0.1:1", "[::1]:2"), ("[::1]:1", "1.2.3.4:5"), ("[::1]:1", "[::2]:2")]
)
@pytest.mark.parametrize("topic", ["t", "t" * 127, "t" * 200])
def test_properties_are_found_in_every_kind_of_record(born: str, store: str, topic: str) -> None:
    properties = {"TAGS": "red", "x": "ä"}
    stored = encode_message(Message(topic, 1, 2, 3, b"b" * 300, properties, born_host=born, store_host=store))
    assert record_properties(stored) == properties
    assert record_properties(memoryview(stored)) == properties


def test_half_a_record_is_corrupt() -> None:
    stored = bytes(record(TAGS="red", x="1"))
    for length in (0, 3, 40, 70, 90, len(stored) - 1):
        with pytest.raises(Corrupt):
            record_properties(stored[:length])
    with pytest.raises(Corrupt):
        record_properties(b"\0" * 200)


def test_sql_on_records() -> None:
    wanted = sql_filter("TAGS IN ('red', 'blue') AND (price BETWEEN 1 AND 5 OR name = 'it''s')")
    assert wanted.accepts(record(TAGS="red", price="3"))
    assert wanted.accepts(record(TAGS="blue", price="9", name="it's"))
    assert not wanted.accepts(record(TAGS="green", price="3"))
    assert not wanted.accepts(record(TAGS="red"))
    assert not wanted.accepts(record(TAGS="red", price="cheap", name="it's"))  # the broker's comparison fails


@pytest.mark.parametrize(
    ("expression", "possible"),
    [
        ("TAGS = 'red' AND price > 3", [False, True, False]),
        ("TAGS = 'red' OR price > 3", [True, True, True]),
        ("NOT (TAGS = 'red' OR price > 3)", [False, False, True]),
        ("TAGS <> 'red' AND price > 3", [False, False, True]),
        ("TAGS IS NULL AND price > 3 AND size > 1", [True, False, False]),
        ("TAGS IN ('red')", [False, True, False]),
        ("TAGS > 1", [False, False, False]),
        ("TAGS = price", [True, True, True]),
    ],
)
def test_sql_refuses_rows_by_their_tag(expression: str, possible: list[bool]) -> None:
    wanted = sql_filter(expression)
    assert wanted.columns == ("tag",)
    assert wanted.may_match({"tag": np.array([0, 1, 2, 1])}, TAGS).tolist() == [*possible, possible[1]]


def test_sql_without_tags_wants_no_column() -> None:
    wanted = sql_filter("price > 3")
    assert wanted.columns == ()
    assert wanted.may_match({"size": np.array([1, 2])}, TAGS).tolist() == [True, True]


@pytest.mark.parametrize(
    ("expression", "position", "said"),
    [
        ("a > 'x'", 5, "compares numbers only"),
        ("a BETWEEN 'a' AND 'b'", 11, "compares numbers only"),
        ("a BETWEEN 3 AND 1", 11, "not in order"),
        ("a = NULL", 5, "IS NULL"),
        ("TRUE = 1", 1, "truth value"),
        ("1 IN ('x')", 1, "needs a property"),
        ("a = 1 AND 'x'", 11, "needs a condition"),
        ("a = 0.0", 5, "write 0 for zero"),
        ("a = 9223372036854775808", 5, "beyond 64 bits"),
        ("a == 1", 4, "equality is one ="),
        ("a != 1", 3, "the operators are <>"),
        ("a = 'x", 5, "close the string"),
        ('a = "x"', 5, "strings single ones"),
        ("a = 1 AND", 10, "ends too early"),
        ("a NOT LIKE 'x'", 7, "cannot go on"),
        ("NOT " * 200 + "a", 409, "nested too deeply"),
        ("", None, "needs an expression"),
        ("a = '" + "x" * 70_000 + "'", None, "too long"),
    ],
)
def test_what_rocketmq_refuses_is_refused_with_place_and_remedy(
    expression: str, position: int | None, said: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        sql_filter(expression)
    assert said in str(refusal.value)
    assert refusal.value.hint
    if position is not None:
        assert refusal.value.fields["position"] == position


def test_text_behind_a_condition_is_left_out_as_rocketmq_does_unless_told() -> None:
    assert sql_filter("a = 1 b = 2").matches({"a": "1"})
    with pytest.raises(Invalid) as refusal:
        sql_filter("a = 1 b = 2", whole=True)
    assert refusal.value.fields["position"] == 7
    assert sql_filter("a = 1 /* done */ ", whole=True).matches({"a": "1"})


def test_long_chains_are_one_level() -> None:
    chain = " OR ".join(f"a = '{n}'" for n in range(3000))
    assert sql_filter(chain).matches({"a": "2999"})
    assert not sql_filter("(" * 3000 + "a = '1'" + ")" * 3000).matches({})


def test_an_expression_is_compiled_once() -> None:
    assert sql_filter("once > 1") is sql_filter("once > 1")


def test_subscriptions_name_the_type() -> None:
    assert row_filter("*", "TAG") is None
    assert row_filter(None, None) is None
    assert isinstance(row_filter("a", ""), TagFilter)
    found = row_filter("a > 1", "SQL92")
    assert found is not None
    assert found.accepts(record(a="2"))
    for expression, kind in (("a", "CLASS"), ("", "SQL92")):
        with pytest.raises(Invalid):
            row_filter(expression, kind)
