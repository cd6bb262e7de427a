"""What is shown of sinks: metrics as things stand when they are read, whatever thread stands still."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.sinkrunning import SinkScene
from tiered.archive.keys import BACKFILL_PREFIX
from tiered.clock import ManualClock
from tiered.codec.format.edits import SinkStep
from tiered.daemon.config import load
from tiered.daemon.sinks import SinkServices
from tiered.errors import Unavailable
from tiered.metrics import Metrics
from tiered.model import MessageQueue
from tiered.sink.backfill import BackfillBook, BackfillPlan, QueueRange
from tiered.sink.base import Accepted
from tiered.sink.book import SinkBook
from tiered.sink.ledger import SinkAdvance
from tiered.sink.order import SinkOrder
from tiered.sink.progress import SinkPhase, SinkProgress


@pytest.fixture
def services(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[SinkScene, SinkServices, Metrics]]:
    """Of a daemon with one order, and no thread of its sink."""
    monkeypatch.setattr("tiered.daemon.sinks.Service.start", lambda service: None)
    scene = SinkScene(tmp_path)
    scene.put()
    scene.archive()
    settings = load().settings
    settings = replace(settings, source=replace(settings.source, store_dir=str(scene.log.store)))
    metrics = Metrics()
    parts: Any = SimpleNamespace(
        log=scene.daemon.log, provider=scene.provider, objects=scene.daemon.objects, clock=scene.clock,
        metrics=metrics, settings=settings,
    )  # fmt: skip
    identity = scene.daemon.log.reader.identity
    book = SinkBook(scene.provider, scene.daemon.log.reader.keys, identity.archive_id)
    order = SinkOrder("copy", "file", {"location": f"file://{tmp_path}/out"}, required=True)
    book.add(order, 0, os.urandom)
    made = SinkServices(parts, scene.ledger, scene.daemon.line, lambda: False)
    yield scene, made, metrics
    for running in made._running.values():
        running.tail.close()


def test_a_sink_and_what_holds_for_all_are_shown(
    services: tuple[SinkScene, SinkServices, Metrics], monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, made, metrics = services
    made.step()
    [running] = made._running.values()
    running.runner.progress.enter(SinkPhase.AWAY, "nobody listens")
    made.show()

    def value(name: str) -> float | None:
        return metrics.value(f"tiered_sink_{name}", sink="copy")

    assert (value("required"), value("standing"), value("away"), value("stopped")) == (1, 1, 1, 0)
    assert value("lag_bytes") is None, "not known: not shown"
    before = value("stale_seconds")
    monkeypatch.setattr(made._book, "sinks", lambda: (_ for _ in ()).throw(Unavailable("the bucket is away")))
    scene.clock.advance(400)
    made.step()
    made.show()
    assert value("stale_seconds") == pytest.approx((before or 0) + 400), "as it is now"
    assert metrics.value("tiered_sinks_orders_age_seconds") == pytest.approx(400)
    assert metrics.value("tiered_sinks_progress_refused") == 0
    made._ledger.trouble = "the fold refuses it"
    made.show()
    assert metrics.value("tiered_sinks_progress_refused") == 1
    assert metrics.value("tiered_sinks_file_refused") == 0
    made._file.trouble = "it is no TOML"
    made.show()
    assert metrics.value("tiered_sinks_file_refused") == 1
    assert made.status()["file"] == "it is no TOML"
    assert "the file of sinks is not in force: it is no TOML" in str(made.standstill())


def test_what_cannot_be_begun_now_is_said_as_what_it_is_and_begun_later(
    services: tuple[SinkScene, SinkServices, Metrics],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    _, made, _ = services

    def away(*_: object) -> None:
        raise Unavailable("the broker's files are away")

    with monkeypatch.context() as patch:
        patch.setattr("tiered.daemon.sinks.open_source", away)
        made.step()
    assert (made.trouble, list(made._running)) == ("the broker's files are away", [])
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == [
        "orders of sinks cannot be followed: sinks go on as before"
    ]
    made._look_at = 0.0
    made.step()
    assert (made.trouble, len(made._running)) == (None, 1)


def test_what_became_of_messages_is_counted_by_kind() -> None:
    progress = SinkProgress(ManualClock())
    for _ in range(2):
        progress.gave(Accepted(10, dead_letters=1, left_out=2, came_back=3))
    counted = {"messages": 20, "dead_letters": 2, "left_out": 4, "came_back": 6}
    assert {name: progress.figures()[name] for name in counted} == counted
    assert {name: progress.document()[name] for name in counted} == counted


def test_what_a_backfill_left_goes_once_the_archive_has_it(
    services: tuple[SinkScene, SinkServices, Metrics],
) -> None:
    scene, made, _ = services
    reader = scene.daemon.log.reader
    orders = SinkBook(scene.provider, reader.keys, reader.identity.archive_id)
    backfills = BackfillBook(scene.provider, reader.keys, reader.identity.archive_id)
    backfill = os.urandom(16)
    asked = orders.change("copy", 1, os.urandom, backfill_id=backfill)
    ranges = [[QueueRange(MessageQueue("Orders", 0), 0, 1, 1)]]
    plan = BackfillPlan(backfill, os.urandom(16), asked.sink_id, 1, 1, 1, asked.revision, 0, 1, 1, 2)
    backfills.put_plan(plan, ranges)

    def left() -> int:
        made._look_at = 0.0
        made.step()
        return len(list(scene.provider.list(reader.keys.key(BACKFILL_PREFIX))))

    assert left() == 2, "it is under way"
    done = orders.change("copy", 3, os.urandom, backfilled=backfill)
    assert left() == 2, "nobody has taken it up"
    scene.ledger.keep(SinkAdvance(asked.sink_id, "copy", done.revision, 1, 0, step=SinkStep.ANEW))
    scene.commit()
    assert left() == 0
    backfills.put_plan(plan, ranges)
    orders.remove("copy")
    assert left() == 0, "of a sink that was removed"
