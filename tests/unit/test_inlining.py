"""Inline data has a bound that holds whatever the messages are: 4 MiB of records, 4 MiB of tables."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kit.assemble import assemble, memory
from tests.kit.format_samples import Tables, tables
from tests.kit.pipeline import Crafted
from tiered.clock import ManualClock
from tiered.codec.format.commit import MAX_INLINE_BYTES
from tiered.settings import MIB, Dispatch
from tiered.write.inlining import (
    MAX_INLINE_RECORD_BYTES,
    MAX_INLINE_TABLE_BYTES,
    table_bytes_at_most,
    tables_fit,
)


def bound(made: Tables) -> int:
    return table_bytes_at_most(
        rows=len(made.rows), keys=len(made.key_hash), runs=len(made.runs), blocks=len(made.blocks),
        names=[*(len(t.encode()) for t in made.topics), *map(len, made.tags)],
    )  # fmt: skip


def wildest(made: Tables) -> Tables:
    """The same with numbers that no compressor shortens, where nothing else depends on them."""
    chance = np.random.default_rng(1)
    rows = made.rows.copy()
    for name in ("tags_code", "physical_offset", "store_timestamp", "born_timestamp"):
        rows[name] = chance.integers(-(2**63), 2**63 - 1, len(rows))
    for name in ("sys_flag", "body_length"):
        rows[name] = chance.integers(-(2**31), 2**31 - 1, len(rows))
    rows["body_crc"] = chance.integers(0, 2**32, len(rows))
    return replace(made, rows=rows, key_queue_offset=chance.integers(0, 2**62, len(made.key_hash)))


@pytest.mark.parametrize(
    "rows_per_run", [[1], [3] * 500, [20_000], [1] * 9000, [8192, 8193]], ids=lambda r: f"{len(r)}x{r[0]}"
)
def test_tables_never_exceed_what_their_counts_say(rows_per_run: list[int]) -> None:
    for made in (tables(rows_per_run), wildest(tables(rows_per_run)), tables(rows_per_run, keys=False)):
        taken = made.encode().length - sum(map(len, made.stored))
        assert taken <= bound(made)
    assert 0.5 * bound(made) < MAX_INLINE_TABLE_BYTES, "the bound is of use: these would all be inline"


def test_the_bounds_add_up() -> None:
    assert MAX_INLINE_RECORD_BYTES + MAX_INLINE_TABLE_BYTES == MAX_INLINE_BYTES
    assert Dispatch.__dataclass_fields__["inline_bytes"].metadata["high"] == MAX_INLINE_RECORD_BYTES
    default = Dispatch().inline_bytes
    smallest = default // 91  # records without body and properties, each in a queue of its own
    assert tables_fit(rows=smallest, keys=0, runs=smallest, blocks=smallest, names=[1])


def test_messages_that_are_nothing_but_keys_become_an_object(tmp_path: Path) -> None:
    broker, chance = Crafted(tmp_path / "store", file_bytes=16 * MIB), random.Random(1)
    for _ in range(120):
        words = ("".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=4)) for _ in range(6400))
        broker.send(body=b"", properties={"KEYS": " ".join(words)})
    assert broker.position < 4 * MIB
    clock = ManualClock(broker.time_ms + 1000)
    dispatch = {"inline_bytes": 4 * MIB, "group_commit_bytes": 8 * MIB, "object_bytes": MIB}
    one = assemble(broker.store, memory(clock), clock, dispatch=dispatch)
    one.settle()
    (proven,) = one.proven
    assert proven.flush.messages == 120
    assert one.rows() == {
        q: [(r.generation, r.queue_offset, r.raw) for r in v.rows] for q, v in broker.oracle().queues.items()
    }
    assert proven.commit.commit.inline_length == 0
    assert len(list(one.state.objects())) > 1, "cut as any other object"
    broker.send(body=b"x" * MIB)
    one.settle()
    assert one.proven[-1].commit.commit.inline_length > 0
    one.close()
