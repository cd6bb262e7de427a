"""PySpark that is not the newest: scans, views, streams, and the table formats that have a release for it, in one session."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from tests.kit import cache, golden
from tests.kit.command import tiered
from tests.kit.sparkscene import archive, expected

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVERYWHERE = ("rows", "view", "sealed", "delta", "delta stream", "pipeline delta")
"""What each of them saw of the messages."""


@pytest.mark.oldspark
def test_the_oldest(tmp_path: Path) -> None:
    seen, right = _seen(tmp_path, cache.OLD_SPARK)
    for what in (*EVERYWHERE, "iceberg", "pipeline iceberg"):
        assert seen[what] == [right], what
    assert "take PySpark 4.2" in seen["refused"]


@pytest.mark.middlespark
def test_the_one_between(tmp_path: Path) -> None:
    """Iceberg has no release for it; a stream is bounded there, as with the newest."""
    seen, right = _seen(tmp_path, cache.MIDDLE_SPARK)
    for what in (*EVERYWHERE, "bounded stream"):
        assert seen[what] == [right], what
    at_once, bounded = seen["batches"]
    assert 1 <= at_once < bounded
    assert "iceberg" not in seen


def _seen(tmp_path: Path, name: str) -> tuple[dict[str, Any], list[int]]:
    """What a session saw; how many messages there are, and the sum over what they are."""
    store = "broker-store"
    url = archive(golden.unpack(store, tmp_path) / golden.STORE_DIRS[store][0], tmp_path)
    sealed = tmp_path / "sealed"
    shutil.copytree(tmp_path / "archive", sealed)
    sets = [part for pair in ("seal.enabled=true", "archive.takeover_wait_ms=0") for part in ("--set", pair)]
    done = tiered("maintain", "--once", "--archive", f"file://{sealed}", "--state", tmp_path / "other", *sets)
    assert done.code == 0, done.err
    assert list(sealed.glob("*/*/segment/*/*/*.parquet"))
    home = cache.spark_home(name)
    command = [sys.executable, "-m", "tests.kit.olderspark", url, f"file://{sealed}", tmp_path, home / "jars"]
    # Workers find it by PYTHONPATH too. Its own home is looked up beside its Python files.
    environment = {**os.environ, "PYTHONPATH": f"{home / 'python'}{os.pathsep}{os.getcwd()}"}
    environment.pop("SPARK_HOME", None)
    ran = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    seen: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert seen["version"] == cache.COUNTERPARTS[name].version
    sent = expected(url)
    return seen, [len(sent), sum(map(_sum, sent))]


def _sum(row: dict[str, Any]) -> int:
    import hashlib

    texts = [
        str(row[name]) if row[name] is not None else "-"
        for name in ("topic", "queue_id", "queue_offset", "tags")
    ]
    return crc32("|".join([*texts, hashlib.md5(row["body"]).hexdigest()]).encode())
