"""Rows of a scan against the archive's own records, column by column, and what a scan asks the store for. No JVM."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pyspark.sql.datasource import EqualTo, Filter, GreaterThanOrEqual, In, LessThan, StringStartsWith
from pyspark.sql.types import LongType, StringType, StructField, StructType

from tests.kit import golden
from tests.kit.fetchscene import Scene, scene
from tests.kit.sparkscene import archive, by_place, expected, scan
from tiered.errors import Corrupt, Invalid, NotFound
from tiered_spark import snapshot
from tiered_spark.columns import COLUMNS, Cost

pytestmark = pytest.mark.spark

HEADER = tuple(name for name, column in COLUMNS.items() if column.cost is not Cost.BLOCK)
STORED = {"decodeBody": "false"}


@pytest.fixture(scope="module", params=golden.STORES)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store written by RocketMQ's own code, archived."""
    directory = tmp_path_factory.mktemp("golden")
    root = golden.unpack(request.param, directory) / golden.STORE_DIRS[request.param][0]
    return archive(root, directory, dispatch__block_bytes=65536)


@pytest.fixture
def crafted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """An archive in memory whose requests are seen."""
    with scene(tmp_path) as made:
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: made.provider)
        yield made


MEMORY = {"archive": "memory://x", **STORED}


def test_every_column_of_every_message_is_what_the_record_says(url: str) -> None:
    rows = by_place(scan({"archive": url, "includeSystemTopics": "true", **STORED}))
    wanted = by_place(expected(url, system=True))
    assert rows.keys() == wanted.keys()
    assert len(rows) > 100
    for place, row in wanted.items():
        assert rows[place] == row, place


def test_header_columns_are_the_same_without_a_record(url: str) -> None:
    rows = by_place(scan({"archive": url, "columns": ",".join(HEADER), "includeSystemTopics": "true"}))
    wanted = by_place(expected(url, system=True))
    assert rows.keys() == wanted.keys()
    for place, row in rows.items():
        assert row == {name: wanted[place][name] for name in HEADER}, place


def test_small_partitions_give_the_same_rows(url: str) -> None:
    whole = by_place(scan({"archive": url, **STORED}))
    assert (
        by_place(scan({"archive": url, "partitionBytes": "65536", "requestsPerTask": "1", **STORED})) == whole
    )
    narrow = {"archive": url, "columns": "topic,queue_id,queue_offset,tags", "partitionBytes": "65536"}
    assert by_place(scan(narrow)).keys() == whole.keys()


def bodies(made: Scene) -> list[bytes]:
    return [row["body"] for row in scan({"archive": "memory://x", "columns": "body"})]


def test_compressed_bodies_are_decompressed(crafted: Scene) -> None:
    text = b"the quick brown fox " * 50
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(text)
    lz4 = sink.getvalue().to_pybytes()
    packed = {
        0x001: zlib.compress(text),
        0x101: lz4,
        0x201: zstandard.compress(text),
        0x301: zlib.compress(text),
    }
    for flag, body in packed.items():
        crafted.broker.send(body=body, sys_flag=flag)
        crafted.broker.send(body=b"plain")
    crafted.daemon.settle()
    assert bodies(crafted) == [text, b"plain"] * 4
    stored = scan({**MEMORY, "columns": "body,body_size"})
    assert [row["body"] for row in stored[::2]] == list(packed.values())
    assert [row["body_size"] for row in stored[::2]] == [len(body) for body in packed.values()]


@pytest.mark.parametrize("flag", [0x001, 0x101, 0x201, 0x701])
def test_a_body_that_cannot_be_decompressed_is_named(crafted: Scene, flag: int) -> None:
    crafted.broker.send(body=b"fine")
    crafted.broker.send(body=b"not compressed", sys_flag=flag)
    crafted.daemon.settle()
    with pytest.raises(Corrupt, match=r"physical_offset=\d+.*decodeBody"):
        bodies(crafted)
    assert [row["body"] for row in scan({**MEMORY, "columns": "body"})] == [b"fine", b"not compressed"]


