"""A sink's files held against the archive they came from: alike, shaped, ahead; and whatever is done to them is found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import Done, tiered
from tests.kit.sinkrunning import ARCHIVE, KindScene
from tiered.codec.checksum import crc32c
from tiered.errors import Refused
from tiered.model import MessageQueue
from tiered.sink.book import StoredSink
from tiered.sink.comparison.found import SinkVerdict
from tiered.sink.comparison.verifying import reader_of
from tiered.sink.order import SinkOrder


class FileScene(KindScene):
    """A sink into files beside a writer; compared with its archive."""

    def __init__(self, directory: Path, **options: str) -> None:
        self.out = directory / "out"
        order = SinkOrder("copy", "file", {"location": f"file://{self.out}", **options})
        super().__init__(directory, order)

    def edit(self, change: Any) -> None:
        """Lines of the first data file, changed as somebody would who keeps the manifest in step."""
        manifests = sorted((self.out / "copy/manifests").glob("*"))
        [manifest] = [path for path in manifests if json.loads(path.read_bytes())["files"]]
        told = json.loads(manifest.read_bytes())
        [file] = told["files"]
        data = b"".join(change((self.out / file["key"]).read_bytes().splitlines(keepends=True)))
        (self.out / file["key"]).write_bytes(data)
        file |= {"bytes": len(data), "crc32c": crc32c(data)}
        manifest.write_bytes(json.dumps(told).encode())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[FileScene]:
    made = FileScene(tmp_path)
    yield made
    made.daemon.close()


def filled(scene: FileScene) -> None:
    scene.put(10)
    scene.put(5, "Bills")
    scene.archive()
    scene.run()
    scene.commit()


def test_a_sink_that_did_its_work_is_the_same(scene: FileScene) -> None:
    filled(scene)
    found = scene.verified()
    assert (found.verdict, found.totals["same"], found.compared_queues) == (SinkVerdict.SAME, 15, 2)
    assert sum(found.totals.values()) == 15
    assert scene.verified("Bills").totals["same"] == 5


def test_what_the_broker_lost_and_what_came_in_its_place_are_no_doubles(scene: FileScene) -> None:
    """The first of these lies where the first of those lay, and so has its message id. Of one queue nothing was left: it is
    another one, that begins before the place where the sink was."""
    filled(scene)
    scene.log.cut(sorted(scene.log.records)[7])
    scene.salt, scene.wrote = "again", scene.wrote[:7]
    scene.next = {MessageQueue("Orders", 0): 7}
    scene.put(2)
    scene.put(1, "Bills")
    scene.restart()
    scene.archive()
    scene.run()
    scene.commit()
    found = scene.verified()
    assert (found.verdict, found.totals["same"], found.totals["others"]) == (SinkVerdict.SAME, 10, 3)
    progress = scene.runner.progress
    assert (progress.lost_at_source, progress.begun_anew) == (8, 0), "no topic was deleted"


def test_what_is_not_given_yet_is_not_lost(scene: FileScene) -> None:
    filled(scene)
    scene.put(3)
    scene.put(1, "Late")
    scene.archive()
    found = scene.verified()
    assert (found.verdict, found.totals["same"], found.totals["lost"]) == (SinkVerdict.SAME, 15, 0)


@pytest.mark.parametrize(
    ("change", "kind", "offset"),
    [
        (lambda lines: lines[:4] + lines[5:], "lost", 4),
        (lambda lines: [*lines[:5], lines[2], *lines[5:]], "doubled", 2),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "reordered", 2),
        (lambda lines: [line.replace(b"Orders 7 ", b"Orders 8 ") for line in lines], "changed", 7),
    ],
)
def test_whatever_is_done_to_a_file_is_found(scene: FileScene, change: Any, kind: str, offset: int) -> None:
    filled(scene)
    scene.edit(change)
    found = scene.verified()
    assert (found.verdict, found.different_queues) == (SinkVerdict.DIFFERENT, 1)
    [queue] = found.queues
    assert (queue.topic, queue.first, queue.first_offset) == ("Orders", kind, offset)
    assert getattr(queue, kind) == 1
    assert scene.verified("Bills").verdict is SinkVerdict.SAME


def test_a_file_that_is_gone_is_said(scene: FileScene) -> None:
    filled(scene)
    [file] = (scene.out / "copy/data").glob("*")
    file.unlink()
    found = scene.verified()
    assert (found.verdict, found.totals["lost"]) == (SinkVerdict.DIFFERENT, 15)
    assert found.unread == ("1 files that manifests name were deleted",)


def test_a_file_that_is_damaged_is_said(scene: FileScene) -> None:
    filled(scene)
    [file] = (scene.out / "copy/data").glob("*")
    data = file.read_bytes()
    file.write_bytes(data.replace(b'"flag":0', b'"flag":1', 1))
    found = scene.verified()
    assert (found.verdict, found.totals["same"]) == (SinkVerdict.INCOMPLETE, 15)
    assert found.unread == ("1 files are not what their manifests say, or cannot be read",)


def test_shapes_are_taken_into_account(tmp_path: Path) -> None:
    """Left out, renamed and without bodies: the same; and what a shape should have left out is extra."""
    shape = {"shape.rename": "Orders=Copied", "shape.drop_body": "true", "shape.properties": ""}
    scene = FileScene(tmp_path, **shape)
    filled(scene)
    names = {
        json.loads(line)["topic"]
        for f in (scene.out / "copy/data").glob("*")
        for line in f.read_bytes().splitlines()
    }
    assert names == {"Copied", "Bills"}
    found = scene.verified()
    assert (found.verdict, found.totals["same"]) == (SinkVerdict.SAME, 15)
    scene.edit(lambda lines: [line.replace(b'"body":""', b'"body":"x"', 1) for line in lines])
    assert scene.verified().totals["changed"] == 15
    scene.daemon.close()


def test_kinds_that_cannot_be_read_back_say_so() -> None:
    stored = StoredSink(b"\7" * 16, SinkOrder("copy", "http", {"url": "http://127.0.0.1:1/"}))
    with pytest.raises(Refused, match="cannot be read back"):
        reader_of(stored, "DefaultCluster", "broker-a", ARCHIVE)


def run(words: list[object], archive: Path) -> Done:
    return tiered("sink", *words, "--archive", f"file://{archive}", "--json")


def test_the_verb(tmp_path: Path) -> None:
    """Nothing given, nothing lost; names that are not there are said."""
    assert tiered("gen", "--store", tmp_path / "store", "--messages", 20, "--topics", 1).code == 0
    archived = tiered(
        "run", "--once", "--store", tmp_path / "store", "--archive", f"file://{tmp_path}/archive"
    )
    assert archived.code == 0, archived.err
    option = f"location=file://{tmp_path}/out"
    assert run(["add", "copy", "--kind", "file", "--option", option], tmp_path / "archive").code == 0
    done = run(["verify", "--sink", "copy"], tmp_path / "archive")
    assert done.code == 0, done.err
    assert (done.json["verdict"], done.json["same"], done.json["not_given_yet"]) == ("same", 0, 20)
    assert run(["verify", "--sink", "nobody"], tmp_path / "archive").code == 5
    assert run(["verify", "--sink", "copy", "--topic", "Nothing"], tmp_path / "archive").code == 5
