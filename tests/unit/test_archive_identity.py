"""``archive.json``, the list of archives, and the writer's local files."""

from __future__ import annotations

import errno
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, memory
from tiered import durable
from tiered.archive.keys import ArchiveKeys, ProbeKey, build
from tiered.archive.log.identity import ArchiveIdentity, decode_identity, ensure_identity, read_identity
from tiered.archive.log.localfiles import (
    check_fence,
    check_known_archive,
    ensure_directory,
    forget_fence,
    load_writer_id,
    record_fence,
    record_known_archive,
)
from tiered.archive.read.find import find_identity, list_archives
from tiered.archive.read.reader import ArchiveReader
from tiered.clock import ManualClock
from tiered.errors import Conflict, Corrupt, Fenced, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.provider.memory import MemoryProvider
from tiered.settings.keeping import Gc


def test_the_first_one_makes_the_identity_and_everybody_reads_it() -> None:
    store, chance = memory(), random.Random(1)
    made = ensure_identity(store, KEYS, 123, chance.randbytes)
    assert made.created_ms == 123
    assert len(made.archive_id) == 16
    assert ensure_identity(store, KEYS, 456, chance.randbytes) == made
    assert read_identity(store, KEYS) == made
    assert [key for verb, key in store.calls if verb == "put"] == [KEYS.identity]


def test_two_at_once_agree_on_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    store, chance = memory(), random.Random(1)
    theirs = ArchiveIdentity(b"T" * 16, KEYS.cluster, KEYS.broker, 1)
    store.put(KEYS.identity, [theirs.encode()])
    store.say(NotFound("not yet"))  # our look came before their put
    assert ensure_identity(store, KEYS, 2, chance.randbytes) == theirs
    monkeypatch.setattr(store, "list", lambda prefix: iter(()))
    store.say(NotFound("not yet"))  # and so did our look at the other keys
    assert ensure_identity(store, KEYS, 2, chance.randbytes) == theirs


def test_an_identity_that_is_lost_is_not_made_anew() -> None:
    """With another id no commit of the archive could be read. Whoever reads hears the same."""
    store, chance = memory(), random.Random(1)
    store.put(KEYS.key(build(ProbeKey(b"p" * 16))), [b"a probe comes before all others"])
    store.put(f"{KEYS.root}notes.txt", [b"somebody else's"])
    ensure_identity(store, KEYS, 1, chance.randbytes)
    store.put(KEYS.commit(0), [b"a commit"])
    store.delete(KEYS.identity)
    for look in (
        lambda: ensure_identity(store, KEYS, 1, chance.randbytes),
        lambda: find_identity(store, KEYS),
    ):
        with pytest.raises(Corrupt, match=r"archive.json is lost .*→ restore this key"):
            look()
    assert not [item for item in store.list("") if item.key == KEYS.identity]
    with pytest.raises(NotFound, match="there is no archive of this broker here"):
        find_identity(store, ArchiveKeys(KEYS.cluster, "other"))


def test_an_archive_of_another_broker_is_foreign() -> None:
    store = memory()
    store.put(KEYS.identity, [ArchiveIdentity(b"T" * 16, "Other", "broker-z", 1).encode()])
    with pytest.raises(Refused) as caught:
        ensure_identity(store, KEYS, 2, os.urandom)
    assert caught.value.fields["found"] == "Other/broker-z"
    assert "source.broker" in str(caught.value.hint)


GOOD = {"format": 1, "archive_id": "00" * 16, "cluster": "c", "broker": "b", "created_ms": 5}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"null",
        b"[]",
        b"7",
        b"[" * 100_000,
        b"{}",
        json.dumps({**GOOD, "archive_id": "zz"}).encode(),
        json.dumps({**GOOD, "archive_id": 5}).encode(),
        json.dumps({**GOOD, "archive_id": "00" * 15}).encode(),
        json.dumps({**GOOD, "created_ms": "soon"}).encode(),
        json.dumps({**GOOD, "created_ms": float("inf")}).encode(),
        json.dumps({**GOOD, "format": None}).encode(),
        json.dumps({k: v for k, v in GOOD.items() if k != "broker"}).encode(),
    ],
)
def test_anything_else_is_corrupt(data: bytes) -> None:
    with pytest.raises(Corrupt) as caught:
        decode_identity(data, "k/archive.json")
    assert caught.value.fields["key"] == "k/archive.json"


