"""The worked examples on a view of a real broker: killed in their middle, view and example, they go on where they were."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.kit.broker import Broker
from tests.kit.golden import records
from tests.kit.kvproc import ViewProcess
from tiered.client.sync import LATEST, KeyValueClient

pytestmark = [pytest.mark.broker, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
TOPIC = "Lines"
LINES = [b"line %d" % number for number in range(30)]


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("e2e_" + Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = made
    spec.loader.exec_module(made)
    return made


@pytest.fixture(scope="module")
def view(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewProcess]:
    made = ViewProcess(tmp_path_factory.mktemp("examples"), broker, "examples", **{"kv.flush_ms": 300})
    made.start()
    yield made
    made.end()


@pytest.fixture
def client(view: ViewProcess) -> Iterator[KeyValueClient]:
    with KeyValueClient(f"http://{view.address}") as made:
        yield made


def stored(broker: Broker) -> list[bytes]:
    """Bodies of the topic, in the order of their lines: the broker takes those of one batch as they come."""
    found = [each for each in records(broker.store_dir) if each.topic == TOPIC]
    return [each.body for each in sorted(found, key=lambda each: int(each.properties[b"sourceOffset"]))]


def test_a_file_source_goes_on_at_its_position_though_the_view_was_killed(
    broker: Broker, view: ViewProcess, client: KeyValueClient, tmp_path: Path
) -> None:
    example: Any = loaded("deploy/examples/filesource.py")
    broker.create_topic(TOPIC, 1)
    client.create("positions")
    file = tmp_path / "app.log"
    file.write_bytes(b"\n".join(LINES[:20]) + b"\n")
    words = [
        str(file),
        "--topic",
        TOPIC,
        "--broker",
        broker.address,
        "--server",
        f"http://{view.address}",
        "--batch",
        "7",
    ]
    assert example.main(words) == 0
    assert stored(broker) == LINES[:20]
    view.kill()
    view.start()
    with file.open("ab") as opened:
        opened.write(b"\n".join(LINES[20:]) + b"\n")
    assert example.main(words) == 0
    assert stored(broker) == LINES
    entry = client.get("positions", str(file.resolve()).encode(), LATEST)
    assert entry is not None
    position = example.FilePosition.decode(entry)
    assert (position.offset, position.lines) == (file.stat().st_size, len(LINES))


def test_a_stream_s_batches_are_known_again_though_the_view_lost_its_store(
    view: ViewProcess, client: KeyValueClient
) -> None:
    example: Any = loaded("spark/examples/kvoffsets.py")
    client.create("streams")
    applied: list[tuple[int, bool]] = []

    def apply(frame: object, batch: int, repeated: bool) -> dict[str, int]:
        applied.append((batch, repeated))
        if applied == [(0, False), (1, False)]:
            raise KeyboardInterrupt  # killed between its output and its record
        return {f"Orders/{batch}": 10 * batch}

    def job() -> Any:
        return example.recorded(example.BatchLedger(client, "streams", "by-day"), apply)

    job()(None, 0)
    with pytest.raises(KeyboardInterrupt):
        job()(None, 1)
    view.kill()
    view.empty()
    view.start()
    of_batch = job()
    of_batch(None, 1)
    of_batch(None, 1)
    of_batch(None, 2)
    assert applied == [(0, False), (1, False), (1, True), (2, False)]
    entry = client.get("streams", b"by-day", LATEST)
    assert entry is not None
    assert example.StreamRecord.decode(entry).offsets == {"Orders/0": 0, "Orders/1": 10, "Orders/2": 20}
