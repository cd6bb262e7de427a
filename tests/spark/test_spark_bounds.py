"""Bounds of single queues, what is asked for and is not there, and how many partitions there are. No JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from tests.kit.archiveedits import Edits
from tests.kit.fetchscene import ORDERS, Scene
from tests.kit.fetchscene import scene as new_scene
from tests.kit.sparkedits import MEMORY, QUEUES, Following, Rowset, send
from tests.kit.sparkscene import scan
from tiered.errors import Invalid, NotFound, Refused
from tiered_spark import limits, snapshot, stream
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader, TieredDataSource
from tiered_spark.options import parse_options
from tiered_spark.optionvalues import by_name

pytestmark = pytest.mark.spark

COLUMNS = {
    "": "topic,queue_id,queue_offset,store_timestamp",
    "with bodies": "topic,queue_id,queue_offset,store_timestamp,body",
}


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Two topics of two queues, 100 messages each, a second apart, in four objects."""
    with new_scene(tmp_path) as made:
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: made.provider)
        for _ in range(4):
            made.broker.time_ms += 1000
            send(made, 100, lambda n: QUEUES[n % 4])
        yield made


def read(**options: object) -> dict[tuple[str, int], list[int]]:
    """Queue offsets by queue; the same with bodies and without."""
    found: list[Rowset] = []
    for columns in COLUMNS.values():
        given = {
            name: value if isinstance(value, str) else json.dumps(value) for name, value in options.items()
        }
        found.append(scan({**MEMORY, "columns": columns, **given}))
    queues: list[dict[tuple[str, int], list[int]]] = [{}, {}]
    for rows, mine in zip(found, queues, strict=True):
        for row in rows:
            mine.setdefault((row["topic"], row["queue_id"]), []).append(row["queue_offset"])
    assert queues[0] == queues[1]
    return queues[0]


def test_offsets_of_single_queues(scene: Scene) -> None:
    everything = read()
    assert all(offsets == list(range(100)) for offsets in everything.values())
    found = read(
        startingOffsets={"Orders": {"0": 30, "*": 60}},
        endingOffsets={"broker-a/Payments": {"0": 5}, "Payments": {"0": 50, "1": -1}},
    )
    assert found == {
        ("Orders", 0): list(range(30, 100)), ("Orders", 1): list(range(60, 100)),
        ("Payments", 0): list(range(5)), ("Payments", 1): list(range(100)),
    }  # fmt: skip
    both = read(startingOffsets={"Orders": {"0": 30}}, startingOffset=50, endingOffset=52)
    assert {len(offsets) for offsets in both.values()} == {2}
    assert read(startingOffsets="earliest", endingOffsets="latest") == everything


def test_times_of_single_queues(scene: Scene) -> None:
    rows = [
        r for r in scan({**MEMORY, "columns": COLUMNS[""]}) if (r["topic"], r["queue_id"]) == ("Orders", 0)
    ]
    moment = rows[40]["store_timestamp"]
    later = sum(row["store_timestamp"] >= moment for row in rows)
    assert 0 < later < 100
    found = read(
        startingTimestamps={"Orders": {"0": moment}},
        endingTimestamps={"Payments": {"*": "1970-01-01T00:00:01Z"}},
    )
    assert {queue: len(offsets) for queue, offsets in found.items()} == {
        ("Orders", 0): later,
        ("Orders", 1): 100,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("startingOffsets", "latest?"), ("startingOffsets", '{"Orders": 5}'), ("startingOffsets", '{"Orders": {"0": -1}}'),
        ("endingOffsets", '{"Orders": {"0": -2}}'), ("endingOffsets", '{"Orders": {"a": 2}}'), ("endingOffsets", "[1]"),
        ("startingOffsets", '{"Orders": {"0": 1.5}}'), ("startingTimestamps", '{"Orders": {"0": "yesterday"}}'),
        ("endingTimestamps", "1000"), ("startingOffsets", '{"": {"0": 5}}'), ("startingOffsets", '{"Orders": {"0": true}}'),
        ("startingOffsets", '{"Orders": {"0": 9223372036854775808}}'), ("endingOffsets", '{"Orders": {"2147483648": 5}}'),
        ("endingOffsets", '{"Orders": {"*": 99999999999999999999}}'), ("startingOffsets", '{"Orders": {"0": 0, "0": 5}}'),
        ("startingOffsets", '{"Orders": {"0": 0}, "Orders": {"1": 5}}'), ("startingOffsets", '{"Orders": {"1": 0, "01": 5}}'),
        ("startingTimestamps", '{"Orders": {"0": 9223372036854775808}}'), ("startingTimestamp", "9223372036854775808"),
        ("endingTimestamps", '{"Orders": {"99999999999": 5}}'), ("endingTimestamps", '{"Orders": {"0": 1, "0": 2}}'),
    ],
)  # fmt: skip
def test_what_is_no_bound_is_named(name: str, value: str) -> None:
    with pytest.raises(Invalid, match=f"the option {name} is wrong"):
        parse_options({"archive": "memory://x", name: value})


