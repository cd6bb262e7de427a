"""A real broker that loses the end of its log, and one that loses all of it.

The broker is killed, the commitlog is cut in the middle of a record as a power cut would leave it, the broker recovers and goes
on with other messages at the same offsets. Tests share one broker and run in order; each daemon has an archive of its own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.daemonproc import Daemon
from tests.kit.oracle import Oracle, closed_records, compare, read_store
from tests.kit.realdaemon import Truth, log_end, lose_power, record_starts, tiered

pytestmark = pytest.mark.broker

TOPIC = "Tails"
BODY_BYTES = 700


class Tail:
    """The broker, and one truth for each daemon's archive."""

    def __init__(self, broker: Broker, work: Path, names: tuple[str, ...]) -> None:
        self.broker = broker
        self.sent = 0
        self.truths = {name: Truth(broker, f"file://{work / name}") for name in names}
        self.daemons = {
            name: Daemon(work, broker.store_dir, truth.url, name=name) for name, truth in self.truths.items()
        }
        self.closed = dict.fromkeys(names, 0)

    def send(self, count: int) -> int:
        """Messages of one size, so that new records lie exactly where lost ones lay; the log's end."""
        self.sent += 10_000
        done = self.broker.client().run(
            "produce",
            topic=TOPIC,
            n=count,
            first=self.sent,
            min=BODY_BYTES,
            max=BODY_BYTES,
            seed=self.sent,
            keys=0,  # whose length would vary
            threads=1,
        )
        for truth in self.truths.values():
            truth.sent(done)
        return log_end(self.broker)

    def lose(self, records: int, *, leftovers: bool) -> int:
        """Kill the broker, cut its log, start it; where the log was cut, which is where the broker must go on."""
        end = log_end(self.broker)
        self.broker.kill()
        cut = lose_power(self.broker.store_dir, end, lost_records=records, leftovers=leftovers)
        self.broker.restart()
        assert log_end(self.broker) == cut
        for truth in self.truths.values():  # what a power cut takes was promised all the same
            lost = b"".join(record.data for at, (_, record) in truth.oracle.records.items() if at >= cut)
            truth.acknowledged = [
                line for line in truth.acknowledged if line["unique_key"].encode() not in lost
            ]
        return cut

    def wait_archived(self, name: str, end: int) -> None:
        """Until the archive ends exactly at ``end``: what the broker lost may have ended above it."""
        daemon = self.daemons[name]
        daemon.wait_until(
            lambda: daemon.status().get("proven_offset") == daemon.status().get("local_end") == end,
            f"archived up to {end} and not beyond",
        )

    def prove(self, name: str, *, newly_closed: int) -> None:
        """The archive is the broker's log; what the broker lost is closed, byte for byte, and nothing else is."""
        truth = self.truths[name]
        truth.prove()
        self.closed[name] += newly_closed
        closed = closed_records(truth.archive())
        assert sum(len(records) for records in closed.values()) == self.closed[name]
        state = truth.archive().state
        assert (list(state.gaps()), list(state.phys_gaps())) == ([], [])
        head = state.head()
        assert head is not None
        assert head.lineage == head.highest_lineage == 1


@pytest.fixture(scope="module")
def tail(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tail]:
    broker.create_topic(TOPIC, queues=4)
    tail = Tail(broker, tmp_path_factory.mktemp("tail"), ("running", "stopped"))
    yield tail
    for daemon in tail.daemons.values():
        daemon.kill()


def test_a_zeroed_tail(tail: Tail) -> None:
    """The newest file and the end of the one before it, from the middle of a record on, read as zeros."""
    running, stopped = tail.daemons["running"].start(), tail.daemons["stopped"].start()
    end = tail.send(1500)
    for name in tail.daemons:
        tail.wait_archived(name, end)
        tail.truths[name].look()
    assert stopped.stop() == 0, stopped.output()
    newest = int(tail.broker.commitlog_files()[-2])  # the last one is allocated ahead
    known = [record for _, record in tail.truths["running"].oracle.records.values()]
    lost = [record.data for record in known[-60 - sum(r.physical_offset >= newest for r in known) :]]
    cut = tail.lose(len(lost), leftovers=False)
    assert cut < newest < end
    end = tail.send(200)
    assert end > newest
    stopped.start()
    for name, daemon in tail.daemons.items():
        tail.wait_archived(name, end)
        assert tail.truths[name].look() == end
        tail.prove(name, newly_closed=len(lost))
        closed = closed_records(tail.truths[name].archive())
        assert sorted(data for records in closed.values() for data in records) == sorted(lost)
        assert daemon.said("the broker lost its tail: rewound")
        assert daemon.metric("tiered_rewinds_total") == 1
    assert running.metric("tiered_epoch") == 1


