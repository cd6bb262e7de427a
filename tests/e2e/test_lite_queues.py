"""Lite queues of a real broker: archived, deleted by the broker, pulled through the gateway as from the broker itself."""

from __future__ import annotations

import json
import re
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit import cache, remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.client import JavaClient
from tests.kit.daemonproc import Daemon, wait_for
from tests.kit.gatewayproc import Gateway
from tests.kit.realdaemon import expire, log_end
from tiered.codec.remoting.codes import RequestCode, ResponseCode

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PARENT, NAMES = "Parent", ("%LMQ%a", "%LMQ%b", "%LMQ%c")
GROUP = "lite-readers"
MESSAGES = 400


class Scene:
    """``pulled``: each lite queue as the broker gave it before it deleted anything."""

    def __init__(self, broker: Broker, name_server: NameServer, archive: str, directory: Path) -> None:
        self.broker, self.name_server = broker, name_server
        self.archive, self.directory = archive, directory
        self.pulled: dict[str, bytes] = {}

    def send(self, number: int, names: list[str]) -> None:
        fields = {
            "producerGroup": "p", "topic": PARENT, "defaultTopic": "TBW102", "defaultTopicQueueNums": "2",
            "queueId": str(number % 2), "sysFlag": "0", "bornTimestamp": str(int(time.time() * 1000)), "flag": "0",
            "properties": f"INNER_MULTI_DISPATCH\x01{','.join(names)}\x02" if names else "KEYS\x01k\x02",
            "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
        }  # fmt: skip
        made = remoting.request(self.broker.address, remoting.SEND_MESSAGE, fields, b"%d" % number * 200)
        assert made.code == 0, made.remark

    def everything(self, address: str, name: str) -> bytes:
        """A lite queue from offset 0 to its end, as a consumer pulls it: it goes on where each answer says."""
        found, offset = b"", 0
        while True:
            fields = {
                "consumerGroup": GROUP, "topic": name, "queueId": "0", "queueOffset": str(offset), "maxMsgNums": "32",
                "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "1000", "subscription": "*",
                "subVersion": "0", "expressionType": "TAG", "bname": self.broker.name,
            }  # fmt: skip
            answer = remoting.request(address, remoting.PULL_MESSAGE, fields, timeout_seconds=20)
            if answer.code == 19:
                return found
            assert answer.code in (0, 1, 2), (answer.code, answer.remark)
            if answer.code == 0:
                found += answer.body
                assert int(answer.fields["nextBeginOffset"]) > offset
                offset = int(answer.fields["nextBeginOffset"])


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    directory = tmp_path_factory.mktemp("lite")
    with ExitStack() as stack:
        names = stack.enter_context(NameServer(cache.ROCKETMQ_5, directory / "namesrv"))
        options = {"enableLmq": "true", "enableMultiDispatch": "true", "mappedFileSizeCommitLog": 1 << 16}
        broker = stack.enter_context(Broker(cache.ROCKETMQ_5, directory / "broker", names, **options))
        broker.create_topic(PARENT, 2)
        group = json.dumps({"groupName": GROUP}).encode()
        assert remoting.request(broker.address, remoting.UPDATE_GROUP, body=group).code == 0
        archive = f"file://{directory / 'archive'}"
        settings = {"source.broker": broker.name, "dispatch.lite_queues": True}
        daemon = Daemon(directory, broker.store_dir, archive, **settings)
        stack.callback(daemon.kill)
        daemon.start()
        made = Scene(broker, names, archive, directory)
        for number in range(MESSAGES):
            made.send(number, [name for i, name in enumerate(NAMES) if number % (i + 2) == 0])
        daemon.wait_archived(log_end(broker), 60)
        time.sleep(1)
        made.pulled = {name: made.everything(broker.address, name) for name in NAMES}
        expire(broker)
        wait_for(lambda: all(broker.offsets(name, 0).start > 0 for name in NAMES), "minimums", 60)
        yield made


def test_a_consumer_gets_from_the_gateway_what_the_broker_gave_before_it_deleted_it(scene: Scene) -> None:
    settings = {"source.broker": scene.broker.name, "gateway.lite_queues": True}
    gateway = Gateway(scene.directory, scene.name_server.address, scene.archive, waits=True, **settings)
    with gateway.running():
        (front,) = remoting.route_addresses(gateway.address, PARENT)
        assert front != scene.broker.address
        for name in NAMES:
            assert scene.everything(front, name) == scene.pulled[name]
            assert len(scene.pulled[name]) > 10_000
    fields = {"topic": NAMES[0], "queueId": "0"}
    low = remoting.request(scene.broker.address, remoting.MIN_OFFSET, fields).fields["offset"]
    assert int(low) > 50, "most of it came from the archive"


