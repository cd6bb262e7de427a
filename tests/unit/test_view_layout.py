"""Keys and values of the view's store, against bytes written down here."""

from __future__ import annotations

import pytest

from tiered.errors import Corrupt
from tiered.keyvalue import MAX_KEY_BYTES, MAX_NAMESPACE_CHARACTERS, Entry
from tiered.view.layout import (
    HEAD,
    entries_prefix,
    entry_key,
    entry_of,
    entry_value,
    namespace_key,
    split_entry_key,
    split_namespace_key,
)


def test_the_bytes_are_those_of_the_document() -> None:
    assert entry_key("ab", b"k\0") == b"e\x02abk\0"
    assert namespace_key("ab") == b"nab"
    held = b"\x01\x02" + bytes(6) + b"\x03" + bytes(7) + bytes(8) + b"body"
    assert entry_value(0x201, 3, None, b"body") == held
    assert entry_of(b"k", held) == Entry(b"k", b"body", 0x201, 3)
    assert entry_of(b"k", entry_value(1, 2, 9, b"")) == Entry(b"k", b"", 1, 2, 9)


@pytest.mark.parametrize("namespace", ["a", "ab", "x" * MAX_NAMESPACE_CHARACTERS])
@pytest.mark.parametrize("key", [b"\0", b"\xff" * MAX_KEY_BYTES, b"e\x02ab"])
def test_a_key_is_split_as_it_was_made(namespace: str, key: bytes) -> None:
    assert split_entry_key(entry_key(namespace, key)) == (namespace, key)
    assert split_namespace_key(namespace_key(namespace)) == namespace


def test_entries_of_a_namespace_are_not_anothers() -> None:
    """One whose name begins like another's, with a key that goes on like its name."""
    assert entry_key("a", b"bkey").startswith(entries_prefix("a"))
    assert not entry_key("ab", b"key").startswith(entries_prefix("a"))


@pytest.mark.parametrize("stored", [b"", b"e", b"e\0k", b"e\x02ab", b"e\x05ab", b"e\x01\xffk", b"nab"])
def test_what_is_no_entry_key_is_damage(stored: bytes) -> None:
    with pytest.raises(Corrupt, match="not the key of an entry"):
        split_entry_key(stored)


@pytest.mark.parametrize("stored", [b"", b"n", b"n\xff", b"e\x01ak"])
def test_what_is_no_namespace_key_is_damage(stored: bytes) -> None:
    with pytest.raises(Corrupt, match="not the key of a namespace"):
        split_namespace_key(stored)


def test_a_value_without_its_head_is_damage() -> None:
    with pytest.raises(Corrupt, match="not the value of an entry"):
        entry_of(b"k", bytes(HEAD.size - 1))
