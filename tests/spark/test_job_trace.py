"""The job ``trace``: lives of messages that a real broker stored, and of crafted ones, against the log itself."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.kit import golden
from tests.kit.golden import SlowRecord
from tests.kit.pipeline import Crafted
from tests.kit.pysparks import session
from tests.kit.sparkscene import archive
from tiered_jobs.main import main
from tiered_jobs.trace import search
from tiered_jobs.work import Work

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HALF, OPS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("golden")
    return golden.unpack("broker-store", directory) / golden.STORE_DIRS["broker-store"][0]


@pytest.fixture(scope="module")
def url(store: Path) -> str:
    return archive(store, store.parent)


@pytest.fixture(scope="module")
def lives(store: Path) -> dict[str, list[SlowRecord]]:
    """Unique key → its records, in the order in which the broker stored them."""
    found: dict[str, list[SlowRecord]] = defaultdict(list)
    for record in golden.records(store):
        found[record.properties.get(b"UNIQ_KEY", b"").decode()].append(record)
    return found


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[SparkSession]:
    with session() as made:
        yield made


def trace(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["trace", *flags, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def places(told: dict[str, Any]) -> list[tuple[object, ...]]:
    return [
        (s["topic"], s["queue_id"], s["queue_offset"], s["store_timestamp"], s["body_size"])
        for s in told["life"]
    ]


def stored(records: list[SlowRecord]) -> list[tuple[object, ...]]:
    return [(r.topic, r.queue_id, r.queue_offset, r.store_timestamp, len(r.body)) for r in records]


def with_topics(lives: dict[str, list[SlowRecord]], *topics: str) -> str:
    """A unique key whose records lie in these topics, in this order."""
    return next(key for key, records in lives.items() if [r.topic for r in records] == list(topics))


def test_a_delayed_message_that_was_retried(
    url: str, lives: dict[str, list[SlowRecord]], capsys: pytest.CaptureFixture[str]
) -> None:
    waiting, retry = "SCHEDULE_TOPIC_XXXX", "%RETRY%g_retry"
    key = with_topics(lives, waiting, "OrderEvents", waiting, retry)
    told = trace(capsys, "--archive", url, "--unique-key", key)
    assert places(told) == stored(lives[key])
    level = lives[key][0].properties[b"DELAY"].decode()
    assert [s["step"] for s in told["life"]] == [
        f"delay level {level}", "delivered after delay", "delay level 1 before retry 1", "retry 1",
    ]  # fmt: skip
    assert [s["group"] for s in told["life"]] == [None, None, "g_retry", "g_retry"]
    times = [r.store_timestamp for r in lives[key]]
    assert [s["since_ms"] for s in told["life"]] == [
        None,
        *(b - a for a, b in pairwise(times)),
    ]
    assert (told["messages"], told["topics"], told["complete"]) == (1, 3, True)


def test_a_key_of_several_messages(
    url: str, lives: dict[str, list[SlowRecord]], capsys: pytest.CaptureFixture[str]
) -> None:
    key = "user-133"
    having = {
        u: rs for u, rs in lives.items() if key in rs[0].properties.get(b"KEYS", b"").decode().split(" ")
    }
    wanted = sorted((r for rs in having.values() for r in rs), key=lambda r: r.physical_offset)
    assert len(having) > 5
    told = trace(capsys, "--archive", url, "--key", key)
    assert places(told) == stored(wanted)
    assert told["messages"] == len(having)
    some = trace(capsys, "--archive", url, "--key", key, "--limit", "3")
    assert places(some) == stored(wanted[:3])
    assert not some["complete"]


def test_transactions(
    url: str, lives: dict[str, list[SlowRecord]], capsys: pytest.CaptureFixture[str]
) -> None:
    committed = with_topics(lives, HALF, "OrderEvents")
    told = trace(capsys, "--archive", url, "--transaction", committed)
    assert places(told) == stored(lives[committed])
    assert [s["step"] for s in told["life"]] == ["half message", "committed"]
    assert {s["group"] for s in told["life"]} == {"lab_tx"}
    rolled_back = with_topics(lives, HALF)
    (half,) = lives[rolled_back]
    (op,) = (r for r in lives[""] if r.topic == OPS and str(half.queue_offset) in r.body.decode().split(","))
    told = trace(capsys, "--archive", url, "--transaction", rolled_back)
    assert places(told) == stored([half, op])
    assert [s["step"] for s in told["life"]] == ["half message", "rolled back"]


def test_a_message_id_of_any_copy(
    url: str, lives: dict[str, list[SlowRecord]], capsys: pytest.CaptureFixture[str]
) -> None:
    key = with_topics(lives, "OrderEvents", "SCHEDULE_TOPIC_XXXX", "%RETRY%g_retry")
    last = lives[key][-1]
    message_id = (last.store_host + last.physical_offset.to_bytes(8, "big")).hex().upper()
    told = trace(capsys, "--archive", url, "--message-id", message_id)
    assert places(told) == stored(lives[key])
    assert told["life"][-1]["msg_id"] == message_id


@pytest.fixture(scope="module")
def crafted(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, str]]:
    """What the golden store has not: dead letters, a timer, POP, checks of a half message, messages without a unique key."""
    directory = tmp_path_factory.mktemp("crafted")
    broker = Crafted(directory / "store", file_bytes=1 << 20)
    ids: dict[str, str] = {}

    def send(name: str, topic: str, properties: dict[str, str], **fields: Any) -> None:
        broker.time_ms += 100
        ids[name] = broker.send(topic, properties=properties, **fields).message_id

    send("bare", "Orders", {"KEYS": "bill"})
    send("other", "Orders", {"KEYS": "bill"})
    origin = {"KEYS": "bill", "RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": ids["bare"]}
    send("again", "%RETRY%clerks", origin, reconsume_times=1)
    send("dead", "%DLQ%clerks", origin, reconsume_times=16)
    timer = {"UNIQ_KEY": "T1", "KEYS": "all"}
    send("timer", "rmq_sys_wheel_timer", {**timer, "REAL_TOPIC": "Orders", "TIMER_DELAY_SEC": "5"})
    send("rung", "Orders", {**timer, "TIMER_DELAY_SEC": "5"})
    send("pop", "%RETRY%pops+Orders", {**timer, "ORIGIN_GROUP": "pops"}, reconsume_times=2)
    send("traced", "RMQ_SYS_TRACE_TOPIC", {"KEYS": "T1", "UNIQ_KEY": "X1"})
    half = {"UNIQ_KEY": "H1", "KEYS": "all", "PGROUP": "makers", "REAL_TOPIC": "Orders"}
    send("half", HALF, half)
    send("check", HALF, {**half, "TRANSACTION_CHECK_TIMES": "1"})
    send("op", OPS, {"TAGS": "d"}, body=b"0,")
    send("end", OPS, {"TAGS": "d"}, body=b"1,7,")
    send("given up", "TRANS_CHECK_MAX_TIME_TOPIC", {"UNIQ_KEY": "H1", "KEYS": "all"})
    send("comma", "Orders", {"UNIQ_KEY": "A,1", "KEYS": "pair"})
    send("comma again", "%RETRY%clerks", {"UNIQ_KEY": "A,1"}, reconsume_times=1)
    send("plain", "Orders", {"UNIQ_KEY": "B2", "KEYS": "pair"})
    send("plain again", "%RETRY%clerks", {"UNIQ_KEY": "B2"}, reconsume_times=1)
    send("plain traced", "RMQ_SYS_TRACE_TOPIC", {"KEYS": "B2", "UNIQ_KEY": "X2"})
    return archive(broker.store, directory), ids


def test_messages_without_a_unique_key(
    crafted: tuple[str, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    url, ids = crafted
    told = trace(capsys, "--archive", url, "--message-id", ids["dead"])
    assert [s["msg_id"] for s in told["life"]] == [ids[name] for name in ("bare", "again", "dead")]
    assert [s["step"] for s in told["life"]] == ["sent", "retry 1", "dead letter"]
    assert [s["group"] for s in told["life"]] == [None, "clerks", "clerks"]
    assert {s["message"] for s in told["life"]} == {ids["bare"]}


def test_every_other_kind_of_step(
    crafted: tuple[str, dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    url, ids = crafted
    told = trace(capsys, "--archive", url, "--key", "all")
    wanted = {
        "timer": ("delay", None), "rung": ("delivered after delay", None), "pop": ("retry 2", "pops"),
        "traced": ("client's trace", None), "half": ("half message", "makers"), "check": ("half message, check 1", "makers"),
        "op": ("asked again", None), "end": ("rolled back", None), "given up": ("given up after checks", None),
    }  # fmt: skip
    assert [(s["msg_id"], s["step"], s["group"]) for s in told["life"]] == [
        (ids[n], *w) for n, w in wanted.items()
    ]
    people = main(["trace", "--archive", url, "--key", "all", "--topics", "Orders"])
    out = capsys.readouterr().out
    assert people == 0
    assert "delivered after delay" in out  # found in Orders
    assert "client's trace" in out  # found from there, in whatever topic
    assert "half message" not in out


def test_a_unique_key_with_a_comma_among_others(
    crafted: tuple[str, dict[str, str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All is found, and no look-up reads without an index."""
    url, ids = crafted
    asked: list[dict[str, object]] = []
    read = Work.read

    def seen(self: Work, columns: str | None = None, **options: object) -> DataFrame:
        asked.append(options)
        return read(self, columns, **options)

    monkeypatch.setattr(Work, "read", seen)
    told = trace(capsys, "--archive", url, "--key", "pair")
    wanted = ("comma", "comma again", "plain", "plain again", "plain traced")
    assert [s["msg_id"] for s in told["life"]] == [ids[name] for name in wanted]
    assert len(asked) > 2
    assert all("keys" in options for options in asked)
    assert told["complete"]


