"""Replay at its edges: keys that are null, places that come twice, peers that repeat a secret. Without a JVM."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.fakebroker import FakeBroker
from tiered.broker.client import Dial, RemotingClient
from tiered.clock import ManualClock
from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.signing import Credentials
from tiered.errors import Invalid, NotFound, Unavailable
from tiered_spark.replay.options import parse_replay_options
from tiered_spark.replay.source import Sent, send

pytestmark = pytest.mark.spark

ACCESS, SECRET = "replay-key-1", "a-very-secret-word"
SCHEMA = pa.schema(
    {
        "cluster": pa.string(), "broker": pa.string(), "topic": pa.string(), "queue_id": pa.int32(),
        "queue_offset": pa.int64(), "body": pa.binary(), "properties": pa.map_(pa.string(), pa.string()),
        "sys_flag": pa.int32(), "body_crc": pa.int64(), "keys": pa.list_(pa.string()),
    }
)  # fmt: skip


class Server(FakeBroker):
    """A broker that is its own name server. ``route``: what it answers instead of its route."""

    route: Command | None = None

    def _do_105(self, asked: Command) -> Command:
        if self.route is not None:
            return self.route
        queues = '[{"brokerName":"broker-a","perm":6,"readQueueNums":1,"writeQueueNums":1}]'
        data = f'[{{"brokerAddrs":{{0:"{self.address}"}},"brokerName":"broker-a","cluster":"C"}}]'
        return Command(0, body=f'{{"brokerDatas":{data},"queueDatas":{queues}}}'.encode())


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


def row(offset: int, keys: list[str | None] | None = None) -> dict[str, Any]:
    return {
        "cluster": "C", "broker": "broker-a", "topic": "Orders", "queue_id": 0, "queue_offset": offset, "body": b"body",
        "properties": [("KEYS", "old")], "sys_flag": 0, "body_crc": zlib.crc32(b"body") & 0x7FFFFFFF, "keys": keys,
    }  # fmt: skip


def replay(server: Server, *rows: dict[str, Any], partition: int = 0, **options: object) -> Sent:
    """One task, as an executor runs it, with one batch of rows."""
    given = {"namesrv": server.address, "topic": "Again", "timeoutMs": "2000", "retries": "0"}
    parsed = parse_replay_options({**given, **{name: str(value) for name, value in options.items()}})
    return send(parsed, iter([pa.RecordBatch.from_pylist(list(rows), SCHEMA)]), ManualClock(), partition)


def sent_keys(server: Server) -> list[str | None]:
    return [stored.properties.get("KEYS") for stored in server.sent("Again")]


def test_a_null_among_keys_is_refused_with_its_row(server: Server) -> None:
    replay(server, row(0, ["a", "b"]), row(1, []), row(2, None))
    assert sent_keys(server) == ["a b", None, None]
    batch = [row(5, ["a"]), row(6, []), row(7, None), row(8, ["a", None, "b"])]
    with pytest.raises(Invalid, match=r"column=keys, row=C/broker-a/Orders/0/8\).*array_compact"):
        replay(server, *batch)
    assert len(sent_keys(server)) == 3
    cut = pa.RecordBatch.from_pylist([row(9, [None]), *batch], SCHEMA).slice(1)
    parsed = parse_replay_options({"namesrv": server.address, "topic": "Again"})
    with pytest.raises(Invalid, match="Orders/0/8"):
        send(parsed, iter([cut]), ManualClock(), 0)


def test_a_place_that_comes_twice_is_one_message(server: Server, tmp_path: Path) -> None:
    """Twice in one task it is sent twice; a task leaves out what another one of the same query has noted."""
    notes = {"checkpoint": f"file://{tmp_path}/notes", "replayId": "r"}
    assert replay(server, row(1), row(1), **notes).stored == 2
    again = replay(server, row(1), row(2), partition=1, **notes)
    assert (again.stored, again.before) == (1, 1)


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", ACCESS)
    monkeypatch.setenv("ROCKETMQ_SECRET_KEY", SECRET)


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("ahead", [284, 290, 297])
def test_a_broker_that_repeats_a_key_where_its_words_are_cut(server: Server, ahead: int) -> None:
    server.answers.append((3, "x" * ahead + SECRET))
    with pytest.raises(Invalid, match="refuses to store") as caught:
        replay(server, row(0))
    assert SECRET[:2] not in str(caught.value).partition("found=")[2].partition("→")[0]


@pytest.mark.usefixtures("keys")
@pytest.mark.parametrize("code", [1, 17])
@pytest.mark.parametrize("ahead", [0, 190, 195])
def test_a_name_server_that_repeats_a_key(server: Server, code: int, ahead: int) -> None:
    server.route = Command(code, remark="x" * ahead + f"{SECRET} {ACCESS}")
    with pytest.raises((NotFound, Unavailable)) as caught:
        replay(server, row(0))
    said = str(caught.value)
    assert "***" in said or ahead > 190
    assert SECRET[:5] not in said
    assert ACCESS[:5] not in said


def test_a_key_that_is_part_of_the_other_is_covered_too() -> None:
    for access, secret in (("rocket", "rocketsecret"), ("rocketaccess", "rocket")):
        peer = RemotingClient("h:1", ManualClock(), Dial(1.0, credentials=Credentials(access, secret)))
        assert peer.without_keys(f"<{access}> <{secret}>") == "<***> <***>"
