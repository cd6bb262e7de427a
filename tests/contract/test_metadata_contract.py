"""One suite over every driver of the metadata port."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.rocks import CACHE, killed
from tiered.crashpoint import MetadataPoint as P
from tiered.errors import Corrupt, Invalid, Unavailable
from tiered.metadata.base import MetadataStore
from tiered.metadata.open import open_metadata

KINDS = ("memory", "json", "rocksdb")
DURABLE = ("json", "rocksdb")
LOADS = (P.BEFORE_TAKEN_IN, P.AFTER_TAKEN_IN)
LOGGED = (P.BEFORE_LOGGED, P.AFTER_LOGGED)
PAIRS = [(b"a", b"1"), (b"b", b""), (b"b\x00", b"3"), (b"b\xff", b"4"), (b"b\xff\xff", b"5"), (b"c", b"6")]
PREFIXES = (b"", b"a", b"b", b"b\xff", b"\xff", b"zz")
STARTS = (None, b"", b"a", b"b", b"b\x00", b"b\x01", b"b\xff", b"bz", b"c", b"d", b"\xff\xff")
Open = Callable[[], MetadataStore]


OPENED = [*KINDS, "rocksdb b", "rocksdb a", "rocksdb c"]


@contextmanager
def opened_as(param: str, directory: Path) -> Iterator[MetadataStore]:
    kind, _, points = param.partition(" ")
    opened = open_metadata(kind, directory, CACHE, points=points.encode())
    yield opened
    opened.close()


@pytest.fixture(params=OPENED)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MetadataStore]:
    with opened_as(request.param, tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module", params=OPENED)
def filled(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MetadataStore]:
    """``PAIRS``, read in hundreds of ways and changed in none."""
    with opened_as(request.param, tmp_path_factory.mktemp("filled")) as opened:
        opened.put_many(reversed(PAIRS), applied=b"hidden")
        yield opened


def test_empty(store: MetadataStore) -> None:
    assert store.applied() is None
    assert store.get_many([]) == []
    assert store.get_many([b"x", b"y"]) == [None, None]
    assert list(store.iterate(b"")) == []


def test_values_in_the_order_of_keys(store: MetadataStore) -> None:
    store.put_many(PAIRS, applied=b"p1")
    assert store.get_many([b"c", b"nope", b"a", b"b", b"a"]) == [b"6", None, b"1", b"", b"1"]
    assert store.applied() == b"p1"


def test_deletes_go_before_puts(store: MetadataStore) -> None:
    store.put_many([(b"k", b"old"), (b"gone", b"x")])
    store.put_many([(b"k", b"new")], [b"k", b"gone", b"never there"])
    assert store.get_many([b"k", b"gone"]) == [b"new", None]


def test_applied_stays_when_not_given(store: MetadataStore) -> None:
    store.put_many([], applied=b"one")
    store.put_many([(b"k", b"v")])
    assert store.applied() == b"one"


@pytest.mark.parametrize("reverse", [False, True])
def test_iterate(filled: MetadataStore, reverse: bool) -> None:
    """From every start with every prefix: hundreds of looks, each of which costs less than a test of its own would."""
    for prefix, start in itertools.product(PREFIXES, STARTS):
        expected = [p for p in PAIRS if p[0].startswith(prefix)]
        if start is not None:
            expected = [p for p in expected if (p[0] <= start if reverse else p[0] >= start)]
        if reverse:
            expected.reverse()
        found = list(filled.iterate(prefix, start=start, reverse=reverse))
        assert found == expected, (prefix, start)
        found = list(filled.snapshot().iterate(prefix, start=start, reverse=reverse))
        assert found == expected, (prefix, start)


def test_long_iteration_both_ways(store: MetadataStore) -> None:
    pairs = [(b"k%05d" % i, b"%d" % i) for i in range(2000)]
    store.put_many(pairs)
    assert list(store.iterate(b"k")) == pairs
    assert list(store.iterate(b"k", reverse=True)) == pairs[::-1]
    assert list(store.iterate(b"k", start=b"k00700")) == pairs[700:]
    assert list(store.iterate(b"k", start=b"k00700", reverse=True)) == pairs[700::-1]


def test_a_snapshot_is_frozen(store: MetadataStore) -> None:
    store.put_many(PAIRS, applied=b"then")
    frozen = store.snapshot()
    store.put_many([(b"a", b"changed"), (b"new", b"x")], [b"c"], applied=b"now")
    assert frozen.get_many([b"a", b"new", b"c"]) == [b"1", None, b"6"]
    assert list(frozen.iterate(b"")) == PAIRS
    assert frozen.applied() == b"then"
    assert store.get_many([b"a", b"new", b"c"]) == [b"changed", b"x", None]
    again = store.snapshot()
    store.clear()
    assert again.get_many([b"new"]) == [b"x"]


def test_clear(store: MetadataStore) -> None:
    store.put_many(PAIRS, applied=b"p")
    store.clear()
    assert list(store.iterate(b"")) == []
    assert store.applied() is None
    store.put_many([(b"a", b"2")])
    assert list(store.iterate(b"")) == [(b"a", b"2")]


def test_a_failing_batch_changes_nothing(store: MetadataStore) -> None:
    store.put_many(PAIRS, applied=b"p")

    def broken() -> Iterator[tuple[bytes, bytes]]:
        yield b"a", b"2"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.put_many(broken(), [b"c"], applied=b"q")
    assert list(store.iterate(b"")) == PAIRS
    assert store.applied() == b"p"


def test_load(store: MetadataStore) -> None:
    """Ascending over all batches, the points' family in the middle; over what was cleared, too."""
    pairs = [(b"%c%05d" % (first, i), b"%d" % i) for first in b"abcd" for i in range(300)]
    for _ in range(2):
        store.load(pairs[at : at + 70] for at in range(0, len(pairs), 70))
        assert store.applied() is None
        store.put_many([(b"b00007", b"changed")], [b"c00008"], applied=b"p")
        assert len(list(store.iterate(b""))) == len(pairs) - 1
        assert store.get_many([b"a00000", b"b00007", b"c00008", b"d00299"]) == [
            b"0",
            b"changed",
            None,
            b"299",
        ]
        store.clear()
        assert list(store.iterate(b"")) == []
    store.load([])
    assert list(store.iterate(b"")) == []