def test_a_life_that_has_more_hops_than_are_followed(
    crafted: tuple[str, dict[str, str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "MAX_HOPS", 1)
    told = trace(capsys, "--archive", crafted[0], "--key", "pair")
    assert (told["steps"], told["complete"]) == (
        5,
        False,
    )  # nobody asked for the key of the trace that was found last


def test_what_was_lost_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the topics that were not asked for, too: a step may be anywhere."""
    broker = Crafted(tmp_path / "store", file_bytes=1 << 20)
    for topic in ("Orders", "Payments"):
        broker.send(topic, 0, properties={"UNIQ_KEY": topic, "KEYS": topic})
    broker.send("Payments", 0, queue_offset=8)
    url = archive(broker.store, tmp_path)
    told = trace(capsys, "--archive", url, "--topics", "Orders", "--key", "Orders")
    assert (told["steps"], told["gap_messages"]) == (1, 7)
    assert main(["trace", "--archive", url, "--key", "Orders"]) == 0
    assert "7 messages were lost before they could be archived" in capsys.readouterr().err


def test_nothing_found(crafted: tuple[str, dict[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    url, ids = crafted
    assert main(["trace", "--archive", url, "--key", "nobody"]) == 5
    assert "no archived message has this key (key=nobody" in capsys.readouterr().err
    absent = ids["bare"][:-8] + "00FFFFFF"
    assert main(["trace", "--archive", url, "--message-id", absent]) == 5
    assert "--unique-key" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "one of the arguments --key --unique-key --message-id --transaction is required"),
        (("--key", "a", "--unique-key", "b"), "not allowed with argument"),
        (("--key", "two words"), "--key takes one key"),
        (("--unique-key", " "), "--unique-key is empty"),
        (("--message-id", "C0FFEE"), "not an offset message id"),
        (("--key", "a", "--limit", "0"), "--limit is wrong"),
    ],
)
def test_bad_input(url: str, flags: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--archive", url, *flags]) == 2
    assert says in capsys.readouterr().err
    assert main(["trace", "--archive", url, "--dry-run", *flags]) == 2


def test_a_dry_run_says_what_would_be_read(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(url.removeprefix("file://"))
    before = sorted(root.rglob("*"))
    assert main(["trace", "--archive", url, "--key", "a", "--dry-run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["would_write"], told["queues"] > 0) == ([], True)
    assert sorted(root.rglob("*")) == before
