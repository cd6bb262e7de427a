"""Object keys: fixed spellings, limits, and what is refused."""

from __future__ import annotations

from datetime import date
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
    SegmentKey,
    build,
    parse,
    segment_key,
    split_key,
)
from tiered.archive.names import decode_name, encode_name, topic_folder
from tiered.errors import Invalid

ID = UUID("00112233-4455-6677-8899-aabbccddeeff").bytes
UUID_TEXT = "00112233-4455-6677-8899-aabbccddeeff"
DAY = date(2024, 2, 29)


@pytest.mark.parametrize(
    ("identity", "path"),
    [
        (IdentityKey(), "archive.json"),
        (CommitKey(0), "commit/00000000000000/00000000000000000000"),
        (CommitKey(31_500_007), "commit/00000000000031/00000000000031500007"),
        (CheckpointKey(12), "checkpoint/00000000000000000012"),
        (ObjectKey(Area.DATA, 3, ID), f"data/0000000003-{UUID_TEXT}"),
        (
            segment_key("Orders", DAY, 3, ID),
            f"segment/topic=Orders/day=2024-02-29/0000000003-{UUID_TEXT}.parquet",
        ),
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
    made = [
        keys.segment("%RETRY%g/1", DAY, 1, ID),
        keys.shard(1, ID),
        keys.config(1, ID),
        keys.probe(ID),
        keys.identity,
    ]
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
        f"other/0123456789abcdef/00000000000000000001-0000000001-{UUID_TEXT}",
        f"data//0000000001-{UUID_TEXT}",
        f"segment/0000000001-{UUID_TEXT}",
        f"segment/topic=a/day=2024-02-30/0000000001-{UUID_TEXT}.parquet",
        f"segment/topic=a/day=2024-2-28/0000000001-{UUID_TEXT}.parquet",
        f"segment/topic=a/day=2024-02-28/0000000001-{UUID_TEXT}",
        f"segment/topic=a/0000000001-{UUID_TEXT}.parquet",
        f"segment/topic=/day=2024-02-28/0000000001-{UUID_TEXT}.parquet",
        f"segment/topic=a b/day=2024-02-28/0000000001-{UUID_TEXT}.parquet",
        f"segment/topic=../day=2024-02-28/0000000001-{UUID_TEXT}.parquet",
        f"segment/topic=~abc/day=2024-02-28/0000000001-{UUID_TEXT}.parquet",
        f"segment/topic={'a' * 81}/day=2024-02-28/0000000001-{UUID_TEXT}.parquet",
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
        ObjectKey(Area.SEGMENT, 1, ID),
        segment_key("a", DAY, 10**10, ID),
        segment_key("a", DAY, 1, b"x"),
        SegmentKey(Area.DATA, 1, ID, "a", DAY),
        SegmentKey(Area.SEGMENT, 1, ID, "a/b", DAY),
        SegmentKey(Area.SEGMENT, 1, ID, "a" * 81, DAY),
    ],
)
def test_numbers_out_of_range(identity: object) -> None:
    with pytest.raises(Invalid):
        build(identity)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("topic", "folder"),
    [
        ("Orders", "Orders"),
        ("%RETRY%group", "%25RETRY%25group"),
        ("a/b=c", "a%2Fb%3Dc"),
        (".hidden", "%2Ehidden"),
        ("..", "%2E."),
        ("~0123456789abcdef", "%7E0123456789abcdef"),
        ("ü" * 13, "%C3%BC" * 13),
        ("x" * 80, "x" * 80),
        ("x" * 81, "~25c4d810c78836d1"),
        ("ü" * 14, "~eacb490e236a6182"),
        ("", "~2d06800538d394c2"),
    ],
)
def test_folders_of_topics(topic: str, folder: str) -> None:
    assert topic_folder(topic) == folder
    path = build(segment_key(topic, DAY, 1, ID))
    assert parse(path) == segment_key(topic, DAY, 1, ID)
    assert all(0 < len(part) <= 100 for part in path.split("/"))


@pytest.mark.parametrize(
    "key", ["archive.json", "a/b", "a b/c/archive.json", "a/b/nothing", "a//archive.json"]
)
def test_split_of_foreign_keys(key: str) -> None:
    assert split_key(key) is None
