"""A real broker's live log into a real Kafka by the daemon, through two kills of the daemon and one of Kafka."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tests.kit.demo_kafka import KafkaDemo, judged
from tests.kit.faultproxy import FaultProxy
from tests.kit.kafkabroker import KafkaBroker
from tests.kit.oracle import Oracle
from tests.kit.sinksoak import CHEAP, SAMPLE, SinkCampaign, proxies
from tests.kit.sinktruth import Had, SinkTruth, Stored
from tests.kit.stack import Stack, real_stack

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.kafka]


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with real_stack(tmp_path_factory.mktemp("real")) as made:
        yield made


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker]:
    """With ``cuts`` it is started."""
    broker = KafkaBroker(tmp_path_factory.mktemp("kafka"))
    yield broker
    broker.remove()


@pytest.fixture(scope="module")
def cuts(kafka: KafkaBroker, stack: Stack) -> Iterator[tuple[FaultProxy, FaultProxy]]:
    """Proxies before Kafka and the S3 server."""
    with proxies(stack, kafka) as found:
        yield found


@pytest.mark.usefixtures("cuts")
def test_nothing_is_lost_doubled_or_reordered(kafka: KafkaBroker, stack: Stack, tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=160)
    demo = KafkaDemo(tmp_path, stack, kafka, messages=4_000, rate=400, console=console)
    try:
        code = demo.run()
    finally:
        demo.end()
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert code == 0, said
    assert (len(demo.kills), demo.kafka_kills) == (2, 1)
    assert "lost 0, doubled 0, reordered 0" in said


def test_ten_kills_of_daemon_kafka_broker_and_store(
    kafka: KafkaBroker, stack: Stack, cuts: tuple[FaultProxy, FaultProxy], tmp_path: Path
) -> None:
    """A sample of the campaign, from a fixed seed: every process is killed, and the sink stops at a topic that was deleted."""
    campaign = SinkCampaign(tmp_path, stack, kafka, *cuts, seed=7)
    outcome = campaign.run(kills=10, seconds=300, first=SAMPLE, then=CHEAP)
    assert outcome.good, (outcome.error, outcome.steps)
    assert outcome.kills >= 10
    assert set(outcome.killed) == {"daemon", "Kafka", "broker", "S3 server"}
    assert outcome.actions.keys() >= set(SAMPLE)
    assert outcome.compared > 500


def life(*places: int) -> dict[tuple[str, int], list[Stored]]:
    """A log with a message at each place; its key and body are named by the place."""
    return {("T", 0): [Stored(at, number, b"%d" % at, b"%d" % at, 10) for number, at in enumerate(places)]}


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ([0, 10, 20, 31, 41], {}),
        ([0, 10, 20, 30, 31, 41], {"lost_by_broker": 1}),
        ([0, 10, 20, 30, 40, 31, 41], {"lost_by_broker": 2}),
        ([0, 10, 20, 31], {"lost": 1}),
        ([0, 20, 31, 41], {"lost": 1}),
        ([0, 10, 20, 20, 31, 41], {"doubled": 1}),
        ([0, 10, 20, 31, 41, 10], {"doubled": 1}),
        ([0, 20, 10, 31, 41], {"reordered": 4}),
        ([0, 10, 20, 40, 31, 41], {"reordered": 3}),
        ([0, 10, 20, 31, 30, 41], {"reordered": 2}),
        ([0, 10, 20, 31, 41, 99], {"invented": 1}),
    ],
)
def test_the_judge_of_logs_that_lose_their_tail(
    there: list[int], found: dict[str, int], tmp_path: Path
) -> None:
    """The broker had 0 to 40, lost what lies from 30 on, and wrote 31 and 41 in its place."""
    truth = SinkTruth(Oracle(tmp_path), ["T"])
    lives = iter([life(0, 10, 20, 30, 40), life(0, 10, 20, 31, 41)])
    truth._now = lambda: next(lives)  # type: ignore[method-assign]
    truth.cut(30)
    offsets = {0: 0, 10: 1, 20: 2, 30: 3, 40: 4, 31: 3, 41: 4, 99: 5}
    had = {("T", 0): [Had(offsets[at], b"%d" % at, b"%d" % at) for at in there]}
    judged_now = truth.judge(had, 1_000, dead=False)
    names = ("lost", "doubled", "reordered", "changed", "invented", "lost_by_broker")
    assert {name: count for name in names if (count := getattr(judged_now, name))} == found


@pytest.mark.parametrize(
    ("there", "found"),
    [
        ([0, 10, 20, 30, 30, 31, 20, 31, 41], {"repeats": 3, "lost_by_broker": 1}),
        ([0, 10, 10, 20, 31], {"lost": 1, "repeats": 1}),
        ([0, 20, 10, 20, 31, 41], {"reordered": 4, "repeats": 1}),
        ([0, 10, 20, 31, 41, 99, 99], {"invented": 1, "repeats": 1}),
        ([0, 10, 20, 31, 41, -10], {"changed": 1, "repeats": 1}),
    ],
)
def test_the_judge_of_a_sink_that_may_repeat(there: list[int], found: dict[str, int], tmp_path: Path) -> None:
    """The same log. Below 0: with another body."""
    truth = SinkTruth(Oracle(tmp_path), ["T"], once=False)
    lives = iter([life(0, 10, 20, 30, 40), life(0, 10, 20, 31, 41)])
    truth._now = lambda: next(lives)  # type: ignore[method-assign]
    truth.cut(30)
    offsets = {0: 0, 10: 1, 20: 2, 30: 3, 40: 4, 31: 3, 41: 4, 99: 5}
    had = {("T", 0): [Had(offsets[abs(at)], b"%d" % abs(at), b"%d" % at) for at in there]}
    judged_now = truth.judge(had, 1_000, dead=False)
    names = ("lost", "doubled", "reordered", "changed", "invented", "repeats", "lost_by_broker")
    assert {name: count for name in names if (count := getattr(judged_now, name))} == found


def test_the_judge_finds_what_is_wrong() -> None:
    assert not any(judged(4, [0, 1, 2, 3]).values())
    assert judged(4, [0, 2, 1, 3])["reordered"] == 1
    assert judged(4, [0, 1, 1, 2, 3])["doubled"] == 1
    assert judged(4, [0, 1, 3])["lost"] == 1
