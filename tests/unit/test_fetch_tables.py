"""What a block must be to be served: fold, block table and the records' own words agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.fetchscene import ORDERS, Scene, scene
from tiered.archive.read.runs import BlockRef, blocks_of
from tiered.archive.state.values import ObjectState, RunState
from tiered.codec.format.block import BlockTable
from tiered.errors import Corrupt
from tiered.fetch.block import LoadedBlock, opened_block


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        made.send(100)
        yield made


def parts(s: Scene) -> tuple[RunState, ObjectState, BlockTable]:
    run = next(iter(s.state.runs(ORDERS, 1)))
    item = s.state.object(run.object)
    assert item is not None
    return run, item, s.objects().block_table(item)


def checked(s: Scene, ref: BlockRef, *, flip: int | None = None) -> LoadedBlock:
    stored = bytearray(s.provider.get(s.objects().key_of(ref.item), ref.position, ref.stored_length).data)
    if flip is not None:
        stored[flip] ^= 1
    return opened_block(ref, memoryview(stored), key="the object")


def test_a_table_that_does_not_fit_the_fold(s: Scene) -> None:
    run, item, table = parts(s)
    assert sum(ref.rows for ref in blocks_of(run, item, table, run.start, key="k")) == run.rows
    for wrong in (
        replace(run, rows=run.rows - 1),
        replace(run, first_queue_offset=run.first_queue_offset + 1),
    ):
        with pytest.raises(Corrupt, match="disagree on a run"):
            list(blocks_of(wrong, item, table, run.start, key="k"))
    with pytest.raises(Corrupt, match="too short"):
        list(blocks_of(run, item, table[: run.first_block + run.block_count - 1], run.start, key="k"))


def test_a_block_that_is_not_what_its_table_says(s: Scene) -> None:
    run, item, table = parts(s)
    ref = next(iter(blocks_of(run, item, table, run.start, key="k")))
    assert len(checked(s, ref)) == ref.rows
    with pytest.raises(Corrupt, match="checksum") as caught:
        checked(s, ref, flip=7)
    assert (caught.value.fields["key"], caught.value.fields["position"]) == ("the object", ref.position)
    with pytest.raises(Corrupt):
        checked(s, ref._replace(rows=ref.rows - 1))


def test_records_that_own_other_offsets_than_their_table_says(s: Scene) -> None:
    """Of a run with inner batches the records themselves tell their offsets."""
    run, item, table = parts(s)
    ref = next(iter(blocks_of(run, item, table, run.start, key="k")))
    batches = ref._replace(run=replace(run, queue_offsets=run.queue_offsets + 1))
    found = checked(s, batches)
    assert found.offsets is not None
    assert found.offsets.tolist() == list(range(ref.first_offset, ref.end_offset))
    for wrong in (
        batches._replace(first_offset=ref.first_offset + 1),
        batches._replace(end_offset=ref.end_offset - 1),
    ):
        with pytest.raises(Corrupt, match="other queue offsets"):
            checked(s, wrong)
