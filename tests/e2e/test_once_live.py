"""``tiered run --once`` beside a producer that does not stop: it ends, with everything that was there when it began."""

from __future__ import annotations

import time
from pathlib import Path

from tests.kit.command import tiered_process
from tests.kit.daemonproc import TIERED, wait_for
from tests.kit.oracle import Oracle, compare, opened, scan_log
from tests.kit.process import Child
from tiered.cli.verbs import EXIT_CODES


def log_end(store: Path) -> int:
    """End of the last record that is in the files now."""
    end = 0
    for _, record in scan_log(store / "commitlog"):
        end = record.physical_offset + len(record.data)
    return end


def test_once_beside_a_live_producer_ends(tmp_path: Path) -> None:
    store, url = tmp_path / "store", f"file://{tmp_path}/archive"
    options = "--follow --rate 3000 --queues 4 --topics 2 --body-bytes 400 --file-bytes 1MiB"
    producer = Child(
        "producer", (*TIERED, "gen", "--store", str(store), *options.split()), tmp_path / "producer.log"
    )
    try:
        wait_for(lambda: store.exists() and log_end(store) > 1 << 21, "a backlog of two files")
        before, begun = log_end(store), time.monotonic()
        done = tiered_process(
            "run", "--once", "--store", store, "--archive", url, "--set", "web.port=-1", "--set", "hold.max_disk_percent=99",
            timeout=60,
        )  # fmt: skip
        took, after = time.monotonic() - begun, log_end(store)
        assert producer.running
    finally:
        producer.kill()
    assert done.code == 0, (EXIT_CODES[done.code], done.err)
    assert took < 30, f"{took:.1f} s: it ran after the producer"
    archive = opened(url)
    head = archive.state.head()
    assert head is not None
    proven = head.progress[head.lineage].physical_offset
    assert before <= proven <= after < log_end(store) + 1
    verdict = compare(archive, Oracle(store).look(proven))
    assert verdict.good, verdict
    assert verdict.readable == verdict.messages > 3000
