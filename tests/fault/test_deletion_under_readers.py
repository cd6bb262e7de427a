"""Objects are deleted while readers hold views that name them: each reader looks at the log again by itself, and its answers
are right and whole (DESIGN.md, "Readers of an older view").

A daemon in a hurry merges, seals, trims and collects beside a broker that writes. Readers look at the log only where they must:
their views are older than a grace most of the time, and the objects that these name are gone.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from tests.kit.daemonproc import SMALL_FLUSHES, Daemon, wait_for
from tests.kit.faultbroker import KIB, FaultBroker
from tests.kit.gatewaydesk import Desk, at_default_level, pull, too_small
from tests.kit.hurried import AGEING, WINDOW_MS
from tests.kit.oracle import Queue, Record, compare, opened, scan_log, store_time_ms
from tests.kit.process import HURRIED
from tests.kit.soakreport import ALWAYS, OF_OLD_DAYS, Work
from tests.kit.soaksources import PastClock
from tiered.archive.read.lookup import KeyLookup
from tiered.clock import SystemClock
from tiered.codec.record.message import decode_message
from tiered.codec.remoting.frame import Command
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.metrics import Metrics
from tiered.model import GetMessageStatus, MessageQueue
from tiered.settings import ONE_DAY_MS, Archive, Fetch, Settings
from tiered.store import MessageStore
from tiered.store.gone import LOOKS

KEPT, TRIMMED = "Orders", "Noise"
QUEUES = 2
AT_ONCE = 40
PAUSE_SECONDS = 0.01
"""Between two questions of a reader."""
SETTLED_SECONDS = 6.0
"""Twice as long as an object that was merged is kept."""
LOOKS_AGAIN = 2
"""Of each reader, before the test ends."""
TRIMMED_DAYS = 4
"""Of the broker's, from its first message on: what is older may go."""

ALWAYS_OF_OLD_DAYS = ALWAYS | OF_OLD_DAYS

Answer = TypeVar("Answer")


