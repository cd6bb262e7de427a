"""A process that mends from a copy is killed at every step: the next one ends it, nothing is lost, nothing is written over."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import CRASHED, SMALL_FLUSHES
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import compare
from tests.kit.process import TIERED, Child
from tests.unit.test_cli_scrub import flip, merged
from tiered.crashpoint import CrashPoint
from tiered.daemon.crashing import CRASH_VARIABLE

POINTS = (
    CrashPoint.BEFORE_OPEN_EPOCH,
    CrashPoint.AFTER_OPEN_EPOCH,
    CrashPoint.BEFORE_MERGED,
    CrashPoint.AFTER_MERGED,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)


class Mended:
    """A merged archive, a copy of it, and then damage."""

    def __init__(self, work: Path) -> None:
        self.broker = FaultBroker.started(work / "store", 300, topics=("Orders",), queues=2)
        self.broker.close()
        self.archive, self.copy, self.state = work / "archive", work / "copy", work / "state"
        self.words = ("--store", work / "store", "--archive", f"file://{self.archive}", "--state", self.state)
        small = {**SMALL_FLUSHES, "dispatch.inline_bytes": 0, "hold.max_disk_percent": 99, "web.port": -1}
        self.sets = [part for key, value in small.items() for part in ("--set", f"{key}={value}")]
        assert tiered("run", "--once", *self.words, *self.sets).code == 0
        assert tiered("maintain", "--once", *self.words, *self.sets).code == 0
        shutil.copytree(self.archive, self.copy)
        self.damaged = merged(self.archive)
        flip(self.damaged)

    def repair_words(self) -> tuple[str, ...]:
        """Of the command that mends."""
        where = self.words[2:]
        words = ("scrub", *where, *self.sets, "--once", "--deep", "--repair", "--copy", f"file://{self.copy}")
        return tuple(map(str, words))


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_killed_anywhere_the_next_run_brings_it_to_an_end(point: CrashPoint, tmp_path: Path) -> None:
    made = Mended(tmp_path)
    spoiled = made.damaged.read_bytes()
    environment = {CRASH_VARIABLE: f"{int(point)}:1"}
    child = Child("scrub", (*TIERED, *made.repair_words()), tmp_path / "log", environment, fork=False)
    assert child.wait(60) == CRASHED
    done = tiered(*made.repair_words(), "--json")
    assert done.code == 0, done.err
    assert compare(f"file://{made.archive}", made.broker.oracle).good
    assert tiered("scrub", "--archive", f"file://{made.archive}", "--once", "--deep").code == 0
    assert made.damaged.read_bytes() == spoiled, "nothing is written over"
