"""``make demo-million`` at a small size: archived, killed, opened again, two queues read."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from tests.kit.demo_million import MillionDemo


def test_many_queues_are_archived_through_two_kills_and_one_is_read(tmp_path: Path) -> None:
    console = Console(width=120, record=True)
    demo = MillionDemo(tmp_path, 2000, console, fork=True)
    assert demo.run() == 0
    assert (demo.queues, demo.messages) == (2000, 2400)
    assert [step.found for step in demo.steps if step.what.startswith("read")][1] == "1 messages", (
        "a quiet one"
    )
    assert all(step.took.cpu_seconds > 0 and step.took.peak_bytes > 10 << 20 for step in demo.steps)
    told = console.export_text()
    assert all(step.what in told for step in demo.steps)
    assert "identical" in told
