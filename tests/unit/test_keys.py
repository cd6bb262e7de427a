"""Object keys: fixed spellings, limits, and what is refused."""

from __future__ import annotations

from uuid import UUID

import pytest

from tiered.archive.keys import (
    ArchiveKeys,
    Area,
    CheckpointKey,
    CommitKey,
    IdentityKey,
    ObjectKey,
    ProbeKey,
    RepairKey,
    build,
    decode_name,
    encode_name,
    parse,
    split_key,
)
from tiered.errors import Invalid

ID = UUID("00112233-4455-6677-8899-aabbccddeeff").bytes
UUID_TEXT = "00112233-4455-6677-8899-aabbccddeeff"


@pytest.mark.parametrize(
    ("identity", "path"),
    [
        (IdentityKey(), "archive.json"),
        (CommitKey(0), "commit/00000000000000/00000000000000000000"),
        (CommitKey(31_500_007), "commit/00000000000031/00000000000031500007"),
        (CheckpointKey(12), "checkpoint/00000000000000000012"),
        (ObjectKey(Area.DATA, 3, ID), f"data/0000000003-{UUID_TEXT}"),
        (ObjectKey(Area.SEGMENT, 3, ID), f"segment/0000000003-{UUID_TEXT}"),
        (ObjectKey(Area.SHARD, 3, ID), f"shard/0000000003-{UUID_TEXT}"),
        (ObjectKey(Area.CONFIG, 10**10 - 1, ID), f"config/9999999999-{UUID_TEXT}"),
        (ProbeKey(ID), f"probe/{UUID_TEXT}"),
        (RepairKey(7, ID), f"repair/00000000000000000007-{UUID_TEXT}"),
    ],
)
def test_spelling(identity: object, path: str) -> None:
    assert build(identity) == path  # type: ignore[arg-type]
    assert parse(path) == identity
    assert all(0 < len(segment) <= 100 for segment in path.split("/"))


def test_keys_of_a_broker() -> None:
    keys = ArchiveKeys("Default Cluster", "broker-a")
    assert keys.identity == "Default%20Cluster/broker-a/archive.json"
    assert keys.commit(1_000_000) == "Default%20Cluster/broker-a/commit/00000000000001/00000000000001000000"
    assert keys.commit(5).startswith(keys.commit_prefix)
    assert keys.checkpoint(5).startswith(keys.checkpoint_prefix)
    assert keys.data(1, ID).startswith(keys.prefix(Area.DATA))
    assert keys.path(keys.data(1, ID)) == f"data/0000000001-{UUID_TEXT}"
    assert keys.key(f"data/0000000001-{UUID_TEXT}") == keys.data(1, ID)
    assert keys.path("other/broker-a/archive.json") is None
    made = [keys.segment(1, ID), keys.shard(1, ID), keys.config(1, ID), keys.probe(ID), keys.identity]
    for key in made:
        split = split_key(key)
        assert split is not None
        assert split[:2] == ("Default Cluster", "broker-a")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "archive.json/",
        "commit/00000000000001/00000000000000000000",
        "commit/0/0",
        "commit/00000000000000/99999999999999999999",
        "commit/09223372036855/09223372036854775808",
        "checkpoint/09223372036854775808",
        "commit/00000000000000/0000000000000000000٣",
        "commit/00000000000000/00000000000000000000\n",
        f"data/0000000001-{UUID_TEXT.upper()}",
        f"data/1-{UUID_TEXT}",
        f"topic/0000000001-{UUID_TEXT}",
        f"probe/.{UUID_TEXT}",
        f"data//0000000001-{UUID_TEXT}",
    ],
)
def test_foreign_paths_are_not_parsed(path: str) -> None:
    assert parse(path) is None


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("broker-a", "broker-a"),
        ("..", "%2E."),
        (".", "%2E"),
        ("a/b", "a%2Fb"),
        ("a%2Fb", "a%252Fb"),
        ("é~", "%C3%A9%7E"),
    ],
)
def test_names(name: str, segment: str) -> None:
    assert encode_name(name) == segment
    assert decode_name(segment) == name


@pytest.mark.parametrize("segment", ["", ".", "..", "a b", "%41", "%c3%a9", "%C3", "%", "~", "x" * 101])
def test_segments_that_are_never_built(segment: str) -> None:
    assert decode_name(segment) is None


@pytest.mark.parametrize("name", ["", "x" * 101, "é" * 17, "\ud800"])
def test_names_that_do_not_fit(name: str) -> None:
    with pytest.raises(Invalid):
        encode_name(name)


@pytest.mark.parametrize(
    "identity",
    [
        CommitKey(-1),
        CommitKey(2**63),
        CheckpointKey(-1),
        ObjectKey(Area.DATA, 10**10, ID),
        ObjectKey(Area.DATA, 1, b"x"),
    ],
)
def test_numbers_out_of_range(identity: object) -> None:
    with pytest.raises(Invalid):
        build(identity)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "key", ["archive.json", "a/b", "a b/c/archive.json", "a/b/nothing", "a//archive.json"]
)
def test_split_of_foreign_keys(key: str) -> None:
    assert split_key(key) is None
