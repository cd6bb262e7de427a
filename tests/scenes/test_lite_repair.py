"""Commits with aliases that are damaged: made anew from a later fold with all of them, or, from their objects, with holes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.litebroker import lite_cold
from tests.kit.readstore import Cold
from tiered.archive.log.shadow import difference
from tiered.archive.read.find import find_identity
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.state.aliases import alias_runs, lite_queues
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.commit import decode_commit_footer
from tiered.metadata.memory import MemoryStore
from tiered.repair.mend import Mender
from tiered.settings import MIB

IDS = itertools.count(1)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cold]:
    chance = random.Random(11)
    with lite_cold(tmp_path) as (scene, broker):
        for _ in range(4):
            for number in range(12):
                broker.place(
                    chance.sample(["%LMQ%a", "%LMQ%b", "%LMQ%c"], chance.choice([0, 1, 2])),
                    queue_id=number % 2,
                )
            scene.archive()
        yield scene


def damage(made: Cold, seq: int) -> None:
    key = KEYS.commit(seq)
    spoilt = bytearray(made.provider.get(key).data)
    spoilt[decode_commit_footer(spoilt, key=key).inline_length + 8] ^= 4
    made.provider.put(key, [bytes(spoilt)], create_only=False)


def mended(made: Cold, seq: int, local: MemoryStore | None) -> ArchiveState:
    damage(made, seq)
    identity = find_identity(made.provider, KEYS)
    mender = Mender(
        made.provider, KEYS, identity, local, lambda n: next(IDS).to_bytes(n, "big"), table_cache_bytes=MIB
    )
    (step,) = mender.plan()
    assert step.exact is (local is not None)
    mender.mend([step])
    return ArchiveReader(made.provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at().state


def places(state: ArchiveState) -> set[tuple[str, int, int]]:
    return {
        (queue.queue.topic, run.first_offset + i, int(row["physical_offset"]))
        for queue in lite_queues(state.view)
        for run in alias_runs(state.view, queue.queue, queue.generation or 0)
        for i, row in enumerate(run.rows)
    }


@pytest.mark.parametrize("seq", [1, 2, 4])
def test_made_anew_from_a_later_fold(made: Cold, seq: int) -> None:
    local = MemoryStore()
    view = made.daemon.state.view
    local.put_many(list(view.iterate(b"")), applied=view.applied())
    state = mended(made, seq, local)
    assert difference(state.view, local) is None


def test_from_its_objects_the_messages_are_back_and_its_aliases_are_holes(made: Cold) -> None:
    before = places(made.daemon.state)
    after = places(mended(made, 2, None))
    assert after < before
    assert after
