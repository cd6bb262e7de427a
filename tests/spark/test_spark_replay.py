"""Rows sent to a broker again: what travels, in which order, how often, how fast; to a fake broker and a real one."""

from __future__ import annotations

import json
import os
import signal
import ssl
import threading
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tests.kit.acl import Account
from tests.kit.broker import Broker
from tests.kit.certificates import Authority
from tests.kit.fakebroker import FakeBroker, Stored
from tests.kit.pysparks import session
from tests.kit.sparkscene import archive
from tiered.broker.routes import parse_route
from tiered.clock import Clock, ManualClock, SystemClock
from tiered.codec.record.message import encode_properties
from tiered.codec.remoting.frame import Command
from tiered.errors import Corrupt, Invalid, NotFound, TieredError, Unavailable
from tiered_spark import TieredReplay, register
from tiered_spark.replay.options import parse_replay_options
from tiered_spark.replay.progress import ReplayProgress, decode_note, encode_note
from tiered_spark.replay.source import ReplayWriter, Sent, send

pytestmark = pytest.mark.spark

TARGET = "Again"
SCHEMA = pa.schema(
    {
        "cluster": pa.string(), "broker": pa.string(), "topic": pa.string(), "queue_id": pa.int32(),
        "queue_offset": pa.int64(), "body": pa.binary(), "properties": pa.map_(pa.string(), pa.string()),
        "sys_flag": pa.int32(), "body_crc": pa.int64(), "flag": pa.int32(),
        "born_timestamp": pa.timestamp("us", "UTC"),
    }
)  # fmt: skip


class Server(FakeBroker):
    """A broker that is its own name server. ``writable``: how many queues its route tells."""

    def __init__(self, writable: int = 4, **config: str) -> None:
        super().__init__(**config)
        self.writable, self.name = writable, "broker-a"
        self.seen: list[Command] = []

    def _do_105(self, asked: Command) -> Command:
        if asked.ext["topic"] not in (TARGET, "Other"):
            return Command(17, remark="No topic route info in name server for the topic")
        queues = [{"brokerName": self.name, "perm": 6, "readQueueNums": 9, "writeQueueNums": self.writable}]
        data = f'[{{"brokerAddrs":{{0:"{self.address}",1:"127.0.0.1:1"}},"brokerName":"{self.name}","cluster":"C"}}]'
        return Command(0, body=f'{{"brokerDatas":{data},"queueDatas":{json.dumps(queues)}}}'.encode())

    def _do_10(self, asked: Command) -> Command | None:
        self.seen.append(asked)
        return super()._do_10(asked)

    def queue(self, number: int) -> list[Stored]:
        """What a queue holds."""
        found = self.queues[TARGET].get(number)
        return [] if found is None else list(found.sent.values())

    def all(self) -> list[Stored]:
        """What all queues hold."""
        return [stored for number in range(self.writable) for stored in self.queue(number)]

    def places(self) -> Counter[str]:
        """How often each row came."""
        return Counter(stored.properties["TIERED_ORIGIN"] for stored in self.all())


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


def row(queue_id: int = 0, offset: int = 0, body: bytes | None = b"body", **more: Any) -> dict[str, Any]:
    return {
        "cluster": "DefaultCluster", "broker": "broker-a", "topic": "Orders", "queue_id": queue_id, "queue_offset": offset,
        "body": body, "properties": [("UNIQ_KEY", f"U{queue_id}-{offset}")], "sys_flag": 0, "flag": 0,
        "body_crc": None if body is None else zlib.crc32(body) & 0x7FFFFFFF, "born_timestamp": 1_700_000_000_000_000, **more,
    }  # fmt: skip


def batch_of(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema)


def many(queues: int, each: int) -> list[dict[str, Any]]:
    """Rows of a queue together, one queue after the other."""
    return [row(q, offset) for q in range(queues) for offset in range(each)]


def options_of(server: FakeBroker, **options: object) -> dict[str, str]:
    given = {"namesrv": server.address, "topic": TARGET, "timeoutMs": 2000, **options}
    return {name: str(value) for name, value in given.items()}


def replay(
    server: FakeBroker,
    *batches: pa.RecordBatch,
    clock: Clock | None = None,
    partition: int = 0,
    **options: object,
) -> Sent:
    """One task, as an executor runs it; waits of tries take no time unless a clock is given."""
    parsed = parse_replay_options(options_of(server, **options))
    return send(parsed, iter(batches), clock or ManualClock(), partition)


