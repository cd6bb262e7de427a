"""The oldest PySpark that is supported: scans, views, streams, and both table formats, in one session."""

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

pytestmark = [pytest.mark.spark, pytest.mark.oldspark, pytest.mark.slow]


def test_all_of_it(tmp_path: Path) -> None:
    store = "broker-store"
    url = archive(golden.unpack(store, tmp_path) / golden.STORE_DIRS[store][0], tmp_path)
    sealed = tmp_path / "sealed"
    shutil.copytree(tmp_path / "archive", sealed)
    sets = [part for pair in ("seal.enabled=true", "archive.takeover_wait_ms=0") for part in ("--set", pair)]
    done = tiered("maintain", "--once", "--archive", f"file://{sealed}", "--state", tmp_path / "other", *sets)
    assert done.code == 0, done.err
    assert list(sealed.glob("*/*/segment/*/*/*.parquet"))
    home = cache.old_spark()
    command = [sys.executable, "-m", "tests.kit.oldspark", url, f"file://{sealed}", tmp_path, home / "jars"]
    # Workers find it by PYTHONPATH too. Its own home is looked up beside its Python files.
    environment = {**os.environ, "PYTHONPATH": f"{home / 'python'}{os.pathsep}{os.getcwd()}"}
    environment.pop("SPARK_HOME", None)
    ran = subprocess.run(
        list(map(str, command)), env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    seen: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    sent = expected(url)
    assert seen["version"] == cache.PYSPARK
    right = [[len(sent), sum(map(_sum, sent))]]
    for what in (
        "rows",
        "view",
        "sealed",
        "delta",
        "delta stream",
        "iceberg",
        "pipeline delta",
        "pipeline iceberg",
    ):
        assert seen[what] == right, what
    assert "take PySpark 4.2" in seen["bounded"]


def _sum(row: dict[str, Any]) -> int:
    import hashlib

    texts = [
        str(row[name]) if row[name] is not None else "-"
        for name in ("topic", "queue_id", "queue_offset", "tags")
    ]
    return crc32("|".join([*texts, hashlib.md5(row["body"]).hexdigest()]).encode())