def test_times_of_python_are_bounds() -> None:
    moment = datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    given = {"startingTimestamps": {"Orders": {0: moment}}, "startingTimestamp": moment}
    found = parse_options({"archive": "memory://x", **by_name(given)})
    assert [bound.value for bound in found.starting_times] == [found.starting_ms] == [1767304800000]
    with pytest.raises(Invalid, match="the option startingOffsets is wrong"):
        parse_options({"archive": "memory://x", **by_name({"startingOffsets": {"Orders": {0: moment}}})})


def test_the_largest_bounds_are_bounds(scene: Scene) -> None:
    most = 2**63 - 1
    assert read(startingOffsets={"Orders": {"0": most}}, failOnDataLoss="false").get(("Orders", 0)) is None
    assert read(endingTimestamps={"Orders": {"0": most}}, endingTimestamp=str(most)) == read()
    with pytest.raises(NotFound, match="a queue that is not read"):
        read(startingOffsets={"Orders": {str(2**31 - 1): 5}})


def test_a_bound_of_nothing_is_an_error(scene: Scene) -> None:
    for bounds in ({"Order": {"0": 5}}, {"Orders": {"7": 5}}, {"broker-z/Orders": {"0": 5}}):
        for name in ("startingOffsets", "endingOffsets", "startingTimestamps", "endingTimestamps"):
            with pytest.raises(NotFound, match="a queue that is not read"):
                read(**{name: bounds})
    with pytest.raises(NotFound, match="a queue that is not read"):
        read(topics="Payments", startingOffsets={"Orders": {"0": 5}})


