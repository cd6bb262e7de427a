"""The worked example of a source connector: no line is left out, whenever it dies, and two of them do not mix."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.kit.fakebroker import FakeBroker
from tests.kit.httpscene import serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues
from tiered.client.sync import KeyValueClient
from tiered.clock import ManualClock
from tiered.errors import Conflict, Invalid, Unavailable

EXAMPLE = Path(__file__).parents[2] / "deploy" / "examples" / "filesource.py"
LINES = [b"line %d" % number for number in range(25)]


class Died(Exception):
    """As kill -9 does."""


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_filesource", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made  # dataclasses look their module up
    spec.loader.exec_module(made)
    return made


EX: Any = loaded()


@pytest.fixture
def view() -> MemoryKeyValues:
    return MemoryKeyValues()


@pytest.fixture
def client(view: MemoryKeyValues) -> Iterator[KeyValueClient]:
    with serving_key_values(view) as scene, KeyValueClient(scene.url) as made:
        made.create("positions")
        yield made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "app.log"
    made.write_bytes(b"\n".join(LINES) + b"\nnot whole yet")
    return made


def source(client: KeyValueClient, file: Path, send: Any, owner: str = "one") -> Any:
    kept = EX.KeptPosition(client, "positions", b"app.log", ManualClock())
    return EX.FileSource(file, send, kept, owner=owner, batch_lines=4)


def drained(made: Any) -> None:
    while made.step():
        pass


def test_whenever_it_dies_no_line_is_left_out_and_at_most_one_batch_comes_again(
    client: KeyValueClient, file: Path
) -> None:
    stored: list[tuple[int, bytes]] = []
    dies_at = iter((1, 4, 6, 11, 17, 25, 26, 0))

    def send(lines: Sequence[Any]) -> None:
        for line in lines:
            stored.append((line.offset, line.content))
            if len(stored) == until:
                raise Died

    deaths = 0
    for until in dies_at:
        made = source(client, file, send, f"owner-{until}")
        said = made.take_over()
        assert ("begins" in said) == (made.position.lines == 0 and deaths == 0)
        try:
            drained(made)
        except Died:
            deaths += 1
    assert deaths == 7
    assert [content for _, content in sorted(set(stored))] == LINES
    assert len(stored) <= len(LINES) + deaths * 4
    assert made.position.lines == len(LINES)


def test_what_is_not_whole_waits_for_its_end(client: KeyValueClient, file: Path) -> None:
    stored: list[bytes] = []
    made = source(client, file, lambda lines: stored.extend(line.content for line in lines))
    made.take_over()
    drained(made)
    assert stored == LINES
    with file.open("ab") as opened:
        opened.write(b", now it is\n")
    assert made.step() == 1
    assert stored[-1] == b"not whole yet, now it is"


def test_two_sources_do_not_mix(client: KeyValueClient, file: Path) -> None:
    first, second = (source(client, file, lambda lines: None, owner) for owner in ("first", "second"))
    first.take_over()
    assert first.step() == 4
    second.take_over()
    with pytest.raises(Conflict):
        first.step()
    drained(second)
    assert second.position.lines == len(LINES)


def test_a_move_whose_answer_was_lost_is_found_to_have_taken_effect(
    view: MemoryKeyValues, client: KeyValueClient, file: Path
) -> None:
    made = source(client, file, lambda lines: None)
    made.take_over()
    lost = iter((True, False, False, False, False, False, False, False))

    def afterwards(verb: str) -> None:
        if verb == "put" and next(lost):
            raise Unavailable("late", outcome="unknown")

    view.afterwards = afterwards
    drained(made)
    assert made.position.lines == len(LINES)


def test_another_file_and_another_s_key_are_refused(client: KeyValueClient, file: Path) -> None:
    made = source(client, file, lambda lines: None)
    made.take_over()
    drained(made)
    file.write_bytes(b"short\n")
    with pytest.raises(Invalid, match="not the file"):
        source(client, file, lambda lines: None).take_over()
    client.put("positions", b"app.log", b"what is this?")
    with pytest.raises(Invalid, match="something else"):
        source(client, file, lambda lines: None).take_over()


def test_from_the_command_line(client: KeyValueClient, file: Path, view: MemoryKeyValues) -> None:
    with FakeBroker() as broker, serving_key_values(view) as scene:
        broker.fill("Logs", 0, 0)
        words = [
            str(file),
            "--topic",
            "Logs",
            "--broker",
            broker.address,
            "--server",
            scene.url,
            "--batch",
            "10",
        ]
        assert EX.main(words) == 0
        assert [stored.body for stored in broker.sent("Logs")] == LINES
        assert broker.sent("Logs")[1].properties["sourceOffset"] == str(len(LINES[0]) + 1)
        assert EX.main(words) == 0
        assert len(broker.sent("Logs")) == len(LINES)
        with file.open("ab") as opened:
            opened.write(b"\n")
        broker.answers.append((10, "not flushed"))
        assert EX.main(words) == Unavailable.exit_code
        assert EX.main([*words[:2], "Nowhere", *words[3:]]) == 5
