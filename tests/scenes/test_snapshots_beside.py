"""Snapshots of a key-value view lie beside an archive: who walks over it does not take them for its own, nor deletes them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.collecting import Sweeping
from tests.kit.fetchscene import Scene, in_memory, scene
from tests.kit.merging import merge_all, spread
from tests.kit.scrubbing import Scrubbing, flip, paths
from tiered.archive.keys import KEYVALUE_PREFIX, ArchiveKeys
from tiered.archive.log.identity import ensure_identity, read_identity
from tiered.archive.log.reader import LogReader
from tiered.archive.read.find import list_archives
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.verify import Report, Verifier
from tiered.archive.read.view import View
from tiered.archive.rewrite.collect import Listed, orphans
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.metadata.memory import MemoryRedoStore, MemoryStore
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider
from tiered.view.layout import entry_key, entry_value, namespace_key
from tiered.view.snapshot import list_snapshots, load_snapshot, write_snapshot

SECRET = b"the value of a key, which nobody may read"


def snapshot(provider: Provider, keys: ArchiveKeys = KEYS) -> MemoryRedoStore:
    """Two pieces and a manifest; what was exported."""
    store = MemoryRedoStore()
    pairs = [(entry_key("ns", b"%d" % n), entry_value(n, n, None, SECRET)) for n in range(9)]
    store.put_many([*pairs, (namespace_key("ns"), b"{}")], applied=b"{}")
    made = write_snapshot(
        provider, keys, store.snapshot(), namespace=None, now_ms=1, snapshot_id=b"i" * 16, piece_bytes=500
    )
    assert len(made.pieces) == 2
    return store


@pytest.fixture(params=[False, True], ids=["plain", "encrypted"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path, encrypted=request.param) as found:
        spread(found, 3)
        merge_all(found.daemon)
        yield found


def verified(provider: Provider) -> Report:
    reader = LogReader(provider, KEYS, read_identity(provider, KEYS))
    store = MemoryStore()
    head = reader.fold(store)
    contents = ObjectReader(provider, KEYS, reader.identity.archive_id, cache_bytes=1 << 20)
    return Verifier(View(head, ArchiveState(store), contents, reader)).run(deep=True)


def ours(provider: Provider) -> list[str]:
    return [path for path in paths(provider) if path.startswith(KEYVALUE_PREFIX)]


def test_verify_finds_what_it_found_before(made: Scene) -> None:
    before = verified(made.provider)
    snapshot(made.provider)
    assert verified(made.provider) == before


def test_collection_leaves_them(made: Scene) -> None:
    snapshot(made.provider)
    head, listed = made.state.head(), Listed()
    assert head is not None
    assert [
        path
        for path in orphans(made.provider, KEYS, made.state, head.epoch + 1, listed)
        if "keyvalue" in path
    ] == []
    assert listed.foreign == 0
    sweeping = Sweeping.of(made)
    sweeping.count(sweeping.gc)
    sweeping.after_grace()
    assert len(ours(made.provider)) == 3


def test_scrub_compares_them_with_their_own_sums(made: Scene) -> None:
    snapshot(made.provider)
    looking = Scrubbing.of(made)
    looking.rest()
    assert looking.damaged() == {}
    assert looking.notes.listing.notes.get("foreign", 0) == 0
    first, _, manifest = ours(made.provider)
    for path in (first, manifest):
        flip(made.provider, path, 60)
    looking.later()
    assert sorted(looking.damaged()) == [first, manifest]


def test_in_an_encrypted_archive_they_are_encrypted(made: Scene) -> None:
    exported = snapshot(made.provider)
    stored = in_memory(made.provider)
    manifest = bytes(stored.get(KEYS.key(ours(made.provider)[-1])).data)
    assert (b'"applied"' in manifest) == (made.provider.capabilities.encryptor is None)
    (found,) = list_snapshots(made.provider, KEYS)
    store = MemoryRedoStore()
    load_snapshot(made.provider, KEYS, store, found, namespace=None)
    assert list(store.iterate(b"")) == list(exported.iterate(b""))


def test_a_view_needs_no_archive_and_an_archive_may_come_later() -> None:
    provider = MemoryProvider("", ManualClock())
    snapshot(provider)
    snapshot(provider, ArchiveKeys("DefaultCluster", "broker-b"))
    assert list_archives(provider) == []
    ensure_identity(provider, KEYS, 1, bytes)
    assert list_archives(provider) == [("DefaultCluster", "broker-a")]