# ---- what travels


def test_body_keys_tags_properties_flag_and_birth_travel_and_the_origin_is_marked(server: Server) -> None:
    properties = {
        "KEYS": "k1  k2", "TAGS": "TagA", "UNIQ_KEY": "ABC", "region": "süd", "名前": "a\x01b", "__SHARDINGKEY": "s",
        "DELAY": "3", "TRAN_MSG": "true", "PGROUP": "g", "RETRY_TOPIC": "x", "REAL_TOPIC": "y", "REAL_QID": "1",
        "TIMER_DELAY_SEC": "9", "CLUSTER": "c", "WAIT": "true", "TIERED_ORIGIN": "older", "__CRC32#": "1",
    }  # fmt: skip
    rows = [
        row(3, 17, "bodÿ".encode(), properties=list(properties.items()), flag=5),
        row(3, 18, b"", properties=None),
    ]
    done = replay(server, batch_of(rows), replayId="r-1")
    assert (done.stored, done.before, done.again, done.refused) == (2, 0, 0, 0)
    first, second = server.queue(3)
    mark = {"TIERED_ORIGIN": "DefaultCluster/broker-a/Orders/3/17", "TIERED_REPLAY": "r-1"}
    kept = ("KEYS", "TAGS", "UNIQ_KEY", "region", "名前", "__SHARDINGKEY")
    assert first.properties == {**{name: properties[name] for name in kept}, **mark}
    assert (first.body, first.ext["flag"], first.ext["bornTimestamp"]) == (
        "bodÿ".encode(),
        "5",
        "1700000000000",
    )
    assert (first.ext["sysFlag"], first.ext["reconsumeTimes"]) == ("0", "0")
    assert second.properties == {**mark, "TIERED_ORIGIN": "DefaultCluster/broker-a/Orders/3/18"}
    assert second.body == b""


def test_columns_of_tags_and_keys_win_over_the_properties(server: Server) -> None:
    schema = SCHEMA.append(pa.field("tags", pa.string())).append(pa.field("keys", pa.list_(pa.string())))
    old = [("KEYS", "a  b"), ("TAGS", "T"), ("u", "v")]
    rows = [
        row(0, 0, properties=old, tags="T", keys=["a", "b"]),
        row(0, 1, properties=old, tags="New", keys=["c", "d"]),
        row(0, 2, properties=old, tags=None, keys=[]),
        row(0, 3, properties=None, tags="New", keys=None),
    ]
    replay(server, batch_of(rows, schema))
    found = [
        {name: value for name, value in stored.properties.items() if name != "TIERED_ORIGIN"}
        for stored in server.queue(0)
    ]
    assert found == [
        {"u": "v", "TAGS": "T", "KEYS": "a  b"},
        {"u": "v", "TAGS": "New", "KEYS": "c d"},
        {"u": "v"},
        {"TAGS": "New"},
    ]


def test_sys_flags_fit_the_bodies_whether_these_came_decompressed_or_not(server: Server) -> None:
    plain = b"many words " * 50
    packed = zlib.compress(plain)
    stored = zlib.crc32(packed) & 0x7FFFFFFF
    commit = 0x8 | 0x10 | 0x20
    rows = [
        row(0, 0, packed, sys_flag=0x301 | commit, body_crc=stored),
        row(0, 1, plain, sys_flag=0x301 | commit, body_crc=stored),
        row(0, 2, b"changed", sys_flag=0x101 | 0x2, body_crc=stored),
        row(0, 3, plain, sys_flag=commit),
    ]
    replay(server, batch_of(rows))
    assert [(int(s.ext["sysFlag"]), s.body) for s in server.queue(0)] == [
        (0x301, packed), (0, plain), (0x2, b"changed"), (0, plain),
    ]  # fmt: skip


def test_properties_are_written_as_the_codec_writes_them(server: Server) -> None:
    generator = np.random.default_rng(5)
    rows = []
    for offset in range(300):
        names = generator.choice(50, generator.integers(0, 9), replace=False)
        rows.append(row(0, offset, properties=[(f"n{n}", f"wért {n}" * int(n + 1)) for n in names]))
    replay(server, batch_of(rows).slice(7, 250))
    assert len(server.queue(0)) == 250
    for wanted, found in zip(rows[7:257], server.queue(0), strict=True):
        origin = {"TIERED_ORIGIN": f"DefaultCluster/broker-a/Orders/0/{wanted['queue_offset']}"}
        assert found.ext["properties"].encode() == encode_properties({**dict(wanted["properties"]), **origin})


