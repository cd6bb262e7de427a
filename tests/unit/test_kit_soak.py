"""What the randomised campaign goes by: work that is read from logs, records that might go, and a program in a hurry."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import pytest

from tests.kit import soak, soakdaemons
from tests.kit.daemonproc import Daemon
from tests.kit.oracle import Oracle, Queue, Record, Verdict, _compare_queue, parse, store_time_ms
from tests.kit.process import HURRIED, PATIENCE, TIERED, Child
from tests.kit.sinksoak import LONGEST_SECONDS, STILL_SECONDS, Nearing
from tests.kit.soak import Campaign
from tests.kit.soakdaemons import SoakError
from tests.kit.soakreport import ALWAYS, Outcome, Work
from tests.kit.soaksources import Place, SoakSource
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


class Clock:
    """Time that passes while somebody sleeps."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Writes:
    """A broker that counts."""

    messages, of_old_days = 0, False

    def __init__(self, store: Path) -> None:
        self.store = store

    def write(self, chance: random.Random) -> None:
        self.messages += 1


class Asked(Daemon):
    """A daemon that answers what it is told to; the last answer for ever."""

    answers: list[dict[str, Any]]
    alive = True

    def status(self) -> dict[str, Any]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def output(self) -> str:
        return ""

    def kill(self) -> None:
        pass


class Fast(Campaign):
    """A campaign whose comparisons take minutes and whose only action takes a second, with a daemon of words."""

    def __init__(self, work: Path, clock: Clock) -> None:
        self.clock = clock
        self.written = Writes(work)
        super().__init__(work, cast(SoakSource, self.written), Place("memory://", "memory://", {}, {}), 1)
        self._owner.__class__ = self._other.__class__ = Asked
        self._actions = {"quiet": (1, lambda: clock.sleep(1.0))}

    def tells(self, *answers: dict[str, Any]) -> None:
        cast(Asked, self._owner).answers = list(answers)

    def start(self, *flags: str) -> None:
        self._expected = set()

    def wait_ready(self, *flags: str) -> None:
        pass

    def compare_all(self) -> None:
        self.clock.sleep(200)
        self.outcome.rounds += 1


@pytest.fixture
def fast(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fast:
    clock = Clock()
    for module in (soak, soakdaemons):
        monkeypatch.setattr(module, "time", clock)
    return Fast(tmp_path, clock)


def test_comparisons_take_nothing_from_the_time_under_fire(fast: Fast) -> None:
    """On a machine without time a campaign would compare, and do nothing else."""
    fast.tells({"lag": {"bytes": 0}})
    outcome = fast.run(181, kills=999)
    assert outcome.error == ""
    assert outcome.rounds == 3 + 1
    assert outcome.actions["quiet"] > 100
    assert outcome.seconds > 181 + 3 * 200


def test_a_broker_waits_for_a_daemon_that_is_far_behind(fast: Fast) -> None:
    fast.tells({"lag": {"bytes": soakdaemons.MOST_BEHIND_BYTES + 1}}, {}, {"lag": {"bytes": 7}})
    fast.rest(1.9)
    assert fast.written.messages == 0, "nor when it does not answer any more"
    fast.rest(2)
    assert fast.written.messages > 10


def test_what_gets_anywhere_is_waited_for(fast: Fast) -> None:
    still = soakdaemons.STILL_SECONDS * PATIENCE
    steps = int(still) * 10
    fast.tells(*({"proven_offset": at // (steps // 2)} for at in range(5 * steps)))
    fast.wait_archived(9)
    assert fast.clock.now > 4 * still
    fast.tells({"proven_offset": 9})
    with pytest.raises(SoakError, match="up to 9 of 10"):
        fast.wait_archived(10)


def test_a_try_lasts_until_whatever_is_due_had_its_turn(fast: Fast) -> None:
    due = {"due": True, "last_turn_seconds_ago": 1e9, "problem": None}
    done = {"due": True, "last_turn_seconds_ago": 0.0, "problem": None}
    fast.tells({"maintenance": {"tasks": {"gc": done, "merge": due}}})
    assert fast._has_its_turn_to_come(0.0)
    fast.tells({"maintenance": {"tasks": {"gc": done, "merge": done}}})
    fast.clock.now = 1.0
    assert not fast._has_its_turn_to_come(0.0)
    fast.tells({"maintenance": {"tasks": {"gc": done, "merge": due}}})
    fast.clock.now = soak.LONGEST_TRY_SECONDS * PATIENCE + 1
    assert not fast._has_its_turn_to_come(0.0), "at some time it is a fault"


@pytest.mark.parametrize(("command", "environment", "code"), [(TIERED, {}, 2), (HURRIED, IN_A_HURRY, 0)])
def test_in_a_hurry_a_grace_may_be_seconds(
    tmp_path: Path, command: tuple[str, ...], environment: dict[str, str], code: int
) -> None:
    child = Child(
        "tiered", (*command, "config", "print"), tmp_path / "log", {**environment, "TIERED_GC_GRACE_MS": "2000"}, fork=True
    )  # fmt: skip
    assert child.wait(30) == code, child.output()
    assert ("grace_ms" in child.output(100_000)) is True


def test_what_comes_nearer_is_waited_for_and_what_stands_still_is_not() -> None:
    now = [0.0]
    waiting, still = Nearing(lambda: now[0]), STILL_SECONDS * PATIENCE
    for left in (900, 500, 100):
        now[0] += still * 0.9
        assert not waiting.spent(left)
    now[0] += still * 0.9
    assert not waiting.spent(100)
    now[0] += still * 0.2
    assert waiting.spent(100)
    assert waiting.spent(101)
    waiting = Nearing(lambda: now[0])
    for left in range(1_000, 0, -1):
        now[0] += 10
        if waiting.spent(left):
            break
    assert (1_000 - left) * 10 == LONGEST_SECONDS * PATIENCE, "and it ends, however slowly it comes nearer"