def test_a_load_cut_short_is_cleared(store: MetadataStore, tmp_path: Path) -> None:
    def broken() -> Iterator[list[tuple[bytes, bytes]]]:
        yield [(b"a1", b"x"), (b"b1", b"y")]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.load(broken())
    assert store.applied() is None
    assert not list(tmp_path.rglob("*.load"))
    store.clear()
    store.load([[(b"a2", b"x")]])
    assert list(store.iterate(b"")) == [(b"a2", b"x")]


@pytest.mark.parametrize("point", LOADS)
def test_a_load_that_is_killed_leaves_no_position_and_no_file(tmp_path: Path, point: P) -> None:
    killed_in(
        tmp_path,
        f"crashpoint.install(lambda at: at == {point.value} and die())\n"
        "store.load([[(b'a%04d' % i, b'x') for i in range(9)] + [(b'q%04d' % i, b'x') for i in range(9)]])",
    )
    store = open_metadata("rocksdb", tmp_path, CACHE, points=b"q")
    assert (store.applied(), store.cleared) == (None, None)  # type: ignore[attr-defined]
    assert len(list(store.iterate(b""))) == (0 if point is P.BEFORE_TAKEN_IN else 9)
    assert not list(tmp_path.rglob("*.load"))
    store.clear()
    store.load([[(b"q1", b"y")]])
    assert list(store.iterate(b"")) == [(b"q1", b"y")]
    store.close()


@pytest.mark.parametrize("point", LOGGED)
def test_a_batch_over_both_families_is_whole_wherever_it_is_killed(tmp_path: Path, point: P) -> None:
    killed_in(
        tmp_path,
        f"seen = []\ncrashpoint.install(lambda at: at == {point.value} and (seen.append(at), len(seen) > 300 and die()))\n"
        "for n in range(400): store.put_many([(b'%s%d' % (f, n % 7), b'%d' % n) for f in (b'a', b'q')]"
        " + [(b'r%d' % n, bytes(4000))], applied=b'%d' % n)",
    )
    store = open_metadata("rocksdb", tmp_path, CACHE, points=b"q")
    last = int(store.applied() or b"")
    assert last in (299, 300)
    values = [b"%d" % n for n in range(last - 6, last + 1)]
    for first in (b"a", b"q"):
        assert sorted(value for _, value in store.iterate(first)) == values
    assert len(list(store.iterate(b"r"))) == last + 1
    store.close()


def killed_in(directory: Path, body: str) -> None:
    """``body`` over a store with points, in a process that kills itself there."""
    killed(directory, "open_metadata('rocksdb', directory, CACHE, points=b'q')", body)


def test_another_family_of_points_is_another_store(tmp_path: Path) -> None:
    """What lies in a family that nobody asks would be lost to readers."""
    store = open_metadata("rocksdb", tmp_path, CACHE)
    store.put_many(PAIRS, applied=b"p")
    store.close()
    store = open_metadata("rocksdb", tmp_path, CACHE, points=b"b")
    assert "written with stamp" in store.cleared  # type: ignore[attr-defined]
    assert (list(store.iterate(b"")), store.applied()) == ([], None)
    store.put_many(PAIRS, applied=b"p")
    store.close()
    with pytest.raises(Corrupt, match="points"):
        open_metadata("rocksdb", tmp_path, CACHE)


