"""A broker loses its tail, is reinstalled, or deletes files behind the daemon's back: the archive follows or asks (S3)."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.daemonproc import SMALL_FLUSHES, Daemon
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import Oracle, closed_records, compare, opened
from tests.kit.realdaemon import tiered
from tiered.archive.read.verify import Verifier

REFUSED = 3
LOST = 150


class Scene:
    """A broker, its daemon and its archive; remembers what the archive took in and the broker then lost."""

    def __init__(self, work: Path, *, count: int = 900, **options: Any) -> None:
        self.work = work
        self.broker = FaultBroker.started(work / "store", count, **options)
        self.url = f"file://{work / 'archive'}"
        self.daemon = Daemon(work, work / "store", self.url, **SMALL_FLUSHES)
        self.closed: list[bytes] = []

    def lose(self, to: int, *, zero: bool = True, archived: bool = True) -> None:
        lost = [item for at, item in self.broker.oracle.records.items() if at >= to]
        if archived:
            self.closed += [record.data for _, record in lost]
        self.broker.lose_tail(to, zero=zero)

    def rewinds(self) -> float:
        return self.daemon.metric("tiered_rewinds_total") or 0

    def wait_followed(self, rewinds: int) -> None:
        """Wait until the daemon saw so many rewinds and archived the broker's new end."""
        end = self.broker.physical_offset
        self.daemon.wait_until(
            lambda: self.rewinds() == rewinds and self.daemon.status().get("proven_offset") == end,
            f"{rewinds} rewinds and everything up to {end}",
        )

    def check(self, *, excluded: tuple[str, ...] = (), lineages: tuple[Oracle, ...] = ()) -> None:
        archive = opened(self.url)
        verdict = compare(archive, *(lineages or (self.broker.oracle,)), excluded=excluded)
        assert verdict.good, verdict
        assert (verdict.in_gaps, verdict.readable) == (0, verdict.messages)
        kept = [data for records in closed_records(archive).values() for data in records]
        assert sorted(kept) == sorted(self.closed)
        report = Verifier(archive).run(deep=True)
        assert report.sound, report.damage