def test_a_newer_format_is_refused() -> None:
    assert decode_identity(json.dumps(GOOD).encode(), "k").broker == "b"
    with pytest.raises(Refused, match="newer program") as caught:
        decode_identity(json.dumps({**GOOD, "format": 99}).encode(), "k")
    assert caught.value.fields["found"] == 99


MADE = ArchiveIdentity(bytes(range(16)), "DefaultCluster", 'bröker "crc32c": "00000000"', 1_700_000_000_123)


def test_its_bytes() -> None:
    """They are promised for ever (FORMAT.md)."""
    data = ArchiveIdentity(bytes(range(16)), "DefaultCluster", "broker-a", 1_700_000_000_123).encode()
    assert data == (
        b'{"archive_id": "000102030405060708090a0b0c0d0e0f", "broker": "broker-a", "cluster": "DefaultCluster", '
        b'"crc32c": "b5bf2680", "created_ms": 1700000000123, "format": 1}\n'
    )


def test_new_archives_are_collected_by_default_and_older_ones_when_a_setting_says_so() -> None:
    made = ensure_identity(memory(), KEYS, 1, lambda n: bytes(n))
    assert decode_identity(made.encode(), "k").collected
    assert not decode_identity(replace(made, collected=False).encode(), "k").collected
    off = [
        [Gc(word).off(collected=new) is not None for new in (True, False)]
        for word in ("new", "true", "false")
    ]
    assert off == [[False, True], [False, False], [True, True]]
    with pytest.raises(Refused, match="newer program"):
        decode_identity(json.dumps({**GOOD, "format": 3}).encode(), "k")


@pytest.mark.parametrize("collected", [False, True])
def test_every_flipped_bit_and_every_cut_is_damage(*, collected: bool) -> None:
    """created_ms included, which nothing else could check."""
    made = replace(MADE, collected=collected)
    data = made.encode()
    assert decode_identity(data, "k") == made
    for position in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[position] ^= 1 << bit
            with pytest.raises(Corrupt):
                decode_identity(bytes(flipped), "k")
        with pytest.raises(Corrupt):
            decode_identity(data[:position], "k")


def test_archives_from_before_the_checksum_are_read() -> None:
    old = {
        "format": 1, "archive_id": MADE.archive_id.hex(), "cluster": MADE.cluster, "broker": MADE.broker,
        "created_ms": MADE.created_ms,
    }  # fmt: skip
    assert decode_identity(json.dumps(old, sort_keys=True).encode() + b"\n", "k") == MADE
    with pytest.raises(Corrupt, match="unknown fields"):
        decode_identity(json.dumps({**old, "crc33c": "00000000"}).encode(), "k")


def test_what_archives_lie_under_a_root() -> None:
    store = memory()
    assert list_archives(store) == []
    for cluster, broker in (("c1", "b1"), ("c1", "b2"), ("c 2", "b/1"), ("z", "z")):
        keys = ArchiveKeys(cluster, broker)
        store.put(keys.identity, [b"x"])
        for seq in range(50):
            store.put(keys.commit(seq), [b"x"])
    store.put("stray.txt", [b"x"])
    store.calls.clear()
    assert sorted(list_archives(store)) == [("c 2", "b/1"), ("c1", "b1"), ("c1", "b2"), ("z", "z")]
    assert len(store.calls) <= 6, "a big archive costs one request"
    assert len(list_archives(store, limit=2)) == 2


