"""Collection on a real S3 server: batched deletes, the store's clock, commits removed, the bucket alone enough (S8, S9)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, assemble, live_rows
from tests.kit.collecting import Sweeping, needed, stored
from tests.kit.fetchscene import Scene
from tests.kit.merging import merge_all
from tests.kit.pipeline import Crafted
from tests.kit.s3server import S3Server
from tests.scenes.test_collection import flush, rows
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.rewrite.storetime import commit_time
from tiered.clock import ManualClock
from tiered.errors import Refused
from tiered.metadata.memory import MemoryStore
from tiered.provider.open import open_provider
from tiered.settings import MIB

pytestmark = pytest.mark.s3server
DAY = 86_400


@pytest.mark.parametrize("engine", ["direct", "boto3"])
def test_an_archive_on_s3_is_collected_and_its_first_commits_are_removed(
    s3_server: S3Server, tmp_path: Path, engine: str
) -> None:
    bucket = s3_server.bucket()
    clock = ManualClock(round(time.time() * 1000))
    provider = open_provider(s3_server.url(bucket, "root"), s3_server.store(engine=engine), clock)
    broker = Crafted(tmp_path / "store", file_bytes=1 << 20)
    options = {"block_bytes": 4096, "object_bytes": 1 << 20, "inline_bytes": 0}
    daemon = assemble(broker.store, provider, clock, dispatch=options)
    made = Scene(broker, daemon, provider, clock)  # type: ignore[arg-type]

    def age(days: float) -> None:
        """All objects are as old, by the clock of the server's disk."""
        for path in (s3_server.data / bucket).rglob("*"):
            if path.is_file():
                os.utime(path, (path.stat().st_mtime - days * DAY,) * 2)

    sweeping = Sweeping.of(made, keep_ms=0)
    for seed in range(3):
        flush(made, 2, seed)
        sweeping.save()
    merge_all(daemon)
    wanted = rows(made)
    age(2)
    first = sweeping.count(sweeping.gc)
    assert first["moved_floors"] == 1
    assert first["named_keys"] >= 6
    flush(made, 1)
    sweeping.save()
    age(8)
    second = sweeping.count(sweeping.gc)
    assert second["failed_deletes"] == 0
    assert second["deleted_keys"] == first["named_keys"]
    head = made.state.head()
    assert head is not None
    numbers = [int(s.key[-20:]) for s in provider.list(KEYS.commit_prefix)]
    assert 0 < numbers[0] <= head.floor
    opened = ArchiveReader(provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at()
    alone = live_rows(opened.state, opened.objects)
    assert alone == rows(made)
    assert all(
        found[: len(wanted[queue])] == wanted[queue] for queue, found in alone.items() if queue in wanted
    )
    age(2)
    sweeping.count(sweeping.gc)
    assert stored(made) == needed(made)
    daemon.close()
    provider.close()


@pytest.mark.parametrize("engine", ["direct", "boto3"])
def test_a_commits_age_is_by_the_stores_clock_whatever_this_hosts_says(
    s3_server: S3Server, tmp_path: Path, engine: str
) -> None:
    """A host whose clock is a week ahead would else delete at once (law 6)."""
    clock = ManualClock(round(time.time() * 1000) + 7 * DAY * 1000)
    provider = open_provider(s3_server.url(s3_server.bucket()), s3_server.store(engine=engine), clock)
    daemon = assemble(Crafted(tmp_path / "store").store, provider, clock)
    daemon.settle(2.0)
    found = commit_time(daemon.log.reader, 0)
    assert found is not None
    assert found.age_ms < DAY * 1000
    sweeping = Sweeping.of(Scene(None, daemon, provider, clock))  # type: ignore[arg-type]
    with pytest.raises(Refused, match="too far apart"):
        sweeping.count(sweeping.retention)
    daemon.close()
    provider.close()
