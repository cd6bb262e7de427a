"""``tiered nodes``: who has announced himself in the bucket, who is silent, whose lease cannot be read."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.command import tiered
from tests.kit.memberships import card
from tiered.archive.log.identity import ensure_identity
from tiered.clock import SystemClock
from tiered.membership.base import MemberState
from tiered.membership.bucket import BucketMembership
from tiered.provider.posix import PosixProvider


def test_it_lists_them_with_state_and_age(tmp_path: Path) -> None:
    archive = f"file://{tmp_path}/archive"
    provider = PosixProvider(str(tmp_path / "archive"), SystemClock())
    ensure_identity(provider, KEYS, 1, bytes)
    nobody = tiered("nodes", "--archive", archive)
    assert (nobody.code, "serve.membership=bucket" in nobody.err) == (0, True)
    membership = BucketMembership(provider, KEYS, SystemClock(), 1.0)
    for name, state in (("a", MemberState.LIVE), ("b", MemberState.DRAINING), ("c", MemberState.LIVE)):
        membership.announce(card(name, state=state, lease_ms=60_000, capacity=2))
    (silent,) = (tmp_path / "archive").rglob("lease/c/*")
    os.utime(silent, (time.time() - 3600,) * 2)
    provider.put(KEYS.lease("d", 1), [b"nothing of a lease"])
    done = tiered("nodes", "--archive", archive, "--json")
    assert done.code == 0, done.err
    found = {row["node"]: row for row in done.json}
    assert {name: row["state"] for name, row in found.items()} == {
        "a": "live", "b": "draining", "c": "silent", "d": "damaged",
    }  # fmt: skip
    assert found["a"] == {
        "node": "a", "address": "10.0.0.1:10001", "state": "live", "version": "0.1.0", "wire": "1–2", "capacity": 2,
        "renewed_seconds_ago": found["a"]["renewed_seconds_ago"], "lease_seconds": 60.0, "said": None,
    }  # fmt: skip
    assert 0 <= found["a"]["renewed_seconds_ago"] < 60
    assert 3590 < found["c"]["renewed_seconds_ago"] < 3700
    assert "cannot be read" in found["d"]["said"]
    assert "lease/d/" in found["d"]["said"]


def test_what_names_no_membership_and_a_bucket_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = tiered("nodes", "--archive", f"file://{tmp_path}", "--set", "gateway.membership=zookeeper")
    assert (done.code, "gateway.membership" in done.err) == (2, True)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    away = tiered("nodes", "--archive", "s3://bucket/x?endpoint=http://127.0.0.1:1")
    assert (away.code, "does not answer" in away.err) == (4, True), away.err
