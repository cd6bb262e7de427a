"""A process that looks after damage and mends it is killed at every step: the next one brings it to an end, nothing is lost,
nothing is written over."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import CRASHED, SMALL_FLUSHES, Daemon
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import compare, opened
from tests.kit.process import TIERED, Child
from tests.scenes.test_cli_scrub import EAGER, flip, merged
from tiered.archive.care.notes import read_notes
from tiered.crashpoint import CrashPoint, ScrubPoint
from tiered.daemon.crashing import CRASH_VARIABLE

POINTS = (
    CrashPoint.BEFORE_OPEN_EPOCH,
    CrashPoint.AFTER_OPEN_EPOCH,
    CrashPoint.BEFORE_MERGED,
    CrashPoint.AFTER_MERGED,
    CrashPoint.BEFORE_COMMIT,
    CrashPoint.AFTER_COMMIT,
)


class Damaged:
    """A merged archive that a broker goes on to fill, a copy of it, and then damage: an object that is not what it was, and one
    that is not there."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.broker = FaultBroker.started(work / "store", 300, topics=("Orders",), queues=2)
        self.archive, self.copy, self.state = work / "archive", work / "copy", work / "state"
        self.url = f"file://{self.archive}"
        self.words = ("--store", work / "store", "--archive", self.url, "--state", self.state)
        self.small = {
            **SMALL_FLUSHES, "dispatch.inline_bytes": 0, "hold.max_disk_percent": 99, "web.port": -1,
        }  # fmt: skip
        self.sets = [part for key, value in self.small.items() for part in ("--set", f"{key}={value}")]
        assert tiered("run", "--once", *self.words, *self.sets).code == 0
        assert tiered("maintain", "--once", *self.words, *self.sets).code == 0
        self.broker.write(20)
        self.broker.close()
        assert tiered("run", "--once", *self.words, *self.sets).code == 0
        shutil.copytree(self.archive, self.copy)
        self.damaged = merged(self.archive)
        flip(self.damaged)
        self.spoiled = self.damaged.read_bytes()
        fresh = [i for i in opened(self.url).state.objects() if i.references and i.level == 0]
        self.missing = self.damaged.parent / Path(fresh[-1].path).name
        self.missing.unlink()

    def repair_words(self) -> tuple[str, ...]:
        """Of the command that mends."""
        where = self.words[2:]
        words = ("scrub", *where, *self.sets, "--once", "--deep", "--repair", "--copy", f"file://{self.copy}")
        return tuple(map(str, words))

    def daemon(self) -> Daemon:
        """A daemon that looks after damage at once, and mends from the copy."""
        settings = {**self.small, **EAGER, "web.port": 0, "scrub.copy_url": f"file://{self.copy}"}
        return Daemon(self.work, self.work / "store", self.url, state=self.state, **settings)

    def check_mended(self) -> None:
        """All is readable and sound, and nothing was written over."""
        assert compare(self.url, self.broker.oracle).good
        assert tiered("scrub", "--archive", self.url, "--once", "--deep").code == 0
        assert self.damaged.read_bytes() == self.spoiled
        assert self.missing.read_bytes() == (self.copy / self.missing.relative_to(self.archive)).read_bytes()


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
def test_killed_anywhere_the_next_run_brings_it_to_an_end(point: CrashPoint, tmp_path: Path) -> None:
    made = Damaged(tmp_path)
    environment = {CRASH_VARIABLE: f"{int(point)}:1"}
    child = Child("scrub", (*TIERED, *made.repair_words()), tmp_path / "log", environment, fork=False)
    assert child.wait(60) == CRASHED
    done = tiered(*made.repair_words(), "--json")
    assert done.code == 0, done.err
    made.check_mended()


@pytest.mark.parametrize("point", list(ScrubPoint), ids=lambda point: point.name)
def test_a_daemon_killed_anywhere_finds_and_mends_all_of_it(point: ScrubPoint, tmp_path: Path) -> None:
    made = Damaged(tmp_path)
    daemon = made.daemon().start(crash=point, ready=False)
    assert daemon.wait() == CRASHED
    daemon.start()

    def mended() -> bool:
        notes = read_notes(made.state)
        walked = notes is not None and notes.listing.whole_began_ms and notes.reading.whole_began_ms
        return bool(walked) and notes is not None and not notes.findings

    daemon.wait_until(mended, "two walks, and nothing damaged")
    assert daemon.status()["scrub"]["damaged_keys"] == 0
    assert daemon.stop() == 0
    made.check_mended()
