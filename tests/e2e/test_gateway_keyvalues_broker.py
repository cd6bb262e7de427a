"""The key-value view behind a gateway before a real broker: writes go through its log; unknown codes are for the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import remoting
from tests.kit.broker import Broker, NameServer
from tests.kit.gatewayproc import Gateway
from tests.kit.kvproc import ViewProcess
from tiered.codec.remoting.keyvalue import KeyValueAnswer, KeyValueCode, encoded, unpack_listed

pytestmark = [pytest.mark.broker, pytest.mark.slow]

TOPIC = "Known"
NOT_SUPPORTED = 3


@pytest.fixture(scope="module")
def view(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ViewProcess]:
    view = ViewProcess(tmp_path_factory.mktemp("door"), broker, "door")
    view.start()
    yield view
    view.end()


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gateways")


def gateway(work: Path, name_server: NameServer, name: str, **settings: object) -> Gateway:
    return Gateway(work, name_server.address, f"file://{work}/none", name=name, **settings)  # type: ignore[arg-type]


def ask(place: str, code: int, body: bytes = b"", **fields: str) -> remoting.Answer:
    return remoting.request(place, int(code), {"namespace": "door", **fields}, body=body)


def test_a_client_of_the_broker_front_has_keys_and_values(
    broker: Broker, view: ViewProcess, work: Path
) -> None:
    broker.create_topic(TOPIC, 1)
    behind = gateway(work, broker.name_server, "with", **{"gateway.kv_url": f"http://{view.address}"})
    with behind.running() as running:
        place = running.broker(TOPIC)
        assert ask(place, KeyValueCode.CREATE).fields["created"] == "true"
        put = ask(place, KeyValueCode.PUT, b"one", key=encoded(b"\xffk"))
        assert (put.code, put.fields["version"]) == (0, "0")
        read = ask(place, KeyValueCode.GET, key=encoded(b"\xffk"), latest="true")
        assert (read.code, bytes(read.body), read.fields["version"]) == (0, b"one", "0")
        lost = ask(place, KeyValueCode.PUT, b"two", key=encoded(b"\xffk"), ifVersion="-1")
        assert (lost.code, lost.fields["currentVersion"]) == (KeyValueAnswer.CONDITION_FAILED, "0")
        assert ask(place, KeyValueCode.PUT, b"two", key=encoded(b"\xffk"), ifVersion="0").code == 0
        listed = ask(place, KeyValueCode.LIST)
        assert [(row.key, row.value) for row in unpack_listed(listed.body)] == [(b"\xffk", b"two")]
        assert ask(place, KeyValueCode.DELETE, key=encoded(b"\xffk")).code == 0
        assert ask(place, KeyValueCode.GET, key=encoded(b"\xffk"), latest="true").code == 22
        assert view.values().get("door", b"\xffk") is None
        assert broker.offsets("KV_door", 0).stop == 4, "puts, one that lost, and the delete are messages"
        unknown = ask(place, 30_499)
        theirs = ask(broker.address, 30_499)
        assert (unknown.code, unknown.remark) == (theirs.code, theirs.remark)


def test_without_the_setting_the_broker_says_what_it_says_of_every_unknown_code(
    broker: Broker, work: Path
) -> None:
    broker.create_topic(TOPIC, 1)
    with gateway(work, broker.name_server, "without").running() as running:
        for code in KeyValueCode:
            answer = ask(running.broker(TOPIC), code, b"value", key=encoded(b"k"))
            theirs = ask(broker.address, code, b"value", key=encoded(b"k"))
            assert (answer.code, answer.remark) == (theirs.code, theirs.remark)
            assert answer.code == NOT_SUPPORTED
            assert f"request type {int(code)} not supported" in (answer.remark or "")