def rewrite_same_sizes(scene: Scene) -> None:
    """The last records come back with other content at the same places; the old ones stand behind them meanwhile."""
    scene.lose(scene.broker.starts()[-LOST], zero=False)
    scene.broker.write(LOST // 3)


def rewrite_same_sizes_longer(scene: Scene) -> None:
    """As many and some more, so that the new log ends behind the old one."""
    scene.lose(scene.broker.starts()[-LOST])
    scene.broker.write(2 * LOST)


def rewrite_other_sizes(scene: Scene) -> None:
    """Records of another size: boundaries move."""
    scene.lose(scene.broker.starts()[-LOST], zero=False)
    scene.broker.write(LOST, body_bytes=77)


def lose_and_write_nothing(scene: Scene) -> None:
    """The log just ends earlier."""
    scene.lose(scene.broker.starts()[-LOST])


def lose_the_last_file(scene: Scene) -> None:
    """The newest file with records is gone as a whole."""
    last = scene.broker.log.base_of(scene.broker.physical_offset - 1)
    scene.lose(last)
    scene.broker.write(60)


def lose_the_last_file_and_the_blank(scene: Scene) -> None:
    """The last file and only the blank record before it are gone: small records now follow in the file before."""
    last = scene.broker.log.base_of(scene.broker.physical_offset - 1)
    blank = max(at + len(record.data) for at, (_, record) in scene.broker.oracle.records.items() if at < last)
    assert blank < last
    scene.lose(blank)
    scene.broker.write(1, body_bytes=10)
    scene.broker.write(100, body_bytes=300)


def lose_only_the_blank(scene: Scene) -> None:
    """The log ended with a file's blank record, and that alone is lost."""
    size = scene.broker.options.file_bytes
    while scene.broker.physical_offset % size:
        room = size - scene.broker.physical_offset % size
        if room < 700:
            break
        scene.broker.write(1)
    end = scene.broker.physical_offset
    scene.broker.write(2)
    assert scene.broker.log.base_of(scene.broker.physical_offset) > scene.broker.log.base_of(end)
    archive_all(scene)
    scene.lose(end)
    scene.broker.write(50, body_bytes=40)


def archive_all(scene: Scene) -> None:
    """Let the daemon, running or not, archive everything."""
    if scene.daemon.alive:
        scene.daemon.wait_archived(scene.broker.physical_offset)
    else:
        assert scene.daemon.once() == 0, scene.daemon.output()


LOSSES: list[Callable[[Scene], None]] = [
    rewrite_same_sizes,
    rewrite_same_sizes_longer,
    rewrite_other_sizes,
    lose_and_write_nothing,
    lose_the_last_file,
    lose_the_last_file_and_the_blank,
    lose_only_the_blank,
]


@pytest.mark.parametrize("lose", LOSSES)
def test_tail_lost_while_the_daemon_is_stopped(tmp_path: Path, lose: Callable[[Scene], None]) -> None:
    scene = Scene(tmp_path, vary_bodies=False)
    archive_all(scene)
    lose(scene)
    archive_all(scene)
    scene.check()
    scene.broker.write(100)
    archive_all(scene)
    scene.check()
    scene.broker.close()


@pytest.mark.parametrize("lose", LOSSES)
def test_tail_lost_while_the_daemon_runs(tmp_path: Path, lose: Callable[[Scene], None]) -> None:
    scene = Scene(tmp_path, vary_bodies=False)
    with scene.daemon.running():
        archive_all(scene)
        lose(scene)
        scene.wait_followed(1)
        scene.check()
        scene.broker.write(100)
        scene.wait_followed(1)
        assert scene.daemon.stop() == 0, scene.daemon.output()
    scene.check()
    scene.broker.close()


def test_two_rewinds_one_below_the_other(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    archive_all(scene)
    for back, more in ((100, 130), (300, 50), (20, 60)):
        scene.lose(scene.broker.starts()[-back])
        scene.broker.write(more)
        archive_all(scene)
        scene.check()
    scene.broker.close()


def test_rewinds_in_quick_succession_while_the_daemon_runs(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.daemon.running():
        archive_all(scene)
        for _ in range(4):
            scene.broker.lose_tail(scene.broker.starts()[-40])
            scene.broker.write(55)
        end = scene.broker.physical_offset
        scene.daemon.wait_until(
            lambda: scene.rewinds() >= 1 and scene.daemon.status().get("proven_offset") == end, "followed"
        )
        assert scene.daemon.stop() == 0, scene.daemon.output()
    verdict = compare(scene.url, scene.broker.oracle)
    assert verdict.good, verdict
    scene.broker.close()


def test_a_restart_without_loss_rewinds_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.daemon.running():
        archive_all(scene)
        scene.broker.restart()
        scene.broker.write(100)
        archive_all(scene)
        assert scene.rewinds() == 0
        assert scene.daemon.stop() == 0
    scene.check()
    scene.broker.close()


@pytest.mark.parametrize("running", [False, True])
def test_tail_of_excluded_topics_lost(tmp_path: Path, running: bool) -> None:
    """Marks cover excluded records too: losing only those moves the archive's progress back and closes nothing."""
    scene = Scene(tmp_path, topics=("Orders",), vary_bodies=False)
    noise = scene.broker.oracle
    scene.daemon.settings["source.exclude_topics"] = "Noise*"
    other = FaultBroker(tmp_path / "store", topics=("Noise",), vary_bodies=False)
    other.oracle = noise
    scene.broker.crash()
    other.open()
    other.write(300)
    if running:
        scene.daemon.start()
    scene.broker = other
    archive_all(scene)
    cut = other.starts()[-200]
    other.lose_tail(cut)
    other.write(120)
    if running:
        scene.wait_followed(1)
        assert scene.daemon.stop() == 0
    else:
        archive_all(scene)
    scene.check(excluded=("Noise",))
    other.close()


@pytest.mark.parametrize("count", [0, 100, 3000])
def test_reinstalled_broker_is_refused_until_told(tmp_path: Path, count: int) -> None:
    """An empty disk, a shorter and a longer log of another broker under an old archive, whose last file is still held."""
    scene = Scene(tmp_path)
    archive_all(scene)
    old = scene.broker.oracle
    scene.broker.crash()
    shutil.rmtree(tmp_path / "store")
    scene.broker = FaultBroker.started(tmp_path / "store", count, seed=2)
    scene.broker.oracle.lineage = 2
    assert scene.daemon.once() == REFUSED
    assert scene.daemon.said("--new-lineage")
    assert "Traceback" not in scene.daemon.output()
    scene.check(lineages=(old,))
    assert scene.daemon.once("--new-lineage") == 0, scene.daemon.output()
    scene.broker.write(100)
    assert scene.daemon.once() == 0, scene.daemon.output()
    scene.check(lineages=(old, scene.broker.oracle))
    scene.broker.close()


def test_broker_reinstalled_under_the_running_daemon(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    with scene.daemon.running():
        archive_all(scene)
        old = scene.broker.oracle
        scene.broker.crash()
        for path in (tmp_path / "store" / "commitlog").iterdir():
            path.unlink()
        shutil.rmtree(tmp_path / "store" / "consumequeue")
        scene.broker = FaultBroker.started(tmp_path / "store", 500, seed=2)
        assert scene.daemon.wait() == REFUSED, scene.daemon.output()
    scene.check(lineages=(old,))
    scene.broker.oracle.lineage = 2
    assert scene.daemon.once("--new-lineage") == 0, scene.daemon.output()
    scene.check(lineages=(old, scene.broker.oracle))
    scene.broker.close()


def test_files_deleted_while_the_daemon_was_stopped_are_a_gap(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    archive_all(scene)
    proven = scene.broker.physical_offset
    scene.broker.write(2000)
    while scene.broker.min_offset() < proven + 4 * scene.broker.options.file_bytes:
        scene.broker.expire()
    scene.broker.write(100)
    assert scene.daemon.once() == 0, scene.daemon.output()
    # Held are the file that was archived in part and the next one, which the broker had allocated already.
    file_bytes = scene.broker.options.file_bytes
    lost_from, gone = scene.broker.log.base_of(proven) + 2 * file_bytes, scene.broker.min_offset()
    verdict = compare(scene.url, scene.broker.oracle)
    deleted = [at for at in scene.broker.oracle.records if lost_from <= at < gone]
    assert verdict.good, verdict
    assert verdict.in_gaps == len(deleted) > 0
    assert [(g.start, g.end) for g in opened(scene.url).state.phys_gaps()] == [(lost_from, gone)]
    assert scene.daemon.said("recorded as a gap")
    shown = {verb: ask(scene, verb) for verb in ("status", "topics", "queues")}
    assert [(g["start"], g["end"]) for g in shown["status"]["physical_gaps"]] == [(lost_from, gone)]
    assert shown["status"]["gaps"] == 6
    assert [row["gaps"] for row in shown["topics"]] == [3, 3]
    assert all(len(row["gaps"]) == 1 for row in shown["queues"])
    missing = sum(end - start for row in shown["queues"] for start, end, _ in row["gaps"])
    assert missing == len(deleted)
    assert Verifier(opened(scene.url)).run(deep=True).sound
    scene.broker.close()


def ask(scene: Scene, verb: str) -> Any:
    """A verb's ``--json`` answer."""
    answer = tiered(verb, "--archive", scene.url, "--json")
    assert answer.code == 0, answer.err
    return answer.rows()
