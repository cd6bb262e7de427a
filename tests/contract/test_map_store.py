"""What is the map store's own: its order, its frozen views, its file, its bound. The suite of all is ``test_redo_contract``."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit.rocks import CACHE
from tiered import crashpoint
from tiered.crashpoint import MetadataPoint, Point
from tiered.errors import Refused, Unavailable
from tiered.metadata import mapfile
from tiered.metadata.base import MetadataView, RedoStore
from tiered.metadata.keyorder import sorted_keys
from tiered.metadata.mapfile import ENTRY_BYTES, FILE_NAME, MapRedoStore
from tiered.metadata.mapformat import MAGIC
from tiered.metadata.open import open_redo

Pairs = dict[bytes, bytes]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MapRedoStore]:
    made = MapRedoStore(tmp_path, 1 << 23, "1")
    made.open()
    yield made
    made.close()


def sees(view: MetadataView, expected: Pairs, draw: random.Random) -> None:
    """Every pair, both ways, from a place in the middle, below a prefix, and by key."""
    pairs = sorted(expected.items())
    assert list(view.iterate(b"")) == pairs
    assert list(view.iterate(b"", reverse=True)) == pairs[::-1]
    middle = b"k%05d" % draw.randrange(9000)
    assert list(view.iterate(b"", start=middle)) == [pair for pair in pairs if pair[0] >= middle]
    below = [pair for pair in pairs if pair[0] <= middle]
    assert list(view.iterate(b"", start=middle, reverse=True)) == below[::-1]
    assert list(view.iterate(middle[:3])) == [pair for pair in pairs if pair[0][:3] == middle[:3]]
    assert view.get_many([middle, b"k", *expected]) == [expected.get(middle), None, *expected.values()]


def test_a_long_life_with_views_of_it(store: MapRedoStore) -> None:
    """Against a plain dict; views that are alive see what was there when they were made, flush and clear or not."""
    draw, model = random.Random(7), Pairs()
    views: list[tuple[MetadataView, Pairs, bytes]] = []
    for step in range(60):
        puts = [(b"k%05d" % draw.randrange(9000), b"%d" % step) for _ in range(draw.choice((3, 40, 3000)))]
        known = list(model)
        deletes = [*draw.sample(known, min(len(known), draw.choice((0, 5, 900)))), b"never there"]
        low = b"k%05d" % draw.randrange(9000)
        ranges = [(low, low + b"\xff"), (low, b"k%05d" % (int(low[1:]) + draw.choice((0, 50, 2000))))]
        model = {
            k: v
            for k, v in model.items()
            if k not in deletes and not low <= k < max(low + b"\xff", ranges[1][1])
        }
        model.update(puts)
        applied = b"%d" % step
        store.put_many(puts, deletes, ranges=ranges, applied=applied)
        if step % 7 == 3:
            views.append((store.snapshot(), dict(model), applied))
        if step == 30:
            store.clear()
            model = {}
        if step % 10 == 9:
            store.flush()
            sees(store, model, draw)
            assert store.size().keys == len(model)
    assert len(views) == 9
    for view, then, applied in views:
        sees(view, then, draw)
        assert view.applied() == applied


class Interrupted:
    """A lock; whenever it was given back ``every`` times, somebody else looks."""

    def __init__(self, every: int, look: Callable[[], None]) -> None:
        self._lock, self._every, self._look = threading.Lock(), every, look
        self._count, self._looking, self.looks = 0, False, 0

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *raised: object) -> None:
        self._lock.release()
        self._count += 1
        if self._count % self._every == 0 and not self._looking:
            self._looking, self.looks = True, self.looks + 1
            self._look()
            self._looking = False


@pytest.mark.parametrize("every", [2, 3, 7, 10_000])
def test_keys_are_brought_in_order_part_by_part(
    store: MapRedoStore, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    """Whoever looks between two parts sees every key once, and so does who looks behind the last."""
    monkeypatch.setattr(mapfile, "_UNORDERED", 300)
    monkeypatch.setattr(mapfile, "_AT_ONCE", 64)
    draw, model = random.Random(9), Pairs()

    def look() -> None:
        found = store._values  # what is there, by its key
        assert [key for key, _ in store.iterate(b"")] == sorted(found)

    lock = Interrupted(every, look)
    store._lock = lock  # type: ignore[assignment]
    for step in range(40):
        puts = [(b"k%05d" % draw.randrange(9000), b"%d" % step) for _ in range(draw.choice((5, 90, 400)))]
        store.put_many(puts, applied=b"%d" % step)
        model.update(puts)
        assert len(store._unordered) <= 300
    sees(store, model, draw)
    assert bool(lock.looks) == (every < 10_000)


def test_many_keys_are_sorted_by_all_their_bytes() -> None:
    """Where presorting sees all, some and nothing of what tells them apart; lengths that differ, zeros at their ends."""
    draw = random.Random(4)
    for made in (
        lambda number: b"n%012d" % number,
        lambda number: b"n%d" % number,
        lambda number: b"k" * 40 + b"%04d" % number + bytes(number % 3),
        lambda number: draw.randbytes(number % 20) + bytes(number % 4),
        lambda number: b"%d" % (number % 7) + b"same-" * 9 + b"%05d" % number,
        lambda number: bytes(number + 1),
    ):
        keys = list({made(number) for number in range(5000)})
        draw.shuffle(keys)
        assert sorted_keys(keys) == sorted(keys)
        assert sorted_keys(sorted(keys)) == sorted(keys)
    assert sorted_keys([]) == []


def test_what_is_put_while_the_file_is_written_is_in_the_next(tmp_path: Path, store: MapRedoStore) -> None:
    store.put_many([(b"a", b"1"), (b"b", b"1")], applied=b"one")

    def at(point: Point) -> None:
        if point is MetadataPoint.BEFORE_REDO_FLUSH:
            crashpoint.install(None)
            store.put_many([(b"a", b"2"), (b"c", b"2")], [b"b"], applied=b"two")

    crashpoint.install(at)
    store.flush()
    assert (store.flushed(), store.applied()) == (b"one", b"two")
    file = tmp_path / FILE_NAME
    copied = tmp_path / "copy" / FILE_NAME
    copied.parent.mkdir()
    copied.write_bytes(file.read_bytes())
    other = MapRedoStore(copied.parent, 1 << 20, "1")
    other.open()
    assert (dict(other.iterate(b"")), other.applied()) == ({b"a": b"1", b"b": b"1"}, b"one")
    other.close()
    store.flush()
    assert store.flushed() == b"two"


def test_nothing_is_written_when_nothing_was_put(tmp_path: Path, store: MapRedoStore) -> None:
    store.put_many([(b"a", b"1")], applied=b"one")
    store.flush()
    (tmp_path / FILE_NAME).unlink()
    store.flush()
    assert not (tmp_path / FILE_NAME).exists()


# ---- the file


def written(directory: Path) -> bytes:
    """A file of three frames and its end."""
    store = open_redo("map", directory, CACHE)
    store.put_many([(b"k%05d" % number, b"v%d" % (number % 7)) for number in range(9000)], applied=b"p")
    store.close()
    return (directory / "map" / FILE_NAME).read_bytes()


def is_emptied(directory: Path, data: bytes, caplog: pytest.LogCaptureFixture) -> bool:
    """Whether a store with this file is found damaged, says so, and goes on empty."""
    (directory / "map" / FILE_NAME).write_bytes(data)
    caplog.clear()
    store = open_redo("map", directory, CACHE)
    found = list(store.iterate(b"")), store.applied(), store.flushed()
    store.put_many([(b"a", b"1")], applied=b"p")
    store.close()
    said = [record.reason for record in caplog.records]  # type: ignore[attr-defined]
    return found == ([], None, None) and ["damaged" in reason for reason in said] == [True]


def test_damage_anywhere_is_seen(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data = written(tmp_path)
    draw = random.Random(3)
    places = [*range(30), *draw.sample(range(len(data)), 30), *range(len(data) - 60, len(data))]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << draw.randrange(8)
        assert is_emptied(tmp_path, bytes(changed), caplog), place
    for length in (0, 7, 8, 9, 30, len(data) // 2, len(data) - 4, len(data) - 1):
        assert is_emptied(tmp_path, data[:length], caplog), length
    assert is_emptied(tmp_path, data + b"\0", caplog)


def test_frames_that_are_sound_each_but_elsewhere_are_seen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = written(tmp_path)
    ends, at = [len(MAGIC)], len(MAGIC)
    while at < len(data):
        pairs, keys, values = (
            int.from_bytes(data[at + low : at + end], "little") for low, end in ((0, 4), (4, 8), (8, 16))
        )
        at += 16 + 8 * pairs + keys + values + 4
        ends.append(at)
    assert len(ends) == 5
    one, two, three = (data[low:end] for low, end in pairwise(ends[:4]))
    last = data[ends[3] :]
    for frames in ([two, one, three], [one, three], [one, one, two, three], [one, two]):
        assert is_emptied(tmp_path, MAGIC + b"".join(frames) + last, caplog)


def test_a_file_says_no_more_bytes_than_it_has(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Lengths are looked at before memory is taken for them."""
    data = written(tmp_path)
    huge = data[: len(MAGIC)] + b"\xff" * 4 + data[len(MAGIC) + 4 :]
    assert is_emptied(tmp_path, huge, caplog)


