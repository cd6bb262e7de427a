"""What a search by time asks of the store: one column of one run, with the tables of its object where they are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.aged import Stage, age
from tests.kit.assemble import KEYS
from tests.kit.fetchscene import ORDERS, Ranges, Scene, scene
from tiered.archive.read import columnreads, flatfile
from tiered.archive.read.flatfile import FlatMessageFile
from tiered.archive.read.objects import ObjectReader
from tiered.archive.state.values import RunState
from tiered.model import BoundaryType


def dense_run(made: Scene) -> RunState:
    found = made.daemon.state.queue(ORDERS)
    assert found is not None
    assert found.generation is not None
    return next(run for run in made.daemon.state.runs(ORDERS, found.generation) if run.dense)


def reader_of(made: Scene) -> ObjectReader:
    archive_id = made.daemon.log.reader.identity.archive_id
    return ObjectReader(made.daemon.provider, KEYS, archive_id, cache_bytes=1 << 22)


def gets(made: Scene) -> int:
    provider = made.daemon.provider
    assert isinstance(provider, Ranges)
    return len(provider.gets)


@pytest.mark.parametrize("stage", [Stage.FRESH, Stage.MERGED, Stage.SEALED])
def test_one_request_where_each_message_owns_one_offset(tmp_path: Path, stage: Stage) -> None:
    with scene(tmp_path) as made:
        age(made, stage)
        run, objects = dense_run(made), reader_of(made)
        counts = []
        for time in (run.max_store_time, run.max_store_time):
            before = gets(made)
            offset = FlatMessageFile(made.daemon.state, objects, ORDERS).offset_by_time(time)
            assert run.start <= offset < run.end
            counts.append(gets(made) - before)
    assert counts == ([2, 0] if stage is Stage.SEALED else [1, 1]), "bands of a sealed file are kept"


def test_of_large_columns_one_piece_where_a_block_may_have_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Index, blocks and one piece; then the piece alone, however long the run is, and the same answers."""
    with scene(tmp_path) as made:
        age(made, Stage.MERGED)
        run, state = dense_run(made), made.daemon.state
        low, high = run.min_store_time, run.max_store_time
        times = sorted({low - 1, low, high, high + 1, *(low + (high - low) * i // 20 for i in range(20))})
        plain = reader_of(made)
        wanted = {
            (time, boundary): FlatMessageFile(state, plain, ORDERS).offset_by_time(time, boundary)
            for time in times
            for boundary in BoundaryType
        }
        monkeypatch.setattr(columnreads, "AT_ONCE_BYTES", 0)
        monkeypatch.setattr(flatfile, "ROWS_PER_CHUNK", 1)
        objects, counts = reader_of(made), []
        for (time, boundary), expected in wanted.items():
            before = gets(made)
            found = FlatMessageFile(state, objects, ORDERS).offset_by_time(time, boundary)
            assert found == expected, (time, boundary)
            if low <= time <= high and boundary is BoundaryType.LOWER:
                counts.append(gets(made) - before)
    assert counts[0] <= 3
    assert set(counts[1:]) <= {1}


def test_near_pieces_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with scene(tmp_path) as made:
        age(made, Stage.MERGED)
        run = dense_run(made)
        item = made.daemon.state.object(run.object)
        assert item is not None
        names, objects = ("size", "body_length"), reader_of(made)
        whole = objects.columns(item, names, run.first_row, run.rows)
        counts = []
        for joined in (0, 1 << 20):
            monkeypatch.setattr(columnreads, "JOINED_BYTES", joined)
            before = gets(made)
            again = objects.columns(item, names, run.first_row, run.rows)
            counts.append(gets(made) - before)
            assert all((again[name] == whole[name]).all() for name in names)
    assert counts == [2, 1]
