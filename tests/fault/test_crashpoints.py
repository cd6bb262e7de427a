"""Kill the daemon at every numbered point of the write path, start it again, and compare with the dict of lists (S1, S2, S3).

While the daemon is dead the broker writes on and deletes its oldest file: the hold alone must keep what was not archived.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.kit.daemonproc import CRASHED, SMALL_FLUSHES, Daemon
from tests.kit.encryption import KEY
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import closed_records, compare, opened
from tiered.archive.read.verify import Verifier
from tiered.crashpoint import CrashPoint as P

OBJECTS = {**SMALL_FLUSHES, "dispatch.inline_bytes": 0, "dispatch.object_bytes": 65_536}
CHECKPOINTS = {**SMALL_FLUSHES, "archive.checkpoint_commits": 2}

MERGES = {**SMALL_FLUSHES, "maintenance.merge_runs": 16}
"""Several jobs."""

CASES: dict[P, tuple[dict[str, Any], tuple[int, ...]]] = {
    P.BEFORE_IDENTITY: (SMALL_FLUSHES, (1,)),
    P.AFTER_IDENTITY: (SMALL_FLUSHES, (1,)),
    P.BEFORE_OPEN_EPOCH: (SMALL_FLUSHES, (1,)),
    P.AFTER_OPEN_EPOCH: (SMALL_FLUSHES, (1,)),
    P.AFTER_HOLD: (SMALL_FLUSHES, (1, 5)),
    P.AFTER_BUFFER: (SMALL_FLUSHES, (1, 4)),
    P.AFTER_COPY: (SMALL_FLUSHES, (1, 3)),
    P.AFTER_PLAN: (SMALL_FLUSHES, (1, 2, 4)),  # from here on the first one is the first position
    P.AFTER_FIRST_OBJECT: (OBJECTS, (1, 3)),
    P.AFTER_OBJECTS: (OBJECTS, (1, 2, 4)),
    P.BEFORE_COMMIT: (SMALL_FLUSHES, (1, 3)),  # of these the first one is the claim of the epoch
    P.AFTER_COMMIT: (SMALL_FLUSHES, (1, 3)),
    P.AFTER_METADATA: (SMALL_FLUSHES, (1, 3)),
    P.AFTER_RELEASE: (SMALL_FLUSHES, (1, 2, 4)),
    P.BEFORE_REWIND: (SMALL_FLUSHES, (1,)),
    P.AFTER_REWIND: (SMALL_FLUSHES, (1,)),
    P.BEFORE_CHECKPOINT: (CHECKPOINTS, (1,)),
    P.AFTER_SHARDS: (CHECKPOINTS, (1,)),
    P.AFTER_CHECKPOINT: (CHECKPOINTS, (1,)),
    P.POSIX_AFTER_TEMPORARY: (OBJECTS, (40, 44, 46)),  # past the start-up probe
    P.POSIX_AFTER_LINK: (OBJECTS, (10, 12, 14)),
    P.BEFORE_MERGED: (MERGES, (2,)),
    P.AFTER_MERGED: (MERGES, (2,)),
    P.AFTER_MERGE: (MERGES, (2,)),
}
MERGED = (P.BEFORE_MERGED, P.AFTER_MERGED, P.AFTER_MERGE)
SHARED = {P.AFTER_PLAN: 1, P.AFTER_COMMIT: 2, P.AFTER_METADATA: 2}
"""Points that a merge passes like a flush does; some of them the claim of its epoch passes first."""
REWINDS = (P.BEFORE_REWIND, P.AFTER_REWIND)


def test_every_point_has_a_case() -> None:
    assert set(CASES) == set(P)
    assert sorted(P) == list(range(1, len(P) + 1))


def check(url: str, broker: FaultBroker, key_file: str = "") -> None:
    """Everything readable exactly once, and nothing damaged; objects of a dead flush may lie about, unnamed."""
    archive = opened(url, key_file=key_file)
    verdict = compare(archive, broker.oracle)
    assert verdict.good, verdict
    assert (verdict.in_gaps, verdict.readable) == (0, verdict.messages)
    report = Verifier(archive).run(deep=True)
    assert report.sound, report.damage


@pytest.mark.parametrize(
    ("point", "times"),
    [(point, n) for point, (_, counts) in CASES.items() if point not in MERGED for n in counts],
)
def test_kill_restart_compare(tmp_path: Path, point: P, times: int) -> None:
    settings = CASES[point][0]
    broker = FaultBroker.started(tmp_path / "store", 900)
    url = f"file://{tmp_path / 'archive'}"
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **settings)
    if point in REWINDS:
        assert daemon.once() == 0
        starts = broker.starts()
        broker.lose_tail(starts[-200], zero=False)
        broker.write(250)
    assert daemon.once(crash=point, times=times) == CRASHED, (
        f"the daemon never reached {point.name} {times} times"
    )
    broker.write(300)
    broker.expire(1)
    assert daemon.once() == 0, daemon.output()
    check(url, broker)
    if point in REWINDS:
        assert sum(len(records) for records in closed_records(opened(url)).values()) == 200
    broker.close()


@pytest.mark.parametrize(
    ("point", "times"),
    [*((point, n) for point in MERGED for n in CASES[point][1]), *SHARED.items()],
)
def test_kill_while_merging_restart_compare(tmp_path: Path, point: P, times: int) -> None:
    broker = FaultBroker.started(tmp_path / "store", 900)
    url = f"file://{tmp_path / 'archive'}"
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **MERGES)
    assert daemon.once() == 0
    before = len(list(opened(url).state.runs_all()))
    assert daemon.maintain(crash=point, times=times) == CRASHED
    check(url, broker)
    broker.write(300)
    assert daemon.once() == 0, daemon.output()
    check(url, broker)
    assert daemon.maintain() == 0, daemon.output()
    check(url, broker)
    assert len(list(opened(url).state.runs_all())) < before
    broker.close()


ENCRYPTED = (
    (P.AFTER_OPEN_EPOCH, 1), (P.AFTER_FIRST_OBJECT, 1), (P.AFTER_OBJECTS, 2), (P.AFTER_COMMIT, 3), (P.AFTER_SHARDS, 1),
    (P.AFTER_REWIND, 1),
)  # fmt: skip
"""Between the claim of an epoch, its data key, and what is put with it."""


@pytest.mark.parametrize(("point", "times"), ENCRYPTED)
def test_kill_restart_compare_an_encrypted_archive(tmp_path: Path, point: P, times: int) -> None:
    """The first 900 messages are plain, what follows is not; local state is forgotten each time."""
    broker = FaultBroker.started(tmp_path / "store", 900)
    url, key = f"file://{tmp_path / 'archive'}", tmp_path / "key"
    key.write_text(KEY)
    settings = CASES[point][0]
    assert Daemon(tmp_path, broker.options.store_dir, url, **settings).once() == 0
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **settings, **{"encryption.key_file": str(key)})
    if point in REWINDS:
        broker.lose_tail(broker.starts()[-200], zero=False)
    broker.write(600)
    assert daemon.once(crash=point, times=times) == CRASHED, daemon.output()
    shutil.rmtree(daemon.state)
    broker.write(300)
    assert daemon.once() == 0, daemon.output()
    check(url, broker, str(key))
    assert KEY not in daemon.output()
    broker.close()


@pytest.mark.parametrize("point", [P.AFTER_OPEN_EPOCH, P.AFTER_COMMIT, P.AFTER_METADATA, P.AFTER_SHARDS])
def test_kill_forget_everything_local_restart_compare(tmp_path: Path, point: P) -> None:
    broker = FaultBroker.started(tmp_path / "store", 900)
    url = f"file://{tmp_path / 'archive'}"
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **CASES[point][0])
    assert daemon.once(crash=point) == CRASHED
    shutil.rmtree(daemon.state)
    broker.write(300)
    assert daemon.once() == 0, daemon.output()
    check(url, broker)
    broker.close()


def test_a_crash_at_every_restart_still_makes_progress(tmp_path: Path) -> None:
    broker = FaultBroker.started(tmp_path / "store", 1500)
    url = f"file://{tmp_path / 'archive'}"
    daemon = Daemon(tmp_path, broker.options.store_dir, url, **SMALL_FLUSHES)
    codes = []
    while not codes or codes[-1] != 0:
        codes.append(daemon.once(crash=P.AFTER_RELEASE, times=4))
        if len(codes) < 4:
            broker.write(50)
        assert len(codes) < 20, "no progress"
    assert codes.count(CRASHED) >= 3
    assert daemon.once() == 0
    check(url, broker)
    broker.close()