@pytest.mark.parametrize("kind", DURABLE)
def test_content_outlives_the_process(kind: str, tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom tiered.metadata.open import open_metadata\n"
        f"s = open_metadata({kind!r}, sys.argv[1], {CACHE})\n"
        "s.put_many([(b'k', b'v'), (b'gone', b'')], applied=b'p')\ns.put_many([], [b'gone'])\nos._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False).returncode == 9
    store = open_metadata(kind, tmp_path, CACHE)
    assert (list(store.iterate(b"")), store.applied()) == ([(b"k", b"v")], b"p")
    store.close()


@pytest.mark.parametrize("kind", DURABLE)
def test_a_second_opener_is_told(kind: str, tmp_path: Path) -> None:
    first = open_metadata(kind, tmp_path, CACHE)
    with pytest.raises(Unavailable, match="another process has this metadata directory open") as found:
        open_metadata(kind, tmp_path, CACHE)
    assert found.value.hint
    first.close()
    first.close()
    open_metadata(kind, tmp_path, CACHE).close()


@pytest.mark.parametrize("kind", DURABLE)
def test_another_stamp_empties_the_store(kind: str, tmp_path: Path) -> None:
    store = open_metadata(kind, tmp_path, CACHE, stamp="1")
    assert store.cleared is None  # type: ignore[attr-defined]
    store.put_many(PAIRS, applied=b"p")
    store.close()
    store = open_metadata(kind, tmp_path, CACHE, stamp="2")
    assert "2" in store.cleared or "1" in store.cleared  # type: ignore[attr-defined]
    assert (list(store.iterate(b"")), store.applied()) == ([], None)
    store.put_many([(b"n", b"")])
    store.close()
    store = open_metadata(kind, tmp_path, CACHE, stamp="2")
    assert (list(store.iterate(b"")), store.cleared) == ([(b"n", b"")], None)  # type: ignore[attr-defined]
    store.close()


@pytest.mark.parametrize("kind", DURABLE)
def test_a_closed_store_says_so(kind: str, tmp_path: Path) -> None:
    store = open_metadata(kind, tmp_path, CACHE)
    store.close()
    with pytest.raises(Unavailable):
        store.put_many(PAIRS)


@pytest.mark.parametrize("kind", DURABLE)
def test_a_store_that_is_closed_while_somebody_reads_can_be_opened_again(kind: str, tmp_path: Path) -> None:
    store = open_metadata(kind, tmp_path, CACHE)
    store.put_many(PAIRS)
    frozen, walk = store.snapshot(), store.iterate(b"")
    next(walk)
    store.close()
    again = open_metadata(kind, tmp_path, CACHE)
    assert list(again.iterate(b"")) == sorted(PAIRS)
    again.close()
    del frozen, walk


@pytest.mark.parametrize("kind", DURABLE)
def test_a_directory_that_cannot_be(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Invalid, match="metadata") as found:
        open_metadata(kind, tmp_path / "file", CACHE)
    assert "state.directory" in (found.value.hint or "")


def test_an_unknown_kind() -> None:
    with pytest.raises(Invalid, match=r"state\.metadata"):
        open_metadata("sqlite", "/nowhere", CACHE)


def test_rocksdb_damage(tmp_path: Path) -> None:
    store = open_metadata("rocksdb", tmp_path, CACHE)
    store.put_many(PAIRS)
    store.close()
    manifest = next((tmp_path / "rocksdb").glob("MANIFEST*"))
    data = bytearray(manifest.read_bytes())
    data[len(data) // 3] ^= 0xFF
    manifest.write_bytes(bytes(data))
    with pytest.raises(Corrupt, match="damaged") as found:
        open_metadata("rocksdb", tmp_path, CACHE)
    assert "rebuilt from the bucket" in (found.value.hint or "")


def test_rocksdb_compresses_young_data_too(tmp_path: Path) -> None:
    store = open_metadata("rocksdb", tmp_path, CACHE)
    pairs = [(b"r%08d" % number, b"%0146d" % number) for number in range(20_000)]
    for first in range(0, len(pairs), 1000):
        store.put_many(pairs[first : first + 1000])
    store.close()
    held = sum(path.stat().st_size for path in tmp_path.rglob("*.sst"))
    assert 0 < held < sum(len(key) + len(value) for key, value in pairs) // 4


@pytest.mark.parametrize("damage", ["cut", "value", "field", "shape"])
def test_json_damage(tmp_path: Path, damage: str) -> None:
    store = open_metadata("json", tmp_path, CACHE)
    store.put_many(PAIRS, applied=b"p")
    store.close()
    path = tmp_path / "json" / "metadata.json"
    tree = json.loads(path.read_text())
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    elif damage == "value":
        tree["pairs"][0][1] = "Mg=="
        path.write_text(json.dumps(tree))
    elif damage == "field":
        del tree["applied"]
        path.write_text(json.dumps(tree))
    else:
        path.write_text("[1, 2]")
    with pytest.raises(Corrupt) as found:
        open_metadata("json", tmp_path, CACHE)
    assert "rebuilt from the bucket" in (found.value.hint or "")
    path.unlink()
    open_metadata("json", tmp_path, CACHE).close()