def test_old_records_left_behind_the_cut(tail: Tail) -> None:
    """One record is damaged, 80 whole ones lie behind it: the broker cuts there, writes over them, and leaves the rest."""
    running, stopped = tail.daemons["running"], tail.daemons["stopped"]
    for name in tail.daemons:
        tail.wait_archived(name, log_end(tail.broker))
        tail.truths[name].look()
    assert stopped.stop() == 0, stopped.output()
    old_end = log_end(tail.broker)
    cut = tail.lose(81, leftovers=True)
    behind = [at for at, _ in record_starts_behind(tail.broker.store_dir, cut)]
    assert behind, "recovery zeroed what lies behind its cut"
    end = tail.send(30)
    assert end in {at for at, _ in record_starts_behind(tail.broker.store_dir, cut)}, (
        "old records follow seamlessly"
    )
    assert end < old_end
    stopped.start()
    for name in tail.daemons:  # not fooled by what lies behind
        tail.wait_archived(name, end)
        assert tail.truths[name].look() == end
        tail.prove(name, newly_closed=81)
    end = tail.send(200)
    assert end > old_end
    for name in tail.daemons:
        tail.wait_archived(name, end)
        assert tail.truths[name].look() == end
        tail.prove(name, newly_closed=0)
    assert (running.metric("tiered_rewinds_total"), stopped.metric("tiered_rewinds_total")) == (2, 1)


def record_starts_behind(store: Path, cut: int) -> list[tuple[int, int]]:
    """Whole records behind the damaged one at ``cut``, which the walk of the oracle still hops over."""
    return [(at, size) for at, size in record_starts(store, 1 << 62) if at > cut]


def test_an_emptied_store_is_refused_until_a_new_lineage_is_accepted(tail: Tail) -> None:
    """Deleted and installed anew under the old archive, while one daemon runs and the other does not."""
    running, stopped = tail.daemons["running"], tail.daemons["stopped"]
    assert stopped.stop() == 0
    before = read_store(tail.broker.store_dir)
    truth = tail.truths["stopped"]
    truth.look()
    running.pause()  # a daemon that saw the directory vanish would end for that alone
    tail.broker.kill()
    shutil.rmtree(tail.broker.store_dir)
    tail.broker.start()
    tail.broker.create_topic(TOPIC, queues=4)
    tail.send(300)
    running.resume()
    assert running.wait() != 0
    assert stopped.once() != 0
    for daemon in (running, stopped):
        for words in (
            "shares nothing with the archive",
            "a reinstalled or different broker",
            "--new-lineage",
        ):
            assert daemon.said(words), daemon.output()
        assert not daemon.said("Traceback")
    reread = compare(truth.archive(), truth.oracle)
    assert reread.good, str(reread)  # a refusal touches nothing

    assert stopped.once("--new-lineage") == 0, stopped.output()
    anew = Oracle(tail.broker.store_dir, lineage=2).look(log_end(tail.broker))
    verdict = compare(truth.archive(), truth.oracle, anew)
    assert verdict.good, str(verdict)
    assert verdict.readable == sum(map(len, before.values())) + len(anew.records)
    stopped.start()  # and from then on without the flag
    end = tail.send(50)
    stopped.wait_archived(end)
    assert stopped.stop() == 0, stopped.output()
    assert compare(truth.archive(), truth.oracle, anew.look(end)).good
    answer = tiered(
        "read", "--topic", TOPIC, "--queue", 0, "--count", 0, "--format", "raw", "--archive", truth.url
    )
    assert answer.out == b"".join(read_store(tail.broker.store_dir)[TOPIC, 0])


def test_a_cut_4_9_broker_leaves_old_records_behind(tmp_path: Path) -> None:
    """4.9 leaves ``abort`` of the life before as it is: only ``lock`` says which records are of this life."""
    version = cache.ROCKETMQ_4
    with (
        NameServer(version, tmp_path / "namesrv") as name_server,
        Broker(version, tmp_path / "broker", name_server) as broker,
    ):
        broker.create_topic(TOPIC, queues=4)
        tail = Tail(broker, tmp_path, ("running",))
        daemon, truth = tail.daemons["running"], tail.truths["running"]
        with daemon.running():
            daemon.wait_archived(tail.send(300))
            truth.look()
            cut = tail.lose(81, leftovers=True)
            end = tail.send(30)
            assert end in {at for at, _ in record_starts_behind(broker.store_dir, cut)}
            tail.wait_archived("running", end)
            assert truth.look() == end
            tail.prove("running", newly_closed=81)
