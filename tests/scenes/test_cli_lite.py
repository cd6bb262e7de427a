"""The command line and lite queues: archived by one command, read by another, from the bucket alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.kit.command import archive_once, tiered
from tests.kit.litebroker import LiteBroker

LITE = "dispatch.lite_queues=true"


@pytest.fixture
def broker(tmp_path: Path) -> LiteBroker:
    made = LiteBroker(tmp_path / "store")
    for number in range(30):
        made.time_ms += 10
        made.place(["%LMQ%a", "%LMQ%b"][: number % 3], queue_id=number % 2, body=b"%d" % number)
    return made


def test_a_lite_queue_is_read_like_a_queue(broker: LiteBroker, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    assert archive_once(broker.store, archive, LITE).code == 0
    words = ("read", "--archive", f"file://{archive}", "--topic", "%LMQ%a", "--queue", 0)
    done = tiered(*words, "--count", 0, "--json")
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in done.out.splitlines()]
    placed = broker.placed()["%LMQ%a"]
    assert [line["queue_offset"] for line in lines] == list(placed)
    assert {line["topic"] for line in lines} == {"Orders"}, "the records are as they are stored"
    out = tmp_path / "raw"
    assert tiered(*words, "--offset", 3, "--count", 5, "--format", "raw", "--out", out).code == 0
    assert out.read_bytes() == b"".join(placed[o] for o in range(3, 8))
    done = tiered(*words[:-3], "%LMQ%none", "--queue", 0)
    assert done.code != 0
    assert "%LMQ%none" in done.err


def test_lite_queues_are_listed_apart(broker: LiteBroker, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive_once(broker.store, archive, LITE)
    words = ("queues", "--archive", f"file://{archive}", "--json-lines")

    def listed(*more: object) -> list[tuple[str, int, int]]:
        done = tiered(*words, *more)
        assert done.code == 0, done.err
        rows = [json.loads(line) for line in done.out.splitlines()]
        return [(row["topic"], row["min_offset"], row["max_offset"]) for row in rows]

    ends = {name: len(records) for name, records in broker.placed().items()}
    assert ends == {"%LMQ%a": 20, "%LMQ%b": 10}
    everything = [(name, 0, end) for name, end in sorted(ends.items())]
    assert listed("--lite") == listed("--lite", "--prefix", "%LMQ%") == everything
    assert listed("--lite", "--topic", "%LMQ%b") == listed("--lite", "--after", "%LMQ%a/0") == everything[1:]
    assert listed("--lite", "--limit", 1) == everything[:1]
    assert listed("--lite", "--prefix", "%LMQ%c") == []
    assert {topic for topic, _, _ in listed()} == {"Orders"}
    done = tiered(*words, "--lite", "--topic", "%LMQ%c")
    assert done.code != 0
    assert "did you mean %LMQ%b?" in done.err


def test_an_archive_with_aliases_is_whole(broker: LiteBroker, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive_once(broker.store, archive, LITE)
    done = tiered("verify", "--archive", f"file://{archive}", "--deep")
    assert done.code == 0, done.err + done.out


def test_status_counts_lite_queues(broker: LiteBroker, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    archive_once(broker.store, archive, LITE)
    done = tiered("status", "--archive", f"file://{archive}", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)["lite_queues"]
    assert (told["queues"], told["messages"], told["runs"]) == (2, 30, 2)
    assert told["bytes"] > 30 * 28
    plain = tmp_path / "plain"
    archive_once(broker.store, plain)
    assert "lite_queues" not in json.loads(tiered("status", "--archive", f"file://{plain}", "--json").out)
