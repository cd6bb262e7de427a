"""The benchmark command: names are checked, and one tiny benchmark runs to a table row."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.bench.__main__ import cases, parse
from tests.bench.agedday import files_of, runs_of_day
from tests.bench.coldpush import Scene
from tests.bench.folding import Grown
from tests.bench.javaload import Pushed
from tests.bench.lagageing import Batch, Look, Phase, said
from tests.bench.millioncommit import COMMITS, committing
from tests.bench.run import NoFigure, expect, whole
from tiered.archive.checkpoint.store import fold_pairs
from tiered.archive.state.cached import open_fold
from tiered.archive.state.view import ArchiveState
from tiered.settings import Settings


def test_names_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["backlog", "--quick"]).names == ["backlog"]
    assert parse([]).names == []
    with pytest.raises(SystemExit):
        parse(["backlogs"])
    told = capsys.readouterr().err
    listed = f"there are {', '.join(sorted(cases(True)))}"
    assert listed in " ".join(told.split())
    assert all(name in told for name in cases(True))
    assert list(cases(True)) == list(cases(False))


def test_a_commit_among_queues_is_measured_in_both_providers(tmp_path: Path) -> None:
    grown, directory = Grown(50, 2), tmp_path / "state" / "metadata"
    fold = open_fold("rocksdb", directory, 1 << 20)
    fold.put_many(fold_pairs(grown.store), applied=grown.store.applied())
    fold.close()
    put, folded, opened = committing(
        tmp_path, tmp_path / "state", (grown.topics, grown.queue_ids.tolist()), "50 queues"
    )
    assert put.what == "a commit that touches 50 of 50 queues: put"
    assert float(put.ratio.replace(",", "")) > 0
    assert (folded.baseline, opened.target) == ("-", "report")
    fold = open_fold("rocksdb", directory, 1 << 20)
    assert [queue.runs for queue in ArchiveState(fold).queues()] == [2 + COMMITS] * 50
    fold.close()
    assert parse(["million", "--queues", "5000"]).queues == 5000


class Rounds:
    """In the place of the Java client: what each push consumer is handed."""

    def __init__(self, *rounds: Pushed) -> None:
        self.left = list(rounds)
        self.groups: list[str] = []

    def push(self, topic: str, name_server: str, group: str, messages: int) -> Pushed:
        self.groups.append(group)
        return self.left.pop(0)


def scene(java: Rounds) -> Scene:
    broker, names = SimpleNamespace(pid=os.getpid()), SimpleNamespace(address="127.0.0.1:1")
    return Scene(Path(), names, broker, java, 100)  # type: ignore[arg-type]


@pytest.mark.parametrize("less", [Pushed(0, 0, 0.0), Pushed(99, 0, 1.0), Pushed(100, 1, 1.0)])
def test_a_round_in_which_not_every_message_came_runs_again(less: Pushed) -> None:
    java = Rounds(less, Pushed(100, 0, 2.0))
    assert scene(java).theirs("theirs").pushed.per_second == 50
    assert len(set(java.groups)) == 2, "a new group: the first has positions"
    with pytest.raises(SystemExit):
        scene(Rounds(less, less)).theirs("theirs")


def test_nothing_else_runs_again() -> None:
    def broken(number: int) -> int:
        raise ValueError(number)

    with pytest.raises(ValueError, match="0"):
        whole(broken)
    with pytest.raises(NoFigure, match="5 messages were read and not 6"):
        expect(5, 6)


def test_files_of_a_day_are_as_many_as_its_strictest_bound_says() -> None:
    assert files_of(1, 1, 1) == 10
    assert files_of(513, 1, 1) == 20, "a job reads 512 objects"
    assert files_of(1, 1_000_001, 1) == 20, "and replaces 100,000 runs of one topic"
    assert files_of(1, 1, 10 * Settings().seal.segment_bytes + 1) == 20, "and its file ends"


def test_runs_of_a_day_grow_by_the_rule_of_merging() -> None:
    half_a_block = 128 * 1024
    assert runs_of_day(8640, half_a_block) == (1, 9, 2.0), (
        "ten rounds, of which the last makes one run of all"
    )
    assert runs_of_day(864, 10 * half_a_block) == (100, 100, 1.0), "what has settled stays"


def test_lag_is_counted_from_the_append_to_the_first_commit_that_has_it() -> None:
    looks = [
        Look(-9000, 9.0, ""),
        Look(1000, 0.0, ""),
        Look(2000, 0.5, "seal"),
        Look(3500, 0.5, "scrub"),
        Look(4000, 0.0, ""),
        Look(9000, 9.0, ""),
    ]
    batches = [Batch(50, -8000, 1), Batch(100, 1500, 2), Batch(200, 2500, 1), Batch(300, 3600, 1)]
    commits = np.array([(50, 1400), (200, 3000), (300, 3900), (300, 9900)], np.int64)
    phase = Phase(batches, looks, {})
    assert phase.waits(commits).tolist() == [1.5, 1.5, 0.5, 0.3], "and not of the first, when the load began"
    assert phase.lags.tolist() == [0.0, 0.5, 0.5, 0.0]
    assert phase.waits(commits, "seal").tolist() == [0.5]
    assert phase.seconds("seal") == 1.5
    with pytest.raises(NoFigure, match="4 messages are in the archive and not 5"):
        phase.waits(commits[:2])


@pytest.mark.parametrize("idle", ["merge", "seal", "scrub"])
def test_a_lag_beside_maintenance_that_did_nothing_is_not_measured(idle: str) -> None:
    done = {
        "merge": {"merged_runs": 9, "record_bytes": 5_000_000},
        "seal": {"written_files": 2},
        "scrub": {"bytes": 3_000_000},
    }
    assert said(done) == "merged 9 runs, 5 MB of records; sealed 2 files, 0 MB; scrubbed 3 MB"
    with pytest.raises(NoFigure, match="not measured"):
        said({task: figures for task, figures in done.items() if task != idle})