def test_opening_names_the_archives_that_are_there() -> None:
    store = MemoryProvider("x", ManualClock())
    with pytest.raises(NotFound, match="found=nothing"):
        ArchiveReader(store, KEYS, MemoryStore(), table_cache_bytes=1000).at()
    ensure_identity(store, ArchiveKeys("C", "broker-7"), 1, os.urandom)
    with pytest.raises(NotFound) as caught:
        ArchiveReader(store, KEYS, MemoryStore(), table_cache_bytes=1000).at()
    assert caught.value.fields["found"] == "C/broker-7"
    assert caught.value.fields["expected"] == "DefaultCluster/broker-a"


def test_a_writer_keeps_its_id(tmp_path: Path) -> None:
    chance = random.Random(1)
    first = load_writer_id(tmp_path, chance.randbytes)
    assert len(first) == 16
    assert load_writer_id(tmp_path, chance.randbytes) == first
    for damage in (b"", b"xyz\n", b"00" * 15, b"\xff\xff"):
        (tmp_path / "writer-id").write_bytes(damage)
        made = load_writer_id(tmp_path, chance.randbytes)
        assert made != first
        assert load_writer_id(tmp_path, chance.randbytes) == made
        first = made
    assert [p.name for p in tmp_path.iterdir()] == ["writer-id"]


def test_a_fence_is_remembered_until_told_to_take_over(tmp_path: Path) -> None:
    check_fence(tmp_path, take_over=False)
    record_fence(tmp_path, "commit 7 is of writer B")
    for _ in range(2):
        with pytest.raises(Fenced) as caught:
            check_fence(tmp_path, take_over=False)
        assert caught.value.fields["found"] == "commit 7 is of writer B"
        assert "--take-over" in str(caught.value.hint)
    check_fence(tmp_path, take_over=True)
    with pytest.raises(Fenced):  # told to take over, and ended before the claim was proven
        check_fence(tmp_path, take_over=False)
    forget_fence(tmp_path)
    forget_fence(tmp_path)
    check_fence(tmp_path, take_over=False)


def test_a_directory_that_cannot_be_used_names_its_setting(tmp_path: Path) -> None:
    ensure_directory(tmp_path / "a" / "b", "state.directory")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    for bad in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(Invalid) as caught:
            ensure_directory(bad, "state.directory")
        assert "set state.directory" in str(caught.value.hint)
        assert caught.value.fields["path"] == str(bad)


@pytest.mark.parametrize(
    ("number", "kind", "code"), [(errno.ENOSPC, Unavailable, 4), (errno.EACCES, Invalid, 2)]
)
def test_a_state_directory_that_takes_no_files_says_whether_it_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TieredError], code: int
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(durable, "replace", fails)
    monkeypatch.setattr(durable, "make_directory", fails)
    for write in (
        lambda: load_writer_id(tmp_path, os.urandom),
        lambda: record_known_archive(tmp_path, "s3://b", bytes(16)),
        lambda: record_fence(tmp_path, "why"),
        lambda: ensure_directory(tmp_path, "state.directory"),
    ):
        with pytest.raises(kind) as caught:
            write()
        assert (caught.value.exit_code, caught.value.fields["found"]) == (code, os.strerror(number))
        assert str(tmp_path) in str(caught.value)


def test_conflict_without_an_object_is_not_swallowed() -> None:
    """A store that says 412 and then 404 for the identity cannot be trusted with it."""
    store = memory()
    store.say("ok", Conflict("exists"))
    with pytest.raises(TieredError) as caught:
        ensure_identity(store, KEYS, 1, os.urandom)
    assert isinstance(caught.value, NotFound)


def test_a_renamed_broker_is_not_archived_again(tmp_path: Path) -> None:
    """The same store and state directory, another name: a second archive of everything, without a word."""
    record_known_archive(tmp_path, "s3://b/p%20c/broker-a/", bytes(16))
    for asked in ("s3://b/p%20c/broker-b/", "s3://b/p%20d/broker-a/"):
        with pytest.raises(Invalid, match=r"source.broker to those of c/broker-a"):
            check_known_archive(tmp_path, asked, None)
    check_known_archive(tmp_path, "s3://b/p%20c/broker-a/", bytes(16))
    check_known_archive(tmp_path, "s3://other%20c/broker-a/", None)  # it moved
