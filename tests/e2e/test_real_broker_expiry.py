"""A real broker deletes its oldest files: under a daemon that cannot write just now, under one that is dead, unseen by one.

One run of one broker serves three daemons, each with an archive, a state and a hold of its own:

* ``present`` runs, but its S3 server does not answer: what it has not archived must live on in its hold. Later it is killed,
  and the links must outlive it;
* ``late`` was stopped long ago and linked nothing of what goes: that is a gap, and shown;
* ``newcomer`` starts after all is over: it begins where the broker begins.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.broker import Broker
from tests.kit.daemonproc import Daemon, wait_for
from tests.kit.faultproxy import FaultProxy
from tests.kit.realdaemon import Truth, expire, log_end, tiered
from tests.kit.s3server import S3Server

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

TOPIC = "Expiry"
QUEUES = 4
FILE_BYTES = 1 << 20


@dataclass
class World:
    """Everything. ``gone``: where the broker's log begins now; ``late_end``: where ``late`` was stopped."""

    broker: Broker
    proxy: FaultProxy
    daemons: dict[str, Daemon]
    truths: dict[str, Truth]
    environment: dict[str, str]
    late_end: int
    gone: int = 0

    def tiered(self, name: str, *arguments: object) -> Any:
        answer = tiered(
            *arguments, "--archive", self.truths[name].url, "--json", environment=self.environment
        )
        assert answer.code == 0, answer.err
        return answer.rows()

    def send(self, count: int) -> int:
        """Messages of about 1 KiB; the log's end."""
        first = len(self.truths["present"].acknowledged)
        done = self.broker.client().run(
            "produce", topic=TOPIC, n=count, first=first, min=900, max=1100, tags="A,B", unicode=1
        )
        for truth in self.truths.values():
            truth.sent(done)
            truth.look()
        return log_end(self.broker)

    def expire(self) -> list[str]:
        """Names of the files that the broker deleted: all but its newest one or two."""
        files = self.broker.commitlog_files()
        expired = expire(self.broker)
        assert expired == files[: len(expired)] != []
        self.gone = int(expired[-1]) + FILE_BYTES
        return expired


def held(daemon: Daemon) -> dict[str, os.stat_result]:
    """Links in a daemon's hold, by name of the file."""
    links = Path(str(daemon.settings["hold.directory"])).glob("[0-9]*")
    return {link.name[:20]: link.stat() for link in links}


@pytest.fixture(scope="module")
def world(broker: Broker, s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    work = tmp_path_factory.mktemp("expiry")
    broker.create_topic(TOPIC, queues=QUEUES)
    with FaultProxy(f"127.0.0.1:{s3_server.port}") as proxy:
        urls = {name: f"file://{work / name}" for name in ("late", "newcomer")}
        urls["present"] = f"s3://{s3_server.bucket()}/a?endpoint={proxy.url}&region=us-east-1"
        truths = {name: Truth(broker, url) for name, url in urls.items()}
        truths["present"].store = s3_server.store(endpoint=proxy.url)
        environment = s3_server.environment()
        daemons = {
            name: Daemon(
                work, broker.store_dir, url, name=name, environment=environment, **{"store.retry_max_ms": 500}
            )
            for name, url in urls.items()
        }
        world = World(broker, proxy, daemons, truths, environment, 0)
        world.late_end = world.send(500)
        assert daemons["late"].once() == 0, daemons["late"].output()
        shutil.rmtree(str(daemons["late"].settings["hold.directory"]))  # links only to what it has archived
        daemons["present"].start()
        daemons["present"].wait_archived(world.late_end)
        yield world
        for daemon in daemons.values():
            daemon.kill()


def test_the_hold_keeps_what_the_broker_deletes_until_it_is_archived(world: World) -> None:
    present, truth = world.daemons["present"], world.truths["present"]
    world.proxy.down()
    end = world.send(3500)
    expired = world.expire()
    assert len(expired) >= 3
    links = held(present)
    kept = [name for name in expired if int(name) + FILE_BYTES > world.late_end]
    assert {links[name].st_nlink for name in kept} == {1}
    assert present.status()["hold_bytes"] == len(kept) * FILE_BYTES
    assert world.late_end <= present.status()["proven_offset"] < world.gone
    world.proxy.up()
    present.wait_archived(end)
    assert present.metric("tiered_gap_bytes_total") == 0
    truth.prove()
    # a daemon lets go within a minute, once it has seen the commits in the bucket; one that stops looks at once
    assert present.stop() == 0, present.output()
    assert not held(present).keys() & set(expired)
    present.start()
    assert present.status()["hold_bytes"] == 0


def test_links_outlive_a_killed_daemon(world: World) -> None:
    present, truth = world.daemons["present"], world.truths["present"]
    world.proxy.down()
    end = world.send(2500)
    newest = world.broker.commitlog_files()[-1]
    present.wait_until(lambda: newest in held(present), "the newest file held")
    present.kill()
    expired = world.expire()
    links = held(present)
    assert {links[name].st_nlink for name in expired} == {1}
    world.proxy.up()
    with present.running():
        present.wait_archived(end)
        assert present.metric("tiered_gap_bytes_total") == 0
        assert present.stop() == 0, present.output()
        assert not held(present).keys() & set(expired)
    truth.prove()
    low = {queue.queue.queue_id: queue.min_offset for queue in truth.archive().state.queues(TOPIC)}
    assert low == dict.fromkeys(range(QUEUES), 0)


def test_what_no_daemon_ever_held_is_a_gap_and_is_shown(world: World) -> None:
    late, truth = world.daemons["late"], world.truths["late"]
    with late.running():
        late.wait_archived(truth.look())
        assert late.metric("tiered_gap_bytes_total") == world.gone - world.late_end
        assert late.stop() == 0, late.output()
    lost = [r for _, r in truth.oracle.records.values() if world.late_end <= r.physical_offset < world.gone]
    assert len(lost) > 3000
    truth.prove(in_gaps=len(lost))
    status = world.tiered("late", "status")
    assert [(gap["start"], gap["end"]) for gap in status["physical_gaps"]] == [(world.late_end, world.gone)]
    rows = {row["queue_id"]: row for row in world.tiered("late", "queues", "--topic", TOPIC)}
    assert len(rows) == QUEUES
    queues = truth.oracle.queues()
    for queue, row in rows.items():
        missing = [r.queue_offset for r in queues[TOPIC, queue] if r in lost]
        ((start, end, reason),) = row["gaps"]
        assert (start, end) == (min(missing), max(missing) + 1)
        assert reason
        assert (row["min_offset"], row["max_offset"]) == (0, world.broker.offsets(TOPIC, queue).stop)


def test_a_new_archive_begins_where_the_broker_begins(world: World) -> None:
    newcomer, truth = world.daemons["newcomer"], world.truths["newcomer"]
    assert newcomer.once() == 0, newcomer.output()
    truth.oracle.records = {at: item for at, item in truth.oracle.records.items() if at >= world.gone}
    truth.acknowledged = []
    truth.prove()
    state = truth.archive().state
    assert (list(state.gaps()), list(state.phys_gaps())) == ([], [])
    ours = {q.queue.queue_id: range(q.min_offset, q.max_offset) for q in state.queues(TOPIC)}
    wait_for(
        lambda: ours == {queue: world.broker.offsets(TOPIC, queue) for queue in range(QUEUES)},
        "the same offsets in archive and broker, which moves its minimum only now and then",
        30,
    )
    assert all(offsets.start > 0 for offsets in ours.values())
