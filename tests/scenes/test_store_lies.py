"""Commands beside a store, or whoever stands before it, that lies: nothing is lost, nothing is wrong, nothing lasts for ever.

Each verb runs while each lie of the kit is told, and what it answers is the truth or an error; the archive is sound behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kit import s3lies
from tests.kit.command import Done, tiered
from tests.kit.fakes3 import Answer, FakeS3, Request, error
from tests.kit.pipeline import Crafted

PATIENT = (
    "web.port=-1",
    "log.level=error",
    "store.retry_base_ms=1",
    "store.retry_max_ms=2",
    "store.read_timeout_ms=2000",
)
HASTY = (*PATIENT, "store.attempts=2")
MOST_SECONDS = 20.0
READS = (
    "read --topic Orders --queue 0 --offset 0 --count 100 --json",
    "queues --json",
    "verify --deep --json",
)
WRITES = ("maintain --once", "repair --apply", "scrub --once --repair")
ASKED = 12
"""For how many requests a lie lasts beside a run: of some verbs beyond all tries, of others within them."""
TO_READERS = tuple(
    lie
    for lie in s3lies.LIES
    if lie not in ("403 SignatureDoesNotMatch", "403 InvalidAccessKeyId", "403 RequestTimeTooSkewed")
)
"""All but some kinds of a refusal: that these are one error is seen at the driver."""
TO_WRITERS = tuple(
    lie for lie in TO_READERS
    if " for a range" not in lie and lie not in ("204", "301", "403 HTML", "403 ExpiredToken")
)  # fmt: skip
"""Of those that are alike to who writes, one."""
PAGES = ("200 HTML", "200 HTML, done", "200 empty", "204", "403 HTML", "301", "307")
"""What is not the store at all: nobody is told to restore anything."""


@dataclass
class World:
    fake: FakeS3
    broker: Crafted
    url: str
    home: Path
    truth: dict[str, bytes] = field(default_factory=dict)

    def lying(self, lie: str, times: int | None = None) -> AbstractContextManager[FakeS3]:
        """Lie about everything but the identity, which every verb reads first, and which would end it there."""
        told = s3lies.told_to((), s3lies.LIES[lie], times)

        def bend(request: Request, act: Callable[[], Answer]) -> Answer:
            believed = request.key.endswith("archive.json") and lie != "short"
            return act() if believed else told(request, act)

        return self.fake.bent(bend)

    def send(self, count: int) -> None:
        for _ in range(count):
            self.broker.send("Orders", 0, b"%d" % len(self.broker.sent))

    def run(self) -> Done:
        where = f"--store {self.broker.store} --state {self.home}/daemon"
        return self.ask(f"run --once {where}", *PATIENT, "store.attempts=4", "dispatch.inline_bytes=0")

    def readable(self) -> list[str]:
        """Bodies, in order, as a reader gets them from a store that tells the truth."""
        done = self.ask(f"read --topic Orders --queue 0 --offset 0 --count {len(self.broker.sent)} --json")
        assert done.code == 0, done.err
        return [row["body"] for row in done.rows]

    @property
    def sent(self) -> list[str]:
        return [message.body.decode() for message, _ in self.broker.sent]

    def ask(self, line: str, *sets: str) -> Done:
        verb, *rest = line.split()
        options = [word for value in sets or HASTY for word in ("--set", value)]
        began = time.monotonic()
        done = tiered(verb, *rest, "--archive", self.url, *options)
        assert time.monotonic() - began < MOST_SECONDS, line
        return done


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeS3]:
    patch = pytest.MonkeyPatch()
    patch.setenv("AWS_ACCESS_KEY_ID", "toy")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "toy-secret")
    with FakeS3().running() as running:
        yield running
    patch.undo()


def made(fake: FakeS3, home: Path) -> World:
    """A broker of 40 messages, all archived."""
    broker = Crafted(home / "store", file_bytes=1 << 16)
    url = f"s3://bucket/{home.name}?endpoint={fake.endpoint}&region=us-east-1"
    world = World(fake, broker, url, home)
    world.send(40)
    done = world.run()
    assert done.code == 0, done.err
    return world


@pytest.fixture(scope="module")
def world(fake: FakeS3, tmp_path_factory: pytest.TempPathFactory) -> World:
    world = made(fake, tmp_path_factory.mktemp("lies"))
    for line in READS:
        done = world.ask(line)
        assert done.code == 0, done.err
        world.truth[line] = done.out
    return world


@pytest.fixture(scope="module")
def growing(fake: FakeS3, tmp_path_factory: pytest.TempPathFactory) -> World:
    return made(fake, tmp_path_factory.mktemp("growing"))


@pytest.mark.parametrize("lie", TO_READERS)
def test_what_is_said_is_so_or_an_error(world: World, lie: str) -> None:
    wrong = []
    for line in READS:
        with world.lying(lie):
            done = world.ask(line)
        if done.code == 0 and done.out != world.truth[line]:
            wrong.append((line, done))
        if done.code and not done.err and not done.out:
            wrong.append((line, done))
        if done.code == 70 or (lie in (*PAGES, "short") and "restore" in done.err):
            wrong.append((line, done))
    assert wrong == []


@pytest.mark.parametrize("lie", TO_WRITERS)
def test_what_writes_beside_a_lie_leaves_the_archive_whole(growing: World, lie: str) -> None:
    growing.send(2)
    with growing.lying(lie, ASKED):
        done = growing.run()
    wrong = [("run", done)] if done.code == 70 or (done.code and not done.err) else []
    if done.code:
        done = growing.run()
        assert done.code == 0, done.err
    for line in WRITES:
        with growing.lying(lie):
            done = growing.ask(f"{line} --state {growing.home}/verbs")
        if done.code == 70 or (done.code and not done.err and not done.out):
            wrong.append((line, done))
    assert growing.readable() == growing.sent
    assert growing.ask("verify --deep").code == 0
    assert wrong == []


def test_listings_of_long_ago_hide_nothing_and_lose_nothing(growing: World) -> None:
    with growing.fake.bent(s3lies.Stale()):
        for line in (READS[0], f"maintain --once --state {growing.home}/verbs"):
            assert growing.ask(line).code == 0
        growing.send(3)
        assert growing.run().code == 0
        assert growing.readable() == growing.sent
        assert growing.ask(f"maintain --once --state {growing.home}/verbs").code in (0, 4)
    assert growing.run().code == 0
    assert growing.readable() == growing.sent
    assert growing.ask("verify --deep").code == 0


def test_an_absence_at_a_start_is_measured_by_what_the_store_showed_when_it_was_probed(
    growing: World,
) -> None:
    """Another store behind the address, without this archive and without names for its requests."""
    with growing.fake.bent(s3lies.told_to(["get"], lambda request, act: error(404, "NoSuchKey"))):
        done = growing.run()
    assert (done.code, "gave before" in done.err) == (4, True), done.err
