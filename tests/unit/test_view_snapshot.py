"""Snapshots of a key-value view: what comes back, and everything that must not."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from tests.kit.assemble import KEYS
from tests.kit.rocks import CACHE
from tiered.archive.keys import ArchiveKeys
from tiered.clock import ManualClock
from tiered.codec.checksum import crc32c
from tiered.codec.format.keyvalue import KeyValueSnapshot, encode_piece, encode_snapshot, open_piece
from tiered.errors import Corrupt, Invalid, Refused, TieredError, Unavailable
from tiered.metadata.base import RedoStore
from tiered.metadata.memory import MemoryRedoStore
from tiered.metadata.open import open_redo
from tiered.provider.memory import MemoryProvider
from tiered.view import snapshot as snapshot_module
from tiered.view.layout import entry_key, entry_value, namespace_key
from tiered.view.snapshot import delete_snapshots, list_snapshots, load_snapshot, write_snapshot

POSITION = b'{"physical": 4711, "anchor": null}'
DAY_MS = 86_400_000


def pairs_of(namespace: str, count: int) -> list[tuple[bytes, bytes]]:
    """Entries and what is known of the namespace, ascending."""
    made = [
        (entry_key(namespace, b"key-%04d" % n), entry_value(n, 1000 + n, None, b"value %d " % n * 20))
        for n in range(count)
    ]
    return [*made, (namespace_key(namespace), b'{"next": %d}' % count)]


PAIRS = sorted(pairs_of("connectors", 300) + pairs_of("ab", 20) + pairs_of("none", 0))


@pytest.fixture
def bucket() -> MemoryProvider:
    return MemoryProvider("", ManualClock())


@pytest.fixture(params=["rocksdb", "map"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedoStore]:
    opened = open_redo(request.param, tmp_path, CACHE)
    yield opened
    opened.close()


def exported(
    bucket: MemoryProvider, namespace: str | None = None, *, number: int = 1, now_ms: int = 1_700_000_000_000
) -> KeyValueSnapshot:
    """Of a store that holds ``PAIRS``: some pieces of some KiB."""
    store = MemoryRedoStore()
    store.put_many(PAIRS, applied=POSITION)
    return write_snapshot(
        bucket, KEYS, store.snapshot(), namespace=namespace, now_ms=now_ms,
        snapshot_id=bytes([number]) * 16, piece_bytes=16_384,
    )  # fmt: skip


def objects(bucket: MemoryProvider) -> list[str]:
    return [stored.key for stored in bucket.list("")]


def replaced(bucket: MemoryProvider, key: str, data: bytes) -> None:
    bucket.put(key, [data], create_only=False)


def is_empty(store: RedoStore) -> bool:
    return (list(store.iterate(b"")), store.applied(), store.flushed()) == ([], None, None)


def test_what_was_exported_comes_back(bucket: MemoryProvider, empty: RedoStore) -> None:
    made = exported(bucket)
    assert list_snapshots(bucket, KEYS) == [made]
    assert (made.applied, made.namespace, made.pairs) == (POSITION, None, len(PAIRS))
    assert made.entries == {"connectors": 300, "ab": 20, "none": 0}
    assert len(made.pieces) == 5
    load_snapshot(bucket, KEYS, empty, made, namespace=None)
    assert (list(empty.iterate(b"")), empty.applied(), empty.flushed()) == (PAIRS, POSITION, POSITION)
    empty.put_many([(b"e\x02abnew", b"v")], [PAIRS[0][0]], applied=b"next")
    assert empty.get_many([b"e\x02abnew", PAIRS[0][0], PAIRS[1][0]]) == [b"v", None, PAIRS[1][1]]


def test_one_namespace_comes_back_alone(bucket: MemoryProvider, empty: RedoStore) -> None:
    made = exported(bucket, "connectors")
    assert (made.namespace, made.entries) == ("connectors", {"connectors": 300})
    for other in (None, "ab"):
        with pytest.raises(Refused, match="of another namespace"):
            load_snapshot(bucket, KEYS, empty, made, namespace=other)
        assert is_empty(empty)
    load_snapshot(bucket, KEYS, empty, made, namespace="connectors")
    assert list(empty.iterate(b"")) == [pair for pair in PAIRS if b"connectors" in pair[0]]


def test_a_store_that_has_something_is_left_alone(bucket: MemoryProvider, empty: RedoStore) -> None:
    made = exported(bucket)
    empty.put_many([(b"a", b"1")])
    with pytest.raises(Refused, match="into an empty store"):
        load_snapshot(bucket, KEYS, empty, made, namespace=None)
    assert list(empty.iterate(b"")) == [(b"a", b"1")]
    empty.put_many([], [b"a"], applied=b"p")
    with pytest.raises(Refused, match="into an empty store"):
        load_snapshot(bucket, KEYS, empty, made, namespace=None)


def test_nothing_is_no_snapshot(bucket: MemoryProvider) -> None:
    for store, namespace in ((MemoryRedoStore(), None), (MemoryRedoStore(), "other")):
        if namespace is not None:
            store.put_many(PAIRS, applied=POSITION)
        with pytest.raises(Refused, match="nothing to make a snapshot of"):
            write_snapshot(
                bucket, KEYS, store.snapshot(), namespace=namespace, now_ms=1, snapshot_id=bytes(16)
            )
    assert objects(bucket) == []


def refused(bucket: MemoryProvider, store: RedoStore) -> TieredError:
    """The error of an import of the newest; the store must be as empty as before, and an import of a sound one works."""
    (found,) = list_snapshots(bucket, KEYS)
    with pytest.raises((Corrupt, Refused)) as caught:
        load_snapshot(bucket, KEYS, store, found, namespace=None)
    assert is_empty(store)
    return caught.value


def test_damage_of_a_piece_leaves_the_store_empty(bucket: MemoryProvider, empty: RedoStore) -> None:
    made = exported(bucket)
    *pieces, _ = objects(bucket)
    sound = {key: bytes(bucket.get(key).data) for key in pieces}
    for key in (pieces[0], pieces[-1]):
        data = sound[key]
        for place in (0, 9, 13, 30, 34, 40, 44, 49, len(data) // 2, len(data) - 1):
            replaced(bucket, key, data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
            assert refused(bucket, empty).fields["key"] == key, place
        for changed in (data[:-1], data[:20], b"", data + b"\0"):
            replaced(bucket, key, changed)
            assert isinstance(refused(bucket, empty), Corrupt)
        replaced(bucket, key, data)
    replaced(bucket, pieces[0], sound[pieces[1]])
    assert "under another's key" in refused(bucket, empty).message
    replaced(bucket, pieces[0], sound[pieces[0]])
    bucket.delete(pieces[2])
    assert "not there" in refused(bucket, empty).message
    replaced(bucket, pieces[2], sound[pieces[2]])
    load_snapshot(bucket, KEYS, empty, made, namespace=None)
    assert empty.applied() == POSITION


def test_every_byte_of_a_piece_is_below_a_sum() -> None:
    data, _ = encode_piece(([b"a", b"b"], [b"1" * 20, b"2"]), bytes(16), 3)
    assert open_piece(data, bytes(16), 3, "key") == ([b"a", b"b"], [b"1" * 20, b"2"])
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(Corrupt, match="does not begin as one" if place < 48 else "fails its checksum"):
            open_piece(changed, bytes(16), 3, "key")


def test_a_piece_of_another_snapshot_is_not_taken(bucket: MemoryProvider, empty: RedoStore) -> None:
    exported(bucket)
    (ours, *_) = objects(bucket)
    other = MemoryProvider("", ManualClock())
    exported(other, number=2)
    replaced(bucket, ours, bytes(other.get(objects(other)[0]).data))
    assert "under another's key" in refused(bucket, empty).message


def test_pieces_that_are_sound_each_must_be_those_of_the_manifest(
    bucket: MemoryProvider, empty: RedoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = exported(bucket)
    manifest = KEYS.keyvalue(made.created_ms, made.snapshot_id)
    first, *rest = made.pieces
    for changed, message in (
        (replace(made, pieces=made.pieces[:-1]), "does not hold what its manifest says"),
        (replace(made, entries={**made.entries, "ab": 21}), "does not hold what its manifest says"),
        (replace(made, entries={**made.entries, "gone": 0}), "does not hold what its manifest says"),
        (replace(made, pieces=(replace(first, pairs=first.pairs + 1), *rest)), "not what its manifest says"),
        (
            replace(made, pieces=(replace(first, crc32c=first.crc32c ^ 1), *rest)),
            "not what its manifest says",
        ),
    ):
        replaced(bucket, manifest, encode_snapshot(changed))
        assert message in refused(bucket, empty).message
    store = MemoryRedoStore()
    store.put_many(PAIRS, applied=POSITION)
    twice = [*PAIRS[:60], *PAIRS[30:]]
    monkeypatch.setattr(snapshot_module, "_pairs", lambda view, namespace: iter(twice[:60] + twice[60:]))
    monkeypatch.setattr(
        snapshot_module,
        "_cut",
        lambda pairs, size: iter(
            [tuple(map(list, zip(*some, strict=True))) for some in (twice[:60], twice[60:])]
        ),
    )
    other = MemoryProvider("", ManualClock())
    write_snapshot(other, KEYS, store.snapshot(), namespace=None, now_ms=1, snapshot_id=bytes(16))
    assert "overlap" in refused(other, empty).message


def test_a_snapshot_of_another_place_or_program_is_refused(bucket: MemoryProvider, empty: RedoStore) -> None:
    made = exported(bucket)
    manifest = KEYS.keyvalue(made.created_ms, made.snapshot_id)
    for changed in (
        replace(made, cluster="Other"),
        replace(made, broker="broker-b"),
        replace(made, layout=2),
    ):
        replaced(bucket, manifest, encode_snapshot(changed))
        error = refused(bucket, empty)
        assert isinstance(error, Refused)
        assert "of another" in error.message
    moved = ArchiveKeys("Other", "broker-a")
    for key in objects(bucket):
        replaced(bucket, moved.root + key[len(KEYS.root) :], bytes(bucket.get(key).data))
    (found,) = list_snapshots(bucket, moved)
    with pytest.raises(Refused, match=r"of another (cluster|layout)"):
        load_snapshot(bucket, moved, empty, found, namespace=None)
    assert is_empty(empty)


def manifest_with(data: bytes, **fields: object) -> bytes:
    """``data`` with other fields and a sum that fits."""
    line = json.dumps({**json.loads(data.splitlines()[0]), **fields}, sort_keys=True).encode() + b"\n"
    return line + b"%08x\n" % crc32c(line)


def test_a_manifest_is_listed_only_if_it_is_sound(bucket: MemoryProvider) -> None:
    exported(bucket)
    key = objects(bucket)[-1]
    data = bytes(bucket.get(key).data)
    spoiled = [data[:-1], data[1:], b"", data.replace(b"connectors", b"connectorz", 1), data + b"\n"]
    for fields in (
        {"pieces": [[1, 2]]}, {"pieces": [[0, 1, 1, 1]]}, {"pieces": [[1, 2**40, 1, 1]]}, {"entries": 3}, {"applied": "x"},
        {"format": 2}, {"snapshot_id": "00" * 16}, {"created_ms": 1}, {"format": None},
    ):  # fmt: skip
        spoiled.append(manifest_with(data, **fields))
    said: list[TieredError] = []
    for changed in spoiled:
        replaced(bucket, key, changed)
        assert list_snapshots(bucket, KEYS, skipped=said.append) == []
    assert [isinstance(error, Refused) for error in said] == [False] * 10 + [True] + [False] * 3
    replaced(bucket, key, manifest_with(data))
    assert len(list_snapshots(bucket, KEYS)) == 1


def test_the_bytes_of_a_piece_are_those_of_the_document(bucket: MemoryProvider) -> None:
    store = MemoryRedoStore()
    store.put_many([(b"e\x01ak", b"vv"), (b"na", b"{}")], applied=POSITION)
    write_snapshot(bucket, KEYS, store.snapshot(), namespace=None, now_ms=7, snapshot_id=bytes(range(16)))
    piece, manifest = objects(bucket)
    name = f"{KEYS.root}keyvalue/000000000000007-00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert (piece, manifest) == (f"{name}/000000", f"{name}/manifest")
    data = bytes(bucket.get(piece).data)
    magic, number, made_by, pairs, raw, stored, body_sum, head_sum = struct.unpack_from("<8sI16sIIIII", data)
    assert (magic, number, made_by, pairs) == (b"RMQTKVP1", 0, bytes(range(16)), 2)
    assert (head_sum, body_sum, stored) == (crc32c(data[:44]), crc32c(data[48:]), len(data) - 48)
    body = zstandard.ZstdDecompressor().decompress(data[48:])
    assert raw == len(body)
    assert body == struct.pack("<4I", 4, 2, 2, 2) + b"e\x01ak" + b"na" + b"vv" + b"{}"
    told = json.loads(bytes(bucket.get(manifest).data).splitlines()[0])
    assert told["pieces"] == [[2, len(body), len(data), crc32c(data)]]
    assert (told["format"], told["applied"], told["entries"]) == (1, POSITION.hex(), {"a": 1})


def test_an_export_that_breaks_off_is_none(bucket: MemoryProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    put = bucket.put

    def breaks(key: str, *args: object, **options: object) -> object:
        if key.endswith("manifest"):
            raise Unavailable("gone")
        return put(key, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(bucket, "put", breaks)
    with pytest.raises(Unavailable):
        exported(bucket)
    assert list_snapshots(bucket, KEYS) == []
    assert len(objects(bucket)) == 5


def test_old_ones_are_deleted_and_nothing_else(bucket: MemoryProvider) -> None:
    bucket.put(KEYS.key("keyvalue/notes.txt"), [b"somebody's"])
    made = [exported(bucket, number=number, now_ms=number * DAY_MS) for number in range(1, 6)]
    now = 7 * DAY_MS
    bucket.delete(KEYS.keyvalue(2 * DAY_MS, made[1].snapshot_id))  # begun long ago, and not finished
    replaced(bucket, KEYS.keyvalue(5 * DAY_MS, made[4].snapshot_id), b"damaged: it is not counted")
    replaced(bucket, KEYS.keyvalue(now - DAY_MS, b"w" * 16, 0), b"an export under way")
    with pytest.raises(Invalid):
        delete_snapshots(bucket, KEYS, keep=0, now_ms=now)
    assert delete_snapshots(bucket, KEYS, keep=3, now_ms=now) == [made[1].snapshot_id]
    assert delete_snapshots(bucket, KEYS, keep=2, now_ms=now) == [made[0].snapshot_id]
    assert list_snapshots(bucket, KEYS) == [made[3], made[2]]
    names = {key.removeprefix(KEYS.root).split("/")[1] for key in objects(bucket)}
    assert len(names) == 5, "two sound ones, a damaged one, one under way, somebody's"
    assert delete_snapshots(bucket, KEYS, keep=2, now_ms=now + 1) == [b"w" * 16]


def test_damaged_ones_are_kept_while_there_are_too_few_sound_ones(bucket: MemoryProvider) -> None:
    damaged = exported(bucket, number=1, now_ms=DAY_MS)
    replaced(bucket, KEYS.keyvalue(DAY_MS, damaged.snapshot_id), b"somebody may mend it")
    assert delete_snapshots(bucket, KEYS, keep=1, now_ms=9 * DAY_MS) == []
    exported(bucket, number=2, now_ms=2 * DAY_MS)
    assert delete_snapshots(bucket, KEYS, keep=2, now_ms=9 * DAY_MS) == []
    assert delete_snapshots(bucket, KEYS, keep=1, now_ms=9 * DAY_MS) == [damaged.snapshot_id]


def test_a_deletion_that_breaks_off_leaves_no_manifest_without_pieces(
    bucket: MemoryProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [exported(bucket, number=number, now_ms=number * DAY_MS) for number in (1, 2)]

    def fails(keys: list[str]) -> dict[str, TieredError]:
        return {keys[0]: Unavailable("slow down")}

    with monkeypatch.context() as patched:
        patched.setattr(bucket, "delete_many", fails)
        with pytest.raises(Unavailable):
            delete_snapshots(bucket, KEYS, keep=1, now_ms=3 * DAY_MS)
    assert list_snapshots(bucket, KEYS) == [made[1]]
    assert delete_snapshots(bucket, KEYS, keep=1, now_ms=3 * DAY_MS) == [made[0].snapshot_id]
    assert len(objects(bucket)) == 6


def test_an_import_holds_some_pieces_not_all(bucket: MemoryProvider) -> None:
    """No more are asked for ahead of what was taken in than bound its memory."""
    exported(bucket)
    asked: list[str] = []
    get = bucket.get

    class Slow(MemoryRedoStore):
        def load(self, batches, *, applied=None):  # type: ignore[no-untyped-def]
            for taken, _ in enumerate(batches):
                assert len(asked) <= taken + 4

    bucket.get = lambda key, *rest: asked.append(key) or get(key, *rest)  # type: ignore[method-assign,func-returns-value]
    (found,) = list_snapshots(bucket, KEYS)
    asked.clear()
    load_snapshot(bucket, KEYS, Slow(), found, namespace=None)
    assert len(asked) == 5
