"""Bodies that are nearly JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.codec.remoting.lenientjson import decode_json
from tiered.errors import Corrupt

KEYS = st.one_of(st.integers(-(1 << 63), 1 << 63).map(str), st.text(max_size=12))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text('{}[],:"\\ 012a', max_size=20)),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=20,
)


def nearly(value: object) -> str:
    """As fastjson writes it: keys that are numbers without quotes."""
    if isinstance(value, dict):
        parts = (f"{_key(k)}:{nearly(v)}" for k, v in value.items())
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(nearly, value)) + "]"
    return json.dumps(value)


def _key(key: str) -> str:
    bare = key.isascii() and (key.isdigit() or (key[:1] == "-" and key[1:].isdigit()))
    return key if bare else json.dumps(key)


@given(VALUES)
def test_bare_numbers_are_keys_and_strings_stay_as_they_are(value: object) -> None:
    assert decode_json(nearly(value).encode()) == value


def test_what_looks_like_a_key_inside_a_string() -> None:
    assert decode_json(b'{"a":"x IN {1:2}",0:"{ 3 : 4}\\"{5:6}"}') == {
        "a": "x IN {1:2}",
        "0": '{ 3 : 4}"{5:6}',
    }
    assert decode_json(memoryview(b"{ -1 : [{7:8}] }")) == {"-1": [{"7": 8}]}


@pytest.mark.parametrize(
    "body", [b"", b"{]", b'{"a', b'{"a":{0:1}', b"[" * 100_000, b"\xff", b'"' + b"\\a" * 50_000]
)
def test_what_is_not_even_that(body: bytes) -> None:
    with pytest.raises(Corrupt, match="not JSON"):
        decode_json(body)


def test_a_string_that_never_ends_is_looked_at_once() -> None:
    """One attempt at each of its quotes would take minutes, on the gateway's event loop."""
    with pytest.raises(Corrupt, match="not JSON"):
        decode_json(b'{"a":"' + b'\\"' * 200_000)
