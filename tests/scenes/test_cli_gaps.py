"""``tiered gaps``: what was lost for good, when and why, and what ``verify`` says of an archive with it."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kit.command import archive_once, tiered
from tests.kit.pipeline import Crafted

FLUSHES = ("dispatch.group_commit_bytes=65536", "dispatch.block_bytes=4096", "dispatch.object_bytes=65536")


def test_lost_messages_are_told_with_their_cause_and_never_plain_sound(tmp_path: Path) -> None:
    broker = Crafted(tmp_path / "store", file_bytes=1 << 18)
    for number in range(100):
        broker.send(topic="Orders", queue_id=number % 2, body=b"%04d" % number * 500)
    done = archive_once(broker.store, tmp_path / "archive", *FLUSHES)
    assert done.code == 0, done.err
    url = ("--archive", f"file://{tmp_path}/archive")
    none = tiered("gaps", *url)
    assert (none.code, "no message is lost" in none.err) == (0, True)
    commits = sorted((tmp_path / "archive").glob("*/*/commit/*/*"))
    commits[3].unlink()
    before = time.time() * 1000 - 5000
    assert tiered("repair", "--apply", *url).code == 0

    told = tiered("gaps", *url, "--json").json
    log, *queues = told
    assert log["topic"] is None
    assert log["bytes"] == log["end"] - log["start"] > 50_000
    assert [(row["topic"], row["queue_id"]) for row in queues] == [("Orders", 0), ("Orders", 1)]
    for row in told:
        assert row["why"] == "lost from the archive with a damaged commit"
        assert before < row["recorded_ms"] < time.time() * 1000 + 5000
    lost = sum(row["messages"] for row in queues)
    assert lost == sum(row["end"] - row["start"] for row in queues) > 20
    assert len(tiered("gaps", *url, "--json", "--limit", "1").json) == 1
    assert tiered("gaps", *url, "--topic", "Orders", "--json").json == queues

    found = tiered("verify", *url, "--json")
    assert (found.code, found.json["verdict"], found.json["lost_messages"]) == (0, "sound but for gaps", lost)
    assert tiered("verify", *url, "--fail-on-gap").code == 1
    for verb in ("queues", "status"):
        assert "lost from the archive with a damaged commit" in tiered(verb, *url).text, "the same cause"
