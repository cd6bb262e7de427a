"""The note of deleted topics: appended to, bounded, and believed only where it is whole."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from tiered import durable
from tiered.daemon.topicnotes import EMPTY, GONE, SPARE, TopicNotes

ARCHIVE = bytes(range(16))


@pytest.fixture
def notes(tmp_path: Path) -> TopicNotes:
    return TopicNotes(tmp_path / "deleted-topics", ARCHIVE)


def test_what_changes_is_appended_and_nothing_else(
    notes: TopicNotes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = {f"Topic-{number:06d}": 5 for number in range(20_000)}
    notes.write(notes.read(), GONE, since)
    size = (tmp_path / "deleted-topics").stat().st_size
    written: list[int] = []
    append = durable.append
    monkeypatch.setattr(
        durable, "append", lambda path, length, data: (written.append(len(data)), append(path, length, data))
    )
    monkeypatch.setattr(durable, "replace", lambda path, data: pytest.fail("written anew"))
    del since["Topic-000007"]
    since["\U0001f600 \0 \ud800 new"] = 6
    notes.write(notes.read(), GONE, since)
    notes.write(notes.read(), EMPTY, {"Topic-000007": 6})
    assert notes.read().times == {GONE: since, EMPTY: {"Topic-000007": 6}}
    assert (tmp_path / "deleted-topics").stat().st_size == size + sum(written)
    assert sum(written) < 300
    notes.write(notes.read(), GONE, since)
    assert len(written) == 2, "nothing changed"


def test_topics_that_come_and_go_leave_a_file_that_does_not_grow(notes: TopicNotes, tmp_path: Path) -> None:
    chance, path = random.Random(7), tmp_path / "deleted-topics"
    sizes, whole = [], 0
    for look in range(300):
        first = look * 100
        since = {f"Topic-{number:08d}": 10 + number // 100 for number in range(first, first + 400)}
        if chance.random() < 0.2:
            since.pop(f"Topic-{first:08d}")
        before = path.stat().st_size if path.exists() else 0
        notes.write(notes.read(), GONE, since)
        assert notes.read().times == {GONE: since, EMPTY: {}}
        sizes.append(path.stat().st_size)
        whole += sizes[-1] < before
    assert max(sizes[150:]) <= 1.02 * max(sizes[:150]) < (2 * 400 + SPARE + 400) * 20
    assert 2 <= whole <= 20, "written anew now and then, not at every look"
    notes.write(notes.read(), GONE, {})
    assert path.stat().st_size < 100


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_an_end_that_was_never_acknowledged_counts_for_nothing_and_is_written_over(
    notes: TopicNotes, tmp_path: Path, cut: int
) -> None:
    path = tmp_path / "deleted-topics"
    notes.write(notes.read(), GONE, {"A": 1})
    whole = path.read_bytes()
    notes.write(notes.read(), GONE, {"A": 1, "a long name that has more bytes than are cut off": 2})
    path.write_bytes(path.read_bytes()[:-cut])
    assert notes.read().times[GONE] == {"A": 1}
    notes.write(notes.read(), GONE, {"B": 3})
    assert path.read_bytes().startswith(whole)
    assert notes.read().times[GONE] == {"B": 3}


def test_damage_anywhere_else_lets_every_time_begin_anew(notes: TopicNotes, tmp_path: Path) -> None:
    path = tmp_path / "deleted-topics"
    notes.write(notes.read(), GONE, {"A": 1, "B": 2})
    notes.write(notes.read(), GONE, {"B": 2})
    data = path.read_bytes()
    for at in range(len(data) - 1):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert notes.read().times in ({GONE: {}, EMPTY: {}}, {GONE: {"B": 2}, EMPTY: {}}), at
        assert data[at : at + 1].isspace() or notes.read().times[GONE] == {}, at
    assert TopicNotes(path, b"x" * 16).read().times == {GONE: {}, EMPTY: {}}


def test_a_note_of_the_form_before_is_read_and_replaced_by_the_next_change(
    notes: TopicNotes, tmp_path: Path
) -> None:
    path = tmp_path / "deleted-topics"
    path.write_text(
        json.dumps({"archive_id": ARCHIVE.hex(), "since_ms": {"A": 1}, "empty_since_ms": {"B": 2}})
    )
    former = path.read_bytes()
    assert notes.read().times == {GONE: {"A": 1}, EMPTY: {"B": 2}}
    notes.write(notes.read(), GONE, {"A": 1})
    assert path.read_bytes() == former
    notes.write(notes.read(), GONE, {"A": 1, "C": 3})
    assert not path.read_bytes().startswith(b"{")
    assert notes.read().times == {GONE: {"A": 1, "C": 3}, EMPTY: {"B": 2}}
    assert TopicNotes(path, b"x" * 16).read().times == {GONE: {}, EMPTY: {}}