class Scene:
    """A broker that writes, a daemon that ages its archive, and what the readers of it must get."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.url = f"file://{work / 'archive'}"
        self.broker = FaultBroker(
            work / "store", topics=(KEPT, TRIMMED), queues=QUEUES, body_bytes=1000, file_bytes=256 * KIB
        )
        self.broker.clock = PastClock(60.0)
        self.broker.open()
        self.trim_ms = self.broker.clock.now_ms() + TRIMMED_DAYS * ONE_DAY_MS
        """Messages of the trimmed topic that are older may go."""
        self.sent: dict[Queue, list[Record]] = defaultdict(list)
        keep_seconds = (SystemClock().now_ms() - self.trim_ms) // 1000
        self.daemon = Daemon(
            work, self.broker.options.store_dir, self.url, command=HURRIED,
            **{**SMALL_FLUSHES, **AGEING, "dispatch.inline_bytes": 0, "retain.topics": f"{TRIMMED}={keep_seconds}s"},
        )  # fmt: skip

    def write(self, count: int) -> None:
        """Let the broker write; readers know what before they can read it."""
        begin = self.broker.physical_offset
        end = self.broker.append(count)
        for queue, record in scan_log(self.broker.log.directory, begin):
            if record.physical_offset < end:
                self.sent[queue].append(record)

    def objects(self) -> set[Path]:
        """The objects that a reader who opens the archive now will ask for."""
        [root] = self.work.joinpath("archive").glob("*/*")
        return {
            root / item.path for item in opened(self.url).state.objects() if item.path and item.references
        }

    def knows(self, queue: Queue, end: int) -> None:
        """Wait until ``sent`` has what the archive had, which may be faster."""
        wait_for(lambda: len(self.sent[queue]) >= end, f"{end} messages of {queue}")

    def may_go(self, queue: Queue, record: Record) -> bool:
        """Whether retention may take a message."""
        return queue[0] == TRIMMED and store_time_ms(record) < self.trim_ms


@dataclass
class Held:
    """A reader of its own, and how often it had to look at the log again: an object that its view names was gone.

    ``most``: looks that one question took; ``looked``: questions that took any.
    """

    scene: Scene
    store: MessageStore
    asked: int = 0
    looked: int = 0
    most: int = 0
    _looks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        look = self.store._follower.follow_async

        def counted(*, force: bool = False, here: bool = False) -> Future[bool]:
            self._looks += force
            return look(force=force, here=here)

        vars(self.store._follower)["follow_async"] = counted

    @classmethod
    def of(cls, scene: Scene, stack: ExitStack, name: str | None = None) -> Held:
        """By itself it looks once an hour. ``name``: it keeps all of the fold, else it loads what is asked for."""
        folds = str(scene.work / f"{name}-fold") if name else ""
        fetch = Fetch(follow_ms=3_600_000, threads=4, fold_directory=folds)
        settings = Settings(archive=Archive(url=scene.url), fetch=fetch)
        return cls(scene, MessageStore.open(settings, SystemClock(), Metrics(), stack=stack, name=name))

    def forget(self) -> None:
        """Keep nothing in memory but the view."""
        self.store._puller._engine_of(self.store.view).cache.clear()

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """The answer to one question."""
        before = self._looks
        answer = question()
        took = self._looks - before
        self.asked += 1
        self.looked += took > 0
        self.most = max(self.most, took)
        return answer

    def end(self, queue: Queue) -> int:
        """How much of a queue the view knows to be archived."""
        known = self.store.loaded(MessageQueue(*queue))
        return 0 if known is None else known.max_offset

    # ---- what it does, over and over

    def pull(self) -> Iterator[None]:
        """Every queue from its first message to the end that is known."""
        for queue in list(self.scene.sent):
            sent, offset, end = self.scene.sent[queue], 0, self.end(queue)
            while offset < end:
                pulled = Pull(ReaderId("pulls"), *queue, offset, AT_ONCE)
                found = self.ask(lambda pulled=pulled: self.store.get_message(pulled))  # type: ignore[misc]
                following = found.next_begin_offset
                assert following > offset, (queue, offset, found.status)
                self.scene.knows(queue, following)
                if found.status is GetMessageStatus.OFFSET_TOO_SMALL:
                    assert not found.records
                    gone = sent[offset:following]
                    assert all(self.scene.may_go(queue, record) for record in gone), (queue, offset)
                else:
                    assert found.status is GetMessageStatus.FOUND, (queue, offset)
                    assert list(found.queue_offsets) == list(range(offset, following))
                    wanted = [record.data for record in sent[offset:following]]
                    assert [bytes(record) for record in found.records] == wanted
                offset = following
                yield
            assert self.end(queue) >= end

    def pull_at_the_gateway(self) -> Iterator[None]:
        """What consumers behind the gateway get of the queues that are kept, of which the broker has nothing any more."""
        desk = Desk(at_default_level(self.store))
        desk.queue_end = 1 << 40  # the broker is ahead of any archive
        try:
            for queue_id in range(QUEUES):
                sent, offset, end = self.scene.sent[KEPT, queue_id], 0, self.end((KEPT, queue_id))
                while offset < end:
                    request = pull(KEPT, queue_id, offset, count=AT_ONCE)
                    refused = too_small(end, end)
                    made = self.ask(lambda request=request, refused=refused: desk.ask(request, refused))  # type: ignore[misc]
                    assert isinstance(made, Command), f"to be asked again at {offset}"
                    following = int(made.ext["nextBeginOffset"])
                    assert following > offset
                    self.scene.knows((KEPT, queue_id), following)
                    assert bytes(made.body) == b"".join(record.data for record in sent[offset:following])
                    offset = following
                    yield
        finally:
            desk.close()

    def look_up(self) -> Iterator[None]:
        """Messages of the topic that is kept, by key, by place and by time."""
        for queue_id in range(QUEUES):
            sent, end = self.scene.sent[KEPT, queue_id], self.end((KEPT, queue_id))
            for offset in range(0, end, max(1, end // 7)):
                record = sent[offset]
                self._look_up(queue_id, offset, record, sent[:end])
                yield

    def _look_up(self, queue_id: int, offset: int, record: Record, sent: list[Record]) -> None:
        time_ms = store_time_ms(record)
        [key] = decode_message(record.data).keys
        found = self.ask(lambda: self.store.query(KeyLookup(KEPT, key)))
        assert [item.record for item in found] == [record.data]
        viewed = self.ask(lambda: self.store.view_message(record.physical_offset))
        assert viewed is not None
        assert bytes(viewed) == record.data
        assert self.ask(lambda: self.store.message_time(KEPT, queue_id, offset)) == time_ms
        first = next(i for i, other in enumerate(sent) if store_time_ms(other) >= time_ms)
        assert self.ask(lambda: self.store.offset_by_time(KEPT, queue_id, time_ms)) == first


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """Readers of this process believe what they saw of the log for as short a time as the daemon keeps its commits, and look up
    what they are asked for in a view however old."""
    monkeypatch.setattr("tiered.archive.log.reader.LOOK_AGAIN_MS", WINDOW_MS)
    monkeypatch.setattr("tiered.store.messages.FRESH_SECONDS", 3600.0)
    made = Scene(tmp_path)
    try:
        made.write(800)
        made.daemon.start()
        made.daemon.wait_archived(made.broker.physical_offset)
        yield made
    finally:
        made.daemon.kill()
        made.broker.close()


def over_and_over(held: Held, read: Callable[[], Iterator[None]], stop: threading.Event) -> None:
    """A view of sealed days alone never meets anything that is gone: then the reader gets one of what was just written."""
    since, looked = time.monotonic(), held.looked
    while not stop.is_set():
        held.forget()
        for _ in read():
            if stop.wait(PAUSE_SECONDS):
                return
        if held.looked > looked or time.monotonic() - since > SETTLED_SECONDS:
            if held.looked == looked:
                held.store._follower.follow(force=True)
            since, looked = time.monotonic(), held.looked


def test_readers_answer_right_while_what_their_views_name_is_deleted(scene: Scene) -> None:
    work, stop = Work((scene.daemon.log,)), threading.Event()
    with ExitStack() as stack:
        pulling, whole, lookups, gateway = (
            Held.of(scene, stack, name) for name in (None, "whole", None, "gateway")
        )
        readers = {
            "pulls": (pulling, pulling.pull), "pulls by a whole fold": (whole, whole.pull),
            "look-ups": (lookups, lookups.look_up), "the gateway": (gateway, gateway.pull_at_the_gateway),
        }  # fmt: skip
        pool = stack.enter_context(ThreadPoolExecutor(len(readers)))
        reading = [pool.submit(over_and_over, held, read, stop) for held, read in readers.values()]

        def aged_enough() -> bool:
            scene.write(4)
            time.sleep(0.2)
            looked = all(held.looked >= LOOKS_AGAIN for held, _ in readers.values())
            enough = not work.look().missing(ALWAYS_OF_OLD_DAYS) and looked
            return enough or any(future.done() for future in reading)

        try:
            scene.daemon.wait_until(aged_enough, "each reader looked again, and all maintenance happened")
        finally:
            stop.set()
        for future in reading:
            future.result()
    for name, (held, _) in readers.items():
        assert held.looked >= LOOKS_AGAIN, name
        assert held.most <= LOOKS, name
        assert held.looked < held.asked, name
    assert not work.bugs
    assert not work.troubles, work.troubles
    scene.daemon.wait_archived(scene.broker.physical_offset)
    assert scene.daemon.stop() == 0
    verdict = compare(opened(scene.url), scene.broker.oracle.look(), may_go=scene.may_go)
    assert verdict.good, verdict
    assert verdict.trimmed > 0


READ_IN_PIECES = """
import sys
from tests.kit.hurried import hurry
from tiered.cli import main, read
from tiered.store.follower import Follower

