"""What a process was told is durable survives a power cut: every sync that the laws lean on, every batch whole."""

from __future__ import annotations

import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.kit.powercut import PowerCut
from tiered.clock import SystemClock
from tiered.daemon.topicnotes import EMPTY, GONE, TopicNotes
from tiered.metadata.jsonfile import JsonFileStore
from tiered.metadata.rocksdb import RocksDbStore
from tiered.provider.posix import PosixProvider
from tiered.replay.base import GroupPosition, GroupQueue
from tiered.replay.ledger import Ledger
from tiered.source.files import base_of

pytestmark = pytest.mark.powercut

ROUNDS = 3
STORES = {
    "rocksdb": "from tiered.metadata.rocksdb import RocksDbStore\nstore = RocksDbStore(root / 'db', 1 << 20, 's')",
    "json": "from tiered.metadata.jsonfile import JsonFileStore\nstore = JsonFileStore(root / 'db', 's')",
}
CREATED = "provider.create_root()"
DIE = "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)"


def disk(tmp_path: Path) -> PowerCut:
    (tmp_path / "disk").mkdir()
    return PowerCut(tmp_path / "disk")


def script(power: PowerCut, *lines: str) -> list[str]:
    start = f"from pathlib import Path\nroot = Path({str(power.root)!r})"
    return [sys.executable, "-c", "\n".join([start, *lines])]


def killed(power: PowerCut, *lines: str) -> str:
    """Run the lines in a process of its own that kills itself behind them; what it printed."""
    return power.run(script(power, *lines, DIE), exit_code=-signal.SIGKILL)


def opened(kind: str, root: Path) -> RocksDbStore | JsonFileStore:
    store = RocksDbStore(root / "db", 1 << 20, "s") if kind == "rocksdb" else JsonFileStore(root / "db", "s")
    store.open()
    return store


def test_the_cut_forgets_what_was_not_synced_and_nothing_else(tmp_path: Path) -> None:
    """The kit itself: were it blind or too harsh, the other tests would mean nothing."""
    power = disk(tmp_path)
    (power.root / "old").write_bytes(b"before")
    (power.root / "dir").mkdir()
    power.begin()
    killed(
        power,
        "import os",
        "def sync(path):",
        "    f = os.open(path, os.O_RDONLY); os.fsync(f); os.close(f)",
        "(root / 'file-only').write_bytes(b'x'); sync(root / 'file-only')",
        "(root / 'dir' / 'name-only').write_bytes(b'x'); sync(root / 'dir')",
        "(root / 'dir' / 'both').write_bytes(b'kept'); sync(root / 'dir' / 'both'); sync(root / 'dir')",
        "with open(root / 'dir' / 'both', 'ab') as f: f.write(b' and not')",
        "os.unlink(root / 'old')",
        "(root / 'new').mkdir(); (root / 'new' / 'in').write_bytes(b'x'); sync(root / 'new')",
    )
    power.cut()
    left = {str(p.relative_to(power.root)): p.read_bytes() for p in power.root.rglob("*") if p.is_file()}
    assert left == {"old": b"before", "dir/name-only": b"", "dir/both": b"kept"}


@pytest.mark.parametrize("kind", STORES)
def test_metadata_that_put_many_returned_for_survives(tmp_path: Path, kind: str) -> None:
    power = disk(tmp_path)
    for i in range(ROUNDS):
        puts = [
            f"store.put_many([(b'k', b'{i}-{j}'), (b'n%d' % {j}, b'v')], applied=b'{i}-{j}')"
            for j in range(5)
        ]
        killed(power, STORES[kind], "store.open()", *puts)
        power.cut()
        store = opened(kind, power.root)
        assert (store.applied(), store.get_many([b"k", b"n4"])) == (
            f"{i}-4".encode(),
            [f"{i}-4".encode(), b"v"],
        )
        store.close()
        power.begin()  # what this process wrote meanwhile counts as synced