# ---- where to, and in which order


def test_a_queue_keeps_its_number_and_order_though_the_broker_is_busy(server: Server) -> None:
    server.answers.extend(
        [(0, ""), (2, "busy"), (2, "busy"), (0, ""), (215, "flow"), (14, "disk full"), (1, "x")]
    )
    done = replay(server, batch_of(many(6, 40)), maxInFlight=8)
    assert (done.stored, done.again) == (240, 5)
    for number in range(4):
        found = [s.properties["TIERED_ORIGIN"] for s in server.queue(number)]
        for source in (q for q in range(6) if q % 4 == number):
            mine = [int(place.rpartition("/")[2]) for place in found if place.split("/")[3] == str(source)]
            assert mine == list(range(40))
        assert len(found) == 40 * len([q for q in range(6) if q % 4 == number])


def test_another_broker_takes_by_number_over_all_queues() -> None:
    route = parse_route(
        b'{"brokerDatas":[{"brokerAddrs":{"0":"h:1"},"brokerName":"x","cluster":"c"},'
        b'{"brokerAddrs":{0:"h:2"},"brokerName":"broker-a"},{"brokerAddrs":{1:"h:3"},"brokerName":"slave"}],'
        b'"queueDatas":[{"brokerName":"x","perm":6,"writeQueueNums":2},{"brokerName":"broker-a","perm":6,"writeQueueNums":3},'
        b'{"brokerName":"slave","perm":6,"writeQueueNums":3},{"brokerName":"gone","perm":6,"writeQueueNums":3}]}',
        "T",
    )
    assert [(route.same("broker-a", n).address, route.same("broker-a", n).queue_id) for n in (0, 2, 4)] == [
        ("h:2", 0), ("h:2", 2), ("h:2", 1),
    ]  # fmt: skip
    assert [(route.same("other", n).address, route.same("other", n).queue_id) for n in (0, 3, 4, 5)] == [
        ("h:2", 0), ("h:1", 0), ("h:1", 1), ("h:2", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"brokerDatas":1}',
        b'{"brokerDatas":[],"queueDatas":[{"brokerName":"a","writeQueueNums":"x"}]}',
    ],
)
def test_a_route_that_is_none(body: bytes) -> None:
    with pytest.raises(Corrupt, match="not a route"):
        parse_route(body, "T")


