"""JSON headers: the quick way beside the slow one, which alone would do."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tiered.codec.remoting import frame
from tiered.codec.remoting.frame import JSON_HEADER, Command, decode_header
from tiered.errors import Corrupt

NAMES = st.sampled_from(
    ["code", "opaque", "flag", "remark", "extFields", "version", "language", "serializeTypeCurrentRPC", "x"]
)
NUMBERS = st.one_of(
    st.integers(-(1 << 31) - 2, (1 << 31) + 1), st.integers(), st.floats(allow_nan=True, allow_infinity=True)
)
TEXTS = st.one_of(st.sampled_from(["JAVA", "GO", "NOBODY", "FOUND", ""]), st.text(max_size=8))
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS)
FIELDS = st.one_of(
    st.dictionaries(st.text(max_size=6), TEXTS, max_size=5),
    st.dictionaries(st.text(max_size=6), st.one_of(PLAIN, st.lists(PLAIN, max_size=2)), max_size=4),
)
PAIRS = st.lists(st.tuples(NAMES, st.one_of(PLAIN, FIELDS)), max_size=9)
"""Names may come twice."""


def written(pairs: list[tuple[str, object]], ascii_only: bool, blank: str) -> bytes:
    parts = [
        f"{json.dumps(name)}:{blank}{json.dumps(value, ensure_ascii=ascii_only)}" for name, value in pairs
    ]
    return ("{" + f",{blank}".join(parts) + "}").encode("utf-8", "surrogatepass")


def outcome(header: bytes) -> Command | str:
    try:
        return decode_header(header, JSON_HEADER)
    except Corrupt as error:
        return str(error)


def slowly(header: bytes) -> Command | str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(frame, "_decode_usual", _never)
        return outcome(header)


def _never(text: str) -> None:
    raise ValueError(text)


@given(PAIRS, st.booleans(), st.sampled_from(["", " ", "\n\t"]))
@example([("code", 0), ("extFields", {"minOffset": "5"}), ("opaque", 7), ("remark", "FOUND")], True, "")
@example([("code", 1 << 31), ("opaque", 7)], True, "")
@example([("code", True)], True, "")
@example([("extFields", {"a": "\ud800"})], True, "")
@example([("language", None), ("remark", None), ("extFields", None)], True, "")
@example([("code", 1), ("code", 2), ("extFields", {"a": "1"}), ("extFields", {"b": "2"})], True, "")
def test_both_ways_give_the_same(pairs: list[tuple[str, object]], ascii_only: bool, blank: str) -> None:
    header = written(pairs, ascii_only, blank)
    assert outcome(header) == slowly(header)


@given(PAIRS, st.data())
def test_of_a_damaged_header_too(pairs: list[tuple[str, object]], data: st.DataObject) -> None:
    damaged = bytearray(written(pairs, True, ""))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] = data.draw(st.one_of(st.sampled_from(b'{}[]",:\\0e-'), st.integers(0, 255)))
    cut = bytes(damaged[: data.draw(st.integers(1, len(damaged)))])
    assert outcome(cut) == slowly(cut)


def test_what_java_writes_takes_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    header = (
        b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"3"},"flag":1,"language":"JAVA",'
        b'"opaque":2,"remark":"FOUND","serializeTypeCurrentRPC":"JSON","version":475}'
    )
    monkeypatch.setattr(frame, "_decode_unusual", _never)
    ext = {"suggestWhichBrokerId": "0", "nextBeginOffset": "3"}
    found = decode_header(header, JSON_HEADER)
    assert found == Command(0, opaque=2, flag=1, remark="FOUND", ext=ext, version=475)