def test_properties_as_a_broker_would_see_them(crafted: Scene) -> None:
    crafted.broker.send(properties={"a": "1", "KEYS": "k1 k2", "UNIQ_KEY": "U", "TAGS": "é"})
    crafted.broker.send(properties={})
    crafted.broker.send(properties={"KEYS": "  k3  ", "b": "x\x01y"})
    crafted.daemon.settle()
    rows = scan({**MEMORY, "columns": "properties,keys,unique_key,tags"})
    assert rows == [
        {"properties": {"a": "1", "KEYS": "k1 k2", "UNIQ_KEY": "U", "TAGS": "é"}, "keys": ["k1", "k2"],
         "unique_key": "U", "tags": "é"},
        {"properties": {}, "keys": [], "unique_key": None, "tags": None},
        {"properties": {"KEYS": "  k3  ", "b": "x\x01y"}, "keys": ["k3"], "unique_key": None, "tags": None},
    ]  # fmt: skip


def test_hosts_of_both_kinds(crafted: Scene) -> None:
    six = {"born_host": "[2001:db8::1]:4711", "store_host": "[::1]:10911"}
    sent = [crafted.broker.send(**fields) for fields in ({}, six, {"born_host": "10.1.2.3:5"}, six)]
    crafted.daemon.settle()
    rows = scan({**MEMORY, "columns": "born_host,store_host,msg_id"})
    assert rows == [
        {"born_host": m.born_host, "store_host": m.store_host, "msg_id": m.message_id} for m in sent
    ]


def test_chosen_types(crafted: Scene) -> None:
    message = crafted.broker.send()
    crafted.daemon.settle()
    schema = StructType([StructField("store_timestamp", LongType()), StructField("queue_id", LongType())])
    assert scan(MEMORY, schema=schema) == [{"store_timestamp": message.store_timestamp, "queue_id": 0}]
    wrong = StructType([StructField("queue_offset", StringType())])
    with pytest.raises(Invalid, match="queue_offset cannot be read as string"):
        scan(MEMORY, schema=wrong)