def test_offsets_that_the_archive_has_not(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    Edits(scene).trim(ORDERS, 25)
    with pytest.raises(Refused, match=r"Orders/0: 10 to 25 is not kept any more.*failOnDataLoss"):
        read(startingOffsets={"Orders": {"0": 10}})
    with pytest.raises(Refused, match="Orders/0: it ends at 100, before 101"):
        read(endingOffsets={"Orders": {"0": 101}})
    assert (
        len(read(startingOffsets={"Orders": {"0": 25}}, endingOffsets={"Orders": {"0": 100}})[("Orders", 0)])
        == 75
    )
    assert len(read(startingOffsets={"Orders": {"0": 10}}, failOnDataLoss="false")[("Orders", 0)]) == 75
    assert "Orders/0: 10 to 25 is not kept any more" in caplog.text
    assert len(read(startingOffsets={"Orders": {"*": 10}})[("Orders", 0)]) == 75, "no queue is named"


def test_gaps_are_said(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    read()
    assert "lost before" not in caplog.text
    scene.broker.send(ORDERS.topic, ORDERS.queue_id, queue_offset=140)
    scene.daemon.settle()
    read()
    assert "40 messages of these topics were lost before they could be archived" in caplog.text


def test_topics_that_are_not_there(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for topics in ("Order", "Orders,Nothing", "Orders,RMQ_SYS_TRACE_TOPIC"):
        with pytest.raises(NotFound, match="no archive here has this topic"):
            read(topics=topics)
    with pytest.raises(NotFound, match="with one of these queue ids"):
        read(topics="Orders", queueIds="9")
    assert read(topics="Nothing*") == {}
    assert "no topic matches Nothing*" in caplog.text
    caplog.clear()
    assert set(read(topics="Orders,Nothing*")) == {("Orders", 0), ("Orders", 1)}
    assert "no topic matches Nothing*" in caplog.text
    assert Following(topics="None*,Order*").next() != []
    assert "no archive has these topics yet, the stream waits for them: None*" in caplog.text
    caplog.clear()
    assert Following(topics="Late").next() == []
    assert "no archive has these topics yet, the stream waits for them: Late" in caplog.text


@pytest.mark.parametrize("option", ["startingPosition", "maxBytesPerTrigger", "maxMessagesPerTrigger"])
def test_options_of_streams_are_no_options_of_a_batch(option: str) -> None:
    given = {"archive": "memory://x", option: "latest" if option == "startingPosition" else "5"}
    parse_options(given, stream=True)
    with pytest.raises(Invalid, match="only a stream takes this option"):
        parse_options(given, stream=False)


def test_what_a_stream_refuses_is_heard_on_spark_41(monkeypatch: pytest.MonkeyPatch) -> None:
    """There an error of ``streamReader`` itself is replaced by one of Spark's own."""
    asked = CaseInsensitiveDict({**MEMORY, "maxMessagesPerTrigger": "1"})
    for module in (limits, stream):
        monkeypatch.setattr(module, "ADMISSION", False)
    reader = TieredDataSource(asked).streamReader(message_schema())
    for question in (reader.initialOffset, reader.latestOffset):
        with pytest.raises(Invalid, match=r"take PySpark 4\.2"):
            question()


def test_a_stream_that_begins_at_the_end(scene: Scene) -> None:
    query = Following(startingOffsets="latest")
    assert query.next() == []
    assert len(send(scene, 7)) == len(query.next())
    with pytest.raises(Invalid, match="the option startingOffsets is wrong"):
        parse_options({"archive": "memory://x", "startingOffsets": "latest"}, stream=False)


@pytest.mark.parametrize("restarted", [False, True])
def test_what_retention_took_from_a_stream(
    scene: Scene, restarted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    edits = Edits(scene)
    query = Following()
    assert len(query.next()) == 400
    edits.trim(ORDERS, 90)
    send(scene, 40)  # offsets 100 to 140
    edits.trim(ORDERS, 100)
    if restarted:
        query.restart()
    assert len(query.next()) == 40, "all that was trimmed had been read"
    send(scene, 40)
    edits.trim(ORDERS, 150)
    if restarted:
        query.restart()
    with pytest.raises(
        Refused, match=r"retention removed messages that this stream had not read.*Orders/0: 140 to 150"
    ):
        query.next()
    with pytest.raises(Refused, match="retention removed"):
        query.next()
    query.options["failOnDataLoss"] = "false"
    query.restart()
    assert [row["queue_offset"] for row in query.next()] == list(range(150, 180))
    assert "Orders/0: 140 to 150" in caplog.text
    other = Following(topics="Payments")
    assert other.next()


@pytest.mark.parametrize("restarted", [False, True])
def test_what_a_stream_missed_of_queues_that_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarted: bool
) -> None:
    """Nothing is left to ask of them: what counts is whether their last records lay before what the stream has read."""
    with new_scene(tmp_path, forgets=True) as made:
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: made.provider)
        edits, query = Edits(made), Following()
        send(made, 40, lambda n: QUEUES[n % 4])
        assert len(query.next()) == 40
        edits.trim(QUEUES[1], 10)
        edits.forget(QUEUES[1])
        send(made, 5)
        if restarted:
            query.restart()
        assert len(query.next()) == 5, "all that it had was read"
        send(made, 20, lambda n: QUEUES[2])
        edits.trim(QUEUES[2], 30)
        edits.forget(QUEUES[2])
        send(made, 5)
        if restarted:
            query.restart()
        with pytest.raises(Refused, match="queues are forgotten that had messages after commit"):
            query.next()
        query.options["failOnDataLoss"] = "false"
        query.restart()
        assert len(query.next()) == 5


@pytest.mark.parametrize("least", [1, 7, 40])
def test_partitions_are_at_least_as_many_as_asked_for(scene: Scene, least: int) -> None:
    options = parse_options({**MEMORY, "columns": "body", "minPartitions": str(least)})
    assert len(MessageReader(options, message_schema(("body",))).partitions()) >= min(least, 16)
    assert len(scan({**MEMORY, "minPartitions": str(least)})) == 400
    assert len(scan({**MEMORY, "columns": "topic", "minPartitions": str(least)})) == 400
