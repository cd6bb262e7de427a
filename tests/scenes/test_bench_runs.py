"""Benchmarks in the small: a run in a process of its own, segments, a piece of a day that is merged and sealed."""

from __future__ import annotations

from pathlib import Path

from tests.bench.__main__ import cases
from tests.bench.agedday import files_of
from tests.bench.agedpiece import Piece, simulate
from tests.bench.run import generate, once


def test_a_measured_run_archives_and_counts(tmp_path: Path) -> None:
    end = generate(tmp_path / "store", 500, 4)
    assert end > 500 * 1024
    measured = once(tmp_path / "store", f"file://{tmp_path / 'archive'}", tmp_path / "state")
    assert measured.seconds > 0
    assert measured.peak_bytes > 10 << 20
    assert any((tmp_path / "archive").rglob("archive.json"))


def test_segments_are_measured_beside_pyarrow_alone() -> None:
    rows = cases(True)["segments"](Path())
    assert [row.target for row in rows] == ["≥ 0.5", "≥ 0.5", "-", "-"]
    assert all(float(row.ratio) > 0 for row in rows)


def test_a_piece_of_a_day_is_archived_merged_and_sealed(tmp_path: Path) -> None:
    seen = simulate(tmp_path, Piece(24, 100, 16, round_seconds=12))
    assert seen.made == 24, "an object a second, however many queues"
    assert (seen.rounds[0][0].fresh, seen.rounds[0][0].runs) == (12, 1200)
    assert all(after.fresh == 0 and 0 < after.merged < 12 for _, after in seen.rounds)
    assert seen.rewritten >= 2400
    assert seen.sealed is not None
    assert (seen.sealed.sealed, seen.sealed.merged) == (10, 0), "a file of each topic"
    before, after, sealed = (weight.raw for weight in seen.weights)
    assert before > after > sealed > 0
    assert files_of(seen.rounds[-1][1].of_topic, 0, seen.file_bytes) == 10