def test_a_full_disk_leaves_the_old_file_and_the_map(tmp_path: Path) -> None:
    store: RedoStore = open_redo("map", tmp_path, CACHE)
    store.put_many([(b"a", b"1")], applied=b"1")
    store.flush()
    file = tmp_path / "map" / FILE_NAME
    before = file.read_bytes()
    store.put_many([(b"b", b"2")], applied=b"2")
    full = file.with_name(FILE_NAME + ".new")
    full.symlink_to("/dev/full")
    with pytest.raises(Unavailable, match="No space left"):
        store.flush()
    assert (file.read_bytes(), full.is_symlink(), store.flushed()) == (before, False, b"1")
    assert store.get_many([b"b"]) == [b"2"]
    with pytest.raises(Unavailable, match="it is written again"):
        store.put_many([(b"c", b"3")], applied=b"3")
    full.symlink_to("/dev/full")
    with pytest.raises(Unavailable, match="No space left"):
        store.reopen()
    store.reopen()
    assert (store.applied(), store.flushed()) == (b"2", b"2")
    store.put_many([(b"c", b"3")], applied=b"3")
    store.close()
    store = open_redo("map", tmp_path, CACHE)
    assert (dict(store.iterate(b"")), store.applied()) == ({b"a": b"1", b"b": b"2", b"c": b"3"}, b"3")
    store.close()


