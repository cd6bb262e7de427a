"""What one question costs who keeps nothing of an archive of very many queues: GETs, by what they are for."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.aged import Stage, saved
from tests.kit.assemble import KEYS
from tests.kit.command import tiered
from tests.kit.fetchscene import READERS, SETTLED_SECONDS, Ranges, Scene, scene
from tests.kit.merging import merge_all
from tests.kit.sealing import HOUR_MS, MIDNIGHT_MS, after_midnight, seal_all
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.read import reader
from tiered.clock import ManualClock
from tiered.fetch.pull import Pull
from tiered.metrics import Metrics
from tiered.provider import open as opening
from tiered.settings import Archive, Fetch, Settings
from tiered.store import MessageStore

TOPICS, QUEUES = 60, 50
BEHIND = 2
"""Commits behind the checkpoint. Each is a GET of its own, whatever the question."""
MOST_GETS = 10
"""Besides."""
STAGES = (Stage.FRESH, Stage.MERGED, Stage.SEALED)
QUIET, TOUCHED = "Topic040", "Topic001"
"""A topic with a message in each queue, and one that the first flush, the second and the first commit behind the checkpoint are
of, too."""


@dataclass(frozen=True)
class Asked:
    """An archive in a directory, and what its broker wrote."""

    url: str
    records: dict[tuple[str, int], list[bytes]]


def flush(made: Scene, topics: range) -> None:
    """A message in every queue of these topics, archived."""
    for queue_id in range(QUEUES):
        for number in topics:
            made.broker.send(f"Topic{number:03d}", queue_id)
    made.daemon.settle(SETTLED_SECONDS)


@pytest.fixture(scope="module", params=STAGES, ids=[stage.value for stage in STAGES])
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """Some thousand queues that aged, a checkpoint of some dozen shards, and commits behind it."""
    work, stage, chance = tmp_path_factory.mktemp("cold"), request.param, random.Random(1)
    with scene(work / "made") as made:
        made.broker.time_ms = MIDNIGHT_MS - HOUR_MS
        flush(made, range(TOPICS))
        flush(made, range(TOPICS // 2))
        if stage is not Stage.FRESH:
            merge_all(made.daemon)
        if stage is Stage.SEALED:
            after_midnight(made, days=2)
            seal_all(made.daemon)
        view = made.daemon.log.store.snapshot()
        manifest = write_checkpoint(
            made.provider, KEYS, view, None, lambda: KEYS.shard(1, chance.randbytes(16)), shard_bytes=1 << 15
        )
        assert len(manifest.shards) > 50
        for number in range(BEHIND):
            flush(made, range(number, number + 2))
        names = {(message.topic, message.queue_id) for message, _ in made.broker.sent}
        assert len(names) == TOPICS * QUEUES
        records: dict[tuple[str, int], list[bytes]] = {name: [] for name in names}
        for message, raw in made.broker.sent:
            records[message.topic, message.queue_id].append(raw)
        return Asked(saved(made, work / "archive"), records)


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """GETs of whoever opens a store meanwhile, by the first word of the key."""
    found, bare, patch = Counter[str](), opening.open_driver, pytest.MonkeyPatch()
    opened: list[Ranges] = []

    def counting(*arguments: object) -> Ranges:
        opened.append(Ranges(bare(*arguments)))  # type: ignore[arg-type]
        return opened[-1]

    with patch.context() as patched:
        patched.setattr(opening, "open_driver", counting)
        yield found
    found.update(key.removeprefix(KEYS.root).split("/")[0] for ranges in opened for key, _, _ in ranges.gets)


def few(gets: Counter[str]) -> bool:
    """Within the bound, and once each: whose archive, where it begins, each commit behind it, and that no other is there."""
    alone = gets["archive.json"] == gets["checkpoint"] == 1 and gets["commit"] == BEHIND + 1
    return alone and gets.total() - BEHIND <= MOST_GETS


@pytest.mark.parametrize("queue_id", [0, QUEUES // 2, QUEUES - 1])
def test_a_read_of_one_queue(asked: Asked, queue_id: int) -> None:
    with counted() as gets:
        done = tiered(
            "read", "--topic", QUIET, "--queue", queue_id, "--format", "raw", "--archive", asked.url
        )
    assert done.out == b"".join(asked.records[QUIET, queue_id])
    assert few(gets), gets
    assert gets["data"] + gets["segment"] == 2, "its tables and its block"


def test_the_queues_of_one_topic(asked: Asked) -> None:
    for topic in (QUIET, TOUCHED):
        with counted() as gets:
            done = tiered("queues", "--topic", topic, "--json", "--archive", asked.url)
        assert [(row["queue_id"], row["messages"]) for row in done.json] == [
            (queue_id, len(asked.records[topic, queue_id])) for queue_id in range(QUEUES)
        ]
        assert few(gets), gets
        assert gets["data"] + gets["segment"] == 0, "the fold says it all"


def test_the_first_cold_pull_of_a_gateway(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "FEW_PAIRS", 0)  # as of very many
    settings = Settings(archive=Archive(url=asked.url), fetch=Fetch(fold_directory=str(tmp_path)))
    with counted() as gets, ExitStack() as stack:
        store = MessageStore.open(settings, ManualClock(), Metrics(), stack=stack, name="gateway")
        found = store.get_message(Pull(READERS, QUIET, 7, 0, 32))
    assert [bytes(record) for record in found.records] == asked.records[QUIET, 7]
    assert few(gets), gets


def test_each_object_more_costs_its_tables_and_its_blocks(asked: Asked) -> None:
    """Of a queue that a commit behind the checkpoint put a message into, and two before it."""
    with counted() as gets:
        done = tiered("read", "--topic", TOUCHED, "--queue", 3, "--format", "raw", "--archive", asked.url)
    records = asked.records[TOUCHED, 3]
    assert done.out == b"".join(records)
    assert len(records) == 4
    read = gets["data"] + gets["segment"]
    assert read <= 2 * len(records)
    gets.subtract({"data": gets["data"], "segment": gets["segment"]})
    assert few(gets), gets
