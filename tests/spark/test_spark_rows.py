"""Rows of a scan against the archive's own records, column by column, and what a scan asks the store for. No JVM."""

from __future__ import annotations

import hashlib
import random
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from tests.kit import golden
from tests.kit.fetchscene import Scene, scene
from tests.kit.sparkscene import archive, batches_of, by_place, expected, scan
from tests.kit.variedlog import PACKERS
from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA
from tiered.errors import Corrupt, Invalid, NotFound
from tiered_spark import inflate, plan_keys, snapshot
from tiered_spark import scan as scan_module
from tiered_spark.columns import COLUMNS, ColumnCost, arrow_schema, message_schema

pytestmark = pytest.mark.spark

HEADER = tuple(name for name, column in COLUMNS.items() if column.cost is not ColumnCost.BLOCK)
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
        plan_keys._objects.cache_clear()
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


def test_bodies_that_end_early_are_damage(crafted: Scene) -> None:
    text = b"the quick brown fox " * 50
    for flag, pack in PACKERS:
        body = pack(text)
        for length in (1, len(body) // 2, len(body) - 1):
            crafted.broker.send(topic=f"T{flag}-{length}", body=body[:length], sys_flag=flag)
    crafted.daemon.settle()
    for topic in {m.topic for m, _ in crafted.broker.sent}:
        with pytest.raises(Corrupt, match="a body cannot be decompressed"):
            scan({"archive": "memory://x", "columns": "body", "topics": topic})


def test_what_follows_a_compressed_body_is_read_as_clients_read_it(crafted: Scene) -> None:
    """Behind zlib's stream anything, ignored; of zstd and LZ4 further frames, and nothing else."""
    text = b"the quick brown fox " * 50
    frames = {flag: pack(text) for flag, pack in PACKERS}
    skippable = b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc"
    for flag, tail, wanted in (
        (0x001, b"junk junk junk", text),
        (0x301, frames[0x301], text),
        (0x101, frames[0x101], text * 2),
        (0x101, skippable + frames[0x101], text * 2),
        (0x201, frames[0x201], text * 2),
        (0x201, skippable + frames[0x201], text * 2),
        (0x101, b"junk junk junk", None),
        (0x201, b"junk junk junk", None),
        (0x101, frames[0x101][:-9], None),
        (0x201, frames[0x201][:-9], None),
    ):
        crafted.broker.send(topic="Tails", body=frames[flag] + tail, sys_flag=flag)
        crafted.daemon.settle()
        last = len([m for m, _ in crafted.broker.sent]) - 1
        one = {"archive": "memory://x", "columns": "body", "startingOffset": str(last)}
        if wanted is None:
            with pytest.raises(Corrupt, match="a body cannot be decompressed"):
                scan(one)
        else:
            assert scan(one) == [{"body": wanted}]


def test_an_empty_body_is_empty_whatever_its_flags_say(crafted: Scene) -> None:
    for flag, _ in PACKERS:
        crafted.broker.send(body=b"", sys_flag=flag)
    crafted.daemon.settle()
    assert bodies(crafted) == [b""] * len(PACKERS)


@pytest.mark.parametrize("flag", [0x001, 0x101, 0x201])
def test_a_body_too_large_to_be_one_is_damage(
    crafted: Scene, flag: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflate, "MAX_BODY_BYTES", 1 << 20)
    for size in (1 << 20, (1 << 20) + 1):
        crafted.broker.send(body=dict(PACKERS)[flag](bytes(size)), sys_flag=flag)
    crafted.daemon.settle()
    assert scan({"archive": "memory://x", "columns": "body", "endingOffset": "1"}) == [
        {"body": bytes(1 << 20)}
    ]
    with pytest.raises(Corrupt, match="more than 1048576 bytes"):
        scan({"archive": "memory://x", "columns": "body", "startingOffset": "1"})


def test_batches_of_bodies_that_inflate_are_bounded(crafted: Scene) -> None:
    """120 bodies of 1 MiB are 120 kB in the archive: one group. What is plain between them stays where it is."""
    wanted = []
    for number in range(150):
        packed = number % 5 != 0
        text = b"%08d" % number * (1 << 17 if packed else 2)
        crafted.broker.send(body=zlib.compress(text, 9) if packed else text, sys_flag=int(packed))
        wanted.append((number, hashlib.sha256(text).hexdigest()))
    crafted.daemon.settle()
    found, sizes = [], []
    for batch in batches_of({"archive": "memory://x", "columns": "body,queue_offset,msg_id"}):
        sizes.append(batch.nbytes)
        for row in batch.to_pylist():
            found.append((row["queue_offset"], hashlib.sha256(row["body"]).hexdigest()))
    assert found == wanted
    assert len(sizes) == 4
    assert max(sizes) < 33 << 20
    stored = list(batches_of({**MEMORY, "columns": "body"}))
    assert [len(batch) for batch in stored] == [150]


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


@pytest.mark.parametrize("columns", ["born_timestamp", "born_timestamp,body"])
def test_times_that_no_timestamp_can_be_are_null(crafted: Scene, columns: str) -> None:
    """A client may send any number. The years 1 to 9999 are timestamps."""
    first, last = -62_135_596_800_000, 253_402_300_799_999
    good, bad = (
        [0, -1, first, last],
        [first - 1, last + 1, 2**63 - 1, -(2**63), 9_223_372_036_854_776, -9_223_372_036_854_776],
    )
    for number in good + bad:
        crafted.broker.send(born_timestamp=number)
    crafted.daemon.settle()
    batches = list(batches_of({**MEMORY, "columns": columns}))
    found = [ms for batch in batches for ms in batch["born_timestamp"].cast("int64").to_pylist()]
    assert found == [ms * 1000 for ms in good] + [None] * len(bad)
    names = [StructField("born_timestamp", LongType())] + [StructField("body", BinaryType())] * (
        "body" in columns
    )
    assert [row["born_timestamp"] for row in scan(MEMORY, schema=StructType(names))] == good + bad


class TestPruning:
    """What is not wanted is not asked for."""

    @pytest.fixture
    def filled(self, crafted: Scene) -> Scene:
        """1,000 messages in four queues, blocks of 4 KiB beside which columns are small, one tag in ten."""
        for number in range(1000):
            crafted.broker.time_ms += 10
            crafted.broker.send(
                topic="Orders" if number < 500 else "Payments", queue_id=number % 2,
                body=random.Random(number).randbytes(300),
                properties={"TAGS": "rare" if number // 100 == 3 else "common"},
            )  # fmt: skip
        crafted.daemon.settle()
        return crafted

    def run(self, made: Scene, **options: str) -> tuple[list[dict[str, Any]], int]:
        made.provider.gets.clear()
        rows = scan({**MEMORY, **options})
        data = [length for key, _, length in made.provider.gets if "/data/" in key]
        return rows, sum(data)

    def test_topics_and_queues(self, filled: Scene) -> None:
        _, everything = self.run(filled)
        rows, some = self.run(filled, topics="Orders", queueIds="1")
        assert len(rows) == 250
        assert some < everything * 0.35
        rows, some = self.run(filled, topics="Pay*")
        assert {row["topic"] for row in rows} == {"Payments"}
        assert some < everything * 0.6
        assert self.run(filled, topics="Nothing*") == ([], 0)

    def test_times(self, filled: Scene) -> None:
        sent = filled.broker.sent
        _, everything = self.run(filled)
        low, high = sent[400][0].store_timestamp, sent[410][0].store_timestamp
        rows, some = self.run(filled, startingTimestamp=str(low), endingTimestamp=str(high))
        assert {m.queue_offset for m, _ in sent[400:410]} == {row["queue_offset"] for row in rows}
        assert (len(rows), some < everything * 0.15) == (10, True)

    def test_offsets(self, filled: Scene) -> None:
        _, everything = self.run(filled)
        rows, some = self.run(filled, startingOffset="7", endingOffset="8")
        assert [row["queue_offset"] for row in rows] == [7] * 4
        assert some < everything * 0.25

    def test_tags(self, filled: Scene) -> None:
        _, everything = self.run(filled)
        rows, some = self.run(filled, tags="rare")
        assert sum(row["tags"] == "rare" for row in rows) == 100
        assert some < everything * 0.35
        assert self.run(filled, tags="never")[0] == []

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
        _, everything = self.run(filled, topics="Keyed")
        for options in (
            {"keys": "U250"},
            {"keys": "U250,U9999"},
            {"keys": "needle"},
            {"keys": "absent,other"},
            {"keys": "U250", "columns": "topic,queue_offset"},
        ):
            rows, some = self.run(filled, **options)
            assert 250 in [row["queue_offset"] for row in rows if row["topic"] == "Keyed"]
            assert some < everything * 0.35, options
            assert len(rows) == 1, "an option is exact"
        assert self.run(filled, keys="absent")[0] == []

    def test_header_columns_fetch_no_block(self, filled: Scene) -> None:
        _, everything = self.run(filled)
        rows, some = self.run(filled, columns="topic,queue_id,queue_offset,store_timestamp,tags")
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


def test_what_is_skipped_is_skipped_whole_and_nothing_comes_twice(
    crafted: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of ten rows, several of one block; the body of one row in the middle is damaged."""
    monkeypatch.setattr(scan_module, "BATCH_ROWS", 10)
    for number in range(400):
        good = number != 255
        body = random.Random(number).randbytes(100)
        crafted.broker.send(body=zlib.compress(body) if good else body, sys_flag=1)
    crafted.daemon.settle()
    options = {"archive": "memory://x", "columns": "queue_offset,body", "onDamage": "skip"}
    (item,) = crafted.state.objects()
    (bad,) = [
        block for block in crafted.objects().block_table(item)
        if block["first_queue_offset"] <= 255 < block["first_queue_offset"] + block["rows"]
    ]  # fmt: skip
    first = int(bad["first_queue_offset"])
    assert 255 - first >= 10  # a batch of this very block is made before the damage is met
    left = [n for n in range(400) if not first <= n < first + int(bad["rows"])]
    for held in (scan_module.HELD_BYTES, 100):  # as many as may be kept; hardly any
        monkeypatch.setattr(scan_module, "HELD_BYTES", held)
        rows = scan(options)
        assert [row["queue_offset"] for row in rows] == left
        assert rows[5]["body"] == random.Random(5).randbytes(100)
    with pytest.raises(Corrupt, match="a body cannot be decompressed"):
        scan({**options, "onDamage": "fail"})


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
    with pytest.raises(
        NotFound, match=r"the archive had no commit at this time.*is the oldest that can be chosen"
    ):
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
        ({"archive": "gopher://x"}, "the option archive has an unknown scheme.*gopher"),
        ({"archive": "/data"}, "the option archive is not a URL"),
        ({"archive": "s3://a:b@bucket/x"}, "credentials do not belong in the option archive"),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], says: str) -> None:
    with pytest.raises((Invalid, NotFound), match=says):
        scan(options)


def test_a_segment_has_the_columns_of_a_scan() -> None:
    """Names and types that Spark reads from a sealed file are those of the data source."""
    shared = [name for name in MESSAGE_SCHEMA.names if name in COLUMNS]
    assert set(COLUMNS) - set(shared) == {"cluster", "broker"}
    assert set(MESSAGE_SCHEMA.names) - set(shared) == {"magic", "commit_seq", "record", "body_encoding"}
    for field in arrow_schema(message_schema(shared)):
        assert MESSAGE_SCHEMA.field(field.name).type.equals(field.type), field.name