@pytest.mark.parametrize("start", ["begin", "timestamp"])
def test_the_clients_own_consumer_reads_a_lite_queue_from_its_beginning(scene: Scene, start: str) -> None:
    """The classic pull consumer, with a queue that no route names, as MQTT bridges use it: it asks for the minimum, or for the
    offset at a time, and pulls from there."""
    settings = {"source.broker": scene.broker.name, "gateway.lite_queues": True}
    gateway = Gateway(scene.directory, scene.name_server.address, scene.archive, waits=True, **settings)
    expected = list(places(scene.pulled[NAMES[0]]))
    moment = expected[20][2]
    first = (
        next(number for number, place in enumerate(expected) if place[2] >= moment)
        if start == "timestamp"
        else 0
    )
    with gateway.running():
        client = JavaClient(
            cache.ROCKETMQ_5, scene.directory, name_server=gateway.address, broker=scene.broker.address,
            broker_name=scene.broker.name,
        )  # fmt: skip
        options = {
            "topic": PARENT,
            "group": GROUP,
            "lite_queue": NAMES[0],
            "start": start,
            "timestamp": moment,
            "idle": 60,  # a gateway that was just started may say for a while that it is to be asked again
        }
        outcome = client.run("pull", n=len(expected) - first, **options)
    got = [(line["queue_id"], line["queue_offset"], line["store_timestamp"]) for line in outcome.lines()]
    assert got == expected[first:]
    # a pull that was told to try again failed, and was made again: nothing but that and messages
    assert "FOUND" in outcome.summary["statuses"]
    assert set(outcome.summary["statuses"]) <= {"FOUND", "FAILED"}


def test_its_table_and_a_reset_of_it_reach_into_the_archive(scene: Scene) -> None:
    """``GET_TOPIC_STATS_INFO`` and ``INVOKE_BROKER_TO_RESET_OFFSET`` of a lite queue, beside what the broker itself says."""
    settings = {"source.broker": scene.broker.name, "gateway.lite_queues": True}
    gateway = Gateway(scene.directory, scene.name_server.address, scene.archive, waits=True, **settings)
    name = NAMES[0]
    expected = list(places(scene.pulled[name]))
    low = scene.broker.offsets(name, 0).start
    with gateway.running():
        (front,) = remoting.route_addresses(gateway.address, PARENT)

        def asked(address: str, code: int, fields: dict[str, str]) -> remoting.Answer:
            """Asked again while the answer says so, as a gateway that was just started may."""
            answers: list[remoting.Answer] = []

            def answered() -> bool:
                answers.append(remoting.request(address, code, fields))
                return answers[-1].code != ResponseCode.SYSTEM_BUSY

            wait_for(answered, "an answer", 30)
            return answers[-1]

        both = (scene.broker.address, front)
        stats = [asked(address, RequestCode.GET_TOPIC_STATS_INFO, {"topic": name}) for address in both]
        reset = {
            "topic": name, "group": GROUP, "timestamp": str(expected[20][2]), "isForce": "true", "queueId": "0", "offset": "-1",
        }  # fmt: skip
        set_to = [asked(address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset) for address in both]
    assert [answer.code for answer in (*stats, *set_to)] == [0] * 4
    bounds = [re.search(rb'"maxOffset":(\d+),"minOffset":(\d+)', answer.body) for answer in stats]
    assert [found and tuple(map(int, found.groups())) for found in bounds] == [(200, low), (200, 0)]
    first = next(offset for _, offset, moment in expected if moment >= expected[20][2])
    targets = [re.findall(rb"\}:(\d+)", answer.body) for answer in set_to]
    assert targets == [[b"%d" % low], [b"%d" % first]], "the broker knows no earlier one"
    assert first < low


def places(records: bytes) -> Iterator[tuple[int, int, int]]:
    """Queue, offset and store time of records back to back."""
    at = 0
    while at < len(records):
        size, _, _, queue_id, _, offset = struct.unpack_from(">iiiiiq", records, at)
        yield queue_id, offset, struct.unpack_from(">q", records, at + 56)[0]
        at += size
