"""The destination *iceberg*: the contract, read from outside; who has the table, and what others do to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import load_catalog

from tests.kit.sinkscene import PLACE, Breaks
from tiered.errors import Fenced, Invalid, Refused, Unavailable
from tiered.feed.base import Follow
from tiered.model import MessageQueue
from tiered.sink.base import RewindMarking, Rewound, Sink, SinkPosition
from tiered.sink.comparison.base import ReadBack
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import Feeding, Interrupted, TestedSink
from tiered.sink.contract.samples import Received, batch_of, message_of, ordinary
from tiered.sink.iceberg import sink as module
from tiered.sink.iceberg.kind import IcebergKind
from tiered.sink.iceberg.sink import IcebergSink
from tiered.sink.order import SinkOrder


class Breaking:
    """A catalog whose requests break as told."""

    def __init__(self, catalog: Any, breaks: Breaks) -> None:
        self.catalog, self.breaks = catalog, breaks

    def __getattr__(self, name: str) -> Any:
        return getattr(self.catalog, name)

    def load_table(self, name: Any) -> Any:
        with self.breaks.request():
            table = self.catalog.load_table(name)
        table.catalog = self
        return table

    def create_table(self, *args: Any, **named: Any) -> Any:
        with self.breaks.request():
            table = self.catalog.create_table(*args, **named)
        table.catalog = self
        return table

    def commit_table(self, *args: Any) -> Any:
        with self.breaks.request():
            return self.catalog.commit_table(*args)


class TestedIceberg(TestedSink):
    huge = 2_000

    def __init__(self, directory: Path) -> None:
        self.breaks = Breaks()
        self.place = PLACE
        uri = f"sqlite:///{directory}/catalog.db"
        self.options = {"catalog": uri, "catalog.warehouse": f"file://{directory}", "table": "logs.orders"}
        self.catalog = load_catalog("tiered", uri=uri, warehouse=f"file://{directory}")

    def open(self) -> Sink:
        return IcebergSink(Breaking(self.catalog, self.breaks), "logs.orders", self.place)  # type: ignore[arg-type]

    def table(self) -> Any:
        return self.catalog.load_table("logs.orders")

    def read_back(self) -> ReadBack:
        return IcebergKind().read_back(SinkOrder("orders", "iceberg", self.options), self.place)

    def read(self) -> Iterable[Received]:
        """The commits in their order: a scan of a table has none."""
        table, seen = self.table(), set()
        for snapshot in sorted(table.snapshots(), key=lambda s: s.sequence_number):
            for task in table.scan(snapshot_id=snapshot.snapshot_id).plan_files():
                if task.file.file_path not in seen:
                    seen.add(task.file.file_path)
                    yield from self.rows(task.file.file_path)

    def rows(self, path: str) -> Iterator[Received]:
        import pyarrow.parquet as pq

        for m in pq.read_table(path.removeprefix("file://")).to_pylist():
            yield Received(m["topic"], m["queue_id"], m["queue_offset"], m["body"], dict(m["properties"]))

    def interrupted(self, request: int, *, done: bool) -> AbstractContextManager[Interrupted]:
        return self.breaks.at(request, done=done)

    def away(self) -> AbstractContextManager[None]:
        return self.breaks.away()


@pytest.fixture
def tested(tmp_path: Path) -> Iterator[TestedIceberg]:
    made = TestedIceberg(tmp_path)
    yield made
    made.catalog.engine.dispose()  # type: ignore[attr-defined]


class TestIcebergSink(SinkContract):
    @pytest.fixture
    def tested(self, tmp_path: Path) -> Iterator[TestedIceberg]:
        made = TestedIceberg(tmp_path)
        yield made
        made.catalog.engine.dispose()  # type: ignore[attr-defined]


def given(tested: TestedIceberg, count: int) -> Feeding:
    feeding = Feeding(tested)
    sink = feeding.open()
    feeding.write(sink, feeding.add(ordinary(count)))
    feeding.flush(sink)
    sink.close()
    return feeding


def test_many_rows_are_files_before_their_flush_and_shown_by_it(
    tested: TestedIceberg, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ROWS_BYTES", 4096)
    feeding = Feeding(tested)
    sink = feeding.open()
    for first in range(0, 60, 20):
        feeding.write(sink, feeding.add(ordinary(20, first=first)))
    assert list(tested.read()) == []
    feeding.flush(sink)
    sink.close()
    feeding.judge()


def test_an_opening_fences_the_one_before(tested: TestedIceberg) -> None:
    feeding = given(tested, 1)
    older = feeding.open()
    feeding.write(older, ordinary(1, first=1))
    newer = tested.open()
    with pytest.raises(Fenced, match="another process"):
        feeding.flush(older)
    newer.close()
    older.close()


def test_what_others_do_to_the_table_does_not_hide_the_position(tested: TestedIceberg) -> None:
    """A program that looks after tables makes snapshots of its own, also while the sink is open."""
    feeding = given(tested, 2)
    sink = feeding.open()
    tested.table().append(tested.table().scan().to_arrow().slice(0, 0))
    feeding.write(sink, feeding.add(ordinary(1, first=2)))
    with pytest.raises(Unavailable, match="somebody else changed"):
        feeding.flush(sink)
    feeding.finish()
    feeding.judge()


def test_a_table_of_somebody_else_and_a_later_writer_are_told_apart(tested: TestedIceberg) -> None:
    given(tested, 1)
    tested.place = replace(PLACE, epoch=2)
    with pytest.raises(Fenced, match="later writer"):
        tested.open()
    tested.place = replace(PLACE, name="others")
    with pytest.raises(Refused, match="somebody else"):
        tested.open()


def test_columns_that_do_not_fit_stop_the_sink(tested: TestedIceberg) -> None:
    given(tested, 1)
    with tested.table().update_schema() as change:
        change.rename_column("body", "payload")
    with pytest.raises(Invalid, match="does not take rows"):
        tested.open()


def test_too_many_queues_are_refused(tested: TestedIceberg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_POSITION_BYTES", 50)
    with pytest.raises(Invalid, match="too many queues"):
        given(tested, 1)


def test_what_is_wrong_with_an_order_is_said(tested: TestedIceberg) -> None:
    def order(**options: str) -> SinkOrder:
        return SinkOrder("orders", "iceberg", {**tested.options, **options})

    IcebergKind().check(order())
    opened = IcebergKind().open(order(), PLACE)
    with contextlib.closing(opened):
        assert tested.table().properties["tiered.sink"] == "orders"
    for wrong, said in (
        (order(catalog=""), r"options\.catalog"),
        (order(catalog="embedded"), "a catalog of its own"),
        (order(table="orders"), "namespace and a name"),
        (order(tables="x"), "no such option"),
    ):
        with pytest.raises(Invalid, match=said):
            IcebergKind().check(wrong)


def test_what_the_broker_lost_stands_in_the_summary_of_one_commit(tmp_path: Path) -> None:
    tested = TestedIceberg(tmp_path)
    sink = tested.open()
    assert isinstance(sink, RewindMarking)
    queue = MessageQueue("Orders", 0)
    sink.mark([Rewound(queue, 1, 3, 7)])
    sink.flush(SinkPosition(queues={queue: Follow(1)}))
    sink.write(batch_of([message_of("Orders", 0, 1, b"again")])[0])
    sink.flush(SinkPosition(queues={queue: Follow(2)}))
    sink.close()
    snapshots = sorted(tested.table().snapshots(), key=lambda s: s.sequence_number)
    told = [s.summary.additional_properties.get("tiered.sink-rewound") for s in snapshots]
    value = {"topic": "Orders", "queue_id": 0, "first": 1, "end": 3, "generation": 7}
    assert [None if one is None else json.loads(one) for one in told] == [None, [value], None]
