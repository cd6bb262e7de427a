"""``verify --deep`` compares aliases with what the records say: which of them lie, and which are not there."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.kit.aged import READABLE, Stage, aged_cold
from tests.kit.assemble import KEYS, put
from tests.kit.litebroker import LiteBroker
from tests.kit.readstore import Cold, cold
from tiered.archive.read.contentworkers import ContentWorkers, OpenedElsewhere
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Report, Verifier
from tiered.archive.state.aliases import unpack_alias_run
from tiered.archive.state.keys import ALIAS, U8
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditKind, batch
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Provider
from tiered.settings import MIB

NAMES = ["%LMQ%a", "%LMQ%b", "%LMQ%c"]


def fill(made: Cold, messages: int = 40) -> LiteBroker:
    chance = random.Random(3)
    broker = made.broker = LiteBroker(made.broker.store)
    for number in range(messages):
        broker.time_ms += 10
        broker.place(chance.sample(NAMES, chance.choice([0, 1, 2])), queue_id=number % 2)
        if number % 10 == 9:
            made.archive()
    return broker


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cold]:
    with cold(tmp_path, open_now=False, dispatch={"lite_queues": True}) as scene:
        fill(scene)
        yield scene


def verified(made: Cold, *changes: tuple[bytes, bytes], elsewhere: bool = False) -> Report:
    """A deep look at the archive with a fold that has these pairs instead."""
    view, store = ArchiveReader(made.provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at(), MemoryStore()
    store.put_many([*view.state.view.iterate(b""), *changes])
    workers = (
        ContentWorkers(OpenedElsewhere(_nowhere, KEYS, view.identity.archive_id, 1), 2) if elsewhere else None
    )
    return Verifier(replace(view, state=ArchiveState(store)), workers=workers).run(deep=True)


def _nowhere() -> Provider:
    raise AssertionError("where there are aliases one process hears all records")


def stored(made: Cold) -> list[tuple[bytes, bytes]]:
    return list(made.daemon.state.view.iterate(ALIAS))


@pytest.mark.parametrize("stage", READABLE)
def test_aliases_and_records_agree_at_every_stage(tmp_path: Path, stage: Stage) -> None:
    with aged_cold(tmp_path, stage, open_now=False, dispatch={"lite_queues": True}) as made:
        placed = fill(made).placed()
        report = verified(made, elsewhere=True)
        assert (report.damage, report.notes) == ([], [])
        assert report.aliases == sum(map(len, placed.values()))


@pytest.mark.parametrize("field", ["offset", "physical_offset"])
def test_an_alias_of_another_record_is_found_from_both_sides(made: Cold, field: str) -> None:
    key, value = stored(made)[0]
    run = unpack_alias_run(U8.unpack_from(key, len(key) - 8)[0], value)
    rows = run.rows.copy()
    rows[field][0] += 1
    report = verified(made, (key, replace(run, rows=rows).pack()))
    assert sorted(d.what.split(",")[0] for d in report.damage) == [
        "a message says that it is in a lite queue", "aliases name messages that cannot be read"
    ]  # fmt: skip
    assert {d.key for d in report.damage} == {"%LMQ%a"}
    assert any("offset 0" in d.detail for d in report.damage)


def test_an_alias_that_no_record_tells_of(made: Cold) -> None:
    key, value = stored(made)[-1]
    run = unpack_alias_run(U8.unpack_from(key, len(key) - 8)[0], value)
    again = replace(run, rows=np.append(run.rows, run.rows[-1:]))
    (damage,) = verified(made, (key, again.pack())).damage
    assert damage.detail == f"1 aliases, the first at offset {run.end}"


def test_records_without_alias_are_worth_knowing(tmp_path: Path) -> None:
    with cold(tmp_path, open_now=False) as made:
        fill(made, 20)
        assert (verified(made).damage, verified(made).notes) == ([], [])
        made.options["dispatch"] = {"lite_queues": True}
        made.restart()
        made.broker.place(["%LMQ%a"])  # type: ignore[attr-defined]
        made.archive()
        report = verified(made)
        assert (report.sound, report.aliases) == (True, 1)
        assert {note.key for note in report.notes} == set(NAMES)
        assert all("archived before" in note.detail for note in report.notes)


def test_what_retention_took_or_the_broker_lost_is_not_missed(made: Cold) -> None:
    trimmed = batch(EditKind.TRIM_QUEUE, topic="Orders", queue_id=0, generation=1, first_offset=7)
    put(made.daemon.log, trimmed)
    made.broker.crash(made.broker.sent[30][0].physical_offset)
    made.broker.place([], body=b"another")  # type: ignore[attr-defined]
    made.restart()
    made.archive()
    assert list(made.daemon.state.closed_parts())
    report = verified(made)
    assert (report.damage, report.notes) == ([], [])
    assert report.aliases > 0
