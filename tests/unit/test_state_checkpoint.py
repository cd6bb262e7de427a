"""Checkpoints: saved, loaded, reused, and never believed when damaged."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import msgpack
import pytest

from tests.kit import checkpoint_golden as golden
from tests.kit.histories import History
from tiered.archive.checkpoint import format as shards
from tiered.archive.checkpoint import store as checkpoint
from tiered.archive.checkpoint.format import Manifest, cut, decode_manifest, encode_manifest
from tiered.archive.checkpoint.store import (
    load_checkpoint,
    newest_checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from tiered.archive.keys import ArchiveKeys
from tiered.archive.state.view import ArchiveState, dispatch_pairs
from tiered.clock import ManualClock
from tiered.codec.checksum import crc32c
from tiered.errors import Conflict, Corrupt, Refused, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Fetched
from tiered.provider.memory import MemoryProvider

KEYS = ArchiveKeys("c", "b")
SMALL = 2048


class Archive:
    """A growing history and a store for its checkpoints."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.provider = MemoryProvider("checkpoints", ManualClock())
        self.ids = count(1)

    def grow(self, steps: int) -> None:
        for _ in range(steps):
            self.history.step()

    def save(self, previous: Manifest | None = None) -> Manifest:
        view = self.history.store.snapshot()
        return write_checkpoint(self.provider, KEYS, view, previous, self.shard_key, shard_bytes=SMALL)

    def shard_key(self) -> str:
        return KEYS.shard(1, next(self.ids).to_bytes(16, "big"))

    def keys(self, prefix: str) -> set[str]:
        return {s.key for s in self.provider.list(KEYS.key(prefix))}

    def damage(self, key: str, change: Callable[[bytes], bytes]) -> None:
        data = self.provider.get(key).data
        self.provider.put(key, [change(data)], create_only=False)


@pytest.fixture(scope="module")
def grown() -> History:
    made = History(random.Random(5), topics=20)
    for _ in range(30):
        made.step()
    return made


@pytest.fixture
def archive(grown: History) -> Archive:
    return Archive(grown.copy())


def pairs_of(archive: Archive, manifest: Manifest) -> list[tuple[bytes, bytes]]:
    return [p for some in read_checkpoint(archive.provider, manifest) for p in some]


def test_what_is_saved_is_the_fold_and_nothing_else(archive: Archive) -> None:
    fold = list(archive.history.store.iterate(b""))
    archive.history.store.put_many(dispatch_pairs(["t"], golden_ids(), golden_ids()))
    manifest = archive.save()
    assert pairs_of(archive, manifest) == fold
    assert len(manifest.shards) > 3
    assert archive.keys("shard/") == {KEYS.key(s.path) for s in manifest.shards}
    assert manifest.key == KEYS.checkpoint(30)
    assert newest_checkpoint(archive.provider, KEYS) == manifest
    store = MemoryStore()
    head = load_checkpoint(archive.provider, manifest, store)
    assert list(store.iterate(b"")) == fold
    assert (ArchiveState(store).head(), store.applied()) == (head, head.position())


def golden_ids() -> object:
    import numpy as np

    return np.array([3])


def test_unchanged_shards_are_used_again(archive: Archive) -> None:
    first = archive.save()
    archive.grow(1)
    second = archive.save(first)
    known, now = {s.path for s in first.shards}, {s.path for s in second.shards}
    assert known & now
    assert now - known
    assert archive.keys("shard/") == {KEYS.key(p) for p in known | now}
    assert pairs_of(archive, second) == list(archive.history.store.iterate(b""))


def test_cuts_depend_on_keys_alone() -> None:
    pairs = [(b"key%06d" % i, b"v" * (i % 90)) for i in range(5000)]
    ends = {piece[-1][0] for piece in cut(pairs, 8192)}
    assert len(ends) > 20
    changed = [(k, v * 2 if i % 50 == 7 else v) for i, (k, v) in enumerate(pairs) if not 2000 < i < 2010]
    assert len(ends ^ {piece[-1][0] for piece in cut(changed, 8192)}) <= 4
    assert [p for piece in cut(pairs, 8192) for p in piece] == pairs
    assert list(cut([], 8192)) == []


def test_the_same_checkpoint_twice_is_one(archive: Archive) -> None:
    first = archive.save()
    assert archive.save() == first
    archive.damage(first.key, lambda d: d[:-1] + b"x")
    with pytest.raises(Corrupt):
        archive.save()


def test_another_history_under_the_key_is_a_conflict(archive: Archive) -> None:
    first = archive.save()
    wrong = replace(first, commit_id=b"x" * 16)
    archive.provider.put(first.key, [encode_manifest(wrong)], create_only=False)
    with pytest.raises(Conflict, match="another history"):
        archive.save()


def flip(at: int) -> Callable[[bytes], bytes]:
    return lambda d: d[:at] + bytes([d[at] ^ 1]) + d[at + 1 :]


@pytest.mark.parametrize(
    "change", [flip(0), flip(12), flip(25), flip(-1), lambda d: d[:-1], lambda d: d + b"x", lambda d: b""]
)
@pytest.mark.parametrize("which", ["manifest", 0, -1])
def test_damage_makes_it_absent(archive: Archive, which: str | int, change: Callable[[bytes], bytes]) -> None:
    older = archive.save()
    archive.grow(3)
    newer = archive.save()  # its own shards
    key = newer.key if isinstance(which, str) else KEYS.key(newer.shards[which].path)
    archive.damage(key, change)
    skipped: list[Corrupt] = []
    assert newest_checkpoint(archive.provider, KEYS, skipped=skipped.append) == older
    assert [e.fields["key"] for e in skipped] == [key]
    store = MemoryStore()
    if not isinstance(which, str):
        with pytest.raises(Corrupt):
            load_checkpoint(archive.provider, newer, store)
        assert (list(store.iterate(b"")), store.applied()) == ([], None)


