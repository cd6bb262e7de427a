"""A look into a store that another process is writing: whole batches, newer ones each time, and never in its way."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from tiered.errors import NotFound, Unavailable
from tiered.metadata import rockscursors
from tiered.metadata.open import open_metadata
from tiered.metadata.peek import peek
from tiered.metadata.rockspeek import catch_up

CACHE = 1 << 20


@contextmanager
def writing(kind: str, directory: Path, size: int) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that puts batch after batch: number n in two families, and a record of its own."""
    code = (
        "import sys\nfrom tiered.metadata.open import open_metadata\n"
        f"store, n = open_metadata({kind!r}, sys.argv[1], {CACHE}, points=b'q'), 0\n"
        "while True:\n"
        f"    store.put_many([(b'h', b'%d' % n), (b'q', b'%d' % n), (b'r%07d' % n, bytes({size}))], applied=b'%d' % n)\n"
        "    n += 1\n"
        "    if n == 50: print(flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(directory)], stdout=subprocess.PIPE) as made:
        try:
            assert made.stdout is not None
            assert made.stdout.readline()
            yield made
            assert made.poll() is None, "it was not disturbed"
        finally:
            made.kill()


@pytest.mark.parametrize(("kind", "size"), [("rocksdb", 10), ("rocksdb", 20_000), ("json", 10)])
def test_looks_beside_a_process_that_writes(tmp_path: Path, kind: str, size: int) -> None:
    """With large records its memtables become files, and its log begins anew, all the time."""
    seen = []
    with writing(kind, tmp_path, size):
        while len(set(seen)) < 8:
            with peek(kind, tmp_path, points=b"q") as view:
                applied = view.applied()
                assert view.get_many([b"h", b"none", b"q"]) == [applied, None, applied]
                number = int(applied or b"")
                assert [key for key, _ in view.iterate(b"r")] == [b"r%07d" % n for n in range(number + 1)]
                assert next(view.iterate(b"", reverse=True))[0] == b"r%07d" % number
                seen.append(number)
    assert seen == sorted(seen)


class Turning:
    """Stands for a store whose log begins anew while it is read, so many times."""

    def __init__(self, root: Path, times: int) -> None:
        self.root, self.times, self.looks, self.closed = root, times, 0, False
        self.turn()

    def turn(self) -> None:
        for path in self.root.glob("*.log"):
            path.unlink()
        (self.root / f"{self.looks:06}.log").touch()

    def try_catch_up_with_primary(self) -> None:
        self.looks += 1
        if self.looks < self.times:
            self.turn()

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("times", [1, 3])
def test_where_a_log_went_meanwhile_it_is_looked_again(tmp_path: Path, times: int) -> None:
    store = Turning(tmp_path, times)
    catch_up(cast(Any, store), tmp_path, {"another.log"})
    assert (store.looks, store.closed) == (times, False)
    catch_up(cast(Any, store), tmp_path, {path.name for path in tmp_path.glob("*.log")})
    assert store.looks == times, "nothing went"
    with pytest.raises(OSError, match="begins anew all the time"):
        catch_up(cast(Any, Turning(tmp_path, 10**9)), tmp_path, {"another.log"})


def test_a_look_leaves_nothing_and_takes_no_lock(tmp_path: Path) -> None:
    store = open_metadata("rocksdb", tmp_path / "state", CACHE)
    store.put_many([(b"a", b"1")], applied=b"p")
    before = {path.name for path in (tmp_path / "state" / "rocksdb").iterdir()}
    with peek("rocksdb", tmp_path / "state") as view:
        store.put_many([(b"a", b"2")])
        assert view.get_many([b"a"]) == [b"1"]
        frozen = view
    with pytest.raises(Unavailable):
        frozen.get_many([b"a"])
    assert {path.name for path in (tmp_path / "state" / "rocksdb").iterdir()} == before
    store.close()
    open_metadata("rocksdb", tmp_path / "state", CACHE).close()


def test_where_there_is_nothing_to_look_at(tmp_path: Path) -> None:
    for kind in ("memory", "json", "rocksdb"):
        with pytest.raises(NotFound, match="no local metadata"), peek(kind, tmp_path):
            pass


@pytest.mark.parametrize("kind", ["json", "rocksdb"])
def test_another_stamp_or_damage_is_said(tmp_path: Path, kind: str) -> None:
    store = open_metadata(kind, tmp_path, CACHE)
    store.put_many([(b"a", b"1")], applied=b"p")
    store.close()
    with pytest.raises(NotFound, match="another version"), peek(kind, tmp_path, stamp="2"):
        pass
    path = next((tmp_path / kind).glob("MANIFEST*" if kind == "rocksdb" else "metadata.json"))
    path.write_bytes(path.read_bytes()[::-1])
    with pytest.raises(Unavailable, match="cannot be read just now"), peek(kind, tmp_path):
        pass


@pytest.mark.parametrize("pairs", [1, 4, 5, 20, 21, 600])
def test_a_walk_asks_for_a_few_pairs_first_and_for_all_in_the_end(
    tmp_path: Path, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who wants the last pair before a key alone, as a search by time does some ten times, is not read hundreds."""
    keys = [b"r%07d" % number for number in range(pairs)]
    store = open_metadata("rocksdb", tmp_path, CACHE)
    store.put_many([(key, b"") for key in keys])
    store.close()
    read: list[int] = []
    chunk_of = rockscursors.chunk_of

    def counted(*of: Any) -> list[tuple[bytes, bytes]]:
        chunk = chunk_of(*of)
        read.append(len(chunk))
        return chunk

    monkeypatch.setattr(rockscursors, "chunk_of", counted)
    with peek("rocksdb", tmp_path) as view:
        assert next(view.iterate(b"r", reverse=True))[0] == keys[-1]
        assert next(view.iterate(b"r"))[0] == keys[0]
        assert max(read) <= rockscursors.FIRST
        assert [key for key, _ in view.iterate(b"r")] == keys
        assert [key for key, _ in view.iterate(b"r", reverse=True)] == keys[::-1]
        assert len(read) <= 12, "what goes on asks for more each time"
