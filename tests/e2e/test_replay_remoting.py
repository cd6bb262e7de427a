"""POP groups far behind, with a real broker and the unmodified Java client: what is skipped without replay arrives with it.

One broker, one deletion of nearly everything; the groups differ in what the daemon is told about them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import CALM, CRASHED, Daemon, wait_for
from tests.kit.pop import Deliveries, PopClient, body_of, make_ordered, pop_in_order, produce
from tests.kit.realdaemon import expire, log_end, settled_minimums, tiered
from tiered.broker.client import Dial, RemotingClient
from tiered.broker.questions import Broker as Asking
from tiered.clock import SystemClock
from tiered.crashpoint import ReplayPoint
from tiered.errors import Refused
from tiered.replay.base import GroupQueue, retry_topic
from tiered.replay.broker import check_suitable
from tiered.replay.drain import BATCH

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

ALL = range(8000)
FIRST = range(1000)
GROUPS = ("Lost", "Gpop", "Gfifo")
BODY = 500
IDLE = 600
"""Seconds without a message after which a consumer ends: longer than the test waits, which says what it misses."""


@dataclass
class Scene:
    """The broker after the deletion, the daemon that archived all of it, and what each group had consumed before."""

    broker: Broker
    daemon: Daemon
    clients: PopClient
    before: dict[str, Deliveries]
    times: dict[str, int]
    positions: dict[str, dict[int, int]]
    minimums: dict[int, int]

    def status(self) -> dict[str, Any]:
        """What ``tiered replay status`` says."""
        answer = tiered("replay", "status", "--state", self.daemon.state, "--json")
        assert answer.code == 0, answer.err
        return dict(answer.rows())

    def told(self) -> dict[str, Any]:
        """What ``/status`` says of replay."""
        return dict(self.daemon.status().get("replay") or {})


@pytest.fixture(scope="module", params=["file", "kv"])
def scene(
    request: pytest.FixtureRequest, rocketmq: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Scene]:
    """8,000 messages; each group has some of the first thousand; then the broker deletes all full files."""
    path: Path = tmp_path_factory.mktemp(f"replay-{request.param}")
    kv = (
        {"popConsumerKVServiceInit": "true", "popConsumerKVServiceEnable": "true"}
        if request.param == "kv"
        else {}
    )
    with NameServer(rocketmq, path / "ns") as ns, Broker(rocketmq, path / "broker", ns, **kv) as broker:
        broker.create_topic("T", 4)
        clients = PopClient(broker, path / "clients")
        for group in GROUPS[:2]:
            clients.mode("T", group)
        make_ordered(broker.address, "Gfifo")
        started = int(time.time() * 1000)
        produce(broker.address, "T", FIRST, body_bytes=BODY)
        before = {}
        for group in GROUPS[:2]:
            before[group] = Deliveries(clients.push("T", group, n=200))
        pop_in_order(broker.address, "T", "Gfifo", 200)
        daemon = Daemon(
            path, broker.store_dir, f"file://{path / 'archive'}",
            **{
                **CALM, "replay.enabled": True, "replay.broker_address": broker.address, "replay.groups": "G*",
                "replay.poll_ms": 1000, "replay.window_messages": 200,
            },
        )  # fmt: skip
        try:
            daemon.start()
            half = int(time.time() * 1000)
            produce(broker.address, "T", range(FIRST.stop, ALL.stop), body_bytes=BODY)
            daemon.wait_archived(log_end(broker))
            wait_for(lambda: daemon.status()["replay"].get("watched_groups") == 2, "both groups watched")
            positions = {group: _positions(broker, group) for group in GROUPS}
            for group in GROUPS[
                :2
            ]:  # else the deletion takes what the ended clients were handed and did not acknowledge
                handed, taken = sum(positions[group].values()), len(before[group].numbers)
                given_back = partial(_given_back, broker, group, handed - taken)
                wait_for(given_back, "messages to be popped again", 60)
            expire(broker)
            minimums = settled_minimums(broker, "T")
            yield Scene(
                broker, daemon, clients, before, {"start": started, "half": half}, positions, minimums
            )
        finally:
            daemon.kill()


def test_an_old_broker_is_refused_politely(tmp_path: Path) -> None:
    with (
        NameServer(cache.ROCKETMQ_4, tmp_path / "ns") as ns,
        Broker(cache.ROCKETMQ_4, tmp_path / "b", ns) as broker,
    ):
        client = RemotingClient(broker.address, SystemClock(), Dial())
        with pytest.raises(Refused, match="older than 5"):
            check_suitable(Asking(client).facts(), "DefaultCluster", "broker-a")
        client.close()


def _positions(broker: Broker, group: str) -> dict[int, int]:
    """Where a group stands, by the broker's word."""
    client = RemotingClient(broker.address, SystemClock(), Dial())
    try:
        offsets, facts = Asking(client).offsets(), Asking(client).facts()
    finally:
        client.close()
    table = offsets.pulled if facts.kv and group != "Gfifo" else offsets.committed
    return table[group, "T"]