def test_a_missing_shard_and_a_bound(archive: Archive) -> None:
    older = archive.save()
    archive.grow(3)
    newer = archive.save()
    assert newest_checkpoint(archive.provider, KEYS, below=newer.seq - 1) == older
    archive.provider.delete(KEYS.key(newer.shards[1].path))
    assert newest_checkpoint(archive.provider, KEYS) == older
    archive.provider.delete(KEYS.key(older.shards[0].path))
    assert newest_checkpoint(archive.provider, KEYS) is None


def test_an_absent_store_is_not_an_absent_checkpoint(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.save()

    def fail(*args: object, **named: object) -> Fetched:
        raise Unavailable("no")

    monkeypatch.setattr(archive.provider, "get", fail)
    with pytest.raises(Unavailable):
        newest_checkpoint(archive.provider, KEYS)


def test_shards_swapped_or_left_out(archive: Archive) -> None:
    made = archive.save()
    rows = list(made.shards)
    for wrong in ([rows[1], rows[0], *rows[2:]], rows[:2], [*rows, rows[-1]]):
        if any(s.first_key <= b"h" <= s.last_key for s in wrong) and wrong == rows[:2]:
            wrong = [s for s in rows if not s.first_key <= b"h" <= s.last_key]
        with pytest.raises(Corrupt):
            pairs_of(archive, replace(made, shards=tuple(wrong)))
    with pytest.raises(Corrupt, match="another fold"):
        pairs_of(archive, replace(made, seq=made.seq + 1))


def sealed(tree: object) -> bytes:
    body = msgpack.packb(tree)
    return body + len(body).to_bytes(4, "little") + crc32c(body).to_bytes(4, "little") + shards.MANIFEST_MAGIC


def test_manifests_that_make_no_sense() -> None:
    good = [1, 1, b"a" * 16, 5, b"c" * 16, 1, []]
    assert decode_manifest(sealed(good), "checkpoint/5").seq == 5
    row = ["shard/0000000001-" + "0" * 8, b"a", b"b", 1, 1, 1, 1, b"d"]
    for tree in (
        5,
        [],
        good[:-1],
        [*good, 1],
        [*good[:-1], [row]],
        [*good[:-1], [[1]]],
        [*good[:3], "x", *good[4:]],
        ["1", *good[1:]],
    ):
        with pytest.raises(Corrupt):
            decode_manifest(sealed(tree), "checkpoint/5")
    for tree in ([2, *good[1:]], [1, 2, *good[2:]]):
        with pytest.raises(Refused, match="newer"):
            decode_manifest(sealed(tree), "checkpoint/5")
    with pytest.raises(Corrupt, match="older layout"):
        decode_manifest(sealed([1, 0, *good[2:]]), "checkpoint/5")


def test_a_manifest_whose_content_makes_sense_and_fails_its_checksum(archive: Archive) -> None:
    made = archive.save()
    whole, other = encode_manifest(made), encode_manifest(replace(made, epoch=made.epoch + 1))
    tail = 8 + len(shards.MANIFEST_MAGIC)  # length and CRC
    assert len(whole) == len(other)
    assert whole[:-tail] != other[:-tail]
    with pytest.raises(Corrupt, match="damaged"):
        decode_manifest(other[:-tail] + whole[-tail:], made.key)


def test_a_manifest_is_read_up_to_a_bound(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    made = archive.save()
    size = len(encode_manifest(made))
    monkeypatch.setattr(checkpoint, "MAX_MANIFEST_BYTES", size)
    assert checkpoint.read_manifest(archive.provider, made.key) == made
    monkeypatch.setattr(checkpoint, "MAX_MANIFEST_BYTES", size - 1)
    with pytest.raises(Corrupt, match="too long"):
        checkpoint.read_manifest(archive.provider, made.key)


def test_a_checkpoint_under_another_number(archive: Archive) -> None:
    made = archive.save()
    key = KEYS.checkpoint(made.seq + 7)
    archive.provider.put(key, [encode_manifest(made)])
    assert newest_checkpoint(archive.provider, KEYS) == made


def test_an_empty_fold_is_not_saved() -> None:
    with pytest.raises(Corrupt, match="empty fold"):
        write_checkpoint(MemoryProvider("e", ManualClock()), KEYS, MemoryStore(), None, lambda: "")


def test_shards_go_up_before_the_manifest(archive: Archive) -> None:
    seen: list[tuple[int, int]] = []

    def look() -> None:
        seen.append((len(archive.keys("shard/")), len(archive.keys("checkpoint/"))))

    view = archive.history.store.snapshot()
    made = write_checkpoint(
        archive.provider, KEYS, view, None, archive.shard_key, shard_bytes=SMALL, before_manifest=look
    )
    assert seen == [(len(made.shards), 0)]


def test_the_golden_checkpoint_still_reads() -> None:
    stored = golden.provider(filled=True)
    found = newest_checkpoint(stored, golden.KEYS)
    assert found is not None
    assert [p for some in read_checkpoint(stored, found) for p in some] == golden.pairs()
    assert ArchiveState(golden.fold()).head() == load_checkpoint(stored, found, MemoryStore())
    again = golden.write(golden.provider(filled=False))
    # zstd's bytes may change with its version; everything they hold may not.
    plain = [(s.path, s.first_key, s.last_key, s.pairs, s.raw_bytes, s.digest) for s in again.shards]
    assert plain == [(s.path, s.first_key, s.last_key, s.pairs, s.raw_bytes, s.digest) for s in found.shards]
    assert encode_manifest(found) == stored.get(found.key).data
    assert checkpoint.read_manifest(stored, found.key) == found
