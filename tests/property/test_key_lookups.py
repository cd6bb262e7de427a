"""Look-ups by key over archives at every stage: all messages that a scan finds, in few requests."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.kit.aged import EVERY_STAGE, Stage, age
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import spread
from tiered.archive.read import keytables
from tiered.archive.read.lookup import KeyLookup, query_key
from tiered.archive.read.objects import ObjectReader


def scanned(made: Scene, lookup: KeyLookup) -> list[bytes]:
    """The same by a look at every message."""
    found = [
        (message.physical_offset, raw)
        for message, raw in made.broker.sent
        if message.topic == lookup.topic
        and not message.sys_flag & 0x4  # prepared and rolled back: nobody reads them
        and (message.unique_key == lookup.key if lookup.unique else lookup.key in message.keys)
        and (lookup.begin_ms is None or message.store_timestamp >= lookup.begin_ms)
        and (lookup.end_ms is None or message.store_timestamp <= lookup.end_ms)
    ]
    found.sort(reverse=not lookup.oldest)
    return [raw for _, raw in sorted(found[: lookup.max_count])]


def drawn(made: Scene, chance: random.Random) -> KeyLookup:
    """Some look-up: of a key that is there, or not; within times, or not."""
    message = chance.choice(made.broker.sent)[0]
    unique = chance.random() < 0.3
    keys = [message.unique_key or "none"] if unique else list(message.keys) or ["none"]
    key = chance.choice(keys) if chance.random() < 0.8 else f"absent{chance.random()}"
    times: list[int | None] = [None, None]
    if chance.random() < 0.4:
        times = sorted(chance.choice(made.broker.sent)[0].store_timestamp for _ in range(2))  # type: ignore[assignment]
    most = chance.choice([None, 1, 3])
    return KeyLookup(message.topic, key, most, *times, unique=unique, oldest=chance.random() < 0.5)


@pytest.mark.history
@pytest.mark.depends_only_on_imports
@pytest.mark.parametrize("stage", EVERY_STAGE)
def test_random_look_ups_find_what_a_scan_finds(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(stage.value)
    with scene(tmp_path, inline_bytes=chance.choice([0, 1 << 20])) as made:
        age(made, stage)
        spread(made, 1, seed=9)  # behind what is merged or sealed
        hits = 0
        for small, few in ((keytables.SMALL_BYTES, 8), (0, 8), (0, 0)):
            monkeypatch.setattr(keytables, "SMALL_BYTES", small)
            monkeypatch.setattr(keytables, "FEW_RUNS", few)
            objects = made.objects(cache_bytes=chance.choice([0, 1 << 22]))
            for number in range(60):
                if number == 30:
                    objects = made.objects()
                lookup = drawn(made, chance)
                found = [item.record for item in query_key(made.state, objects, lookup)]
                assert found == scanned(made, lookup), lookup
                hits += len(found)
        assert hits > 100


def asked(made: Scene, objects: ObjectReader, key: str) -> int:
    made.provider.gets.clear()
    query_key(made.state, objects, KeyLookup("Orders", key))
    return len(made.provider.gets)


@pytest.mark.parametrize(("stage", "cold"), [(Stage.FRESH, 8), (Stage.MERGED, 1), (Stage.MIXED, 5)])
def test_a_key_that_is_not_there_costs_a_request_for_each_object_once(
    tmp_path: Path, stage: Stage, cold: int
) -> None:
    """Two for a segment, whose footer says where its filters are; objects without a message of the topic are not asked."""
    with scene(tmp_path, inline_bytes=0) as made:
        age(made, stage)
        objects = made.objects()
        with_topic = {
            run.object for queue in made.state.queues("Orders") if queue.generation
            for run in made.state.runs(queue.queue, queue.generation)
        }  # fmt: skip
        levels = [item.level for item in made.state.objects() if item.ref in with_topic]
        expected = sum(2 if level == 2 else 1 for level in levels)
        assert asked(made, objects, "nothing") == expected <= cold + 2
        assert sum(asked(made, objects, f"nothing{n}") for n in range(20)) < 5 * expected, (
            "a filter errs at times"
        )
