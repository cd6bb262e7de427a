"""Projections that collection names: the same, whether queues are looked at one by one or as arrays."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pytest

from tests.kit.assemble import KEYS, memory
from tests.kit.histories import History
from tiered.archive.keys import Area, ProjectionKey, build, parse, projection_key, queue_folder
from tiered.archive.rewrite.collect import Listed, old_projections
from tiered.archive.state import tallies
from tiered.archive.state.view import ArchiveState
from tiered.model import MessageQueue
from tiered.provider.base import Provider

EPOCH = 3
NAMES = [
    MessageQueue(topic, number)
    for topic in ("", "A", "A\0", "A\0\xff", "Ä", "z")
    for number in (0, 10, 2**31 - 1)
]


def plainly(provider: Provider, state: ArchiveState) -> Iterator[str]:
    """Queue by queue."""
    folders = {queue_folder(found.queue) for found in state.queues() if found.generation is not None}
    paths = [str(KEYS.path(stored.key)) for stored in provider.list(KEYS.prefix(Area.PROJECTION))]
    made = [(path, parse(path)) for path in paths]
    for at, (path, key) in enumerate(made):
        if not isinstance(key, ProjectionKey) or key.epoch >= EPOCH:
            continue
        newer = made[at + 1][1] if at + 1 < len(made) else None
        same = isinstance(newer, ProjectionKey) and newer.folder == key.folder
        if key.folder not in folders or same:
            yield path


@pytest.mark.parametrize(("seed", "steps"), [(0, 60), (1, 60), (2, 30), (3, 30), (5, 8), (8, 12)])
def test_what_is_named_is_what_a_walk_over_queues_finds(
    seed: int, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a few steps a rewind leaves queues without any generation."""
    monkeypatch.setattr(tallies, "RECORDS_AT_ONCE", 4)
    chance = random.Random(seed)
    history = History(random.Random(seed), forgets=True)
    history.names = NAMES[: len(NAMES) - 3]
    for _ in range(steps):
        history.step()
    emptied = sum(found.generation is None for found in history.state.queues())
    assert (emptied > 0) == (steps < 30)
    provider = memory()
    for queue in NAMES:
        for _ in range(chance.randint(0, 3)):
            made_id = uuid.UUID(int=chance.getrandbits(128), version=4).bytes
            key = projection_key(queue, chance.randint(1, 50), chance.randint(1, EPOCH), made_id)
            provider.put(KEYS.key(build(key)), [b"projection"])
    expected = set(plainly(provider, history.state))
    listed = Listed()
    found = list(old_projections(provider, KEYS, history.state, EPOCH, listed))
    assert set(found) == expected
    assert len(found) == len(set(found))
    assert listed.objects == len(list(provider.list(KEYS.prefix(Area.PROJECTION))))
    folders = [parse(path) for path in expected]
    gone = {queue_folder(queue) for queue in NAMES[-3:]}
    assert any(isinstance(key, ProjectionKey) and key.folder in gone for key in folders), (
        "of queues that never were"
    )
    assert len(found) < listed.objects
