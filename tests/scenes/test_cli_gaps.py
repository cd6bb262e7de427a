"""``tiered gaps``: what was lost for good, when and why, and what ``verify`` says of an archive with it."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

from tests.kit.command import archive_once, tiered
from tests.kit.pipeline import Crafted

FLUSHES = ("dispatch.group_commit_bytes=65536", "dispatch.block_bytes=4096", "dispatch.object_bytes=65536")


INSIDE = "the commit was lost; its positions were mended, its messages were not"


def archived(directory: Path, *sets: str, file_bytes: int = 1 << 18) -> tuple[Crafted, tuple[str, str]]:
    """A broker's store with 100 messages in two queues, archived; the arguments that name the archive."""
    broker = Crafted(directory / "store", file_bytes=file_bytes)
    for number in range(100):
        broker.send(topic="Orders", queue_id=number % 2, body=b"%04d" % number * 500)
    done = archive_once(broker.store, directory / "archive", *FLUSHES, *sets)
    assert done.code == 0, done.err
    return broker, ("--archive", f"file://{directory}/archive")


def lose(directory: Path, *seqs: int) -> None:
    for seq in seqs:
        (made,) = (directory / "archive").glob(f"*/*/commit/*/{seq:020d}")
        made.unlink()


def printed(pattern: str, text: str, names: dict[str, object]) -> list[object]:
    """A command as it was printed, in words, with these in the place of what its capitals name."""
    (found,) = re.findall(pattern, text)
    return [names.get(word, word) for word in found.split()]


def test_lost_messages_are_told_with_their_cause_and_never_plain_sound(tmp_path: Path) -> None:
    _, url = archived(tmp_path)
    none = tiered("gaps", *url)
    assert (none.code, "no message is lost" in none.err) == (0, True)
    lose(tmp_path, 3)
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


def test_messages_inside_commits_that_others_stand_for_are_told_as_lost(tmp_path: Path) -> None:
    """The local state knew what the commits said, and not the messages that travelled inside them: the fold is whole, and no
    reader can have them."""
    _, url = archived(tmp_path, "dispatch.inline_bytes=1048576")
    whole = [row["messages"] for row in tiered("queues", *url, "--json").json]
    shutil.copytree(tmp_path / "archive", tmp_path / "copy")
    lose(tmp_path, 3, 4)
    shutil.move(tmp_path / "store", tmp_path / "away")
    assert tiered("repair", "--apply", *url, "--state", tmp_path / "store.tiered").code == 0
    assert tiered("verify", *url).code == 1
    assert [row["messages"] for row in tiered("queues", *url, "--json").json] == whole, "as if all were there"

    found = tiered("gaps", *url, "--json")
    assert (found.code, "no message is lost" in found.err) == (0, False)
    told = found.json
    assert {(row["topic"], row["queue_id"], row["commit"]) for row in told} == {
        ("Orders", queue, seq) for queue in (0, 1) for seq in (3, 4)
    }
    assert {row["why"] for row in told} == {INSIDE}
    lost = sum(row["messages"] for row in told)
    assert lost == sum(row["end"] - row["start"] for row in told) > 40
    assert tiered("gaps", *url, "--topic", "Orders", "--json").json == told
    assert tiered("gaps", *url, "--topic", "Others", "--json").json == []
    for row in tiered("queues", *url, "--json").json:
        mine = [[r["start"], r["end"], INSIDE] for r in told if r["queue_id"] == row["queue_id"]]
        assert row["gaps"] == mine
    assert tiered("topics", *url, "--json").json[0]["gaps"] == len(told)
    status = tiered("status", *url, "--json").json
    assert status["lost_inside_commits"] == {"messages": lost, "commits": [3, 4], "reason": INSIDE}
    first = min(row["start"] for row in told if row["queue_id"] == 0)
    assert tiered("read", *url, "--topic", "Orders", "--queue", 0, "--offset", first, "--count", 1).code == 8

    names = {"DIRECTORY": tmp_path / "walk", "URL": f"file://{tmp_path}/copy"}
    said = tiered("gaps", *url).err
    way = printed(r"tiered (scrub --once --repair --state DIRECTORY)", said, names)
    other = printed(r"(--copy URL)", said, names)
    assert tiered(*way, *url, *other).code == 0
    none = tiered("gaps", *url)
    assert (none.code, "no message is lost" in none.err) == (0, True)
    assert tiered("verify", *url, "--deep").code == 0
    assert "lost_inside_commits" not in tiered("status", *url, "--json").json


def test_what_came_back_is_read_from_where_the_printed_command_archives_it(tmp_path: Path) -> None:
    """The commit is lost while the broker's disk is away, and becomes a gap; then the disk is there again."""
    broker, url = archived(tmp_path)
    lose(tmp_path, 3)
    shutil.move(broker.store, tmp_path / "away")
    assert tiered("repair", "--apply", *url).code == 0
    shutil.move(tmp_path / "away", broker.store)
    assert tiered("run", "--once", *url, "--store", broker.store).code == 0, (
        "the daemon goes on beside its gap"
    )

    told = tiered("gaps", *url, "--json").json
    said = tiered("gaps", *url).err
    names = {
        "DIR": broker.store, "ANOTHER-URL": f"file://{tmp_path}/beside", "ANOTHER-DIRECTORY": tmp_path / "other",
    }  # fmt: skip
    way = printed(
        r"tiered (run --once --store DIR --archive ANOTHER-URL --state ANOTHER-DIRECTORY)", said, names
    )
    assert "tiered read" in said
    assert "replay take them from there" in said
    done = tiered(*way)
    assert done.code == 0, done.err
    beside = ("--archive", f"file://{tmp_path}/beside", "--json")
    for row in (row for row in told if row["topic"]):
        asked = ("--topic", row["topic"], "--queue", row["queue_id"])
        found = tiered("read", *beside, *asked, "--offset", row["start"], "--count", row["messages"]).rows
        assert [(r["queue_offset"], r["body"][:4]) for r in found] == [
            (at, f"{2 * at + row['queue_id']:04d}") for at in range(row["start"], row["end"])
        ]
    replayed = tiered(
        "replay", *beside, "--group", "G", "--topic", "Orders", "--from", 1, "--to", 2**41, "--state", tmp_path / "other",
        "--set", "replay.broker_address=127.0.0.1:1", "--set", "replay.timeout_ms=300",
    )  # fmt: skip
    assert (replayed.code, replayed.json["messages"]) == (0, 100), replayed.err
    assert tiered("verify", *beside).json["verdict"] == "sound"
