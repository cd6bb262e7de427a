"""Pulls whose answer is in memory: the same answer without waiting, and none where anything would have to be waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest

from tests.kit.gatewaydesk import Desk, offsets_of, pull, too_small
from tests.kit.replacing import replace
from tiered.codec.remoting.frame import Bytes, Command
from tiered.errors import Unavailable
from tiered.gateway.ports import HOLD, ConnectionInfo
from tiered.gateway.pull.verdict import HELD, Why

REFUSED = too_small(1000, 2000)


class Broker:
    """Whether it is the archived one, if that is known."""

    def __init__(self) -> None:
        self.known = True
        self.listens = False

    def agrees(self, connection: ConnectionInfo) -> bool:
        return self.known

    async def require(self, connection: ConnectionInfo) -> None:
        self.known = True

    def heard(self, connection: ConnectionInfo, head: Bytes) -> None: ...

    def closed(self, connection: ConnectionInfo) -> None: ...


@pytest.fixture
def broker() -> Broker:
    return Broker()


@pytest.fixture
def desk(broker: Broker) -> Iterator[Desk]:
    made = Desk(broker=broker)
    made.archive.fill("T", 0, 0, 1500)
    yield made
    made.close()


def at_once(desk: Desk, request: Command, answer: Command = REFUSED, why: Why = Why.SKIP) -> Command | None:
    return desk.answers.at_once(request, answer, HELD[why], desk.connection)


def later(desk: Desk, request: Command, answer: Command = REFUSED) -> Command:
    made = asyncio.run(desk.answers.answer(request, answer, HELD[Why.SKIP], desk.connection))
    assert isinstance(made, Command)
    return made


@pytest.mark.parametrize("count", [1, 7, 32])
@pytest.mark.parametrize("offset", [0, 40, 900])
@pytest.mark.parametrize("subscription", ["*", "", None])
def test_it_is_what_is_answered_later(desk: Desk, offset: int, count: int, subscription: str | None) -> None:
    request = pull(offset=offset, count=count, subscription=subscription)
    made = at_once(desk, request)
    assert made is not None
    assert offsets_of(made) == list(range(offset, offset + count))
    assert made == later(desk, request)
    assert desk.count("pull", "archive") == 2
    assert desk.metrics.value("tiered_cold_messages_total") == 2 * count
    assert desk.metrics.value("tiered_cold_seconds_count", what="pull") == 2


def test_a_limit_of_bytes_holds(desk: Desk) -> None:
    request = pull(offset=3, count=32, maxMsgBytes="700")
    made = at_once(desk, request)
    assert made is not None
    assert made == later(desk, request)
    assert 0 < len(offsets_of(made)) < 32


def failed() -> Future[bool]:
    look: Future[bool] = Future()
    look.set_exception(Unavailable("the store is away"))
    return look


def other_topic(desk: Desk) -> Command:
    return pull("Elsewhere", offset=0)


def by_tag(desk: Desk) -> Command:
    return pull(offset=0, subscription="red")


def by_sql(desk: Desk) -> Command:
    return pull(offset=0, subscription="a = 1", kind="SQL92")


def told_by_heartbeat(desk: Desk) -> Command:
    desk.heartbeat("G", "T", "red")
    return pull(offset=0, subscription=None)


def by_class(desk: Desk) -> Command:
    request = pull(offset=0)
    return replace(request, ext={**request.ext, "sysFlag": "14"})


def where_rights_are_asked_for(desk: Desk) -> Command:
    return pull(offset=0, code=361)


def when_the_archive_must_be_looked_at(desk: Desk) -> Command:
    desk.archive.looks = [Future()]
    return pull(offset=0)


def when_that_look_failed(desk: Desk) -> Command:
    desk.archive.looks = [failed()]
    return pull(offset=0)


def when_nothing_is_in_memory(desk: Desk) -> Command:
    desk.archive.at_hand = False
    return pull(offset=0)


def behind_the_end(desk: Desk) -> Command:
    return pull(offset=1500)


@pytest.mark.parametrize(
    "ask",
    [
        other_topic, by_tag, by_sql, told_by_heartbeat, by_class, where_rights_are_asked_for,
        when_the_archive_must_be_looked_at, when_that_look_failed, when_nothing_is_in_memory, behind_the_end,
    ],
)  # fmt: skip
def test_none_where_something_must_be_waited_for_or_decided(
    desk: Desk, ask: Callable[[Desk], Command]
) -> None:
    assert at_once(desk, ask(desk)) is None
    assert desk.count("pull", "archive") == 0


def test_none_before_it_is_known_whose_the_archive_is(desk: Desk, broker: Broker) -> None:
    broker.known = False
    assert at_once(desk, pull(offset=0)) is None
    broker.known = True
    assert at_once(desk, pull(offset=0)) is not None


def test_none_for_another_broker_or_one_without_a_name(desk: Desk) -> None:
    mine = desk.connection
    for name in ("broker-b", None):
        desk.connection = replace(mine, broker_name=name)
        request = pull(offset=0)
        del request.ext["bname"]
        assert at_once(desk, request) is None


def test_none_where_the_archives_queue_is_longer_than_the_brokers(desk: Desk) -> None:
    shorter = too_small(1000, 1400)
    assert at_once(desk, pull(offset=0), shorter) is None
    desk.queue_end = 1400
    with pytest.raises(Unavailable, match="begun anew"):
        later(desk, pull(offset=0), shorter)


@pytest.mark.parametrize("why", [why for why in HELD if why is not Why.SKIP])
def test_none_for_what_the_broker_has_not_refused(desk: Desk, why: Why) -> None:
    assert at_once(desk, pull(offset=0), why=why) is None
    assert desk.answers.at_once(pull(offset=0), REFUSED, HOLD, desk.connection) is None


def test_none_while_read_nodes_are_asked(desk: Desk) -> None:
    desk.answers.reads.set_nodes(["127.0.0.1:1"])
    assert at_once(desk, pull(offset=0)) is None
