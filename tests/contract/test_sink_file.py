"""The destination *file*: the contract, read from outside with json and pyarrow; rotation, sweeping, who has it."""

from __future__ import annotations

import base64
import contextlib
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.kit.sinkscene import PLACE, Breaking, Breaks
from tiered.clock import SystemClock
from tiered.errors import Corrupt, Fenced, Invalid, Refused
from tiered.feed.base import Follow
from tiered.model import MessageQueue
from tiered.provider.open import open_driver
from tiered.settings import Store
from tiered.sink.base import RewindMarking, Rewound, Sink, SinkPosition
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import Feeding, Interrupted, TestedSink
from tiered.sink.contract.samples import MIB, Received, batch_of, message_of, ordinary
from tiered.sink.file import sink as module
from tiered.sink.file.formats import file_format
from tiered.sink.file.kind import FileKind
from tiered.sink.file.manifest import decode_manifest
from tiered.sink.file.reading import FileReadBack
from tiered.sink.file.sink import FileSink
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder


class TestedFile(TestedSink):
    """Below a directory. ``file_bytes`` is small: some batches make several files."""

    huge = 8_000

    def __init__(self, directory: Path, form: str) -> None:
        self.directory, self.form = directory, form
        self.breaks = Breaks()
        self.place = PLACE
        self.file_bytes = 256 * 1024

    def open(self) -> Sink:
        driver = open_driver(f"file://{self.directory}", Store(), SystemClock())
        return FileSink(Breaking(driver, self.breaks), self.place, file_format(self.form), self.file_bytes)

    def manifests(self) -> Iterator[dict[str, object]]:
        return (json.loads(p.read_bytes()) for p in sorted((self.directory / "orders/manifests").glob("*")))

    def read(self) -> Iterable[Received]:
        for manifest in self.manifests():
            for file in manifest["files"]:  # type: ignore[attr-defined]
                yield from self.rows(self.directory / file["key"])

    def rows(self, path: Path) -> Iterator[Received]:
        if self.form == "jsonl":
            for line in path.read_bytes().splitlines():
                m = json.loads(line)
                body = m["body"].encode() if "body" in m else base64.b64decode(m["body_base64"])
                yield Received(m["topic"], m["queue_id"], m["queue_offset"], body, m["properties"])
            return
        for m in pq.read_table(path).to_pylist():
            yield Received(m["topic"], m["queue_id"], m["queue_offset"], m["body"], dict(m["properties"]))

    def read_back(self) -> FileReadBack:
        driver = open_driver(f"file://{self.directory}", Store(), SystemClock())
        return FileReadBack(driver, self.place, parquet=self.form == "parquet")

    def interrupted(self, request: int, *, done: bool) -> AbstractContextManager[Interrupted]:
        return self.breaks.at(request, done=done)

    def away(self) -> AbstractContextManager[None]:
        return self.breaks.away()


class TestFileSink(SinkContract):
    @pytest.fixture(params=["jsonl", "parquet"])
    def tested(self, tmp_path: Path, request: pytest.FixtureRequest) -> TestedFile:
        return TestedFile(tmp_path, request.param)


@pytest.fixture
def tested(tmp_path: Path) -> TestedFile:
    return TestedFile(tmp_path, "jsonl")


def given(tested: TestedFile, count: int, first: int = 0) -> Feeding:
    feeding = Feeding(tested)
    sink = feeding.open()
    feeding.write(sink, feeding.add(ordinary(count, first=first)))
    feeding.flush(sink)
    sink.close()
    return feeding


def test_compressed_bodies_are_columns_as_consumers_see_them(tmp_path: Path) -> None:
    packed = replace(message_of("T", 0, 0, zlib.compress(b"plain" * 9)), sys_flag=1)
    plain = message_of("T", 0, 1, b"as it is")
    tested = TestedFile(tmp_path, "parquet")
    sink = tested.open()
    sink.write(batch_of([packed, plain])[0])
    sink.flush(SinkPosition(queues={MessageQueue("T", 0): Follow(2)}))
    sink.close()
    [file] = (tmp_path / "orders/data").glob("*.parquet")
    table = pq.read_table(file, columns=["body", "body_size", "sys_flag"])
    assert table.to_pylist() == [
        {"body": b"plain" * 9, "body_size": 45, "sys_flag": 0},
        {"body": b"as it is", "body_size": 8, "sys_flag": 0},
    ]


def test_files_end_near_their_size(tmp_path: Path) -> None:
    tested = TestedFile(tmp_path, "jsonl")
    given(tested, 2_000).judge()
    sizes = [file.stat().st_size for file in sorted((tmp_path / "orders/data").glob("*"))]
    assert len(sizes) > 3
    assert all(tested.file_bytes <= size < tested.file_bytes + MIB for size in sizes[:-1])


