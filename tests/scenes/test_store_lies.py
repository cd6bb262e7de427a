"""Commands beside a store, or whoever stands before it, that lies: nothing is lost, nothing is wrong, nothing lasts for ever.

Each verb runs while each lie of the kit is told, and what it answers is the truth or an error; the archive is sound behind it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit import s3lies
from tests.kit.command import Done, tiered
from tests.kit.fakes3 import Answer, FakeS3, Request
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
WRITES = ("gc", "repair --apply")
PAGES = ("200 HTML", "200 HTML, done", "200 empty", "204", "403 HTML", "301", "307")
"""What is not the store at all: nobody is told to restore anything."""


@dataclass
class World:
    fake: FakeS3
    broker: Crafted
    url: str
    truth: dict[str, bytes]

    def lying(self, lie: str) -> AbstractContextManager[FakeS3]:
        """Lie about everything but the identity, which every verb reads first, and which would end it there."""

        def bend(request: Request, act: Callable[[], Answer]) -> Answer:
            believed = request.key.endswith("archive.json") and lie != "short"
            return act() if believed else s3lies.LIES[lie](request, act)

        return self.fake.bent(bend)

    def ask(self, line: str, *sets: str) -> Done:
        verb, *rest = line.split()
        options = [word for value in sets or HASTY for word in ("--set", value)]
        began = time.monotonic()
        done = tiered(verb, *rest, "--archive", self.url, *options)
        assert time.monotonic() - began < MOST_SECONDS, line
        return done


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    patch = pytest.MonkeyPatch()
    patch.setenv("AWS_ACCESS_KEY_ID", "toy")
    patch.setenv("AWS_SECRET_ACCESS_KEY", "toy-secret")
    home = tmp_path_factory.mktemp("lies")
    broker = Crafted(home / "store", file_bytes=1 << 16)
    for number in range(40):
        broker.send("Orders", 0, b"%d" % number)
    with FakeS3().running() as fake:
        made = World(fake, broker, f"s3://bucket/r?endpoint={fake.endpoint}&region=us-east-1", {})
        done = made.ask(f"run --once --store {broker.store}", *PATIENT, "dispatch.inline_bytes=0")
        assert done.code == 0, done.err
        for line in READS:
            done = made.ask(line)
            assert done.code == 0, done.err
            made.truth[line] = done.out
        yield made
    patch.undo()


@pytest.mark.parametrize("lie", s3lies.LIES)
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


@pytest.mark.parametrize("lie", s3lies.LIES)
def test_what_writes_beside_a_lie_leaves_the_archive_whole(world: World, lie: str, tmp_path: Path) -> None:
    wrong = []
    for number, line in enumerate(WRITES):
        with world.lying(lie):
            done = world.ask(f"{line} --state {tmp_path}/{number}")
        if done.code == 70 or (done.code and not done.err and not done.out):
            wrong.append((line, done))
    assert world.ask(READS[0]).out == world.truth[READS[0]]
    assert world.ask("verify --deep").code == 0
    assert wrong == []
