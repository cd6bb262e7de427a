"""Every damage that an operator may meet says what to do about it."""

from __future__ import annotations

import pytest

from tiered.archive.log.identity import decode_identity
from tiered.codec.format.commit import decode_commit
from tiered.codec.format.object import decode_footer
from tiered.codec.record.message import decode_message
from tiered.errors import Corrupt, Fenced, Invalid, TieredError, exit_code

ROOT = "DefaultCluster/broker-a"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"key": f"{ROOT}/data/0000000001-x"}, ("tiered verify --deep", "restore this key")),
        ({"key": f"{ROOT}/segment/0000000001-x"}, ("tiered verify --deep", "restore this key")),
        (
            {"key": f"{ROOT}/commit/00000000000000/00000000000000000007"},
            ("tiered repair", "restore this key", "--as-of 6"),
        ),
        ({"key": f"{ROOT}/archive.json"}, ("restore this key", "tiered verify")),
        ({"key": f"{ROOT}/checkpoint/00000000000000000007"}, ("tiered verify", "older")),
        ({"key": f"{ROOT}/shard/0000000001-x"}, ("tiered verify", "older")),
        ({"rule": "r", "commit": 7}, ("tiered verify", "--as-of 6", "state.directory")),
        ({"position": 5}, ("tiered verify --deep", "source.store_dir")),
    ],
)
def test_damage_names_a_way_out_by_where_it_lies(fields: dict[str, object], words: tuple[str, ...]) -> None:
    hint = Corrupt("x", **fields).hint
    assert hint is not None
    assert all(word in hint for word in words), hint


def test_a_hint_of_its_own_wins() -> None:
    assert Corrupt("x", hint="do y", key="k").hint == "do y"
    assert str(Corrupt("x", hint="do y", key="k")) == "x (key=k) → do y"
    assert Invalid("x").hint is None
    assert TieredError("x", key="k").hint is None


@pytest.mark.parametrize(
    "decode",
    [
        lambda key: decode_identity(b"?", key),
        lambda key: decode_commit(b"?" * 600, key=key),
        lambda key: decode_footer(b"?" * 600, object_length=600, key=key),
        lambda key: decode_message(b"?" * 200),
    ],
)
def test_decoders_need_not_know(decode: object) -> None:
    with pytest.raises(Corrupt) as caught:
        decode(f"{ROOT}/data/0000000001-x")  # type: ignore[operator]
    assert "tiered verify" in str(caught.value.hint)


def test_exit_codes() -> None:
    assert exit_code(Fenced("x")) == 7
    assert exit_code(KeyboardInterrupt()) == 130
    assert exit_code(ValueError("x")) == 70
