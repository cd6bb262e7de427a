"""A broker that asks for rights: who may read its messages may read the archived ones, nobody else.

Both of RocketMQ's ways: ``plain_acl.yml`` of 4.9, and the users and policies that brokers of 5.3 and newer keep themselves.

The gateway holds no rights of its own: it looks at the broker's answer, so one that refuses must reach the client as it is.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest

from tests.kit import acl, cache, remoting
from tests.kit.acl import Account
from tests.kit.coldscene import TOPIC, ColdScene, ending
from tests.kit.daemonproc import wait_for
from tests.kit.delivery import compare
from tests.kit.gatewayproc import Gateway
from tiered.codec.remoting.codes import RequestCode, ResponseCode

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OLD = 17
"""An offset that the broker has deleted."""

READER = Account("reader-01", "reader-secret", {TOPIC: "SUB"})
QUIET = Account("reader-02", "reader-secret-2", {TOPIC: "SUB"})
"""May read the topic, too, and has not shown it yet."""
STRANGER = Account("stranger-01", "stranger-secret")
GATEKEEPER = Account("gatekeeper-01", "gatekeeper-secret")
"""Whose key the gateway uses for its own questions: it may do nothing but sign."""
PRETENDER = Account(READER.key, "a-wrong-secret")
LEAVER = Account("leaver-01", "leaver-secret", {TOPIC: "SUB"})
"""Whose right is taken away."""
ACCOUNTS = (READER, QUIET, STRANGER, GATEKEEPER, LEAVER)
REFUSALS = {cache.ROCKETMQ_4: (1, "Acl"), cache.ROCKETMQ_5: (16, "username|signature|policies")}
"""By broker, what it answers to all of them: code and remark. 1 is a system error, which is also 4.9's word for a message that
is not there."""


@pytest.fixture(scope="module", params=["cold_49", "cold"], ids=["plain_acl", "users"])
def guarded(request: pytest.FixtureRequest) -> Iterator[ColdScene]:
    """The scene with its broker started again to ask for rights, until the end of this module."""
    scene: ColdScene = request.getfixturevalue(request.param)
    with _guarded_by_file(scene) if request.param == "cold_49" else _guarded_by_users(scene):
        wait_for(lambda: not unsigned(scene), "a broker that refuses", 30)
        yield scene
    wait_for(lambda: unsigned(scene), "a broker that refuses nobody", 30)


@contextmanager
def _guarded_by_file(scene: ColdScene) -> Iterator[None]:
    directory = scene.broker.directory
    acl.open_to_all(directory, ACCOUNTS)
    restarted(scene, aclEnable="true")
    acl.closed(directory, ACCOUNTS)
    yield
    acl.open_to_all(directory, ACCOUNTS)
    wait_for(lambda: unsigned(scene), "a broker that refuses nobody", 30)
    restarted(scene, aclEnable="false")


@contextmanager
def _guarded_by_users(scene: ColdScene) -> Iterator[None]:
    scene.broker.signer = acl.ADMINISTRATOR
    restarted(scene, **acl.ASKING)
    acl.grant(scene.broker.address, ACCOUNTS)
    yield
    restarted(scene, authenticationEnabled="false", authorizationEnabled="false")
    scene.broker.signer = None


def restarted(scene: ColdScene, **conf: str) -> None:
    scene.broker.kill()
    scene.broker.configure(**conf)
    scene.broker.start()


def unsigned(scene: ColdScene) -> bool:
    """Whether the broker answers who does not sign."""
    return remoting.request(scene.broker.address, remoting.RUNTIME_INFO).code == 0


def refuses(scene: ColdScene, answer: remoting.Answer) -> bool:
    """Whether an answer says what the broker says to those without a right, and gives nothing away."""
    code, words = REFUSALS[scene.broker.version]
    return answer.code == code and re.search(words, answer.remark) is not None and not answer.body


@pytest.fixture(scope="module")
def gateway(guarded: ColdScene) -> Iterator[Gateway]:
    keys = {"gateway.access_key": GATEKEEPER.key, "gateway.secret_key": GATEKEEPER.secret}
    with guarded.gateway("posix", **keys).running() as gateway:
        yield gateway


@pytest.mark.parametrize("version", [cache.ROCKETMQ_4, cache.ROCKETMQ_5])
def test_who_may_read_the_topic_reads_all_of_it(guarded: ColdScene, gateway: Gateway, version: str) -> None:
    client = guarded.client(version, name_server=gateway.address)
    group = guarded.group("acl-reader")
    outcome = client.run("push", topic=TOPIC, group=group, **ending(len(guarded.sent)), **READER.options)
    found = compare(guarded.sent, outcome.lines())
    assert found.exact, str(found)


@pytest.mark.parametrize("account", [STRANGER, PRETENDER, None], ids=["no right", "wrong secret", "no key"])
def test_who_may_not_gets_nothing_and_hears_the_broker(
    guarded: ColdScene, gateway: Gateway, account: Account | None
) -> None:
    options = account.options if account is not None else {}
    said = []
    for name_server in (None, gateway.address):
        client = guarded.client(name_server=name_server)
        group = guarded.group("acl-stranger")
        outcome = client.run("pull", topic=TOPIC, group=group, start="0", failures=8, **options)
        assert outcome.lines() == []
        assert outcome.summary["statuses"].keys() == {"FAILED"}, outcome.summary
        said.append(outcome.summary["why"])
    direct, through = said
    code, words = REFUSALS[guarded.broker.version]
    assert f"CODE: {code} " in direct
    assert re.search(words, direct)
    assert through.replace(gateway.broker(TOPIC), guarded.broker.address) == direct


def questions(scene: ColdScene) -> dict[str, tuple[int, dict[str, str]]]:
    """Every question whose answer the gateway may take from the archive, about old messages."""
    sent = next(line for line in scene.sent if (line["queue_id"], line["queue_offset"]) == (0, OLD))
    queue = {"topic": TOPIC, "queueId": "0"}
    pull = {
        **queue,
        "consumerGroup": "g_acl",
        "queueOffset": str(OLD),
        "maxMsgNums": "32",
        "sysFlag": "4",  # with its own subscription
        "commitOffset": "0",
        "suspendTimeoutMillis": "1000",
        "subscription": "*",
        "subVersion": "0",
        "expressionType": "TAG",
    }
    key = {"topic": TOPIC, "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}
    place = str(int(sent["offset_msg_id"][-16:], 16))
    times = {"topic": TOPIC, "group": "g_acl", "timestamp": "1000", "isForce": "true"}
    return {
        "pull": (RequestCode.PULL_MESSAGE, pull),
        "lite pull": (RequestCode.LITE_PULL_MESSAGE, pull),
        "view": (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place}),
        "view, with a topic": (RequestCode.VIEW_MESSAGE_BY_ID, {"offset": place, "topic": TOPIC}),
        "key": (RequestCode.QUERY_MESSAGE, {**key, "key": sent["keys"].split()[0]}),
        "unique key": (
            RequestCode.QUERY_MESSAGE,
            {**key, "key": sent["unique_key"], "_UNIQUE_KEY_QUERY": "true"},
        ),
        "first offset": (RequestCode.GET_MIN_OFFSET, queue),
        "offset at a time": (RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, {**queue, "timestamp": "1000"}),
        "earliest time": (RequestCode.GET_EARLIEST_MSG_STORETIME, queue),
        "topic's status": (RequestCode.GET_TOPIC_STATS_INFO, {"topic": TOPIC}),
        "group's progress": (RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g_acl", "topic": TOPIC}),
        "times of a group": (RequestCode.QUERY_CONSUME_TIME_SPAN, {"topic": TOPIC, "group": "g_acl"}),
        "reset": (RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, times),
    }


MESSAGES = ("pull", "lite pull", "view", "view, with a topic", "key", "unique key")
"""Whose answers hold messages."""
UNCHECKED = ("lite pull", "view", "view, with a topic")
"""Of these, those that brokers do not judge by topic; the first one is unknown to 4.9."""
QUESTIONS = (
    *MESSAGES,
    "first offset",
    "offset at a time",
    "earliest time",
    "topic's status",
    "group's progress",
    "times of a group",
    "reset",
)


def asked(address: str, code: int, fields: Mapping[str, str]) -> remoting.Answer:
    return remoting.request(address, code, dict(fields))


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("account", [PRETENDER, None], ids=["wrong secret", "no key"])
def test_no_question_of_a_nobody_is_answered_from_the_archive(
    guarded: ColdScene, gateway: Gateway, name: str, account: Account | None
) -> None:
    code, fields = questions(guarded)[name]
    if account is not None:
        fields = account.signed(fields)
    direct = asked(guarded.broker.address, code, fields)
    through = asked(gateway.broker(TOPIC), code, fields)
    assert refuses(guarded, direct), (direct, "the broker must refuse it, or the test shows nothing")
    assert refuses(guarded, through), through


def is_unknown(scene: ColdScene, name: str) -> bool:
    """Whether the broker does not know the request at all."""
    return name == "lite pull" and scene.broker.version == cache.ROCKETMQ_4


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_message_goes_to_who_has_no_right_to_the_topic(
    guarded: ColdScene, gateway: Gateway, name: str
) -> None:
    """Where the broker does not check it, the gateway wants evidence; of the rest, numbers, the broker is the judge."""
    question = _asked_as(guarded, STRANGER, name)
    direct, through = asked(guarded.broker.address, *question), asked(gateway.broker(TOPIC), *question)
    if name not in MESSAGES:
        assert refuses(guarded, through) == refuses(guarded, direct), (direct, through)
        return
    assert not through.body
    if is_unknown(guarded, name):
        assert (direct.code, through.code) == (3, 3)
    elif name in UNCHECKED and not refuses(guarded, direct):
        assert through.code == 16
        assert "gateway.unproven_reads" in through.remark
    else:
        assert refuses(guarded, direct), direct
        assert refuses(guarded, through), through


@pytest.mark.parametrize("name", MESSAGES)
def test_who_has_the_right_gets_them_all(guarded: ColdScene, gateway: Gateway, name: str) -> None:
    accepted = asked(gateway.broker(TOPIC), *_asked_as(guarded, READER, "pull"))
    assert accepted.code == 0, accepted.remark
    served = _told(gateway, _asked_as(guarded, READER, name))
    if is_unknown(guarded, name):
        assert served.code == 3
        return
    assert served.code == 0, served.remark
    assert len(served.body) > 0


def _told(gateway: Gateway, question: tuple[int, dict[str, str]]) -> remoting.Answer:
    """What the gateway says, asked again for as long as it says so: its tables may be to be read yet."""
    said: list[remoting.Answer] = []

    def is_told() -> bool:
        said.append(asked(gateway.broker(TOPIC), *question))
        return said[-1].code != ResponseCode.SYSTEM_BUSY

    wait_for(is_told, "an answer", 30)
    return said[-1]


def _asked_as(scene: ColdScene, account: Account, name: str) -> tuple[int, dict[str, str]]:
    """A signed question. 4.9 leaves one field out of what is signed, for clients as old as the kit."""
    code, fields = questions(scene)[name]
    unsigned = ("_UNIQUE_KEY_QUERY",) if scene.broker.version == cache.ROCKETMQ_4 else ()
    signed = account.signed({key: value for key, value in fields.items() if key not in unsigned})
    return code, {**fields, **signed}


def test_a_heartbeat_that_the_broker_takes_is_evidence_and_one_that_it_refuses_is_not(
    guarded: ColdScene, gateway: Gateway
) -> None:
    name = "view" if guarded.broker.version == cache.ROCKETMQ_4 else "lite pull"
    front = gateway.broker(TOPIC)
    body = subscribing(guarded.group("acl-quiet"), "*")
    for account, taken in ((STRANGER, False), (QUIET, True)):
        refused = asked(front, *_asked_as(guarded, account, name))
        assert refused.code == 16
        assert "gateway.unproven_reads" in refused.remark
        told = remoting.request(front, RequestCode.HEART_BEAT, account.signed({}, body), body)
        assert (told.code == 0) is taken, told
        after = asked(front, *_asked_as(guarded, account, name))
        assert (after.code, bool(after.body)) == ((0, True) if taken else (16, False)), after.remark


def subscribing(group: str, tag: str) -> bytes:
    """A heartbeat that subscribes to the topic."""
    data: dict[str, Any] = {
        "topic": TOPIC,
        "subString": tag,
        "tagsSet": [] if tag == "*" else [tag],
        "codeSet": [] if tag == "*" else [1],
        "expressionType": "TAG",
        "subVersion": 1 << 61,
    }
    consumer = {
        "groupName": group,
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
        "subscriptionDataSet": [data],
    }
    return json.dumps({"clientID": group, "consumerDataSet": [consumer], "producerDataSet": []}).encode()


def test_a_subscription_told_by_a_nobody_changes_nothing_for_the_group(
    guarded: ColdScene, gateway: Gateway
) -> None:
    """A heartbeat that the broker refuses must not choose what a group of others is given."""
    group = guarded.group("acl-victim")
    body = subscribing(group, "nobody-has-this-tag")
    front = gateway.broker(TOPIC)
    refused = remoting.request(front, RequestCode.HEART_BEAT, PRETENDER.signed({}, body), body)
    assert refuses(guarded, refused), refused
    client = guarded.client(name_server=gateway.address)
    outcome = client.run("push", topic=TOPIC, group=group, **ending(len(guarded.sent)), **READER.options)
    found = compare(guarded.sent, outcome.lines())
    assert found.exact, str(found)


def take_away(scene: ColdScene) -> None:
    """``LEAVER`` may not read the topic any more."""
    if scene.broker.version == cache.ROCKETMQ_4:
        left = Account(LEAVER.key, LEAVER.secret)
        acl.closed(scene.broker.directory, [left if account is LEAVER else account for account in ACCOUNTS])
    else:
        acl.revoke(scene.broker.address, LEAVER)


def test_a_right_that_is_taken_away_ends_a_running_reader(guarded: ColdScene, gateway: Gateway) -> None:
    """Also deep below the broker's begin, where it is not asked about each pull: within that second all the same."""
    question = _asked_as(guarded, LEAVER, "pull")
    with (
        remoting.Connection(gateway.broker(TOPIC)) as reader,
        remoting.Connection(guarded.broker.address) as probe,
    ):

        def refused(connection: remoting.Connection) -> bool:
            connection.send(*question)
            answer = connection.receive()[1]
            assert answer.code == 0 or not answer.body, answer
            return refuses(guarded, answer)

        unasked = gateway.metric("tiered_cold_unasked_total") or 0
        for _ in range(20):
            assert not refused(reader)
        assert ((gateway.metric("tiered_cold_unasked_total") or 0) > unasked) is gateway.short_cut
        take_away(guarded)
        wait_for(lambda: refused(probe), "a broker that refuses", 30)
        began = time.monotonic()
        while not refused(reader):
            assert time.monotonic() - began < 3, (
                "it is read for longer than a second (and what this test itself takes)"
            )
            time.sleep(0.02)
