"""``tiered replay``: what it leaves for the daemon, what it says, and what it refuses by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import Done, archive_once, tiered
from tests.kit.fakebroker import FakeBroker
from tests.kit.pipeline import Crafted
from tiered.clock import ManualClock
from tiered.replay import inbox
from tiered.replay.base import DebtReason, GroupPosition, GroupQueue, NewDebt
from tiered.replay.ledger import Ledger, Settled


@dataclass
class Small:
    """An archive of topic Orders, two queues of fifty messages, a second apart."""

    url: str
    state: Path
    store: Path
    start_ms: int

    def run(self, *args: object, broker: str = "127.0.0.1:1") -> Done:
        """``tiered replay --json …``."""
        return tiered(
            "replay", "--json", "--archive", self.url, "--state", self.state,
            "--set", f"replay.broker_address={broker}", "--set", "replay.timeout_ms=300", *args,
        )  # fmt: skip

    @property
    def inbox(self) -> list[Any]:
        """What waits for the daemon; taken out."""
        found, _ = inbox.waiting(self.state / "replay")
        inbox.take_out(self.state / "replay", found)
        return found


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    directory = tmp_path_factory.mktemp("small")
    broker = Crafted(directory / "store", file_bytes=1 << 16)
    start = broker.time_ms + 1000
    for number in range(100):
        broker.time_ms += 1000
        broker.send("Orders", number % 2, b"order %d" % number)
    url = f"file://{directory}/archive"
    assert archive_once(broker.store, url).code == 0
    return Small(url, Path(f"{broker.store}.tiered"), broker.store, start)


def test_history_between_two_times_needs_no_broker(small: Small) -> None:
    times = ("--from", small.start_ms + 20_000, "--to", small.start_ms + 60_000)
    done = small.run("--group", "G", "--topic", "Orders", *times)
    assert done.code == 0, done.err
    assert (done.json["messages"], done.json["broker_answered"]) == (40, False)
    [request] = small.inbox
    assert (request.group, request.topic, request.name) == ("G", "Orders", done.json["request"])
    assert [(r.queue_id, r.start, r.end) for r in request.ranges] == [(0, 10, 30), (1, 10, 30)]


def test_without_an_end_it_goes_up_to_where_the_group_stands(small: Small) -> None:
    with FakeBroker() as broker:
        for queue in (0, 1):
            broker.fill("Orders", queue, 50, 30)
        broker.committed["Orders@G"] = {0: 35, 1: 20}
        done = small.run(
            "--group", "G", "--topic", "Orders", "--from", small.start_ms + 20_000, broker=broker.address
        )
        assert done.code == 0, done.err
        assert [(r.queue_id, r.start, r.end) for r in small.inbox[0].ranges] == [(0, 10, 35), (1, 10, 20)]
        done = small.run(
            "--group", "New", "--topic", "Orders", "--from", small.start_ms + 20_000, broker=broker.address
        )
        assert [(r.queue_id, r.start, r.end) for r in small.inbox[0].ranges] == [(0, 10, 50), (1, 10, 50)]


def test_iso_times(small: Small) -> None:
    done = small.run(
        "--group", "G", "--topic", "Orders", "--from", "2001-01-01T00:00:00Z", "--to", "2100-01-01"
    )
    assert done.code == 0, done.err
    assert done.json["messages"] == 100
    assert len(small.inbox) == 1


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        ((), 2, "missing"),
        (("--group", "G", "--from", "0"), 2, "--topic"),
        (("--group", "G", "--topic", "Orders", "--from", "yesterday"), 2, "--from is not a time"),
        (("--group", "G", "--topic", "Orders", "--from", "9", "--to", "8"), 2, "--to is not after --from"),
        (("--group", "G", "--topic", "Nope", "--from", "0", "--to", "9"), 5, "not archived"),
        (("--group", "G", "--topic", "Orders", "--from", "0", "--to", "9"), 5, "no message of this topic"),
        (("--group", "G", "--topic", "Orders", "--from", "0"), 4, "--to"),
        (("--group", "G", "--topic", "Orders", "--from", "0", "--state", "/nope"), 5, "state directory"),
        (
            ("--group", "G", "--topic", "Orders", "--from", "0", "--set", "replay.broker_address=x"),
            2,
            "not an address",
        ),
    ],
)
def test_bad_input_is_named(small: Small, args: tuple[str, ...], code: int, words: str) -> None:
    done = small.run(*args)
    assert done.code == code, done.err
    assert words in done.err
    assert done.error["hint"]
    assert small.inbox == []


def test_groups_that_want_order_and_foreign_brokers_are_refused(small: Small) -> None:
    asked = ("--group", "G", "--topic", "Orders", "--from", small.start_ms, "--to", small.start_ms + 9000)
    with FakeBroker() as broker:
        broker.ordered.add("G")
        done = small.run(*asked, broker=broker.address)
        assert done.code == 3
        assert "in order" in done.err
    with FakeBroker(brokerName="broker-b") as broker:
        assert small.run(*asked, broker=broker.address).code == 3
    assert small.inbox == []


def test_status_says_what_is_owed_and_what_waits(small: Small, tmp_path: Path) -> None:
    empty = tiered("replay", "status", "--state", tmp_path, "--json")
    assert empty.code == 0, empty.err
    assert (empty.json["open_debts"], empty.json["debts"]) == (0, [])
    place = tmp_path / "replay"
    place.mkdir()
    ledger = Ledger(place, ManualClock())
    ledger.open()
    queue = GroupQueue("G", "Orders", 0)
    [debt] = ledger.look({queue: GroupPosition(1, 9, 9)}, [NewDebt(queue, 1, 9)])
    ledger.look({}, [NewDebt(GroupQueue("F", "Orders", 1), 0, 5, DebtReason.FIFO)])
    ledger.settle(Settled(debt.number, 5, sent=3, holes=((4, 5),)))
    inbox.leave(place, inbox.AskedFor("r1", "N", "Orders", 1, (inbox.Asked(0, 0, 7),)))
    said = tiered("replay", "status", "--state", tmp_path, "--json").json
    assert (said["owed_messages"], said["sent"], said["holes"]) == (4, 3, 1)
    assert [(d["group"], d["state"], d["left"]) for d in said["debts"]] == [
        ("G", "open", 4),
        ("F", "told", 5),
    ]
    assert said["groups"][1] == {
        "group": "G", "topic": "Orders", "debts": 1, "sent": 3, "filtered": 0, "holes": 1, "refused": 0,
    }  # fmt: skip
    assert [(a["group"], a["start"], a["end"]) for a in said["fifo_skipped"]] == [("F", 0, 5)]
    assert said["waiting"] == [{"request": "r1", "group": "N", "topic": "Orders", "messages": 7}]
    text = tiered("replay", "status", "--state", tmp_path)
    assert text.code == 0, text.err
    for word in ("Orders", "open", "told", "owed messages", "requests waiting"):
        assert word in text.text
