"""Looking behind unreadable bytes: every place with a magic is found, whatever of the file is stored, and no hole is read."""

from __future__ import annotations

import errno
import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tiered.clock import ManualClock
from tiered.codec.record.layout import MAGIC_AT, MAGIC_BLANK, MAGIC_V1, MAGIC_V2
from tiered.model import PhysicalOffset
from tiered.settings import MIB
from tiered.source import search as search_module
from tiered.source.descriptors import Descriptors
from tiered.source.files import LogFile, file_at
from tiered.source.limit import RecordLimit
from tiered.source.search import _candidates
from tiered.source.walk import Chain

PAGE = 4096
LENGTH = 32 * PAGE
BASE = PhysicalOffset(3 * LENGTH)
MAGICS = [magic.to_bytes(4, "big") for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)]


class Looking(Chain):
    """A chain that counts the bytes it was asked for."""

    def __init__(self) -> None:
        super().__init__(Descriptors(), RecordLimit(MIB, lambda: None, ManualClock()))
        self.peeked = 0

    def peek(self, file: LogFile, position: int, size: int) -> bytes:
        found = super().peek(file, position, size)
        self.peeked += len(found)
        return found


def sparse(path: Path, chance: random.Random) -> LogFile:
    """A file of pages that are stored or not, with magics at any place, also over the edges of pages and of windows."""
    with path.open("wb") as file:
        file.truncate(LENGTH)
        for _ in range(chance.randrange(1, 12)):
            file.seek(chance.randrange(LENGTH // PAGE) * PAGE)
            file.write(chance.randbytes(PAGE * chance.randrange(1, 4))[: LENGTH - file.tell()])
        for _ in range(chance.randrange(1, 30)):
            edge = chance.randrange(1, LENGTH // PAGE) * PAGE
            file.seek(chance.choice([edge + chance.randrange(-4, 5), chance.randrange(LENGTH - 4)]))
            file.write(chance.choice(MAGICS))
    return file_at(str(path), BASE, path.stat())


def wanted(file: LogFile, position: int) -> list[int]:
    """Of the whole file."""
    found = re.finditer(b"|".join(map(re.escape, MAGICS)), Path(file.path).read_bytes())
    places = [BASE + each.start() - MAGIC_AT for each in found]
    return [place for place in places if place >= position]


def _no_holes(descriptor: int, position: int, how: int) -> int:
    raise OSError(errno.EINVAL, "holes are not told")


def _hole_made_meanwhile(descriptor: int, position: int, how: int) -> int:
    return position if how == os.SEEK_HOLE else _LSEEK(descriptor, position, how)


_LSEEK = os.lseek
TOLD: dict[str, Callable[[int, int, int], int]] = {
    "holes are told": os.lseek,
    "holes are not told": _no_holes,
    "a hole is made meanwhile": _hole_made_meanwhile,
}


@pytest.mark.parametrize("told", TOLD)
@pytest.mark.parametrize("window_bytes", [PAGE, 5 * PAGE, 4 * MIB])
def test_every_magic_is_found_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, window_bytes: int
) -> None:
    monkeypatch.setattr(search_module, "_WINDOW_BYTES", window_bytes)
    monkeypatch.setattr("tiered.source.descriptors.os.lseek", TOLD[told])
    for seed in range(8):
        chance = random.Random(seed)
        file = sparse(tmp_path / str(seed), chance)
        chain = Looking()
        everything = wanted(file, BASE)
        assert everything
        for start in (
            BASE,
            chance.randrange(BASE, file.end),
            everything[0],
            everything[-1] + 1,
            file.end - 1,
        ):
            assert list(_candidates(chain, file, start)) == [place for place in everything if place >= start]


@pytest.mark.parametrize("missing", [0, PAGE, LENGTH // 2])
def test_a_file_that_lost_its_end(tmp_path: Path, missing: int) -> None:
    file = sparse(tmp_path / "file", random.Random(1))
    os.truncate(file.path, LENGTH - missing)
    short = file_at(file.path, BASE, os.stat(file.path)).as_long_as(LENGTH)
    assert list(_candidates(Looking(), short, BASE)) == wanted(short, BASE)


def test_a_file_that_has_grown_is_searched_to_the_end_that_was_seen(tmp_path: Path) -> None:
    file = sparse(tmp_path / "file", random.Random(2))
    everything = wanted(file, BASE)
    with Path(file.path).open("r+b") as behind:
        behind.seek(LENGTH + PAGE)
        behind.write(MAGICS[0] * 1000)
    assert list(_candidates(Looking(), file, BASE)) == everything


def test_no_hole_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a file that is allocated at full size and has just been begun."""
    stored = (0, 1 << 29)

    def lseek(descriptor: int, position: int, how: int) -> int:
        starts = [start for start in stored if position < start + PAGE]
        if how == os.SEEK_HOLE:
            return starts[0] + PAGE
        if not starts:
            raise OSError(errno.ENXIO, "only a hole")
        return max(position, starts[0])

    path = tmp_path / "file"
    with path.open("wb") as begun:
        begun.truncate(1 << 30)
        for number, start in enumerate(stored):
            begun.seek(start)
            begun.write(b"\0\0\1\0" + MAGICS[number])
    monkeypatch.setattr("tiered.source.descriptors.os.lseek", lseek)
    chain, file = Looking(), file_at(str(path), BASE, path.stat())
    assert list(_candidates(chain, file, BASE)) == [BASE, BASE + (1 << 29)]
    assert chain.peeked <= 2 * (PAGE + MAGIC_AT + 3)
