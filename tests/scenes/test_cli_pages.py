"""``tiered topics`` and ``tiered queues``, page by page."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.kit.command import archive_once, tiered
from tests.kit.pipeline import Crafted
from tiered.archive.checkpoint.partial import PartialStore
from tiered.store import localfold


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("listing")
    broker = Crafted(place / "store")
    for number in range(5):
        for queue_id in range(2):
            broker.send(f"Topic{number}", queue_id)
    broker.send("Other", 0)
    assert archive_once(broker.store, place / "archive", "hold.max_disk_percent=99").code == 0
    return f"file://{place / 'archive'}"


def names(rows: Iterable[dict[str, object]]) -> list[str]:
    return [f"{row['topic']}/{row['queue_id']}" if "queue_id" in row else str(row["topic"]) for row in rows]


def test_the_verbs_page(archive: str) -> None:
    place = ("--archive", archive)
    done = tiered("topics", *place, "--prefix", "Topic", "--after", "Topic1", "--limit", 2, "--json-lines")
    assert names(done.rows) == ["Topic2", "Topic3"]
    assert names(tiered("topics", *place, "--limit", 2, "--json").json) == ["Other", "Topic0"]
    done = tiered("topics", *place, "--limit", 2)
    assert "there are more topics: --after Topic0" in done.err
    assert "there are more" not in tiered("topics", *place, "--limit", 6).err
    done = tiered("queues", *place, "--prefix", "Topic", "--after", "Topic1/0", "--limit", 3, "--json-lines")
    assert names(done.rows) == ["Topic1/1", "Topic2/0", "Topic2/1"]
    done = tiered("queues", *place, "--topic", "Topic3", "--limit", 1)
    assert "there are more queues: --after Topic3/0" in done.err
    assert names(tiered("queues", *place, "--topic", "Topic3", "--after", "Topic3/0", "--json").json) == [
        "Topic3/1"
    ]


def test_what_is_scattered_is_folded_on_a_disk_where_all_is_wanted_at_once_and_else_taken_in_pieces(
    archive: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = tiered("queues", "--archive", archive, "--json").json
    told = tiered("status", "--archive", archive, "--json").json
    monkeypatch.setattr(PartialStore, "scattered", property(lambda store: True))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = list[Path]()
    real = localfold.open_fold
    monkeypatch.setattr(
        localfold, "open_fold", lambda kind, directory, *more, **named: (
            made.append(directory), real(kind, directory, *more, **named)
        )[1],
    )  # fmt: skip
    again = tiered("status", "--archive", archive, "--json").json
    same = ("queues", "messages", "bytes", "runs", "stored_bytes")
    assert [again[name] for name in same] == [told[name] for name in same]
    assert tiered("queues", "--archive", archive, "--topic", "Topic3", "--json").json == expected[7:9]
    assert tiered("queues", "--archive", archive, "--json").json == expected
    assert made == [], "for sums and lists nothing is put on a disk"
    all_at_once = tiered("placement", "--archive", archive, "--nodes", "a,b")
    assert all_at_once.code == 0, all_at_once.err
    assert len(made) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--after", "Topic1"), "--after needs a topic and a queue id"),
        (("--after", "Topic1/x"), "--after needs a topic and a queue id"),
        (("--after", f"Topic1/{2**31}"), "--after needs a topic and a queue id"),
        (("--topic", "Topic1", "--prefix", "T"), "--topic and --prefix do not go together"),
    ],
)
def test_pages_that_make_no_sense(archive: str, words: tuple[str, ...], said: str) -> None:
    done = tiered("queues", "--archive", archive, *words)
    assert done.code == 2
    assert said in done.err


def test_a_page_begins_behind_any_name(archive: str) -> None:
    assert tiered("topics", "--archive", archive, "--after", "Z\x00\x01é", "--json").json == []
