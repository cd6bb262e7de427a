"""Requests of the key-value view on the remoting protocol: fields as typed values, rows of a list."""

from __future__ import annotations

from base64 import b64encode

import pytest

from tiered.codec.remoting.keyvalue import (
    MOST_LISTED,
    KeyValueAnswer,
    KeyValueCode,
    KeyValueFields,
    ListedEntry,
    encoded,
    pack_keys,
    pack_listed,
    unpack_keys,
    unpack_listed,
)
from tiered.errors import Corrupt, Invalid

DIGEST = bytes(range(32))
ENTRIES = [
    ListedEntry(b"a", b"", 0, 1_700_000_000_000, None),
    ListedEntry(bytes(range(256)), b"x" * 1000, 2**62, 0, 1_800_000_000_000),
]


def test_fields_are_read() -> None:
    found = KeyValueFields.parse({
        "namespace": "ns", "key": encoded(b"\xff\0"), "token": "t", "latest": "true", "ifVersion": "7",
        "ifValue": b64encode(DIGEST).decode(), "ttlMs": "1000", "prefix": encoded(b"p"), "after": "", "count": "5",
        "maxStaleMs": "9", "keysOnly": "TRUE",
    })  # fmt: skip
    assert found == KeyValueFields("ns", b"\xff\0", "t", True, 9, False, 7, DIGEST, 1000, b"p", b"", 5, True)
    assert KeyValueFields.parse({"namespace": "ns"}) == KeyValueFields(
        "ns", b"", "", False, None, False, None, None, None, b"", None, MOST_LISTED, False
    )
    absent = KeyValueFields.parse({"namespace": "ns", "ifVersion": "-1"})
    assert (absent.absent, absent.if_version) == (True, None)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("namespace", ""), ("key", "a"), ("key", "YQ"), ("key", "Y Q=="), ("key", "\u00fc"), ("prefix", "_"), ("after", "*"),
        ("ifVersion", "-2"), ("ifVersion", "x"), ("ifVersion", str(2**63)), ("ifValue", "YQ=="), ("ttlMs", "soon"),
        ("maxStaleMs", "-1"), ("maxStaleMs", "1.5"),
        ("count", "0"), ("count", "1001"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(field: str, value: str) -> None:
    with pytest.raises(Invalid) as caught:
        KeyValueFields.parse({"namespace": "ns", field: value})
    assert caught.value.fields["field"] == field


def test_a_namespace_is_wanted() -> None:
    with pytest.raises(Invalid, match="missing"):
        KeyValueFields.parse({})


def test_rows_of_a_list_come_as_they_were() -> None:
    body = b"".join(pack_listed(ENTRIES))
    assert list(unpack_listed(body)) == ENTRIES
    assert list(unpack_listed(b"")) == []


def test_a_list_that_is_cut_is_said_to_be() -> None:
    body = b"".join(pack_listed(ENTRIES[1:]))
    for size in range(1, len(body)):
        with pytest.raises(Corrupt):
            list(unpack_listed(body[:size]))


def test_keys_of_a_body_come_as_they_were() -> None:
    keys = [b"a", bytes(range(256)), b"", b"k" * 5000]
    assert unpack_keys(pack_keys(keys)) == keys
    assert unpack_keys(pack_keys([b"k"] * MOST_LISTED)) == [b"k"] * MOST_LISTED
    body = pack_keys(keys[:2])
    for size in (size for size in range(len(body)) if size != len(pack_keys(keys[:1]))):
        with pytest.raises(Invalid):
            unpack_keys(body[:size])
    with pytest.raises(Invalid, match="so many"):
        unpack_keys(pack_keys([b"k"] * (MOST_LISTED + 1)))
    with pytest.raises(Invalid, match="not a list"):
        unpack_keys(b"\xff\xff\xff\xff" + b"k" * 100)


def test_codes_fit_a_binary_header_and_are_nobody_elses() -> None:
    codes = [*KeyValueCode, *KeyValueAnswer]
    assert all(30_000 < code < 32_768 for code in codes)
    assert len(set(codes)) == len(codes)