def test_a_file_that_no_manifest_names_is_deleted_by_the_next_opening(tested: TestedFile) -> None:
    feeding = given(tested, 2)
    sink = feeding.open()
    feeding.write(sink, ordinary(3_000, first=2))  # files are put, and no manifest
    data = tested.directory / "orders/data"
    assert len(list(data.glob("*"))) > 2
    feeding.open().close()
    named = {file["key"] for m in tested.manifests() for file in m["files"]}  # type: ignore[attr-defined]
    assert {f"orders/data/{file.name}" for file in data.glob("*")} == named
    feeding.judge()


def test_a_position_is_read_from_few_manifests(tested: TestedFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "COMPLETE_EVERY", 4)
    feeding = Feeding(tested)
    sink = feeding.open()
    for number in range(11):
        feeding.write(sink, feeding.add(ordinary(1, first=number, topics=[f"T{number % 4}"])))
        feeding.flush(sink)
    known = feeding.known
    sink.close()
    numbers = [m["number"] for m in tested.manifests() if m["number"] == m["complete"]]
    assert numbers == [0, 4, 8]
    for manifest in sorted((tested.directory / "orders/manifests").glob("*"))[:8]:
        manifest.unlink()  # a reader has done with them
    again = tested.open()
    assert again.position() == known
    again.close()


def test_a_manifest_that_the_position_needs_is_missed(tested: TestedFile) -> None:
    given(tested, 2)
    given_twice = sorted((tested.directory / "orders/manifests").glob("*"))
    sink = tested.open()
    sink.close()
    feeding = Feeding(tested)
    sink = feeding.open()
    for number in (10, 11):
        feeding.write(sink, ordinary(1, first=number))
        feeding.flush(sink)
    sink.close()
    every = sorted((tested.directory / "orders/manifests").glob("*"))
    assert len(every) > len(given_twice)
    every[-2].unlink()
    with pytest.raises(Corrupt, match="is missing"):
        tested.open()


def test_another_archive_and_a_later_writer_are_told_apart(tested: TestedFile) -> None:
    tested.place = replace(PLACE, sink_id=b"")
    given(tested, 1)
    tested.place = replace(PLACE, archive_id=bytes(16))
    with pytest.raises(Refused, match="another archive"):
        tested.open()
    tested.place = replace(PLACE, sink_id=b"\1")
    tested.open().close()  # manifests of before did not say whose they are
    tested.place = replace(PLACE, sink_id=b"\2")
    with pytest.raises(Refused, match="another sink, which had this name"):
        tested.open()
    reader = tested.read_back()
    with contextlib.closing(reader), pytest.raises(Refused, match="another sink, which had this name"):
        reader.position()
    tested.place = replace(PLACE, epoch=2, sink_id=b"\1")
    with pytest.raises(Fenced, match="later writer"):
        tested.open()


def test_what_is_wrong_with_an_order_is_said(tmp_path: Path) -> None:
    kind = FileKind()

    def order(**options: str) -> SinkOrder:
        return SinkOrder("orders", "file", options)

    good = order(location=f"file://{tmp_path}/out", format="parquet", file_bytes="1MiB")
    kind.check(good)
    kind.open(good, PLACE).close()
    assert (tmp_path / "out/orders/manifests").is_dir()
    for wrong, said in (
        (order(), r"options\.location"),
        (order(location="gs://x"), "unknown scheme"),
        (order(location="file:///x", fromat="jsonl"), "did you mean format"),
        (order(location="file:///x", format="avro"), "jsonl or parquet"),
        (order(location="file:///x", file_bytes="1"), "file_bytes"),
        (order(location="file:///x", file_bytes="2GiB"), "too large"),
        (order(location="fsspec+sftp://host/x"), "only where none is"),
        (order(location="file:///x", secret_access_key="env:NOT_THERE"), "not set"),
    ):
        with pytest.raises(Invalid, match=said):
            kind.check(wrong)


def test_two_sinks_share_a_location(tested: TestedFile) -> None:
    given(tested, 1)
    place: SinkPlace = replace(PLACE, name="others")
    driver = open_driver(f"file://{tested.directory}", Store(), SystemClock())
    other = FileSink(driver, place, file_format("jsonl"), MIB)
    assert other.position().queues == {}
    other.close()


def test_what_the_broker_lost_stands_in_the_manifest_behind_it(tested: TestedFile) -> None:
    given(tested, 3)
    sink = tested.open()
    assert isinstance(sink, RewindMarking)
    queue, gone = MessageQueue("Orders", 0), Rewound(MessageQueue("Orders", 0), 1, 3, 7)
    sink.mark([gone])
    sink.flush(SinkPosition(queues={queue: Follow(1)}))
    sink.write(batch_of([message_of("Orders", 0, 1, b"again")])[0])
    sink.flush(SinkPosition(queues={queue: Follow(2)}))
    sink.close()
    paths = sorted((tested.directory / "orders/manifests").glob("*"))
    found = [decode_manifest(path.read_bytes(), path.name) for path in paths]
    assert [(bool(one.files), one.rewound) for one in found][-2:] == [(False, (gone,)), (True, ())]
    assert json.loads(paths[-2].read_bytes())["rewound"] == [
        {"topic": "Orders", "queue_id": 0, "first": 1, "end": 3, "generation": 7}
    ]
