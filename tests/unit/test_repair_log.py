"""Commits that are lost with the messages inside them, made again from the broker's commitlog; a gap is what none has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, assemble, live_rows, memory, one_after_another
from tests.kit.pipeline import Crafted
from tiered.archive.log.shadow import difference
from tiered.archive.read.find import find_identity
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.clock import ManualClock
from tiered.codec.format.commit import decode_commit_footer
from tiered.metadata.memory import MemoryStore
from tiered.repair.fromlog import BrokerLog
from tiered.repair.mend import Mender
from tiered.repair.step import Step
from tiered.settings import MIB, Dispatch, Hold, Source
from tiered.source.local import LocalCommitLog

FLUSH = {"block_bytes": 4096, "object_bytes": 65_536, "group_commit_bytes": 65_536}


class Scene:
    """Flushes of a few messages each over two files of a log; what a daemon kept of the fold."""

    def __init__(self, directory: Path, *, inline: bool) -> None:
        self.clock = ManualClock(1_700_000_060_000)
        self.store = memory(self.clock)
        self.broker = Crafted(directory / "store", file_bytes=1 << 18)
        for number in range(220):
            self.broker.send(
                queue_id=number % 2, body=b"%04d" % number * 750, properties={"KEYS": f"k{number}"}
            )
        self.local = MemoryStore()
        self.options = {**FLUSH, "inline_bytes": (1 << 20) * inline}
        made = assemble(self.broker.store, self.store, self.clock, metadata=self.local, dispatch=self.options)
        made.settle()
        made.close()
        self.keys = [stored.key for stored in self.store.list(KEYS.commit_prefix)]
        self.last = len(self.keys) - 1
        self.rows = self.read()

    def fold(self) -> View:
        return ArchiveReader(self.store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()

    def read(self) -> dict[object, list[tuple[int, int, bytes]]]:
        archive = self.fold()
        return dict(live_rows(archive.state, archive.objects))

    def log(self) -> BrokerLog:
        source = LocalCommitLog(Source(store_dir=str(self.broker.store)), Hold(), self.clock)
        return BrokerLog(source, Dispatch(**self.options), 1 << 20, lambda topic: False)

    def mended(self, log: BrokerLog, *, local: bool = False) -> list[Step]:
        mender = Mender(
            self.store, KEYS, find_identity(self.store, KEYS), self.local if local else None, lambda n: b"r" * n,
            table_cache_bytes=MIB, log=log,
        )  # fmt: skip
        steps = mender.plan()
        mender.mend(steps)
        return steps


@pytest.fixture(params=["inside commits", "in objects"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    one_after_another(monkeypatch)
    return Scene(tmp_path, inline=request.param == "inside commits")


def lose(scene: Scene, *seqs: int) -> None:
    for seq in seqs:
        for edit in scene.fold().log.read(seq).commit.edits if seq == seqs[0] else ():  # type: ignore[union-attr]
            for path in edit.columns.get("key", ()):
                if path:
                    scene.store.delete(KEYS.key(path))
    for seq in seqs:
        scene.store.delete(KEYS.commit(seq))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_what_the_commitlog_still_has_is_no_gap(scene: Scene, count: int) -> None:
    """Without any later fold; one commit or several in a row, at a file's end and within one."""
    assert scene.last > 6
    for first in range(2, scene.last - count, count):
        lose(scene, *range(first, first + count))
        steps = scene.mended(scene.log())
        assert {step.source for step in steps} <= {
            "the broker's commitlog",
            "its objects and the commits behind it",
        }
        assert steps[0].source == "the broker's commitlog"
        assert [step.put for step in steps] == [step.key for step in steps], "each under its own key"
        assert scene.read() == scene.rows, first
        assert Verifier(scene.fold()).run(deep=True).damage == []


def test_the_local_state_is_met_to_the_byte(scene: Scene) -> None:
    """A flush that is made by the same settings is the very commit: daemons go on with the fold that they have."""
    inline = decode_commit_footer(scene.store.get(scene.keys[3]).data, key="").inline_length > 0
    before = bytes(scene.store.get(scene.keys[3]).data)
    lose(scene, *((3, 4) if inline else (3,)))
    steps = scene.mended(scene.log(), local=True)
    if inline:
        assert [(step.source, step.put) for step in steps] == [
            ("the broker's commitlog", scene.keys[3]), ("the broker's commitlog", scene.keys[4]),
        ]  # fmt: skip
        assert bytes(scene.store.get(scene.keys[3]).data)[: len(before) // 2] == before[: len(before) // 2]
        assert scene.read() == scene.rows
    assert difference(scene.fold().state.view, scene.local) is None


def test_a_later_fold_tells_where_the_file_of_two_lost_commits_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its runs end at the last record; what fills the file behind that was archived with it."""
    one_after_another(monkeypatch)
    scene = Scene(tmp_path, inline=True)
    for first in range(2, scene.last - 1):
        lose(scene, first, first + 1)
        assert {s.source for s in scene.mended(scene.log(), local=True)} == {"the broker's commitlog"}, first
        assert scene.read() == scene.rows, first


def test_another_log_is_not_believed(scene: Scene) -> None:
    """Messages of the same lengths in the same places, of which one differs: their sum is not the one that commits tell."""
    lose(scene, 3)
    file = sorted((scene.broker.store / "commitlog").iterdir())[0]
    data = bytearray(file.read_bytes())
    at = data.index(b"0030" * 750)
    data[at : at + 4] = b"0031"
    file.write_bytes(data)
    (step,) = scene.mended(scene.log())
    assert step.source != "the broker's commitlog"
    assert sum(lost.bytes for lost in step.lost) > 0, "all else is tried, and nothing has it"


def test_a_log_that_lost_the_file_gives_nothing(scene: Scene) -> None:
    lose(scene, 3)
    (sorted((scene.broker.store / "commitlog").iterdir())[0]).unlink()
    (step,) = scene.mended(scene.log())
    assert step.source != "the broker's commitlog"
    assert step.lost


def test_what_lies_under_the_damaged_key_stays(scene: Scene) -> None:
    """The messages go into an object of their own, and the commit's edits beside the damage."""
    whole = bytes(scene.store.get(scene.keys[3]).data)
    lose(scene, 3)
    scene.store.put(scene.keys[3], [whole[: len(whole) // 3]])
    log = scene.log()
    (step,) = scene.mended(replace(log, dispatch=replace(log.dispatch, compression_level=3)))
    assert step.source == "the broker's commitlog"
    assert step.put != step.key
    assert [key.split("/")[2] for key, _ in step.objects] == ["data"]
    assert scene.read() == scene.rows
    assert Verifier(scene.fold()).run(deep=True).damage == []
