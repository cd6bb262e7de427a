"""A real broker's live log into a real Kafka by the daemon, through two kills of the daemon and one of Kafka."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from tests.kit.demo_kafka import KafkaDemo, judged
from tests.kit.kafkabroker import kafka_broker
from tests.kit.stack import real_stack

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.kafka]


def test_nothing_is_lost_doubled_or_reordered(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=160)
    with kafka_broker(tmp_path / "kafka") as kafka, real_stack(tmp_path / "real") as stack:
        demo = KafkaDemo(tmp_path, stack, kafka, messages=4_000, rate=400, console=console)
        try:
            code = demo.run()
        finally:
            demo.end()
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert code == 0, said
    assert (len(demo.kills), demo.kafka_kills) == (2, 1)
    assert "lost 0, doubled 0, reordered 0" in said


def test_the_judge_finds_what_is_wrong() -> None:
    assert not any(judged(4, [0, 1, 2, 3]).values())
    assert judged(4, [0, 2, 1, 3])["reordered"] == 1
    assert judged(4, [0, 1, 1, 2, 3])["doubled"] == 1
    assert judged(4, [0, 1, 3])["lost"] == 1
