"""The daemon's consume-queue index: killed in its writes, damaged, or of another archive, it becomes the broker's own again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.kit import golden
from tests.kit.daemonproc import CRASHED, Daemon
from tests.kit.oracle import opened
from tests.kit.realdaemon import tiered
from tiered.consumequeue.layout import stamp_of
from tiered.consumequeue.lookup import ConsumeQueueIndex
from tiered.consumequeue.place import index_directory
from tiered.crashpoint import MetadataPoint
from tiered.metadata.open import open_redo

SETTINGS = {
    "consumequeue.enabled": "true",
    "consumequeue.buffer_messages": 1000,
    "dispatch.group_commit_count": 100,
    "state.metadata": "json",
}


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    store = golden.unpack(golden.ROCKS, tmp_path / "golden") / "queues"
    return Daemon(tmp_path, store, f"file://{tmp_path / 'archive'}", **SETTINGS)


def place(daemon: Daemon) -> Path:
    return Path(index_directory(str(daemon.state)))


def check(daemon: Daemon) -> None:
    """The index has exactly what the broker's own consume queue has."""
    archive_id = opened(daemon.archive).log.identity.archive_id
    store = open_redo("rocksdb", place(daemon), 1 << 20, stamp=stamp_of(archive_id))
    try:
        index = ConsumeQueueIndex(store)
        for (topic, queue), units in golden.rocks_queues(daemon.store).items():
            found = {
                offset: tuple(unit)
                for rows in index.rows(topic, queue, 0, 1 << 60)
                for offset, *unit in zip(
                    *(c.tolist() for c in (rows.offset, rows.physical, rows.size, rows.tags_code, rows.time)),
                    strict=True,
                )
            }
            assert found == units
    finally:
        store.close()


@pytest.mark.parametrize(
    ("point", "times"),
    [
        (MetadataPoint.AFTER_REDO_WRITE, 1),
        (MetadataPoint.BEFORE_REDO_FLUSH, 1),
        (MetadataPoint.AFTER_REDO_FLUSH, 1),
    ],
)
def test_kill_restart_compare(daemon: Daemon, point: MetadataPoint, times: int) -> None:
    assert daemon.once(crash=point, times=times) == CRASHED
    assert daemon.once() == 0
    check(daemon)


def test_damaged_it_is_made_again_and_said_so(daemon: Daemon) -> None:
    assert daemon.once() == 0
    check(daemon)
    for path in (place(daemon)).rglob("*.sst"):
        path.write_bytes(b"x" * path.stat().st_size)
    for path in (place(daemon)).rglob("MANIFEST*"):
        path.write_bytes(path.read_bytes()[:-9])
    assert daemon.once() == 0
    assert daemon.said("a local store was emptied")
    check(daemon)


def test_turned_on_later_or_of_another_archive_it_is_filled_from_the_log(
    daemon: Daemon, tmp_path: Path
) -> None:
    daemon.settings["consumequeue.enabled"] = "false"
    assert daemon.once() == 0
    assert not (place(daemon)).exists()
    daemon.settings["consumequeue.enabled"] = "true"
    assert daemon.once() == 0
    check(daemon)
    other = Daemon(tmp_path, daemon.store, f"file://{tmp_path / 'other'}", name="other", **SETTINGS)
    shutil.copytree(place(daemon), place(other))
    assert other.once() == 0
    check(other)


def test_searches_by_time_beside_it_need_no_object(daemon: Daemon) -> None:
    daemon.settings["dispatch.inline_bytes"] = 0
    assert daemon.once() == 0
    units = golden.rocks_queues(daemon.store)["Orders", 2]
    stored = [unit[3] for _, unit in sorted(units.items())]
    for path in (Path(daemon.archive.removeprefix("file://"))).rglob("data/**/*"):
        if path.is_file():
            path.unlink()
    asked = ["query", "--topic", "Orders", "--queue", "2", "--archive", daemon.archive, "--json"]
    index = ["--set", f"state.directory={daemon.state}", "--set", "consumequeue.enabled=true"]
    for time in (stored[0] - 1, stored[0], stored[30] + 1, stored[-1]):
        answer = tiered(*asked, *index, "--time", time)
        assert answer.code == 0, answer.err
        expected = next(offset for offset, at in enumerate(stored) if at >= time)
        assert answer.rows()["queue_offset"] == expected
    assert tiered(*asked, "--time", stored[30] + 1).code != 0, "what else would have answered"