def test_by_keys_the_same_keys_meet_in_one_queue_in_order(server: Server) -> None:
    rows = [row(n % 3, n // 3, properties=[("KEYS", f"order-{n % 20}")]) for n in range(300)]
    replay(server, batch_of(rows[:150]), batch_of(rows[150:]), queue="hash")
    of_key = defaultdict(set)
    order = defaultdict(list)
    for number in range(4):
        for stored in server.queue(number):
            of_key[stored.properties["KEYS"]].add(number)
            order[stored.properties["KEYS"]].append(stored.properties["TIERED_ORIGIN"])
    assert len(of_key) == 20
    assert all(len(queues) == 1 for queues in of_key.values())
    assert len({queue for queues in of_key.values() for queue in queues}) > 1
    for n in range(20):
        wanted = [f"DefaultCluster/broker-a/Orders/{m % 3}/{m // 3}" for m in range(n, 300, 20)]
        assert order[f"order-{n}"] == wanted


def test_spread_uses_all_queues_alike(server: Server) -> None:
    replay(server, batch_of(many(1, 400)), queue="spread")
    assert [len(server.queue(n)) for n in range(4)] == [100] * 4
    assert set(server.places().values()) == {1}


def test_two_brokers_and_one_that_hands_over(server: Server) -> None:
    """The second is the master from the moment at which the first takes no more."""
    with Server() as second:
        handed = threading.Event()

        def refuse(stored: Stored) -> None:
            if len(server.all()) == 30:
                server.answers.extend([(14, "this broker is a slave now")] * 10_000)
                server._do_105 = second._do_105  # type: ignore[method-assign]
                handed.set()

        server.on_send = refuse
        done = replay(server, batch_of(many(4, 30)))
        assert handed.is_set()
    assert done.stored == 120
    assert len(server.all()) + len(second.all()) == 120
    assert server.places() + second.places() == Counter(dict.fromkeys(server.places() + second.places(), 1))
    assert len(second.all()) >= 80


# ---- answers that are bad or do not come


@pytest.mark.parametrize("code", [10, 11, 12])
def test_stored_and_not_flushed_is_stored(server: Server, code: int) -> None:
    server.answers.append((code, "timeout"))
    done = replay(server, batch_of(many(1, 3)))
    assert (done.stored, done.again) == (3, 0)
    assert set(server.places().values()) == {1}


def test_an_answer_that_is_lost_repeats_the_message_and_nothing_is_lost(server: Server) -> None:
    server.answers.extend([(0, ""), None])  # stored, and nobody hears of it
    done = replay(server, batch_of(many(4, 5)), timeoutMs=200, clock=SystemClock(), maxInFlight=4)
    assert done.stored == 20
    assert sum(server.places().values()) == 20 + done.again
    assert 1 <= done.again <= 4
    assert len(server.places()) == 20


def test_a_connection_that_breaks_is_made_again(server: Server) -> None:
    def cut(stored: Stored) -> None:
        if len(server.all()) == 7:
            server.cut()

    server.on_send = cut
    done = replay(server, batch_of(many(2, 10)))
    assert done.stored == 20
    assert len(server.places()) == 20
    assert done.again >= 1


def test_a_broker_that_stays_busy_is_given_up_with_the_place(server: Server) -> None:
    server.answers.extend([(2, "[TIMEOUT_CLEAN_QUEUE]broker busy")] * 1000)
    clock = ManualClock()
    with pytest.raises(
        Unavailable, match=r"does not take a message .*row=DefaultCluster/broker-a/Orders/0/0.*broker busy"
    ):
        replay(server, batch_of(many(1, 3)), clock=clock, retries=4)
    assert server.asked[10] == 5
    assert clock.monotonic() == pytest.approx(0.1 + 0.2 + 0.4 + 0.8)


def test_a_message_too_large_for_the_broker_is_named_or_left_out(server: Server) -> None:
    server.answers.extend([(0, ""), (13, "the message is illegal, msg body length limit 4194304B")])
    with pytest.raises(Invalid, match=r"cannot be sent .*Orders/0/1.*4194304B.*maxMessageSize"):
        replay(server, batch_of(many(1, 3)))
    assert server.asked[10] == 2
    server.answers.extend([(0, ""), (13, "the message is illegal")])
    done = replay(server, batch_of(many(1, 3)), onError="skip")
    assert (done.stored, done.refused) == (2, 1)


def test_what_no_send_can_carry_is_said_before_it_is_tried(server: Server) -> None:
    with pytest.raises(Invalid, match=r"batch of messages in one record.*sys_flag & 128"):
        replay(server, batch_of([row(sys_flag=0x80)]))
    with pytest.raises(Invalid, match="longer than RocketMQ's frames"):
        replay(server, batch_of([row(body=bytes(17 << 20))]))
    for properties in (
        [("a", "")],
        [("", "b")],
        [("a\x02", "b")],
        [("a\x01", "b")],
        [("a", "b\x02")],
        [("a", None)],
    ):
        with pytest.raises(
            Invalid, match=r"cannot have such a property.*row=DefaultCluster/broker-a/Orders/0/7"
        ):
            replay(server, batch_of([row(0, 6), row(0, 7, properties=properties)]))
    for name in ("body", "queue_offset", "cluster", "body_crc"):
        with pytest.raises(Invalid, match=f"a value is null .*column={name}"):
            replay(server, batch_of([row(0, 6), row(0, 7, **{name: None})]))
    assert server.asked[10] == 0


@pytest.mark.parametrize(
    ("code", "remark", "tries"),
    [
        (1, "org.apache.rocketmq.acl.common.AclException: No default permission for Again", 1),
        (16, "User:reader has no permission to access Topic:Again", 1),
        (16, "the broker[127.0.0.1] sending message is forbidden", 3),
        (3, "request type 10 not supported", 1),
    ],
)
def test_rights_are_not_asked_for_twice(server: Server, code: int, remark: str, tries: int) -> None:
    server.answers.extend([(code, remark)] * 100)
    with pytest.raises(TieredError) as caught:
        replay(server, batch_of(many(1, 3)), retries=2)
    assert remark in str(caught.value)
    assert server.asked[10] == tries


def test_a_target_that_is_not_there(server: Server) -> None:
    with pytest.raises(NotFound, match=r"the target topic does not exist .*Nowhere.*updateTopic"):
        replay(server, batch_of([row()]), topic="Nowhere")
    server.writable = 0
    with pytest.raises(NotFound, match="no queue that can be written to"):
        replay(server, batch_of([row()]))
    with pytest.raises(Unavailable, match=r"no name server answers .*127\.0\.0\.1:1"):
        replay(server, batch_of([row()]), namesrv="127.0.0.1:1")


def test_the_next_name_server_is_asked(server: Server) -> None:
    assert replay(server, batch_of([row()]), namesrv=f"127.0.0.1:1;{server.address}").stored == 1


# ---- rights and TLS


def test_requests_are_signed_with_keys_of_the_environment_alone(
    server: Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    account = Account("replay-key-1", "a-very-secret-word")
    monkeypatch.setenv("ROCKETMQ_ACCESS_KEY", account.key)
    monkeypatch.setenv("MY_SECRET", account.secret)
    given = {"secretKeyEnv": "MY_SECRET", "checkpoint": f"file://{tmp_path}", "replayId": "r"}
    replay(server, batch_of([row(body="bodÿ".encode())]), **given)
    (asked,) = server.seen
    unsigned = {name: value for name, value in asked.ext.items() if name not in ("AccessKey", "Signature")}
    assert asked.ext == account.signed(unsigned, bytes(asked.body))
    assert account.secret not in repr(parse_replay_options(options_of(server, **given)))
    assert not any(account.secret.encode() in p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    server.answers.append((16, f"Check signature failed for accessKey={account.key}"))
    with pytest.raises(Invalid, match=r"refuses to store.*accessKey=\*\*\*"):
        replay(server, batch_of([row(0, 1)]), secretKeyEnv="MY_SECRET")
    monkeypatch.delenv("MY_SECRET")
    with pytest.raises(Invalid, match=r"not set on this executor \(variable=MY_SECRET\)"):
        replay(server, batch_of([row()]), secretKeyEnv="MY_SECRET")
    with pytest.raises(Invalid, match="variable=ROCKETMQ_SECRET_KEY"):
        replay(server, batch_of([row()]))


def test_tls_with_an_authority_of_ones_own(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    mine = authority.issue("broker")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mine.certificate, mine.key)

    class Secure(Server):
        def _serve(self, connection: Any) -> None:
            try:
                wrapped = context.wrap_socket(connection, server_side=True)
            except OSError:
                connection.close()
                return
            self._connections.append(wrapped)
            super()._serve(wrapped)

    with Secure() as server:
        done = replay(server, batch_of(many(2, 50)), tls="true", tlsCa=authority.certificate)
        assert (done.stored, len(server.places())) == (100, 100)
        with pytest.raises(Unavailable, match=r"(?i)certificate verify failed"):
            replay(server, batch_of([row()]), tls="true")
        with pytest.raises(Invalid, match="tlsCa cannot be read on this executor"):
            replay(server, batch_of([row()]), tls="true", tlsCa=tmp_path / "nothing.pem")


# ---- how fast


def test_no_second_has_more_messages_than_were_allowed(server: Server) -> None:
    """Two tasks share 50 a second, on one clock that each moves by waiting: each task alone must keep to 25."""
    for partition in (0, 1):
        clock, times = ManualClock(), []
        server.on_send = lambda stored, t=times, c=clock: t.append(c.monotonic())  # type: ignore[misc]
        server.answers.extend([(0, ""), (2, "busy")])  # repeats count too
        rows = [row(q, 1000 * partition + n) for q in range(4) for n in range(60)]
        done = replay(
            server,
            batch_of(rows),
            clock=clock,
            partition=partition,
            messagesPerSecond=50,
            tasks=2,
            queue="spread",
        )
        assert done.stored == 240
        for start in times:
            # a round is a tenth of a second's, and as much may be made up for
            assert sum(start <= t < start + 1 for t in times) <= 25 + 2 + 2
        assert times[-1] >= 240 / 25 - 0.2
        assert times[-1] <= 240 / 25 + 0.5
    with pytest.raises(Invalid, match=r"more tasks than share messagesPerSecond.*coalesce\(2\)"):
        replay(server, batch_of([row()]), partition=2, messagesPerSecond=50, tasks=2)
    assert replay(server, batch_of([row()]), partition=2, tasks=2).stored == 1


# ---- beginning again


def test_a_replay_that_failed_goes_on_where_it_was(server: Server, tmp_path: Path) -> None:
    notes = {"checkpoint": f"file://{tmp_path}/notes", "replayId": "r"}
    server.answers.extend([(0, "")] * 61 + [(3, "broken")])
    rows = many(4, 50)
    with pytest.raises(Invalid):
        replay(server, batch_of(rows[:120]), batch_of(rows[120:]), maxInFlight=1, **notes)
    assert len(server.all()) == 61
    server.answers.clear()
    order = np.random.default_rng(1).permutation(
        200
    )  # other partitions, another order, another way to choose queues
    mixed = [rows[n] for n in order]
    first = replay(server, batch_of(mixed[:90]), partition=0, queue="spread", **notes)
    second = replay(server, batch_of(mixed[90:]), partition=1, queue="spread", **notes)
    assert (first.stored + second.stored, first.before + second.before) == (139, 61)
    assert server.places() == Counter(
        f"DefaultCluster/broker-a/Orders/{r['queue_id']}/{r['queue_offset']}" for r in rows
    )
    assert replay(server, batch_of(rows), **notes).before == 200
    assert replay(server, batch_of(rows), **{**notes, "replayId": "other"}).stored == 200


def test_a_task_that_is_killed_repeats_no_more_than_was_not_noted(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = {
        "checkpoint": f"file://{tmp_path}/notes",
        "replayId": "r",
        "checkpointEvery": 20,
        "maxInFlight": 4,
    }

    class Killed(BaseException):
        """Nothing runs after it: the note of a task that ends in order is not written either."""

    def kill(stored: Stored) -> None:
        if len(server.all()) == 90:
            monkeypatch.setattr(ReplayProgress, "flush", lambda self: None)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of(many(4, 25))
        raise Killed

    server.on_send = kill
    with pytest.raises(Killed):
        parsed = parse_replay_options(options_of(server, **notes))
        send(parsed, batches(), ManualClock(), 0)
    monkeypatch.undo()
    sent = len(server.all())
    assert 90 <= sent <= 100
    done = replay(server, batch_of(many(4, 50)), **notes)
    assert done.before >= 60
    assert len(server.places()) == 200
    assert sum(server.places().values()) - 200 == sent - done.before <= 20 + 4 + 20
    assert max(server.places().values()) == 2


def test_a_note_is_written_after_some_seconds_too(server: Server, tmp_path: Path) -> None:
    notes = {"checkpoint": f"file://{tmp_path}/notes", "replayId": "r"}
    replay(server, batch_of(many(1, 50)), messagesPerSecond=1, **notes)
    assert len(list((tmp_path / "notes/r/acked").iterdir())) == 5


def test_a_replay_id_belongs_to_its_target(server: Server, tmp_path: Path) -> None:
    schema = from_arrow_schema(SCHEMA)
    notes = {"checkpoint": f"file://{tmp_path}/notes", "replayId": "r"}
    TieredReplay(options_of(server, **notes)).writer(schema, False)
    TieredReplay(options_of(server, namesrv=f"x:1;{server.address}", **notes)).writer(schema, False)
    for other in ({"topic": "Other"}, {"namesrv": "elsewhere:9876"}):
        with pytest.raises(Invalid, match=r"begun with another target \(replayId=r, expected=Again at 127"):
            TieredReplay(options_of(server, **{**notes, **other})).writer(schema, False)


def test_notes_are_exact_and_checked(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    offsets = {f"c/b/t{n}/0": generator.integers(0, 1 << 60, 500).tolist() for n in range(5)} | {
        "c/b/d/0": list(range(9999))
    }
    data = b"".join(encode_note(offsets))
    spans, found = decode_note(data, "key")
    assert {queue: set(values.tolist()) for queue, values in found.items()} == {
        q: set(v) for q, v in offsets.items()
    }
    assert spans == {queue: (min(values), max(values)) for queue, values in offsets.items()}
    assert len(b"".join(encode_note({"c/b/d/0": list(range(10_000))}))) < 200
    for at in range(0, len(data), 97):
        with pytest.raises(Corrupt, match="progress is damaged"):
            decode_note(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :], "key")
    with pytest.raises(Corrupt):
        decode_note(b"", "key")


# ---- wrong options, wrong rows


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"namesrv": ""}, "the option namesrv is wrong"),
        ({"namesrv": "localhost"}, "host:port"),
        ({"namesrv": "h:99999"}, "host:port"),
        ({"topic": "a b"}, "the option topic is wrong"),
        ({"queue": "any"}, "same or hash or spread"),
        ({"messagesPerSecond": "0"}, "the option messagesPerSecond is wrong"),
        ({"messagesPerSecond": "nan"}, "the option messagesPerSecond is wrong"),
        ({"tasks": "0"}, "a whole number from 1"),
        ({"mesagesPerSecond": "5"}, "did you mean messagesPerSecond"),
        ({"checkpoint": "file:///tmp/x"}, "option=replayId"),
        ({"checkpoint": "ftp://x", "replayId": "r"}, "ftp"),
        ({"replayId": "../x"}, "the option replayId is wrong"),
        ({"tlsCa": "/x"}, "option=tls"),
        ({"secretKey": "hunter2"}, "ROCKETMQ_SECRET_KEY"),
        ({"accessKey": "hunter2"}, "accessKeyEnv"),
        ({"secretKeyy": "hunter2"}, "did you mean secretKeyEnv"),
        ({"onError": "ignore"}, "fail or skip"),
    ],
)
def test_wrong_options_are_named_and_secrets_are_not_repeated(options: Mapping[str, str], says: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_replay_options({"namesrv": "h:1", "topic": "T", **options})
    assert says in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_target_must_be_named_and_rows_must_be_messages() -> None:
    with pytest.raises(Invalid, match="option=topic"):
        parse_replay_options({"namesrv": "h:1"})
    options = {"namesrv": "h:1", "topic": "T"}
    with pytest.raises(Invalid, match=r"missing=properties, sys_flag.*option columns"):
        keep = [name for name in SCHEMA.names if name not in ("properties", "sys_flag")]
        TieredReplay(options).writer(from_arrow_schema(pa.schema([SCHEMA.field(n) for n in keep])), False)
    with pytest.raises(Invalid, match=r"the column queue_id has a type .*found=string"):
        wrong = SCHEMA.set(SCHEMA.get_field_index("queue_id"), pa.field("queue_id", pa.string()))
        TieredReplay(options).writer(from_arrow_schema(wrong), False)
    with pytest.raises(Invalid, match="cannot be overwritten"):
        TieredReplay(options).writer(from_arrow_schema(SCHEMA), True)
    with pytest.raises(Invalid, match="only sends"):
        TieredReplay(options).schema()


# ---- in Spark, with a real broker


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session(spark__sql__execution__arrow__maxRecordsPerBatch=100) as made:
        register(made)
        yield made


def writing(frame: DataFrame, **options: object) -> None:
    given = {name: str(value) for name, value in options.items()}
    frame.write.format("rocketmq_tiered_replay").mode("append").options(**given).save()


@pytest.mark.slow
def test_what_is_wrong_is_said_in_the_first_line(spark: SparkSession, server: Server) -> None:
    rows = spark.createDataFrame(pa.Table.from_batches([batch_of(many(1, 3))]))
    server.answers.extend([(13, "the message is illegal")] * 10)
    for frame, options, says in [
        (rows, {"secretKey": "hunter2"}, "keys of the broker do not go into options"),
        (rows.drop("body"), {}, "missing=body"),
        (
            rows,
            {"topic": "Nowhere"},
            "the target topic does not exist (topic=Nowhere",
        ),
        (rows, {}, "tiered.errors.Invalid: a message cannot be sent (row=DefaultCluster/broker-a/Orders/0/"),
    ]:
        with pytest.raises(Exception, match="tiered") as caught:
            writing(frame, **{**options_of(server), **options})
        first, *more = str(caught.value).splitlines()
        if "Python worker" in first:  # Spark's own first line, where a task failed
            first, *more = more
        assert says in first
        assert [line for line in more if "SQLSTATE" not in line] == []


MESSAGES = 2000


@pytest.fixture(scope="module")
def source(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """A real broker's topic ``Orders``, archived, and what its producer sent: some of it compressed, some transactions."""
    directory = tmp_path_factory.mktemp("replay")
    for topic in ("Orders", "Again", "Killed"):
        broker.create_topic(topic, 4)
    client = broker.client()
    sent = client.run(
        "produce",
        topic="Orders",
        n=MESSAGES,
        queues=4,
        min=100,
        max=3000,
        tags="TagA,TagB,TagC",
        compress_over=2000,
    ).lines()
    sent += [
        line for line in client.run("transaction", topic="Orders", n=30).lines() if line["kind"] == "commit"
    ]
    return archive(broker.store_dir, directory), sent


def content(line: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a message says, without what a broker or client writes into its properties."""
    own = {name: line["properties"].get(name) for name in ("seq", "region", "名前")}
    return line["body_sha256"], line["tags"], line["keys"], line["unique_key"], tuple(own.items())


@pytest.mark.slow
@pytest.mark.broker
@pytest.mark.parametrize("decode", ["true", "false"])
def test_a_real_broker_gets_the_chosen_rows_and_its_consumers_see_the_same_messages(
    spark: SparkSession, broker: Broker, source: tuple[str, list[dict[str, Any]]], decode: str
) -> None:
    url, sent = source
    topic = "Again" if decode == "true" else "AgainStored"
    broker.create_topic(topic, 4)
    frame = spark.read.format("rocketmq_tiered").option("archive", url).option("decodeBody", decode).load()
    chosen = frame.filter("topic = 'Orders' and tags = 'TagB'")
    writing(chosen, namesrv=broker.name_server.address, topic=topic)
    wanted = [line for line in sent if line["tags"] == "TagB"]
    assert len(wanted) > 300
    got = broker.client().run("consume", topic=topic, group=f"G{topic}", n=len(wanted)).lines()
    assert Counter(map(content, got)) == Counter(map(content, wanted))
    rows = {
        f"{r.cluster}/{r.broker}/{r.topic}/{r.queue_id}/{r.queue_offset}": r
        for r in chosen.select(
            "cluster", "broker", "topic", "queue_id", "queue_offset", "unique_key"
        ).collect()
    }
    assert {line["properties"]["TIERED_ORIGIN"] for line in got} == rows.keys()
    for line in got:
        origin = rows[line["properties"]["TIERED_ORIGIN"]]
        assert (line["unique_key"], line["queue_id"]) == (origin.unique_key, origin.queue_id)
    for number in range(4):  # one task read each queue whole, so its order is kept
        mine = sorted(
            (line for line in got if line["queue_id"] == number), key=lambda line: int(line["queue_offset"])
        )
        origins = [int(line["properties"]["TIERED_ORIGIN"].rpartition("/")[2]) for line in mine]
        assert origins == sorted(origins)


@pytest.mark.slow
@pytest.mark.broker
def test_a_query_that_is_killed_half_way_loses_nothing_when_it_runs_again(
    spark: SparkSession, broker: Broker, source: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    url, sent = source
    options = {
        "namesrv": broker.name_server.address, "topic": "Killed", "checkpoint": f"file://{tmp_path}/notes", "replayId": "k",
        "checkpointEvery": 50,
    }  # fmt: skip
    frame = (
        spark.read.format("rocketmq_tiered")
        .option("archive", url)
        .load()
        .filter("topic = 'Orders'")
        .coalesce(1)
    )

    class DyingWriter(ReplayWriter):
        def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
            def dying() -> Iterator[pa.RecordBatch]:
                count = 0
                for batch in iterator:
                    yield batch
                    count += batch.num_rows
                    if count >= 1200:
                        os.kill(os.getpid(), signal.SIGKILL)

            return super().write(dying())

    class Dying(TieredReplay):
        @classmethod
        def name(cls) -> str:
            return "dying_replay"

        def writer(self, schema: StructType, overwrite: bool) -> ReplayWriter:
            return DyingWriter(parse_replay_options(self.options))

    spark.dataSource.register(Dying)
    given = {name: str(value) for name, value in options.items()}
    with pytest.raises(Exception, match=r"(?i)worker.*(exited|crashed)"):
        frame.write.format("dying_replay").mode("append").options(**given).save()
    stored = sum(len(broker.offsets("Killed", n)) for n in range(4))
    noted = _noted(tmp_path / "notes/k/acked")
    assert 0 < noted <= stored < len(sent)
    writing(frame, **options)
    total = sum(len(broker.offsets("Killed", n)) for n in range(4))
    got = broker.client().run("consume", topic="Killed", group="GKilled", n=total).lines()
    places = Counter(line["properties"]["TIERED_ORIGIN"] for line in got)
    assert len(places) == len(sent)
    assert Counter(
        map(content, {line["properties"]["TIERED_ORIGIN"]: line for line in got}.values())
    ) == Counter(map(content, sent))
    assert total - len(sent) == stored - noted <= 50 + 64
    writing(frame, **options)
    assert sum(len(broker.offsets("Killed", n)) for n in range(4)) == total


def _noted(directory: Path) -> int:
    """Messages that the notes of a replay name."""
    found: set[tuple[str, int]] = set()
    for path in directory.iterdir():
        for queue, offsets in decode_note(path.read_bytes(), path.name)[1].items():
            found |= {(queue, offset) for offset in offsets.tolist()}
    return len(found)
