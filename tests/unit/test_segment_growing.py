"""The file that pyarrow believes it writes segments to."""

from __future__ import annotations

import random

import pytest

from tiered.codec.segment import growing
from tiered.codec.segment.growing import GrowingFile


def test_what_is_taken_is_what_was_written_since_the_last_time_however_much_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(growing, "_FIRST_BYTES", 4096)
    file, chance, taken, expected = GrowingFile(), random.Random(7), list[memoryview](), list[bytes]()
    for _ in range(40):
        pieces = [
            chance.randbytes(chance.choice((0, 1, 100, 4096, 9000))) for _ in range(chance.randrange(4))
        ]
        assert [file.write(piece) for piece in pieces] == list(map(len, pieces))
        expected.append(b"".join(pieces))
        assert file.tell() == file.position == sum(map(len, expected))
        taken.append(file.taken())
    assert taken == expected  # none was written over by what came later
    assert len(max(expected, key=len)) > 4 * 4096
    assert file.taken() == b""


def test_a_closed_file_says_so() -> None:
    file = GrowingFile()
    assert not file.closed
    file.close()
    assert file.closed
