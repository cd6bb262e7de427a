"""The worked example of a stream's batches in the view: which are new, which may have been applied, which were."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.kit.httpscene import serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues
from tiered.client.sync import KeyValueClient
from tiered.errors import Conflict, Invalid, Unavailable

EXAMPLE = Path(__file__).parents[2] / "spark" / "examples" / "kvoffsets.py"


class Died(Exception):
    """As kill -9 does."""


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("example_kvoffsets", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


EX: Any = loaded()


@pytest.fixture
def view() -> MemoryKeyValues:
    return MemoryKeyValues()


@pytest.fixture
def client(view: MemoryKeyValues) -> Iterator[KeyValueClient]:
    with serving_key_values(view) as scene, KeyValueClient(scene.url) as made:
        made.create("streams")
        yield made


def ledger(client: KeyValueClient) -> Any:
    return EX.BatchLedger(client, "streams", "by-day")


def test_a_batch_that_comes_again_is_left_out_or_replaced(client: KeyValueClient) -> None:
    applied: list[tuple[int, bool]] = []
    said: list[str] = []
    dies = True

    def apply(frame: Any, batch: int, repeated: bool) -> dict[str, int]:
        applied.append((batch, repeated))
        if batch == 1 and dies:
            raise Died
        return {f"Orders/{batch}": batch * 10}

    of_batch = EX.recorded(ledger(client), apply, said.append)
    of_batch(None, 0)
    with pytest.raises(Died):
        of_batch(None, 1)
    dies = False
    again = EX.recorded(ledger(client), apply, said.append)
    again(None, 1)
    again(None, 1)
    again(None, 2)
    assert applied == [(0, False), (1, False), (1, True), (2, False)]
    assert said == [
        "batch 1 may have been applied before: it is replaced",
        "batch 1 was applied before: it is left out",
    ]
    entry = client.get("streams", b"by-day")
    assert entry is not None
    assert EX.StreamRecord.decode(entry).offsets == {"Orders/0": 0, "Orders/1": 10, "Orders/2": 20}


def test_a_checkpoint_of_another_stream_is_refused(client: KeyValueClient) -> None:
    with pytest.raises(Invalid, match="do not belong together"):
        ledger(client).begin(3)
    made = ledger(client)
    assert made.begin(0) is EX.BatchStanding.NEW
    with pytest.raises(Invalid, match="do not belong together"):
        ledger(client).begin(1)  # batch 0 was not finished
    made.finish(0, {})
    with pytest.raises(Invalid, match="do not belong together"):
        ledger(client).begin(2)
    client.put("streams", b"by-day", b"[]")
    with pytest.raises(Invalid, match="something else"):
        ledger(client).begin(1)


def test_two_jobs_of_one_name_do_not_mix(client: KeyValueClient) -> None:
    first, second = ledger(client), ledger(client)
    assert first.begin(0) is EX.BatchStanding.NEW
    assert second.begin(0) is EX.BatchStanding.REPEATED
    second.finish(0, {})
    with pytest.raises(Conflict):
        first.finish(0, {"Orders/0": 1})


def test_a_record_whose_answer_was_lost_is_found(view: MemoryKeyValues, client: KeyValueClient) -> None:
    lost = iter((True, False))

    def afterwards(verb: str) -> None:
        if next(lost):
            raise Unavailable("late", outcome="unknown")

    view.afterwards = afterwards
    made = ledger(client)
    assert made.begin(0) is EX.BatchStanding.NEW
    made.finish(0, {})
    assert ledger(client).begin(0) is EX.BatchStanding.DONE