hurry()
read.BATCH_MESSAGES = 10
look, looks = Follower.follow_async, []

def counted(self, *, force=False, here=False):
    looks.append(force and self.reader.opened is not None)
    return look(self, force=force, here=here)

Follower.follow_async = counted
code = main.main(sys.argv[1:])
print("looks again:", sum(looks), file=sys.stderr)
sys.exit(code)
"""
"""``tiered read`` that asks for a few messages at a time, and says how often it had to look at the log again."""


def test_a_command_whose_output_waits_reads_on_when_all_that_its_view_names_is_deleted(scene: Scene) -> None:
    """Nobody takes what it writes, so it stands still in the middle of a queue, for longer than the grace."""
    queue = (KEPT, 1)
    scene.daemon.pause()  # so that the command's view names just these
    named, sent = scene.objects(), len(scene.sent[queue])
    words = (
        "read",
        "--archive",
        scene.url,
        "--topic",
        KEPT,
        "--queue",
        "1",
        "--count",
        "0",
        "--format",
        "raw",
    )
    few = ("--set", "fetch.read_ahead=false", "--set", "fetch.request_bytes=65536")
    with subprocess.Popen(
        [sys.executable, "-c", READ_IN_PIECES, *words, *few], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as reading:
        assert reading.stdout is not None
        assert reading.stderr is not None
        try:
            first = reading.stdout.read(1)
            scene.daemon.resume()

            def all_gone() -> bool:
                scene.write(4)
                time.sleep(0.2)
                return not any(path.exists() for path in named)

            scene.daemon.wait_until(all_gone, "what was named is deleted")
            assert reading.poll() is None, "it is not done"
            out = first + reading.stdout.read()
            said = reading.stderr.read().decode()
        finally:
            reading.kill()
    assert reading.returncode == 0, said
    assert out.startswith(b"".join(record.data for record in scene.sent[queue][:sent]))
    assert said == "looks again: 1\n"