# ---- the bound


def of_ten(tmp_path: Path) -> RedoStore:
    """One that holds ten entries of two bytes."""
    return open_redo("map", tmp_path, CACHE, map_bytes=10 * (ENTRY_BYTES + 2))


def test_beyond_the_bound_nothing_is_taken(tmp_path: Path) -> None:
    store = of_ten(tmp_path)
    store.put_many([(b"%d" % number, b"v") for number in range(9)], applied=b"1")
    with pytest.raises(Refused, match=r"nothing of this batch.*kv.map_bytes"):
        store.put_many([(b"0", b"w"), *((key, b"v") for key in (b"9", b"x", b"y"))], [b"1"], applied=b"2")
    with pytest.raises(Refused, match=r"kv.map_bytes"):
        store.put_many([(b"0", b"w" * (ENTRY_BYTES + 10))], applied=b"2")
    pairs = {b"%d" % number: b"v" for number in range(9)}
    assert (dict(store.iterate(b"")), store.applied()) == (pairs, b"1")
    store.put_many([(b"9", b"v"), (b"x", b"v")], [b"1"], applied=b"2")
    with pytest.raises(Refused):
        store.put_many([(b"1", b"v")])
    store.put_many([], ranges=[(b"0", b"5")])
    store.put_many([(b"1", b"v" * 100)])
    store.put_many([(b"1", b"v" * 90)])
    assert store.size().bytes == 7 * (ENTRY_BYTES + 2) + 89
    store.close()


@pytest.mark.parametrize("flushed", [False, True])
def test_what_is_replaced_counts_once(tmp_path: Path, flushed: bool) -> None:
    store = of_ten(tmp_path)
    for number in range(50):
        store.put_many([(b"%d" % key, b"%d" % (number % 10)) for key in range(8)])
        if flushed and number % 3 == 0:
            store.flush()
            assert store.size().bytes == 8 * (ENTRY_BYTES + 2)
    store.put_many([(b"8", b"v"), (b"9", b"v")])
    with pytest.raises(Refused):
        store.put_many([(b"x", b"v")])
    store.close()


def test_a_load_beyond_the_bound_leaves_nothing(tmp_path: Path) -> None:
    store = of_ten(tmp_path)
    with pytest.raises(Refused, match=r"kv.map_bytes"):
        store.load([[(b"%d" % number, b"v")] for number in range(11)], applied=b"p")
    assert (store.size().keys, store.applied()) == (0, None)
    store.load([[(b"%d" % number, b"v") for number in range(10)]], applied=b"p")
    assert store.size().keys == 10
    store.close()
