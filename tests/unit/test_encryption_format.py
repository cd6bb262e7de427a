"""Encrypted bytes: every range comes back, every changed byte and every wrong place is found (FORMAT.md, "Encryption")."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.assemble import KEYS
from tests.kit.encryption import KEY, OTHER_KEY, encrypting, wrapping
from tests.kit.encryption_golden import ARCHIVE_ID, DIRECTORY, EPOCH, OBJECT_ID, PLAIN, files, seeded
from tiered.archive.encryption.datakeys import DataKeys, decode_wrapped_key, read_wrapped_key, unwrap_key
from tiered.archive.keys import DATAKEY_PREFIX
from tiered.clock import ManualClock
from tiered.codec.format.encryption import (
    CHUNK_BYTES,
    OBJECT_FOOTER_BYTES,
    DataKey,
    ObjectCipher,
    cipher_length,
    encrypted_footer,
    plain_length,
)
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Refused
from tiered.provider.memory import MemoryProvider

DATA_KEY = DataKey(b"k" * 15, 3, ARCHIVE_ID, b"secret" + bytes(26))
PATH = "data/0000000003-6f626a65-6374-2d69-6421-000000000000"


def cipher(path: str = PATH, salt: bytes = b"salt" * 4, key: DataKey = DATA_KEY) -> ObjectCipher:
    return ObjectCipher(key, path, salt)


def encrypted(data: bytes, of: ObjectCipher) -> bytes:
    return b"".join(of.encrypt([data]))


@given(st.integers(1, 3 * CHUNK_BYTES), st.lists(st.integers(0, 3 * CHUNK_BYTES), max_size=6))
def test_what_is_encrypted_comes_back_however_it_was_given(length: int, cuts: list[int]) -> None:
    data = random.Random(length).randbytes(length)
    edges = [0, *sorted(min(cut, length) for cut in cuts), length]
    parts = [data[a:b] for a, b in pairwise(edges)]
    stored = b"".join(cipher().encrypt(parts))
    assert stored == encrypted(data, cipher()), "the cuts leave no trace"
    assert len(stored) == cipher_length(length) + OBJECT_FOOTER_BYTES
    assert plain_length(cipher_length(length)) == length
    assert cipher().decrypt(stored[:-OBJECT_FOOTER_BYTES], 0, key="k") == data
    assert data[:64] not in stored or length < 8


@given(st.integers(0, 1 << 40))
def test_a_length_that_no_ciphertext_has(length: int) -> None:
    try:
        assert cipher_length(plain_length(length)) == length
    except Corrupt:
        assert length == 0 or 0 < length % (CHUNK_BYTES + 16) <= 16


def test_every_changed_byte_is_found() -> None:
    stored = encrypted(b"x" * 300, cipher())
    for at in range(len(stored)):
        changed = bytearray(stored)
        changed[at] ^= 1 << at % 8
        assert found(bytes(changed)), f"byte {at} of {len(stored)}"
    assert not found(stored)


def found(stored: bytes) -> bool:
    try:
        footer = encrypted_footer(stored, footer_bytes=OBJECT_FOOTER_BYTES, key="k")
        if footer is None:
            return True
        cipher().check_footer(footer, key="k")
        cipher().decrypt(stored[:-OBJECT_FOOTER_BYTES], 0, key="k")
    except (Corrupt, Refused):
        return True
    return False


def test_chunks_that_changed_places() -> None:
    data = random.Random(1).randbytes(3 * CHUNK_BYTES)
    stored = encrypted(data, cipher())
    step = CHUNK_BYTES + 16
    swapped = stored[step : 2 * step] + stored[:step]
    with pytest.raises(Corrupt, match="not what was written here") as error:
        cipher().decrypt(swapped, 0, key="some/key")
    assert (error.value.fields["key"], error.value.fields["position"]) == ("some/key", 0)
    with pytest.raises(Corrupt):
        cipher().decrypt(stored[:step], 1, key="k")
    assert cipher().decrypt(stored[step : 2 * step], 1, key="k") == data[CHUNK_BYTES : 2 * CHUNK_BYTES]


@pytest.mark.parametrize(
    "other",
    [
        cipher(path=PATH[:-1] + "1"),
        cipher(salt=b"SALT" * 4),
        cipher(key=replace(DATA_KEY, archive_id=b"another archive!")),
        cipher(key=replace(DATA_KEY, secret=b"Secret" + bytes(26))),
    ],
    ids=["object", "salt", "archive", "key"],
)
def test_what_was_moved_to_another_place(other: ObjectCipher) -> None:
    stored = encrypted(b"some bytes", cipher())
    with pytest.raises(Corrupt):
        other.decrypt(stored[:-OBJECT_FOOTER_BYTES], 0, key="k")
    footer = encrypted_footer(stored, footer_bytes=OBJECT_FOOTER_BYTES, key="k")
    assert footer is not None
    with pytest.raises(Corrupt):
        other.check_footer(footer, key="k")


def test_no_key_is_in_a_repr() -> None:
    assert "secret" not in repr(DATA_KEY)
    assert b"secret".hex() not in repr(DATA_KEY)


# ---- golden files


def test_golden_files_are_written_like_this() -> None:
    """Same keys and same chance, same bytes."""
    for name, data in files().items():
        assert (DIRECTORY / name).read_bytes() == data, name


def test_golden_files_are_read() -> None:
    plain = json.loads(PLAIN.read_text())
    inner = MemoryProvider("", ManualClock())
    for name, data in ((name, (DIRECTORY / name).read_bytes()) for name in plain["keys"]):
        inner.put(plain["keys"][name], [data])
    provider = encrypting(inner)
    for name in ("data.bin", "commit.bin", "manifest.bin"):
        assert digest(provider.get(plain["keys"][name]).data) == plain["sha256"][name], name


def test_a_data_key_that_was_changed_or_moved() -> None:
    path = json.loads(PLAIN.read_text())["keys"]["datakey.json"].removeprefix(KEYS.root)
    data = (DIRECTORY / "datakey.json").read_bytes()
    assert unwrap_key(decode_wrapped_key(data, path, "k"), wrapping()).epoch == EPOCH
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(Corrupt):
            decode_wrapped_key(bytes(changed), path, "k")
    with pytest.raises(Corrupt, match="another's key"):
        decode_wrapped_key(data, path.replace(f"{EPOCH:010d}", "0000000004"), "k")
    with pytest.raises(Refused, match="another key"):
        unwrap_key(decode_wrapped_key(data, path, "k"), wrapping(OTHER_KEY))
    for changes in ({"archive_id": b"another archive!"}, {"epoch": 4}, {"key_id": b"j" * 15}):
        with pytest.raises(Refused, match="not what was wrapped"):
            unwrap_key(replace(decode_wrapped_key(data, path, "k"), **changes), wrapping())
    assert KEY not in data.decode()


def test_a_data_key_has_any_number_of_wrappings() -> None:
    """Rotation: the newest key comes first in the text, and wraps the data keys of older epochs again."""
    inner = MemoryProvider("", ManualClock())
    seeded(inner)
    both = DataKeys(inner, KEYS.root, wrapping(f"{OTHER_KEY}\n{KEY}"))
    before = both.sole(EPOCH)
    made = both.wrap_again(random.Random(1).randbytes)
    assert [w.epoch for w in made] == [EPOCH]
    assert both.wrap_again(random.Random(2).randbytes) == []
    for text in (KEY, OTHER_KEY):
        alone = DataKeys(inner, KEYS.root, wrapping(text))
        assert alone.sole(EPOCH) == before, "what the old key wrapped can still be unwrapped by it"
    told = json.loads(PLAIN.read_text())["sha256"]["data.bin"]
    assert digest(encrypting(inner, OTHER_KEY).get(KEYS.data(EPOCH, OBJECT_ID)).data) == told


def test_one_damaged_wrapping_costs_nothing_that_another_opens() -> None:
    inner = MemoryProvider("", ManualClock())
    seeded(inner)
    (old,) = [stored.key for stored in inner.list(KEYS.root + DATAKEY_PREFIX)]
    (made,) = DataKeys(inner, KEYS.root, wrapping(f"{OTHER_KEY}\n{KEY}")).wrap_again(
        random.Random(1).randbytes
    )
    told = json.loads(PLAIN.read_text())["sha256"]["data.bin"]
    for key, text in ((old, OTHER_KEY), (KEYS.root + made.path, KEY)):
        sound = bytes(inner.get(key).data)
        inner.put(key, [b"!" + sound[1:]], create_only=False)
        assert digest(encrypting(inner, text).get(KEYS.data(EPOCH, OBJECT_ID)).data) == told
        assert DataKeys(inner, KEYS.root, wrapping(text)).newest() is not None
        inner.put(key, [sound], create_only=False)
    for key in (old, KEYS.root + made.path):
        inner.put(key, [b"!" + bytes(inner.get(key).data)[1:]], create_only=False)
    with pytest.raises(Corrupt, match="a data key of the archive is not one"):
        encrypting(inner).get(KEYS.data(EPOCH, OBJECT_ID))


def test_a_damaged_wrapping_keeps_no_other_key_from_being_wrapped_again() -> None:
    inner = MemoryProvider("", ManualClock())
    seeded(inner)
    DataKeys(inner, KEYS.root, wrapping()).make(EPOCH + 1, ARCHIVE_ID, random.Random(3).randbytes)
    damaged = min(stored.key for stored in inner.list(KEYS.root + DATAKEY_PREFIX))
    inner.put(damaged, [b"!" + bytes(inner.get(damaged).data)[1:]], create_only=False)
    both = DataKeys(inner, KEYS.root, wrapping(f"{OTHER_KEY}\n{KEY}"))
    with pytest.raises(Corrupt, match="a data key of the archive is not one"):
        both.wrap_again(random.Random(1).randbytes)
    assert DataKeys(inner, KEYS.root, wrapping(OTHER_KEY)).sole(EPOCH + 1) is not None


def test_of_two_data_keys_of_an_epoch_the_damaged_one_is_named_where_it_is_asked_for() -> None:
    inner = MemoryProvider("", ManualClock())
    seeded(inner)
    before = DataKeys(inner, KEYS.root, wrapping()).sole(EPOCH)
    assert before is not None
    again = DataKeys(inner, KEYS.root, wrapping())
    again.make(EPOCH, before.archive_id, random.Random(3).randbytes)
    made = again.newest()
    assert made is not None
    (damaged,) = [
        stored.key for stored in inner.list(KEYS.root + DATAKEY_PREFIX)
        if read_wrapped_key(inner, stored.key.removeprefix(KEYS.root), stored.key).key_id == made.key_id
    ]  # fmt: skip
    inner.put(damaged, [b"!" + bytes(inner.get(damaged).data)[1:]], create_only=False)
    keys = DataKeys(inner, KEYS.root, wrapping())
    assert keys.sole(EPOCH) is None, "which of them made an object its footer says"
    assert keys.of_footer(EPOCH, before.key_id) == before
    with pytest.raises(Corrupt, match="a data key of the archive is not one"):
        keys.of_footer(EPOCH, made.key_id)


def digest(data: Buffer) -> str:
    return hashlib.sha256(data).hexdigest()
