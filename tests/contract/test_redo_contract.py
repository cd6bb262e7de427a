"""One suite over every driver of stores without a log, and what a crash leaves of one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_metadata_contract import LOADS, LOGGED
from tests.kit.rocks import CACHE, FullDisk, killed
from tiered.crashpoint import MetadataPoint as P
from tiered.errors import Invalid, Unavailable
from tiered.metadata.base import RedoStore
from tiered.metadata.open import open_redo

ON_DISK = ("rocksdb", "map")


@pytest.fixture(params=["memory", *ON_DISK])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedoStore]:
    opened = open_redo(request.param, tmp_path, CACHE)
    yield opened
    opened.close()


def test_ranges_go_before_deletes_and_puts(store: RedoStore) -> None:
    store.put_many([(b"k%d" % number, b"old") for number in range(8)], applied=b"one")
    store.put_many([(b"k3", b"new")], [b"k6"], ranges=[(b"k1", b"k5"), (b"x", b"y")], applied=b"two")
    assert list(store.iterate(b"k")) == [(b"k0", b"old"), (b"k3", b"new"), (b"k5", b"old"), (b"k7", b"old")]
    assert store.get_many([b"k2", b"k3"]) == [None, b"new"]
    assert store.applied() == b"two"


def test_a_snapshot_is_frozen(store: RedoStore) -> None:
    store.put_many([(b"a", b"1"), (b"b", b"2")], applied=b"then")
    frozen = store.snapshot()
    store.put_many([(b"c", b"3")], ranges=[(b"a", b"b")], applied=b"now")
    assert (list(frozen.iterate(b"")), frozen.applied()) == ([(b"a", b"1"), (b"b", b"2")], b"then")


def test_clear_forgets_the_position_too(store: RedoStore) -> None:
    store.put_many([(b"a", b"1")], applied=b"p")
    store.flush()
    assert store.flushed() == b"p"
    store.clear()
    assert (list(store.iterate(b"")), store.applied(), store.flushed()) == ([], None, None)


def test_what_is_loaded_is_there_with_its_position(store: RedoStore) -> None:
    pairs = [(b"k%04d" % number, b"%d" % number) for number in range(3000)]
    store.load([pairs[:1000], [], pairs[1000:]], applied=b"p")
    assert (list(store.iterate(b"")), store.applied(), store.flushed()) == (pairs, b"p", b"p")
    store.put_many([(b"k0500+", b"new")], [b"k0000"], ranges=[(b"k0002", b"k2999")], applied=b"q")
    left = [(b"k0001", b"1"), (b"k0500+", b"new"), (b"k2999", b"2999")]
    assert list(store.iterate(b"", reverse=True)) == left[::-1]


def test_a_load_that_fails_leaves_nothing(store: RedoStore) -> None:
    def batches() -> Iterator[list[tuple[bytes, bytes]]]:
        yield [(b"a", b"1"), (b"b", b"2")]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.load(batches(), applied=b"p")
    assert (list(store.iterate(b"")), store.applied(), store.flushed()) == ([], None, None)


@pytest.mark.parametrize("kind", ON_DISK)
def test_a_store_that_was_closed_needs_no_redo(tmp_path: Path, kind: str) -> None:
    store = open_redo(kind, tmp_path, CACHE)
    store.put_many([(b"a", b"1")], applied=b"p")
    assert store.flushed() is None
    store.close()
    store.close()
    store = open_redo(kind, tmp_path, CACHE)
    assert (store.get_many([b"a"]), store.applied(), store.flushed()) == ([b"1"], b"p", b"p")
    store.close()


PUT = (
    "def put(n): store.put_many([(b'k%04d' % n, bytes(1000)), (b'last', b'%d' % n)],"
    " ranges=[(b'k', b'k%04d' % (n - 500))] if n > 500 else (), applied=b'%d' % n)\n"
)


def killed_in(directory: Path, kind: str, body: str) -> None:
    """``put(n)``, batch by batch; at its end the process kills itself."""
    killed(directory, f"open_redo('{kind}', directory, CACHE)", f"{PUT}{body}\ndie()")


def is_whole(store: RedoStore) -> int:
    """The number of the batch right behind which the store is; all of it, and nothing else, must be there."""
    applied = store.applied()
    last = -1 if applied is None else int(applied)
    kept = range(max(0, last - 500), last + 1)
    names = [key for key, _ in store.iterate(b"k")]
    assert names == [b"k%04d" % number for number in kept]
    assert store.get_many([b"last"]) == [applied]
    return last


@pytest.mark.parametrize("kind", ON_DISK)
def test_a_crash_leaves_what_was_flushed(tmp_path: Path, kind: str) -> None:
    killed_in(tmp_path, kind, "for n in range(9): put(n)\nstore.flush()\nput(9)")
    store = open_redo(kind, tmp_path, CACHE)
    assert is_whole(store) in (8, 9)
    assert store.flushed() == store.applied()
    store.close()


UNLOGGED = (P.AFTER_REDO_WRITE, P.BEFORE_REDO_FLUSH, P.AFTER_REDO_FLUSH)


def test_every_point_is_visited_here_or_with_the_stores_that_have_a_log() -> None:
    assert {*UNLOGGED, *LOADS, *LOGGED} == set(P)


@pytest.mark.parametrize("point", UNLOGGED)
@pytest.mark.parametrize("kind", ON_DISK)
def test_kill_at_every_point_then_redo(tmp_path: Path, kind: str, point: P) -> None:
    """Batches of some 3 MB over memtables of 256 KiB: the engine has written files of its own accord, too."""
    killed_in(
        tmp_path,
        kind,
        f"seen = []\ndef at(point):\n    seen.append(point)\n    if point == {point.value} and len(seen) > 2600: die()\n"
        "crashpoint.install(at)\n"
        "for n in range(3000):\n    put(n)\n    if n % 1000 == 700 or n > 2500: store.flush()",
    )
    store = open_redo(kind, tmp_path, CACHE)
    last = is_whole(store)
    assert last >= 1700
    for number in range(last + 1, last + 20):
        ranges = [(b"k", b"k%04d" % (number - 500))]
        puts = [(b"k%04d" % number, bytes(1000)), (b"last", b"%d" % number)]
        store.put_many(puts, ranges=ranges, applied=b"%d" % number)
    assert is_whole(store) == last + 19
    store.close()


def test_a_damaged_one_is_emptied_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_redo("rocksdb", tmp_path, CACHE)
    store.put_many([(b"a", b"1")], applied=b"p")
    store.close()
    manifest = next((tmp_path / "rocksdb").glob("MANIFEST*"))
    data = bytearray(manifest.read_bytes())
    data[len(data) // 3] ^= 0xFF
    manifest.write_bytes(bytes(data))
    store = open_redo("rocksdb", tmp_path, CACHE)
    assert (list(store.iterate(b"")), store.applied()) == ([], None)
    assert "a local store was emptied: it is made again" in caplog.text
    assert "damaged" in caplog.records[-1].reason  # type: ignore[attr-defined]
    store.close()


def test_after_a_full_disk_redo_begins_where_the_store_says(tmp_path: Path) -> None:
    """Nothing is put over batches that were lost: the writer hears first where the store stands."""
    store = open_redo("rocksdb", tmp_path, CACHE)
    store.put_many([(b"a", b"1")], applied=b"1")
    store.flush()
    store._db = FullDisk(store._db)  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match=r"disk .* is full"):
        store.put_many([(b"b", b"2")], applied=b"2")
    store._db = store._db.inner  # type: ignore[attr-defined]
    with pytest.raises(Unavailable, match="brought up to date"):
        store.put_many([(b"c", b"3")], applied=b"3")
    store.reopen()
    assert (store.get_many([b"a", b"b"]), store.applied()) == ([b"1", None], b"1")
    store.put_many([(b"b", b"2")], applied=b"2")
    assert store.applied() == b"2"
    store.close()


@pytest.mark.parametrize("point", LOADS)
@pytest.mark.parametrize("kind", ON_DISK)
def test_a_load_that_is_cut_short_is_whole_or_not_there(tmp_path: Path, kind: str, point: P) -> None:
    killed_in(
        tmp_path,
        kind,
        f"crashpoint.install(lambda point: die() if point == {point.value} else None)\n"
        "store.load([[(b'k%04d' % n, bytes(1000)) for n in range(9)]], applied=b'p')",
    )
    store = open_redo(kind, tmp_path, CACHE)
    found = len(list(store.iterate(b""))), store.applied()
    assert found == ((9, b"p") if point is P.AFTER_TAKEN_IN else (0, None))
    store.close()


@pytest.mark.parametrize("kind", ON_DISK)
def test_two_do_not_open_one(tmp_path: Path, kind: str) -> None:
    store = open_redo(kind, tmp_path, CACHE)
    with pytest.raises(Unavailable, match="another process has this"):
        open_redo(kind, tmp_path, CACHE)
    store.close()
    open_redo(kind, tmp_path, CACHE).close()


@pytest.mark.parametrize("kind", ON_DISK)
def test_one_of_another_stamp_is_emptied(tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    store = open_redo(kind, tmp_path, CACHE, stamp="a")
    store.put_many([(b"a", b"1")], applied=b"p")
    store.close()
    store = open_redo(kind, tmp_path, CACHE, stamp="b")
    assert (list(store.iterate(b"")), store.applied(), store.flushed()) == ([], None, None)
    assert "stamp" in caplog.records[-1].reason  # type: ignore[attr-defined]
    store.close()


def test_how_it_is_read_does_not_change_what_it_holds(tmp_path: Path) -> None:
    """A store that was made for walks is opened for look-ups, and the other way round; what is loaded lies in small blocks."""
    pairs = [(b"k%05d" % number, b"v%d" % number * 9) for number in range(3000)]
    sizes = []
    for one_by_one in (False, True, False, True):
        store = open_redo("rocksdb", tmp_path, CACHE, read_one_by_one=one_by_one)
        store.put_many(pairs[len(sizes) * 700 :], applied=b"p")
        store.flush()
        assert list(store.iterate(b""))[-1] == pairs[-1]
        assert store.get_many([pairs[0][0], b"none"]) == [pairs[0][1], None]
        sizes.append(store.size().bytes)
        store.close()
    assert sizes == sorted(sizes)


def test_an_unknown_kind(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="no such kind"):
        open_redo("json", tmp_path, CACHE)
