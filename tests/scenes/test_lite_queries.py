"""Look-ups in lite queues: by key, by message id and by time, as a read of the lite queue has the messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import put
from tests.kit.command import archive_once, tiered
from tests.kit.litebroker import LiteBroker, lite_cold
from tests.kit.litebroker import broker_of as broker
from tests.kit.readstore import Cold
from tiered.archive.read.litelookup import LiteRecords
from tiered.archive.read.lookup import KeyLookup
from tiered.codec.format.edits import EditKind, batch

A, B, NONE = "%LMQ%a", "%LMQ%b", "%LMQ%none"


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Cold]:
    with lite_cold(tmp_path) as (scene, _):
        yield scene


def fill(broker: LiteBroker, messages: int = 60) -> None:
    """To two topics; every message has a key that five have in all, and a unique one."""
    for number in range(messages):
        broker.time_ms += 10
        names = [name for name, every in ((A, 2), (B, 3)) if number % every == 0]
        more = {"KEYS": f"k{number % 12}", "UNIQ_KEY": f"u{number}"}
        broker.place(names, topic=("Orders", "Bills")[number // 7 % 2], queue_id=number % 2, more=more)


def with_key(made: Cold, name: str, key: str) -> dict[int, bytes]:
    """What the lite queue holds of a key, by offset there."""
    keys = {raw: m.properties["KEYS"] for m, raw in made.broker.sent}
    return {o: raw for o, raw in broker(made).placed()[name].items() if keys[raw] == key}


def looked_up(made: Cold, name: str, key: str, **options: Any) -> dict[int, bytes]:
    found = made.store.query(KeyLookup(name, key, **options))
    assert {f.queue.topic for f in found} <= {name}
    return {int(f.queue_offset): f.record for f in found}


def test_a_key_is_looked_for_in_the_lite_queue_alone(made: Cold) -> None:
    for _ in range(3):
        fill(broker(made))
        made.archive()
    made.open()
    for name in (A, B):
        for number in range(12):
            assert looked_up(made, name, f"k{number}") == with_key(made, name, f"k{number}")
    whole = with_key(made, A, "k6")
    assert len(whole) > 12
    assert looked_up(made, A, "k6", max_count=4, oldest=True) == dict(list(whole.items())[:4])
    assert looked_up(made, A, "k6", max_count=4) == dict(list(whole.items())[-4:])
    assert len(looked_up(made, A, "u6", unique=True)) == 3
    assert looked_up(made, A, "u7", unique=True) == {}, "in its own queue alone"
    assert len(made.store.query(KeyLookup("Orders", "u7", unique=True))) == 0
    assert len(made.store.query(KeyLookup("Bills", "u7", unique=True))) == 3
    assert made.store.query(KeyLookup(NONE, "k6")) == []


def test_records_of_an_earlier_generation_of_their_queue_are_found(made: Cold) -> None:
    """The topic was made anew and its offsets begin again; the lite queue goes on."""
    fill(broker(made))
    made.archive()
    made.broker.following.clear()
    fill(broker(made))
    made.archive()
    made.open()
    whole = with_key(made, A, "k6")
    assert looked_up(made, A, "k6") == whole
    current = made.store.query(KeyLookup("Orders", "k6")) + made.store.query(KeyLookup("Bills", "k6"))
    assert {f.record for f in current} < set(whole.values()), "the topics' own answers are of the current one"


def test_what_retention_took_is_not_found(made: Cold) -> None:
    fill(broker(made))
    made.archive()
    for topic in ("Orders", "Bills"):
        put(
            made.daemon.log,
            batch(EditKind.TRIM_QUEUE, topic=topic, queue_id=0, generation=1, first_offset=8),
        )
    made.open()
    kept = {
        raw
        for topic in ("Orders", "Bills")
        for queue_id in (0, 1)
        for raw in made.raws(topic, queue_id)[8 if queue_id == 0 else 0 :]
    }
    for number in range(12):
        key = f"k{number}"
        expected = {o: raw for o, raw in with_key(made, A, key).items() if raw in kept}
        assert looked_up(made, A, key) == expected


def test_a_message_id_is_of_the_lite_queue_or_is_not_found(made: Cold) -> None:
    fill(broker(made))
    made.archive()
    made.open()
    offsets = {raw: offset for offset, raw in broker(made).placed()[A].items()}
    for message, raw in made.broker.sent:
        found = made.store.locate(message.physical_offset, topic=A)
        if raw in offsets:
            assert found is not None
            assert (found.queue.topic, found.queue_offset, found.record) == (A, offsets[raw], raw)
        else:
            assert found is None


def test_a_record_that_names_a_place_which_it_has_not_is_passed_over(made: Cold) -> None:
    """An alias that is not there (a commit repaired from its objects), or is another record's."""
    fill(broker(made))
    made.archive()
    made.open()
    lite = LiteRecords.of(made.store.view.state, A)
    assert lite is not None
    first = made.store.query(KeyLookup(A, "k6"))[0]
    own = made.store.locate(first.message.physical_offset)
    assert own is not None
    assert lite.placed(own) == first
    beyond = {**own.message.properties, "INNER_MULTI_QUEUE_OFFSET": "9999", "INNER_MULTI_DISPATCH": A}
    assert lite.placed(replace(own, message=replace(own.message, properties=beyond))) is None
    other = {**beyond, "INNER_MULTI_QUEUE_OFFSET": str(first.queue_offset + 1)}
    assert lite.placed(replace(own, message=replace(own.message, properties=other))) is None
    strange = {**beyond, "INNER_MULTI_QUEUE_OFFSET": "-1"}
    assert lite.placed(replace(own, message=replace(own.message, properties=strange))) is None


def test_the_command_finds_in_lite_queues_and_names_those_it_does_not_know(tmp_path: Path) -> None:
    store = LiteBroker(tmp_path / "store")
    fill(store)
    archive = tmp_path / "archive"
    assert archive_once(store.store, archive, "dispatch.lite_queues=true").code == 0

    def query(*words: object) -> Any:
        return tiered("query", "--archive", f"file://{archive}", "--json", *words)

    done = query("--topic", A, "--key", "k6")
    assert done.code == 0, done.err
    rows = json.loads(done.out)
    assert [row["queue_offset"] for row in rows] == [3, 9, 15, 21, 27]
    assert {row["topic"] for row in rows} == {"Orders", "Bills"}, "the records are as they are stored"
    one = query("--topic", A, "--msg-id", rows[1]["msg_id"])
    assert one.code == 0, one.err
    assert json.loads(one.out)[0]["queue_offset"] == 9
    assert query("--topic", B, "--key", "k4").code == 5
    done = query("--topic", A, "--key", "k5")
    assert done.code == 5
    assert "no archived message has this key" in done.err
    for words in (("--key", "k6"), ("--msg-id", rows[1]["msg_id"]), ("--queue", 0, "--time", 5)):
        done = query("--topic", NONE, *words)
        assert done.code == 5
        assert NONE in done.err
    timed = json.loads(query("--topic", A, "--queue", 0, "--time", rows[1]["store_timestamp"]).out)
    assert (timed["queue_offset"], timed["at_end"]) == (9, False)