def _open(scene: Scene, group: str) -> list[dict[str, Any]]:
    """What is owed to the group and not sent."""
    return [debt for debt in scene.status()["debts"] if (debt["group"], debt["state"]) == (group, "open")]


def _given_back(broker: Broker, group: str, messages: int) -> bool:
    """Whether the broker has put down so many messages for the group to pop again."""
    return broker.offsets(retry_topic(GroupQueue(group, "T", 0)), 0).stop >= messages


def test_without_replay_the_history_is_skipped_silently(scene: Scene) -> None:
    cold = sum(max(0, scene.minimums[q] - scene.positions["Lost"][q]) for q in range(4))
    assert cold > 3000
    got = scene.before["Lost"]
    got.add(scene.clients.push("T", "Lost", n=ALL.stop - len(got.lines) - cold, idle=40))
    missing = got.missing(ALL)
    assert len(missing) == cold, "all that lay below the minimum, and nothing said so"


def test_with_replay_every_message_arrives_though_the_daemon_is_killed(scene: Scene) -> None:
    got = scene.before["Gpop"]
    assert scene.daemon.stop() == 0
    # Nobody has consumed yet: of what is owed a window is sent at most, and the crash lies far behind it.
    scene.daemon.start(crash=ReplayPoint.AFTER_SEND, times=20)  # type: ignore[arg-type]
    consumer = scene.clients.start("push", topic="T", group="Gpop", idle=IDLE, n=10**9)
    try:
        assert scene.daemon.wait(90) == CRASHED
        scene.daemon.start()
        before = {line["seq"] for line in got.lines}
        consumer.child.wait_until(
            lambda: before | {line["seq"] for line in consumer.taken()} >= set(ALL), 150, "every message"
        )
        time.sleep(3)
    finally:
        consumer.kill()
    again = Deliveries(consumer.taken())
    assert again.repeats <= BATCH, Counter(again.numbers.values())
    got.add(again.lines)
    assert got.missing(ALL) == []
    # The first client was ended in the middle: what it had and had not acknowledged comes again, whoever replays.
    assert got.repeats <= again.repeats + BATCH, Counter(got.numbers.values())
    # The broker hands out again what a client had and did not acknowledge, be it ended or slow.
    assert sum(line["attempt"] > 1 for line in got.lines) <= BATCH
    for line in got.lines:
        number = line["seq"]
        assert line["body"] == body_of(number, BODY)
        assert (line["keys"], line["tags"]) == (f"k{number}", "ABC"[number % 3])
        assert (line["topic"], line["unique_key"]) == ("T", f"T{number:08d}")
    wait_for(lambda: scene.told().get("owed_messages") == 0, "nothing owed any more")
    said = scene.status()
    debts = [d for d in said["debts"] if d["group"] == "Gpop"]
    assert {d["state"] for d in debts} == {"done"}
    assert (said["holes"], said["refused"]) == (0, 0)


def test_a_group_that_wants_order_is_alerted_with_the_exact_range(scene: Scene) -> None:
    alerts = {(a["queue_id"], a["start"], a["end"]) for a in scene.status()["fifo_skipped"]}
    assert alerts == {(q, scene.positions["Gfifo"][q], scene.minimums[q]) for q in range(4)}
    assert not [d for d in scene.status()["debts"] if d["group"] == "Gfifo" and d["state"] != "told"]
    assert (scene.daemon.metric("tiered_replay_problem", part="replay-watch") or 0) == 0


def test_an_operator_gives_a_new_group_its_history(scene: Scene) -> None:
    scene.clients.mode("T", "Gnew")
    place = (
        "--store",
        scene.broker.store_dir,
        "--archive",
        scene.daemon.archive,
        "--state",
        scene.daemon.state,
    )
    sets = ("--set", f"replay.broker_address={scene.broker.address}", "--json")
    times = ("--from", scene.times["start"], "--to", scene.times["half"])
    answer = tiered("replay", "--group", "Gnew", "--topic", "T", *times, *place, *sets)
    assert answer.code == 0, answer.err
    assert answer.rows()["messages"] == len(FIRST)
    consumer = scene.clients.start("push", topic="T", group="Gnew", idle=IDLE, n=10**9)
    try:
        scene.daemon.wait_until(lambda: not _open(scene, "Gnew"), "sent")
        consumer.child.wait_until(
            lambda: not Deliveries(consumer.taken()).missing(FIRST), 60, "every message of that time"
        )
    finally:
        consumer.kill()
    told = []

    def answered() -> bool:
        """By the broker, too, which may be busy."""
        told.append(tiered("replay", "--group", "Gfifo", "--topic", "T", *times, *place, *sets))
        return told[-1].code != 0 or told[-1].rows()["broker_answered"]

    wait_for(answered, "an answer of the broker")
    refused = told[-1]
    unknown = tiered("replay", "--group", "Gnew", "--topic", "Nope", *times, *place, *sets)
    assert unknown.code == 5
    assert "Nope" in unknown.err
    assert refused.code == 3
    assert "in order" in refused.err
