"""Whose messages: a view by id is of the topic asked for; a key gets what the broker is seen to grant it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kit.fakearchive import RECORD_ROOM, record
from tests.kit.gatewaydesk import (
    Desk,
    answered,
    asking,
    found,
    heartbeat,
    offsets_of,
    pull,
    simple,
    too_small,
)
from tiered.codec.remoting.frame import Command
from tiered.filter.storagelevels import StorageLevel
from tiered.gateway.knowledge.rights import GRANT_SECONDS

PLACE = str(40 * RECORD_ROOM)
NOT_FOUND = f"can not find message by the offset, {PLACE}"
HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
KEY = {"AccessKey": "reader-01", "Signature": "c2lnbmVk"}
OTHER = {"AccessKey": "reader-02", "Signature": "c2lnbmVk"}


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 10, 150)
    yield made
    made.close()


def view(desk: Desk, **ext: str) -> Command | str:
    return desk.ask(asking(33, offset=PLACE, **ext), simple(1, NOT_FOUND))


def code(answer: Command | str) -> int:
    assert isinstance(answer, Command), answer
    return answer.code


class TestWhatAViewMayShow:
    def test_the_topic_asked_for_or_none(self, desk: Desk) -> None:
        for ext in ({"topic": "T"}, {"topic": ""}, {}):
            made = view(desk, **ext)
            assert isinstance(made, Command)
            assert (made.code, bytes(made.body)) == (0, record("T", 0, 40))

    def test_not_another_topic_s_record(self, desk: Desk) -> None:
        made = view(desk, topic="U")
        assert isinstance(made, Command)
        assert (made.code, made.remark, bytes(made.body)) == (1, NOT_FOUND, b"")
        garbage = desk.ask(asking(33, offset=PLACE, topic="U"), simple(0, None, b"\0" * 500))
        assert isinstance(garbage, Command)
        assert (garbage.code, bytes(garbage.body)) == (1, b"")

    @pytest.mark.parametrize("topic", [HALF, "TRANS_CHECK_MAX_TIME_TOPIC", "%LMQ%device-1"])
    def test_none_of_rocketmq_s_own(self, desk: Desk, topic: str) -> None:
        desk.archive.queues.clear()
        desk.archive.fill(topic, 0, 10, 150)
        assert code(view(desk)) == 1

    def test_none_of_a_level_that_switches_the_archive_off(self, desk: Desk) -> None:
        desk.archive.levels["T"] = StorageLevel.DISABLE
        assert code(view(desk)) == 1
        desk.archive.levels["T"] = StorageLevel.NOT_IN_DISK
        assert code(view(desk)) == 0


def lite(desk: Desk, offset: int = 40, **ext: str) -> Command | str:
    return desk.ask(pull(offset=offset, count=2, code=361, **ext), too_small(100, 200))


class TestEvidence:
    """Brokers judge neither lite pulls (361) nor views by id (33) by their topic."""

    def test_without_a_key_there_is_nothing_to_prove(self, desk: Desk) -> None:
        assert offsets_of(lite(desk)) == [40, 41]
        assert code(view(desk)) == 0

    def test_without_evidence_nothing_is_served(self, desk: Desk) -> None:
        for made in (lite(desk, **KEY), view(desk, **KEY)):
            assert isinstance(made, Command)
            assert (made.code, bytes(made.body)) == (16, b"")
            assert "gateway.unproven_reads" in (made.remark or "")
        assert desk.count("pull", "refused") == desk.count("view", "refused") == 1
        assert offsets_of(desk.ask(pull(offset=40, count=2, **KEY), too_small(100, 200))) == [40, 41]

    @pytest.mark.parametrize(
        "accepted",
        [
            (pull(offset=150, **KEY), found("T", 0, range(150, 151), 100, 200)),
            (pull(offset=200, **KEY), answered(19, "OFFSET_OVERFLOW_ONE", 200, 100, 200)),
            (
                asking(12, topic="T", key="k", maxNum="0", beginTimestamp="0", endTimestamp="1", **KEY),
                simple(22),
            ),
        ],
        ids=["pull", "pull at the end", "query"],
    )
    def test_what_the_broker_accepts_is_evidence(self, desk: Desk, accepted: tuple[Command, Command]) -> None:
        desk.ask(*accepted)
        assert offsets_of(lite(desk, **KEY)) == [40, 41]
        assert code(view(desk, **KEY)) == 0
        assert code(lite(desk, **OTHER)) == 16, "of that key alone"
        desk.archive.fill("U", 0, 10, 150)
        assert code(lite(desk, topic="U", **KEY)) == 16, "for that topic alone"
        desk.clock.advance(GRANT_SECONDS)
        assert code(lite(desk, **KEY)) == 16, "and for a while"

    def test_so_is_a_heartbeat_that_subscribes(self, desk: Desk) -> None:
        said = heartbeat("G", "T")
        said.ext.update(KEY)
        desk.ask(said, simple(1, "AclException: No default permission for T"))
        assert code(lite(desk, **KEY)) == 16
        desk.ask(said, simple(0))
        assert offsets_of(lite(desk, **KEY)) == [40, 41]

    def test_what_it_refuses_is_not(self, desk: Desk) -> None:
        for refusal in (simple(16, "No permission"), simple(1, "AclException"), simple(2, "busy")):
            desk.ask(pull(offset=150, **KEY), refusal)
            assert code(lite(desk, **KEY)) == 16

    @pytest.mark.parametrize("name", ["broker-b", None])
    def test_what_another_broker_accepts_is_not(self, desk: Desk, name: str | None) -> None:
        """It has accounts of its own; and where a connection leads is not for its client to say."""
        ours = desk.connection
        desk.connection = replace(ours, broker_name=name)
        desk.ask(pull(offset=150, **KEY), found("T", 0, range(150, 151), 100, 200))
        desk.connection = ours
        assert code(lite(desk, **KEY)) == 16

    def test_a_topic_of_a_group_proves_nothing(self, desk: Desk) -> None:
        """Brokers judge it by the group that is named beside it."""
        desk.archive.fill("%RETRY%victim", 0, 10, 150)
        desk.ask(
            pull("%RETRY%victim", offset=150, **KEY), found("%RETRY%victim", 0, range(150, 151), 100, 200)
        )
        assert code(lite(desk, topic="%RETRY%victim", **KEY)) == 16

    def test_names_too_long_to_be_kept_prove_nothing(self, desk: Desk) -> None:
        """A broker that checks nothing accepts any key; what is kept of them stays small."""
        long = {**KEY, "AccessKey": "x" * 256}
        desk.ask(pull(offset=150, **long), found("T", 0, range(150, 151), 100, 200))
        assert code(lite(desk, **long)) == 16
        desk.archive.fill("U" * 256, 0, 10, 150)
        desk.ask(pull("U" * 256, offset=150, **KEY), found("T", 0, range(150, 151), 100, 200))
        assert code(lite(desk, topic="U" * 256, **KEY)) == 16

    def test_what_the_broker_answers_itself_passes(self, desk: Desk) -> None:
        hot = found("T", 0, range(150, 151), 100, 200)
        assert desk.ask(pull(offset=150, code=361, **KEY), hot) is hot

    def test_a_setting_does_without(self) -> None:
        desk = Desk(unproven_reads=True)
        desk.archive.fill("T", 0, 10, 150)
        assert offsets_of(lite(desk, **KEY)) == [40, 41]
        assert code(view(desk, **KEY)) == 0
        desk.close()
