"""What the randomised campaign goes by: work that is read from logs, records that might go, and a program in a hurry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from tests.kit.oracle import Oracle, Queue, Record, Verdict, _compare_queue, parse, store_time_ms
from tests.kit.process import HURRIED, TIERED, Child
from tests.kit.soakreport import ALWAYS, Outcome, Work
from tests.kit.warm import IN_A_HURRY
from tiered.archive.state.view import ArchiveState
from tiered.codec.record.message import Message, encode_message

QUEUE = ("Noise", 0)


class WithoutGaps:
    def phys_gaps(self, lineage: int) -> list[Any]:
        return []

    def gaps(self, queue: object) -> list[Any]:
        return []


def records(count: int, *, born_host: str = "127.0.0.1:0") -> list[Record]:
    """Of one queue, a second between them from 1000 ms on."""
    made, at = [], 0
    for i in range(count):
        message = Message(
            *QUEUE, i, at, b"x" * 40, store_timestamp=1000 * (i + 1), born_timestamp=7, born_host=born_host
        )
        made.append(parse(encode_message(message), 0)[1])
        at += len(made[-1].data)
    return made


def compared(wanted: list[Record], found: list[Record], may_go_below_ms: int) -> Verdict:
    verdict = Verdict()

    def may_go(queue: Queue, record: Record) -> bool:
        return queue == QUEUE and store_time_ms(record) < may_go_below_ms

    got = [(record.queue_offset, record.data) for record in found]
    _compare_queue(verdict, cast(ArchiveState, WithoutGaps()), 1, QUEUE, wanted, got, may_go)
    return verdict


@pytest.mark.parametrize("host", ["127.0.0.1:0", "[::1]:9"])
def test_the_store_time_of_a_record(host: str) -> None:
    assert [store_time_ms(record) for record in records(3, born_host=host)] == [1000, 2000, 3000]


def test_what_might_go_may_be_missing_from_the_front_alone() -> None:
    wanted = records(6)
    assert compared(wanted, wanted, 4000).trimmed == 0
    front = compared(wanted, wanted[2:], 4000)
    assert (front.trimmed, front.lost, front.good) == (2, 0, True)
    hole = compared(wanted, [wanted[0], *wanted[2:]], 4000)
    assert (hole.trimmed, hole.lost) == (0, 1), "a hole is not what retention leaves"
    in_range = compared(wanted, wanted[4:], 4000)
    assert (in_range.trimmed, in_range.lost) == (3, 1), "the fourth is in range"
    everything = compared(wanted, [], 7000)
    assert (everything.trimmed, everything.lost) == (6, 0)


def test_an_oracle_lets_nothing_go_unless_told(tmp_path: Path) -> None:
    assert Oracle(tmp_path).queues() == {}
    wanted = records(2)
    assert compared(wanted, wanted[1:], 0).lost == 1


def test_work_is_what_the_logs_say(tmp_path: Path) -> None:
    log = tmp_path / "one.log"
    work = Work((log, tmp_path / "never-written.log"))
    merged = json.dumps({"message": "maintenance", "task": "merge", "merged_runs": 3, "objects": None})
    trouble = json.dumps({"message": "cannot", "task": "gc", "error": "the store is away"})
    told = {"retain": {"turns": 1, "complete": True, "trimmed_queues": 2, "troubles": ["half of it"]}}
    report = json.dumps(told, indent=2)
    log.write_text(f"{merged}\n{merged[:30]}{merged}\nwords for people\n{trouble}\n{report}\n{merged[:-5]}")
    assert work.look().done["merge merged_runs"] == 3, (
        "a line that a kill cut is left out with the one behind it"
    )
    with log.open("a") as file:
        file.write(merged[-5:] + "\n" + json.dumps({"message": "checkpoint written", "seq": 9}) + "\n")
    work.look()
    assert (work.done["merge merged_runs"], work.done["checkpoint written"]) == (6, 1)
    assert work.done["retain trimmed_queues"] == 2
    assert "retain complete" not in work.done
    assert dict(work.troubles) == {"gc: the store is away": 1, "retain: half of it": 1}
    assert work.missing(["merge merged_runs", "gc deleted_keys"]) == ["gc deleted_keys"]
    assert work.bugs == []
    with log.open("a") as file:
        file.write("{\n  " + json.dumps({"time": "now", "message": "checkpoint written"}) + "\n")
        file.write(json.dumps({"time": "now", "message": "checkpoint written"}) + "\n")
    assert work.look().done["checkpoint written"] == 2, (
        "a report that a kill cut ends where the next log begins"
    )


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"message": "maintenance met a bug", "task": "gc", "traceback": "…"}),
        "Traceback (most recent call last):",
    ],
)
def test_a_bug_fails_a_campaign(tmp_path: Path, line: str) -> None:
    outcome = Outcome(1, work=Work((tmp_path / "one.log",)))
    assert outcome.good
    (tmp_path / "one.log").write_text(line + "\n")
    assert outcome.work.look().bugs == [line]
    assert not outcome.good


def test_silence_and_a_scrub_that_finds_something_fail_a_campaign() -> None:
    outcome = Outcome(1)
    outcome.silent = outcome.work.missing(ALWAYS)
    assert set(outcome.facts()["never_done"]) == ALWAYS
    assert not outcome.good
    outcome = Outcome(1)
    outcome.work.done["scrub damage"] = 1
    assert not outcome.good


@pytest.mark.parametrize(("command", "environment", "code"), [(TIERED, {}, 2), (HURRIED, IN_A_HURRY, 0)])
def test_in_a_hurry_a_grace_may_be_seconds(
    tmp_path: Path, command: tuple[str, ...], environment: dict[str, str], code: int
) -> None:
    child = Child(
        "tiered", (*command, "config", "print"), tmp_path / "log", {**environment, "TIERED_GC_GRACE_MS": "2000"}, fork=True
    )  # fmt: skip
    assert child.wait(30) == code, child.output()
    assert ("grace_ms" in child.output(100_000)) is True
