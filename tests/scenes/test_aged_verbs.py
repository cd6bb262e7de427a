"""``tiered read``, ``query``, ``topics``, ``queues``, ``verify``: the same answers however old the archive is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.aged import EVERY_STAGE, TRIMMED_OFFSET, Stage, aged_cold, aged_directory
from tests.kit.command import Done, tiered
from tests.kit.fetchscene import ORDERS
from tests.kit.merging import QUEUES
from tests.kit.pipeline import PREPARED
from tiered.model import MessageQueue
from tiered.replay.base import Debt, DebtReason, GroupQueue
from tiered.replay.cold import read_debt


class Archives:
    """The same messages at every stage of ageing, in directories."""

    def __init__(self, root: Path) -> None:
        made = {stage: aged_directory(root / stage.value, stage) for stage in (*EVERY_STAGE, Stage.TRIMMED)}
        self.urls = {stage: url for stage, (url, _) in made.items()}
        self.sent = made[Stage.FRESH][1]
        self._fresh: dict[tuple[object, ...], Done] = {}

    def ask(self, stage: Stage, *words: object) -> Done:
        return tiered(*words, "--archive", self.urls[stage])

    def fresh(self, *words: object) -> Done:
        """What the first stage answers, to which all others are compared: asked once."""
        if words not in self._fresh:
            self._fresh[words] = self.ask(Stage.FRESH, *words)
        return self._fresh[words]

    def raws(self, queue: MessageQueue) -> list[bytes]:
        mine = ((m, raw) for m, raw in self.sent if MessageQueue(m.topic, m.queue_id) == queue)
        return [raw for m, raw in mine if not m.sys_flag & PREPARED]


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Archives:
    return Archives(tmp_path_factory.mktemp("aged"))


AGED = [stage for stage in EVERY_STAGE if stage is not Stage.FRESH]


def same(archives: Archives, stage: Stage, *words: object) -> Any:
    fresh, aged = archives.fresh(*words), archives.ask(stage, *words)
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
        same(archives, stage, "query", "--msg-id", message.message_id, "--topic", "Orders", "--json")
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


def test_what_is_owed_to_a_group_is_replayed_alike(tmp_path: Path) -> None:
    debt = Debt(1, GroupQueue("group", "Orders", 0), 2, 30, DebtReason.SKIPPED, 0, drained=2)
    found = []
    for stage in EVERY_STAGE:
        with aged_cold(tmp_path / stage.value, stage, open_now=False) as made:
            for number in range(45):
                made.broker.send(
                    "Orders", 0, b"%d" % number, properties={"TAGS": "ab"[number % 2], "KEYS": f"k{number}"}
                )
                if number % 15 == 14:
                    made.archive()
            batch = read_debt(made.open(), debt, "%RETRY%group", 100, 1 << 20, None)
            found.append((batch.items, batch.end, batch.holes))
    assert len(found[0][0]) == 28
    assert all(each == found[0] for each in found)


def between(archives: Archives, queue: MessageQueue, first_ms: int | None, end_ms: int | None) -> list[bytes]:
    """A queue's records from the first one stored at or after a time up to the first one stored at or after another."""
    mine = [
        (m.store_timestamp, raw)
        for m, raw in archives.sent
        if MessageQueue(m.topic, m.queue_id) == queue and not m.sys_flag & PREPARED
    ]
    low, high = (
        next((i for i, (time, _) in enumerate(mine) if bound is not None and time >= bound), len(mine))
        for bound in (0 if first_ms is None else first_ms, end_ms)
    )
    return [raw for _, raw in mine[low:high]]


@pytest.mark.parametrize("stage", [Stage.FRESH, Stage.SEALED], ids=lambda s: s.value)
def test_read_from_a_time_to_a_time(archives: Archives, stage: Stage) -> None:
    times = sorted(m.store_timestamp for m, _ in archives.sent if m.topic == "Orders")
    middle, late = times[len(times) // 3], times[-2]
    for first, end in ((middle, None), (None, middle), (middle, late), (times[-1] + 1, None)):
        words = ["--from-time", first] * (first is not None) + ["--to-time", end] * (end is not None)
        whole = archives.ask(stage, "read", "--topic", "Orders", *words, "--count", 0, "--format", "raw")
        expected = [between(archives, queue, first, end) for queue in QUEUES if queue.topic == "Orders"]
        assert whole.out == b"".join(b"".join(records) for records in expected), whole.err
        one = archives.ask(
            stage, "read", "--topic", "Orders", "--queue", 0, *words, "--count", 0, "--format", "raw"
        )
        assert one.out == b"".join(expected[0])
    page = archives.ask(stage, "read", "--topic", "Orders", "--from-time", middle, "--count", 3, "--json")
    assert len(page.out.splitlines()) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--count", 1), "--queue is needed"),
        (("--queue", 0, "--offset", 1, "--from-time", 5), "both say where to begin"),
        (("--queue", 0, "--from-time", 6, "--to-time", 5), "later than --to-time"),
        (("--queue", 0, "--compacted", "--from-time", 6), "offsets alone"),
        (("--from-time", "yesterday"), "--from-time"),
    ],
)
def test_read_by_time_and_what_does_not_go_with_it(
    archives: Archives, words: tuple[object, ...], said: str
) -> None:
    done = archives.ask(Stage.FRESH, "read", "--topic", "Orders", *words)
    assert done.code != 0
    assert said in done.err