class TestPruning:
    """What is not wanted is not asked for."""

    @pytest.fixture
    def filled(self, crafted: Scene) -> Scene:
        """1,000 messages in four queues, blocks of 4 KiB, one tag in ten."""
        for number in range(1000):
            crafted.broker.time_ms += 10
            crafted.broker.send(
                topic="Orders" if number < 500 else "Payments", queue_id=number % 2,
                body=b"%d" % number * 100, properties={"TAGS": "rare" if number // 100 == 3 else "common"},
            )  # fmt: skip
        crafted.daemon.settle()
        return crafted

    def run(self, made: Scene, filters: list[Filter], **options: str) -> tuple[list[dict[str, Any]], int]:
        made.provider.gets.clear()
        rows = scan({**MEMORY, **options}, filters)
        data = [length for key, _, length in made.provider.gets if "/data/" in key]
        return rows, sum(data)

    def test_topics_and_queues(self, filled: Scene) -> None:
        _, everything = self.run(filled, [])
        rows, some = self.run(filled, [EqualTo(("topic",), "Orders"), In(("queue_id",), (1,))])
        assert len(rows) == 250
        assert some < everything * 0.35
        rows, some = self.run(filled, [StringStartsWith(("topic",), "Pay")])
        assert {row["topic"] for row in rows} == {"Payments"}
        assert some < everything * 0.6
        assert self.run(filled, [EqualTo(("topic",), "Nothing")]) == ([], 0)

    def test_times(self, filled: Scene) -> None:
        sent = filled.broker.sent
        _, everything = self.run(filled, [])
        low, high = sent[400][0].store_timestamp, sent[410][0].store_timestamp
        moment = [datetime.fromtimestamp(ms / 1000, UTC) for ms in (low, high)]
        rows, some = self.run(
            filled,
            [GreaterThanOrEqual(("store_timestamp",), moment[0]), LessThan(("store_timestamp",), moment[1])],
        )
        assert {m.queue_offset for m, _ in sent[400:410]} <= {row["queue_offset"] for row in rows}
        assert some < everything * 0.15
        exact, same = self.run(filled, [], startingTimestamp=str(low), endingTimestamp=str(high))
        assert len(exact) == 10  # an option is exact, as no filter of Spark follows it
        assert same == some

    def test_offsets(self, filled: Scene) -> None:
        _, everything = self.run(filled, [])
        rows, some = self.run(filled, [EqualTo(("queue_offset",), 7)])
        assert sum(row["queue_offset"] == 7 for row in rows) == 4
        assert some < everything * 0.25

    def test_tags(self, filled: Scene) -> None:
        _, everything = self.run(filled, [])
        rows, some = self.run(filled, [EqualTo(("tags",), "rare")])
        assert sum(row["tags"] == "rare" for row in rows) == 100
        assert some < everything * 0.35
        assert self.run(filled, [EqualTo(("tags",), "never")])[0] == []

    def test_keys(self, filled: Scene) -> None:
        broker = filled.broker
        for number in range(400):
            keys = "needle other" if number == 250 else f"key-{number}"
            broker.send(
                topic="Keyed",
                body=random.Random(number).randbytes(500),
                properties={"UNIQ_KEY": f"U{number}", "KEYS": keys},
            )
        filled.daemon.settle()
        _, everything = self.run(filled, [], topics="Keyed")
        for filters, options in (
            ([EqualTo(("unique_key",), "U250")], {}),
            ([In(("unique_key",), ("U250", "U9999"))], {}),
            ([], {"keys": "needle"}),
            ([], {"keys": "absent,other"}),
            ([], {"keys": "U250", "columns": "topic,queue_offset"}),
        ):
            rows, some = self.run(filled, filters, **options)
            assert 250 in [row["queue_offset"] for row in rows if row["topic"] == "Keyed"]
            assert some < everything * 0.35, (filters, options)
            if options:
                assert len(rows) == 1  # an option is exact
        assert self.run(filled, [], keys="absent")[0] == []

    def test_header_columns_fetch_no_block(self, filled: Scene) -> None:
        _, everything = self.run(filled, [])
        rows, some = self.run(filled, [], columns="topic,queue_id,queue_offset,store_timestamp,tags")
        assert len(rows) == 1000
        assert some < everything * 0.4
        items = filled.objects()
        blocks = [
            (items.key_of(item), int(row["position"]), int(row["position"] + row["stored_length"]))
            for item in filled.state.objects() for row in items.block_table(item)
        ]  # fmt: skip
        fetched = [
            (key, start, start + length) for key, start, length in filled.provider.gets if "/data/" in key
        ]
        assert not [g for g in fetched for b in blocks if g[0] == b[0] and g[1] < b[2] and b[1] < g[2]]


def test_damage_fails_or_is_left_out(crafted: Scene) -> None:
    crafted.send(200, size=400, noise=True)
    items = crafted.objects()
    item = next(iter(crafted.state.objects()))
    bad = items.block_table(item)[3]

    def spoil(key: str, start: int, data: bytes) -> bytes:
        at = int(bad["position"]) - start
        if key != items.key_of(item) or not 0 <= at < len(data):
            return data
        return bytes(data[:at]) + bytes([data[at] ^ 1]) + bytes(data[at + 1 :])

    crafted.provider.spoil = spoil
    with pytest.raises(Corrupt, match="key="):
        scan(MEMORY)
    rows = scan({**MEMORY, "onDamage": "skip"})
    assert len(rows) == 200 - int(bad["rows"])
    first = int(bad["first_queue_offset"])
    missing = set(range(200)) - {row["queue_offset"] for row in rows}
    assert missing == set(range(first, first + int(bad["rows"])))


def test_a_scan_of_the_past(crafted: Scene) -> None:
    crafted.send(5)
    head = crafted.state.head()
    assert head is not None
    crafted.send(5)
    past = {**MEMORY, "asOfCommit": str(head.seq)}
    assert len(scan(MEMORY)) == 10
    assert len(scan(past)) == 5
    with pytest.raises(NotFound, match=r"commits 0 to \d+"):
        scan({**MEMORY, "asOfCommit": "99"})
    with pytest.raises(NotFound, match="choose a later time"):
        scan({**MEMORY, "asOfTimestamp": "1"})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"archiv": "x"}, "did you mean archive"),
        ({}, "option=archive"),
        ({"archive": "memory://x", "onDamage": "perhaps"}, "fail or skip"),
        ({"archive": "memory://x", "partitionBytes": "a lot"}, "partitionBytes"),
        ({"archive": "memory://x", "startingTimestamp": "yesterday"}, "2026-01-01T00:00:00Z"),
        ({"archive": "memory://x", "path": "/data"}, "option path is not used"),
        ({"archive": "memory://nothing-here"}, "no archive is here"),
        ({"archive": "gopher://x"}, "gopher"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], says: str) -> None:
    with pytest.raises((Invalid, NotFound), match=says):
        scan(options)
