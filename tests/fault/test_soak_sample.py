"""A sample of the randomised campaign, ten kills of an archive that ages, from a fixed seed: on a directory, and on a faulty S3
server."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.soak import Outcome, soak


def check(outcome: Outcome) -> None:
    assert outcome.good, outcome.facts()
    assert outcome.kills >= 10
    assert outcome.verdict.readable > 1000
    assert outcome.verdict.messages == outcome.verdict.readable + outcome.verdict.trimmed
    assert outcome.epochs >= 3  # a daemon that is hit while it opens has none; how many are, is chance


def test_ten_kills_on_a_directory(tmp_path: Path) -> None:
    check(soak(tmp_path, seed=4, seconds=120, kills=10))


@pytest.mark.s3server
def test_ten_kills_on_a_faulty_s3_server(tmp_path: Path) -> None:
    check(soak(tmp_path, seed=5, seconds=120, kills=10, s3=True))
