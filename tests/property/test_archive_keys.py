"""Object keys: build and parse are inverse, keys ascend with their numbers, nothing else is parsed."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from tiered.archive.keys import (
    ArchiveKeys,
    Area,
    BackfillKey,
    BeatKey,
    CheckpointKey,
    CommitKey,
    HoldKey,
    Identity,
    IdentityKey,
    KeyValueKey,
    LeaseKey,
    ObjectKey,
    PlacementKey,
    ProbeKey,
    RepairKey,
    SinkKey,
    TableKey,
    build,
    parse,
    segment_key,
    split_key,
)
from tiered.archive.names import decode_name, encode_name, topic_folder
from tiered.errors import Invalid

SEQ = st.integers(0, 2**63 - 1)
ID = st.binary(min_size=16, max_size=16)
IDENTITIES: st.SearchStrategy[Identity] = st.one_of(
    st.just(IdentityKey()),
    st.builds(CommitKey, SEQ),
    st.builds(CheckpointKey, SEQ),
    st.builds(
        ObjectKey,
        st.sampled_from([a for a in Area if a is not Area.SEGMENT]),
        st.integers(0, 10**10 - 1),
        ID,
    ),
    st.builds(
        segment_key,
        st.text(st.characters(codec="utf-8"), max_size=90),
        st.dates(),
        st.integers(0, 10**10 - 1),
        ID,
    ),
    st.builds(ProbeKey, ID),
    st.builds(HoldKey, ID, st.booleans()),
    st.builds(TableKey, ID, st.booleans()),
    st.builds(SinkKey, ID, st.booleans()),
    st.builds(BackfillKey, ID, st.booleans()),
    st.builds(RepairKey, SEQ, ID),
    st.builds(LeaseKey, st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), SEQ),
    st.builds(PlacementKey, SEQ),
    st.builds(BeatKey, st.integers(0, 10**10 - 1), SEQ, st.one_of(st.none(), ID)),
    st.builds(KeyValueKey, st.integers(0, 10**15 - 1), ID, st.one_of(st.none(), st.integers(0, 10**6 - 1))),
)
NAMES = st.text(min_size=1, max_size=12)


@given(IDENTITIES)
def test_round_trip(identity: Identity) -> None:
    path = build(identity)
    assert parse(path) == identity
    for segment in path.split("/"):
        assert segment not in ("", ".", "..")
        assert len(segment.encode()) <= 100


@given(NAMES, NAMES, IDENTITIES)
def test_round_trip_with_names(cluster: str, broker: str, identity: Identity) -> None:
    try:
        keys = ArchiveKeys(cluster, broker)
    except Invalid:
        assume(False)
    key = keys.key(build(identity))
    assert key.isascii()
    assert split_key(key) == (cluster, broker, identity)
    assert keys.path(key) == build(identity)
    for segment in key.split("/"):
        assert not segment.startswith(".")
        assert 0 < len(segment) <= 100


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.text(st.characters(codec="utf-8"), max_size=60))
def test_topics_do_not_share_folders(a: str, b: str) -> None:
    assert (topic_folder(a) == topic_folder(b)) == (a == b)


@given(SEQ, SEQ)
def test_order(a: int, b: int) -> None:
    assert (build(CommitKey(a)) < build(CommitKey(b))) == (a < b)
    assert (build(CheckpointKey(a)) < build(CheckpointKey(b))) == (a < b)
    assert (build(PlacementKey(a)) < build(PlacementKey(b))) == (a < b)
    assert (build(LeaseKey("n", a)) < build(LeaseKey("n", b))) == (a < b)


@given(
    st.one_of(
        st.text(max_size=80),
        IDENTITIES.map(build).flatmap(lambda p: st.sampled_from([p + "x", p[:-1], p.upper()])),
    )
)
def test_only_built_paths_are_parsed(path: str) -> None:
    identity = parse(path)
    if identity is not None:
        assert build(identity) == path


@given(st.text(max_size=30))
def test_only_encoded_names_are_decoded(segment: str) -> None:
    name = decode_name(segment)
    if name is not None:
        assert encode_name(name) == segment
