"""``tiered read``, ``query``, ``topics``, ``queues``, ``verify``: the same answers however old the archive is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.aged import EVERY_STAGE, TRIMMED_OFFSET, Stage, age
from tests.kit.command import Done, tiered
from tests.kit.fetchscene import ORDERS, scene
from tests.kit.merging import QUEUES
from tiered.codec.record.message import Message
from tiered.model import MessageQueue


class Archives:
    """The same messages at every stage of ageing, in directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.sent: list[tuple[Message, bytes]] = []

    def ask(self, stage: Stage, *words: object) -> Done:
        return tiered(*words, "--archive", f"file://{self.root / stage.value}")

    def raws(self, queue: MessageQueue) -> list[bytes]:
        return [
            raw for m, raw in self.sent if MessageQueue(m.topic, m.queue_id) == queue and not m.sys_flag & 0x4
        ]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    made = Archives(tmp_path_factory.mktemp("aged"))
    for stage in (*EVERY_STAGE, Stage.TRIMMED):
        with scene(made.root / f"{stage.value}-broker") as found:
            age(found, stage)
            for item in found.provider.list(""):
                path = made.root / stage.value / item.key
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(found.provider.get(item.key).data)
            made.sent = found.broker.sent
    return made


AGED = [stage for stage in EVERY_STAGE if stage is not Stage.FRESH]


def same(archives: Archives, stage: Stage, *words: object) -> Any:
    fresh, aged = archives.ask(Stage.FRESH, *words), archives.ask(stage, *words)
    assert (aged.code, aged.out) == (fresh.code, fresh.out), aged.err
    return fresh


@pytest.mark.parametrize("stage", AGED, ids=lambda s: s.value)
def test_read_gives_the_brokers_records(archives: Archives, stage: Stage) -> None:
    for queue in QUEUES:
        words = ("read", "--topic", queue.topic, "--queue", queue.queue_id)
        done = same(archives, stage, *words, "--count", 0, "--format", "raw")
        assert done.out == b"".join(archives.raws(queue)) != b""
        same(archives, stage, *words, "--offset", 3, "--count", 5, "--json")
    same(archives, stage, "read", "--topic", "Orders", "--queue", 9)


@pytest.mark.parametrize("stage", AGED, ids=lambda s: s.value)
def test_query_by_key_id_and_time(archives: Archives, stage: Stage) -> None:
    found = same(archives, stage, "query", "--topic", "Orders", "--key", "k3", "--json")
    assert found.code == 0
    assert len(found.json) > 3
    same(archives, stage, "query", "--topic", "Payments", "--key", "k3", "--limit", 2, "--json")
    same(archives, stage, "query", "--topic", "Orders", "--key", "nowhere", "--json")
    for message, _ in archives.sent[:: len(archives.sent) // 7]:
        same(archives, stage, "query", "--msg-id", message.message_id, "--json")
        if message.unique_key is not None:
            same(
                archives,
                stage,
                "query",
                "--topic",
                message.topic,
                "--unique-key",
                message.unique_key,
                "--json",
            )
        if message.topic == "Orders":
            at = ("--queue", message.queue_id, "--time", message.store_timestamp)
            same(archives, stage, "query", "--topic", "Orders", *at, "--json")


@pytest.mark.parametrize("stage", AGED, ids=lambda s: s.value)
def test_what_there_is(archives: Archives, stage: Stage) -> None:
    same(archives, stage, "topics", "--json")
    queues = ("topic", "queue_id", "generation", "min_offset", "max_offset", "messages", "bytes")
    fresh, aged = (
        [[row.get(name) for name in queues] for row in archives.ask(s, "queues", "--json").json]
        for s in (Stage.FRESH, stage)
    )
    assert aged == fresh


@pytest.mark.parametrize("stage", [*EVERY_STAGE, Stage.TRIMMED], ids=lambda s: s.value)
def test_verify_finds_every_message_sound(archives: Archives, stage: Stage) -> None:
    for words in ((), ("--deep",)):
        done = archives.ask(stage, "verify", "--json", *words)
        assert (done.code, done.json["verdict"]) == (0, "sound"), done.out
    assert done.json["messages"] >= len(archives.sent)


def test_a_trimmed_queue_begins_inside_a_sealed_run(archives: Archives) -> None:
    words = ("read", "--topic", ORDERS.topic, "--queue", ORDERS.queue_id, "--count", 0, "--format", "raw")
    assert archives.ask(Stage.TRIMMED, *words).out == b"".join(archives.raws(ORDERS)[TRIMMED_OFFSET:])
