"""Records against the tables of their object: where all of a window agree, and each thing that they may disagree on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import merge_all, spread
from tiered.archive.read import objects as objects_module
from tiered.archive.read.agreement import COMPARED, NAMES, agree
from tiered.archive.read.content import ContentCheck
from tiered.archive.state.values import ObjectState
from tiered.codec.format.block import BlockTable
from tiered.codec.format.directory import Directory
from tiered.errors import Corrupt
from tiered.model import OFF_QUEUE_TOPIC


class Window:
    """All blocks of an object, as ``agree`` is given them."""

    def __init__(self, made: Scene, item: ObjectState) -> None:
        objects = made.objects()
        self.table: BlockTable = objects.block_table(item).copy()
        self.data = bytearray(b"".join(objects.block_bytes(item, 0, len(self.table))))
        found = objects.columns(item, NAMES, 0, int(self.table["rows"].sum()))
        self.columns = {name: column.copy() for name, column in found.items()}
        self.directory: Directory = objects.directory(item)

    def agree(self) -> bool:
        return agree(bytes(self.data), self.table, self.columns, self.directory)


@pytest.fixture(scope="module", params=["level 0", "level 1"])
def made(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Read by all tests, changed by none."""
    with scene(tmp_path_factory.mktemp("agreement")) as found:
        spread(found, 5)
        if request.param == "level 1":
            merge_all(found.daemon)
        yield found


def largest(made: Scene) -> ObjectState:
    return max((o for o in made.state.objects() if o.references), key=lambda o: o.length)


def test_every_object_agrees_with_itself(made: Scene) -> None:
    items = [item for item in made.state.objects() if item.references]
    windows = [Window(made, item) for item in items]
    assert all(window.agree() for window in windows)
    topics = {topic for window in windows for topic in window.directory.topics}
    assert len(topics) >= 3, "records outside of queues, inner batches and plain ones"
    assert any((window.columns["queue_offsets"] > 1).any() for window in windows)


@pytest.mark.parametrize("name", NAMES)
def test_each_column_is_compared_in_each_row(made: Scene, name: str) -> None:
    item = largest(made)
    window = Window(made, item)
    agreeing = set()
    for row in range(len(window.columns[name])):
        window.columns[name][row] += 1
        if window.agree():
            agreeing.add(row)
        window.columns[name][row] -= 1
    assert agreeing == (_owning_freely(window) if name == "queue_offsets" else set())


def _owning_freely(window: Window) -> set[int]:
    """Rows of which no other row tells how many offsets they own: the last of a run, and those outside of queues."""
    runs, found = window.directory.runs, set[int]()
    for row in runs:
        first, end = int(row["first_row"]), int(row["first_row"] + row["rows"])
        off = window.directory.topics[row["topic"]] == OFF_QUEUE_TOPIC
        found.update(range(first, end) if off else [end - 1])
    return found


def _run(window: Window, name: str, value: int) -> None:
    runs = window.directory.runs.copy()
    runs[name] += value
    window.directory = replace(window.directory, runs=runs)


def _topics(window: Window) -> None:
    topics = tuple(f"{topic}x" for topic in window.directory.topics)
    window.directory = replace(window.directory, topics=topics)


def _first(window: Window) -> None:
    begins = np.flatnonzero(np.diff(window.table["run"], prepend=-1))
    window.table["first_queue_offset"][begins] += 1


def _rows(window: Window) -> None:
    window.table["rows"][0] += 1


def _raw(window: Window) -> None:
    window.table["raw_length"][0] -= 1
    window.table["raw_length"][-1] += 1


def _cut(window: Window) -> None:
    del window.data[-1]


@pytest.mark.parametrize(
    "wrong",
    [_topics, _first, _rows, _raw, _cut, lambda w: _run(w, "queue_id", 1), lambda w: _run(w, "topic", -1)],
    ids=["topics", "first offset", "rows", "raw length", "cut", "queue", "topic of a run"],
)
def test_each_table_is_compared(made: Scene, wrong: Callable[[Window], None]) -> None:
    window = Window(made, largest(made))
    assert window.agree()
    wrong(window)
    assert not window.agree()


def test_a_flipped_byte_of_a_body_or_a_header(made: Scene) -> None:
    item = largest(made)
    for at in (0, 4, 8, 28, 36, 100):
        window = Window(made, item)
        window.data[at] ^= 1
        assert not window.agree(), f"byte {at}"


@pytest.mark.parametrize("name", [*COMPARED, "tags_code"])
def test_what_does_not_agree_is_named(made: Scene, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables that pass every checksum and tell something else of one record: somebody wrote them wrongly."""
    sound = objects_module.ObjectReader.columns

    def columns(
        reader: objects_module.ObjectReader, item: ObjectState, names: Sequence[str], first: int, rows: int
    ) -> dict[str, Any]:
        found = sound(reader, item, names, first, rows)
        found[name] = found[name].copy()
        found[name][0] += 1
        return found

    monkeypatch.setattr(objects_module.ObjectReader, "columns", columns)
    item, archive_id = largest(made), made.daemon.log.reader.identity.archive_id
    check = ContentCheck(made.provider, KEYS, archive_id, records=True)
    damage = [step.damage for step in check.steps(item) if step.damage is not None]
    assert len(damage) == 1
    assert isinstance(damage[0], Corrupt)
    assert damage[0].fields["key"] == made.daemon.objects.key_of(item)
    assert damage[0].fields["column"] == name
