"""A process tears records in the mapped file while the tailer runs: nothing torn, stale or made up is ever handed out."""

from __future__ import annotations

import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from tests.kit import tearing_writer
from tiered.clock import SystemClock
from tiered.model import PhysicalOffset
from tiered.settings import Hold, Source
from tiered.source.base import ReadStatus
from tiered.source.local import LocalCommitLog

FILE_BYTES = 32_768
RECORDS = 600


@pytest.mark.parametrize("seed", [1, 2])
def test_reader_beside_a_tearing_writer_gets_exactly_what_was_finished(tmp_path: Path, seed: int) -> None:
    store = tmp_path / "store"
    begin = tearing_writer.first_life(store, FILE_BYTES)
    clock = SystemClock()
    writer = subprocess.Popen(
        [sys.executable, tearing_writer.__file__, str(store), *map(str, (seed, RECORDS, FILE_BYTES, begin))]
    )
    settings = Source(store_dir=str(store), confirm_reread_ms=50, corrupt_wait_ms=200)
    source = LocalCommitLog(settings, Hold(max_disk_percent=99), clock)
    found: dict[int, tuple[int, int]] = {}
    position, idle, gone = PhysicalOffset(0), 0, False
    try:
        while not gone or idle < 100:
            gone = gone or writer.poll() is not None
            source.hold()
            chunk = source.read(position, max_bytes=1 << 20, max_records=500)
            assert chunk.status is not ReadStatus.GAP, chunk.reason
            if chunk.status is ReadStatus.IDLE:
                idle += 1
                clock.wait(0.002)
                continue
            idle = 0
            data = source.copy(chunk.start, chunk.end)
            for at, size in zip(chunk.starts.tolist(), chunk.sizes.tolist(), strict=True):
                found[chunk.start + at] = size, zlib.crc32(data[at : at + size])
            position = chunk.next_offset
    finally:
        writer.kill()
        writer.wait()
        source.close()
    lines = (store / "written").read_text().split("\n")[:-1]
    written = {int(at): (int(size), int(crc)) for at, size, crc in map(str.split, lines)}
    assert writer.returncode == 0
    assert len(written) > RECORDS
    wrong = {at: what for at, what in found.items() if written.get(at) != what}
    assert wrong == {}
    assert found == written
