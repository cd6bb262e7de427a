"""What answers of a broker mean: recorded ones, and ones of clients that write them in their own way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fakebroker import FakeBroker
from tiered.broker.client import Dial, RemotingClient
from tiered.broker.questions import Broker, ClientTopics
from tiered.clock import SystemClock
from tiered.codec.remoting.frame import Command, decode_command
from tiered.errors import Corrupt, Unavailable

WIRE = Path(__file__).parent.parent / "data" / "wire"
QUEUE = b'{"brokerName":"b}a","queueId":0,"topic":"T\\u00fc"}'


@pytest.fixture
def fake() -> Iterator[FakeBroker]:
    with FakeBroker() as broker:
        yield broker


@pytest.fixture
def broker(fake: FakeBroker) -> Iterator[Broker]:
    client = RemotingClient(fake.address, SystemClock(), Dial(2.0, section="sink"))
    yield Broker(client)
    client.close()


def test_recorded_statistics_of_a_topic(fake: FakeBroker, broker: Broker) -> None:
    recorded = decode_command((WIRE / "topic-stats-202.answer.bin").read_bytes()[4:])
    fake.instead = lambda asked: Command(0, body=bytes(recorded.body)) if asked.code == 202 else None
    bounds = broker.bounds("any")
    assert bounds
    assert sorted(bounds) == list(range(len(bounds)))
    assert all(0 <= low <= high for low, high in bounds.values())
    assert sum(high - low for low, high in bounds.values()) > 0


def test_malformed_statistics(fake: FakeBroker, broker: Broker) -> None:
    fake.instead = lambda asked: (
        Command(0, body=b'{"offsetTable":{{"queueId":0}') if asked.code == 202 else None
    )
    with pytest.raises(Corrupt):
        broker.bounds("any")


@pytest.mark.parametrize(
    ("body", "running"),
    [
        (
            b'{"mqPopTable":{' + QUEUE + b':{"droped":false}},"mqTable":{}}',
            ClientTopics(frozenset({"Tü"}), frozenset()),
        ),
        (
            b'{ "mqTable" : { ' + QUEUE + b" : {} , " + QUEUE + b':{"a":{}} } }',
            ClientTopics(frozenset(), frozenset({"Tü"})),
        ),
        (
            b'{"mqTable":{"{\\"topic\\":\\"T\\"}":{}}}',
            ClientTopics(frozenset(), frozenset()),
        ),  # keys are texts there
        (b'{"mqTable":[]}', ClientTopics(frozenset(), frozenset())),
        (b"", ClientTopics(frozenset(), frozenset())),
    ],
)
def test_what_clients_say_they_do(
    fake: FakeBroker, broker: Broker, body: bytes, running: ClientTopics
) -> None:
    fake.running["G"] = body
    assert broker.running("G", "client") == running


def test_hints_name_the_settings_of_the_caller(fake: FakeBroker, broker: Broker) -> None:
    fake.instead = lambda _: Command(16, remark="no")
    with pytest.raises(Unavailable) as caught:
        broker.offsets()
    assert "sink.access_key and sink.secret_key" in (caught.value.hint or "")
    fake.instead = lambda _: Command(0, body=b"<html>")
    with pytest.raises(Corrupt) as wrong:
        broker.offsets()
    assert "sink.broker_address" in (wrong.value.hint or "")


def test_where_a_master_s_log_ends(fake: FakeBroker, broker: Broker) -> None:
    """Its answer says the role; a slave's end is nobody's, and one that says nothing of the kind is not believed."""
    told = {907: b'{"haConnectionInfo":[],"inSyncSlaveNums":1,"master":true,"masterCommitLogMaxOffset":1155}'}
    fake.instead = lambda asked: Command(0, body=told[907]) if asked.code == 907 else None
    assert broker.log_end() == 1155
    assert fake.asked[28] == 0
    told[907] = b'{"master":false,"masterCommitLogMaxOffset":7}'
    with pytest.raises(Unavailable, match="is a slave"):
        broker.log_end()
    told[907] = b"{}"
    with pytest.raises(Unavailable, match="does not say"):
        broker.log_end()


def test_where_the_log_of_an_older_broker_ends(fake: FakeBroker, broker: Broker) -> None:
    told = {28: Command(0, body=b'{"table":{"commitLogMaxOffset":"77"}}')}
    fake.instead = lambda asked: told.get(asked.code)
    assert broker.log_end() == 77
    told[28] = Command(0, body=b'{"table":{}}')
    with pytest.raises(Unavailable, match="does not say"):
        broker.log_end()
