"""POP groups that are not watched: each is named with the reason, and what it is skipped over is said."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.fakebroker import FakeBroker
from tests.kit.replaying import Bench, bench
from tiered.errors import Corrupt
from tiered.replay import roster
from tiered.replay.roster import Row

POPPING = {
    "connectionSet": [{"clientId": "c1", "version": 513}],
    "consumeType": "CONSUME_POP",
    "subscriptionTable": {"T": {"expressionType": "TAG", "subString": "*"}},
}
PULLING = {**POPPING, "consumeType": "CONSUME_PASSIVELY"}
PULLS = b'{"mqPopTable":{},"mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:{"droped":false}}}'


def stands(broker: FakeBroker, group: str, offset: int) -> None:
    broker.committed[f"T@{group}"] = {0: offset}


def look(b: Bench) -> None:
    """One look after what the groups' thread does."""
    b.clock.advance(3)
    for group in b.groups.due(b.watch.seen):
        b.groups.learn(b.asking, group)
    b.watch.look()


def skipped(b: Bench) -> float:
    return b.metrics.value("tiered_replay_unwatched_skipped_messages_total") or 0


def rows(b: Bench) -> dict[str, Row]:
    _, found = roster.read(b.directory)
    return {row.group: row for row in found}


def test_a_pattern_that_does_not_fit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The group pops, its clients say so, and settings name another one."""
    with bench(tmp_path, "[p]") as b:
        b.broker.fill("T", 0, 20_000)
        b.broker.consumers["pop"] = POPPING
        stands(b.broker, "pop", 64)
        for _ in range(3):
            look(b)
        assert skipped(b) == 0
        b.broker.delete("T", 0, 20_000)
        stands(b.broker, "pop", 20_000)
        look(b)
        assert skipped(b) == 20_000 - 64
        assert b.metrics.value("tiered_replay_unwatched_groups") == 1
        assert b.metrics.value("tiered_replay_watched_queues") == 0
        [line] = [r for r in caplog.records if r.levelno == logging.WARNING]
        assert (vars(line)["group"], vars(line)["messages"]) == ("pop", 20_000 - 64)
        assert "replay.groups" in vars(line)["why"]
        row = rows(b)["pop"]
        assert (row.watched, row.skipped) == (False, 20_000 - 64)
        assert row.why == "no pattern of replay.groups fits its name"
        assert b.ledger.debts() == []


@pytest.mark.parametrize("patterns", [(), ("other-*",)], ids=["no pattern", "another"])
def test_a_group_behind_a_proxy_whose_clients_the_broker_does_not_know(
    tmp_path: Path, patterns: tuple[str, ...]
) -> None:
    with bench(tmp_path, *patterns) as b:
        b.broker.fill("T", 0, 1000)
        stands(b.broker, "grpc", 10)
        for offset in (20, 30, 40):
            stands(b.broker, "grpc", offset)
            look(b)
        b.clock.advance(60)
        look(b)
        b.broker.delete("T", 0, 500)
        stands(b.broker, "grpc", 520)
        look(b)
        assert skipped(b) == 460


def test_who_rests_and_who_pulls_is_not_skipped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody reads for the one; the other, which once popped, gets from a gateway what the broker has deleted."""
    with bench(tmp_path) as b:
        b.broker.fill("T", 0, 1000)
        b.broker.committed["%RETRY%pulls_T@pulls"] = {0: 3}
        b.broker.consumers["pulls"], b.broker.running["pulls"] = PULLING, PULLS
        for offset in (20, 30, 40, 50):
            stands(b.broker, "rests", 20)
            stands(b.broker, "pulls", offset)
            look(b)
        b.broker.delete("T", 0, 500)
        for offset in (60, 70, 520):
            stands(b.broker, "pulls", offset)
            look(b)
        assert skipped(b) == 0
        assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
        assert rows(b)["pulls"].why == "its clients pull, they do not pop"
        assert "groups that pop through a Proxy must be named" in rows(b)["rests"].why


def test_who_goes_on_being_skipped_is_said_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with bench(tmp_path, "other") as b:
        b.broker.fill("T", 0, 10_000)
        b.broker.consumers["pop"] = POPPING
        stands(b.broker, "pop", 0)
        look(b)
        look(b)
        for minimum in range(100, 3100, 100):
            b.broker.delete("T", 0, minimum)
            stands(b.broker, "pop", minimum)
            look(b)
        said = [vars(r)["messages"] for r in caplog.records if r.levelno == logging.WARNING]
        assert len(said) == 2
        assert skipped(b) >= sum(said) >= 1000


def test_a_watched_group_and_one_that_wants_order(tmp_path: Path) -> None:
    with bench(tmp_path, "G*") as b:
        b.broker.fill("T", 0, 1000)
        for group in ("G", "Gordered", "TOOLS_CONSUMER"):
            stands(b.broker, group, 20)
        b.broker.ordered.add("Gordered")
        look(b)
        found = rows(b)
        assert found["G"] == Row("G", True, "", 1, 1, 0)
        assert found["Gordered"].watched
        assert "order" in found["Gordered"].why
        assert found["TOOLS_CONSUMER"] == Row("TOOLS_CONSUMER", False, "one of RocketMQ's own", 1, 0, 0)


def test_status_shows_every_group(tmp_path: Path) -> None:
    state = tmp_path / "state"
    directory = state / "replay"
    directory.mkdir(parents=True)
    options = ("--state", state, "--archive", f"file://{tmp_path}/archive")
    before = tiered("replay", "status", *options)
    assert "has not looked at any group yet" in before.err
    assert "replay.enabled is not set" in before.err
    listed = [
        Row("billing", True, "", 2, 1, 0),
        Row("pop", False, "no pattern of replay.groups fits its name", 1, 0, 19_936),
    ]
    roster.write(directory, 1_700_000_000_000, listed)
    text = tiered("replay", "status", *options, "--set", "replay.enabled=true")
    assert text.err == ""
    for word in ("billing", "pop", "no pattern of replay.groups", "19,936", "2023-11-14"):
        assert word in text.text, text.text
    told = tiered("replay", "status", "--json", *options).json
    assert told["looked_ms"] == 1_700_000_000_000
    assert [(row["group"], row["watched"]) for row in told["watched"]] == [("billing", True), ("pop", False)]
    (directory / roster.FILE).write_text("{")
    with pytest.raises(Corrupt, match="list of groups"):
        roster.read(directory)