def test_a_batch_of_rocksdb_is_whole_or_absent_wherever_its_log_ends(tmp_path: Path) -> None:
    store = RocksDbStore(tmp_path / "db", 1 << 20, "s")
    store.open()
    for i in range(4):
        store.put_many([(b"k%d" % j, b"%d" % i) for j in range(20)], applied=b"%d" % i)
    shutil.copytree(tmp_path / "db", tmp_path / "copy")
    store.close()
    (log,) = (p for p in (tmp_path / "copy").glob("*.log") if p.stat().st_size)
    length = log.stat().st_size
    seen = set()
    for kept in range(length // 3, length, max(1, length // 40)):
        there = tmp_path / f"cut{kept}"
        shutil.copytree(tmp_path / "copy", there)
        with open(there / log.name, "r+b") as f:
            f.truncate(kept)
        again = RocksDbStore(there, 1 << 20, "s")
        again.open()
        applied = again.applied()
        values = set(again.get_many([b"k%d" % j for j in range(20)]))
        again.close()
        assert values == {applied}
        seen.add(applied)
    assert len(seen) >= 3


def test_an_object_that_put_returned_for_survives(tmp_path: Path) -> None:
    power = disk(tmp_path)
    put = "provider.put('a/b/{0}', [b'{0}' * 1000])"
    killed(
        power,
        "from tiered.clock import SystemClock\nfrom tiered.provider.posix import PosixProvider",
        "provider = PosixProvider(str(root / 'archive'), SystemClock())",
        CREATED,
        *(put.format(i) for i in range(3)),
    )
    power.cut()
    provider = PosixProvider(str(power.root / "archive"), SystemClock())
    assert [bytes(provider.get(f"a/b/{i}").data) for i in range(3)] == [b"%d" % i * 1000 for i in range(3)]


def test_a_head_that_another_process_linked_and_did_not_sync_is_made_durable(tmp_path: Path) -> None:
    power = disk(tmp_path)
    lines = [
        "from tiered.clock import SystemClock\nfrom tiered.provider.posix import PosixProvider",
        "provider = PosixProvider(str(root / 'archive'), SystemClock())",
        CREATED,
    ]
    killed(power, *lines, "provider.put('commit/0', [b'first'])")
    power.run(
        script(
            power,
            "import tiered.provider.posix as posix\nfrom tiered.crashpoint import CrashPoint",
            "import os, signal",
            "def reach(point):",
            "    if point is CrashPoint.POSIX_AFTER_LINK: os.kill(os.getpid(), signal.SIGKILL)",
            "posix.reach = reach",
            *lines,
            "provider.put('commit/1', [b'second'])",
        ),
        exit_code=-signal.SIGKILL,
    )
    killed(power, *lines, "provider.make_durable('commit/1')")
    power.cut()
    provider = PosixProvider(str(power.root / "archive"), SystemClock())
    assert bytes(provider.get("commit/1").data) == b"second"


def test_a_link_of_the_hold_outlives_a_power_cut_that_the_brokers_file_does_not(tmp_path: Path) -> None:
    power = disk(tmp_path)
    log = power.root / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / f"{0:020d}").write_bytes(b"r" * 4096)
    power.begin()
    killed(
        power,
        "from tiered.clock import SystemClock\nfrom tiered.settings import Hold",
        "from tiered.source.hold import HardLinkHold, HoldPlace",
        "from tiered.source.files import file_at",
        f"log, held = {str(log)!r}, str(root / 'held')",
        "hold = HardLinkHold([HoldPlace(log, held)], [str(root / 'store')], Hold(), SystemClock())",
        f"path = log + '/{0:020d}'",
        "import os",
        "assert hold.link([file_at(path, 0, os.stat(path))])",
    )
    (log / f"{0:020d}").unlink()  # the broker, whose deletion the disk has kept
    power.cut()
    (link,) = (power.root / "held").iterdir()
    assert base_of(link.name.partition(".")[0]) == 0
    assert link.read_bytes() == b"r" * 4096


def test_what_a_replay_ledger_entered_after_it_was_written_anew_survives(tmp_path: Path) -> None:
    power = disk(tmp_path)
    killed(
        power,
        "from tiered.clock import SystemClock",
        "from tiered.replay import ledger as module",
        "from tiered.replay.base import GroupPosition, GroupQueue",
        "module.COMPACT_BYTES, module.COMPACT_TIMES = 1, 0",
        "ledger = module.Ledger(root, SystemClock())",
        "ledger.open()",
        "for at in (1, 2, 3): ledger.look({GroupQueue('G', 'T', 0): GroupPosition(at, 9, 0)})",
    )
    power.cut()
    ledger = Ledger(power.root, SystemClock())
    ledger.open()
    assert ledger.position(GroupQueue("G", "T", 0)) == GroupPosition(3, 9, 0)
    ledger.close()


def test_the_writers_own_files_survive(tmp_path: Path) -> None:
    power = disk(tmp_path)
    killed(
        power,
        "from tiered.archive.log.localfiles import load_writer_id, record_fence, record_known_archive",
        "load_writer_id(root, lambda n: b'w' * n); record_fence(root, 'why')",
        "record_known_archive(root, 'file:///a', b'i' * 16)",
    )
    power.cut()
    assert {p.name for p in power.root.iterdir()} == {"writer-id", "fenced", "archive"}
    assert (power.root / "writer-id").read_text().strip() == (b"w" * 16).hex()
    assert (power.root / "fenced").read_text() == "why\n"


def test_what_is_written_behind_what_a_file_has_survives(tmp_path: Path) -> None:
    """Since when topics are gone: a first file, lines behind it, and lines over an end that was never acknowledged."""
    power = disk(tmp_path)
    killed(
        power,
        "from tiered.daemon.topicnotes import EMPTY, GONE, TopicNotes",
        "path = root / 'notes'",
        "notes = TopicNotes(path, b'a' * 16)",
        "for at in range(1, 4): notes.write(notes.read(), GONE, {f'T{n}': n for n in range(at)})",
        "with open(path, 'ab') as file: file.write(b'x' * 1000)",
        "notes.write(notes.read(), EMPTY, {'T0': 9})",
    )
    power.cut()
    path = power.root / "notes"
    assert TopicNotes(path, b"a" * 16).read().times == {GONE: {"T0": 0, "T1": 1, "T2": 2}, EMPTY: {"T0": 9}}
    assert path.read_bytes().endswith(b"\n"), "what was never acknowledged is gone"
