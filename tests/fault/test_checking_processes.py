"""Objects looked at by processes of their own: the same is found, and whatever becomes of a process is no clean verdict."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import SMALL_FLUSHES, Daemon
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import opened
from tests.kit.process import Child
from tiered.archive.read import contentworkers
from tiered.archive.read.contentworkers import ContentWorkers, OpenedElsewhere
from tiered.archive.read.verify import Report, Verifier
from tiered.clock import SystemClock
from tiered.errors import Invalid, Unavailable
from tiered.provider.base import Fetched, Provider
from tiered.provider.open import open_provider
from tiered.provider.wrap import Wrapped
from tiered.settings import Store


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with commits that hold their data, and objects; tests that change it change a copy."""
    work = tmp_path_factory.mktemp("made")
    broker = FaultBroker.started(work / "store", 100, topics=("Orders",), queues=2)
    url = f"file://{work / 'archive'}"
    settings = {**SMALL_FLUSHES, "dispatch.block_bytes": 4096}
    assert Daemon(work, work / "store", url, **settings).once() == 0
    broker.write(400)
    assert (
        Daemon(
            work,
            work / "store",
            url,
            **settings,
            **{"dispatch.inline_bytes": 0, "dispatch.object_bytes": 65_536},
        ).once()
        == 0
    )
    broker.close()
    assert len(objects_of(work / "archive")) >= 4
    return work / "archive"


def objects_of(archive: Path) -> list[Path]:
    return sorted(path for path in archive.glob("*/*/data/**/*") if path.is_file())


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 1
    path.write_bytes(data)


def by_one(archive: Path) -> Report:
    return Verifier(opened(f"file://{archive}")).run(deep=True)


def by_processes(archive: Path, opening: Callable[[], Provider] | None = None) -> Report:
    """What is found where two processes look at objects."""
    url = f"file://{archive}"
    view = opened(url)
    elsewhere = OpenedElsewhere(
        opening or partial(open_provider, url, Store(), SystemClock()), view.keys, view.identity.archive_id, 2
    )  # fmt: skip
    return Verifier(view, workers=ContentWorkers(elsewhere, 2)).run(deep=True)


def test_processes_find_what_one_finds(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bits, lengths and keys that are gone, all at once, in objects of several batches: the same words in the same order."""
    monkeypatch.setattr(contentworkers, "BATCH_BYTES", 20_000)
    sound = by_processes(made)
    assert (sound.damage, sound.messages, sound) == ([], 500, by_one(made))
    archive = shutil.copytree(made, tmp_path / "archive")
    paths = objects_of(archive)
    for number, path in enumerate(paths):
        if number % 4 == 1:
            path.unlink()
        elif number % 4 == 2:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        else:
            flip(path, number * 977)
    found = by_processes(archive)
    assert {damage.key for damage in found.damage} == {str(path.relative_to(archive)) for path in paths}
    assert found == by_one(archive)


class Ending(Wrapped):
    """Its process is killed when it is asked for part of an object."""

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is gone")


class Away(Wrapped):
    """Answers nothing."""

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        raise Unavailable("away", key=key, url="store:", found=start)


def wrapped(kind: type[Wrapped], url: str) -> Provider:
    return kind(open_provider(url, Store(), SystemClock()))


def test_a_process_that_is_gone_is_no_verdict(made: Path) -> None:
    with pytest.raises(Unavailable, match="not all of them were looked at"):
        by_processes(made, partial(wrapped, Ending, f"file://{made}"))


def test_what_a_process_raises_is_said_whole(made: Path) -> None:
    found = by_processes(made, partial(wrapped, Away, f"file://{made}"))
    assert {unseen.key for unseen in found.unseen} >= {
        str(path.relative_to(made)) for path in objects_of(made)
    }
    assert all((unseen.what, "url=store:" in unseen.detail) == ("away", True) for unseen in found.unseen)
    assert not found.sound


def refused() -> Provider:
    raise Invalid("no such store", found="there")


def test_a_store_that_a_process_cannot_open_is_said(made: Path) -> None:
    with pytest.raises(Invalid, match="no such store"):
        by_processes(made, refused)


def test_processes_of_the_verb(made: Path, tmp_path: Path) -> None:
    archive = shutil.copytree(made, tmp_path / "archive")
    path = objects_of(archive)[0]
    flip(path, 0)
    one, two = (
        tiered("verify", "--deep", "--json", "--processes", count, "--archive", f"file://{archive}")
        for count in ("1", "2")
    )
    assert one.code == two.code == 1
    assert one.json == two.json
    assert [damage["key"] for damage in two.json["damage"]] == [str(path.relative_to(archive))]


def stuck(seen: Path) -> Provider:
    """Opening takes for ever."""
    (seen / str(os.getpid())).touch()
    time.sleep(600)
    raise AssertionError("it should have ended")


def test_processes_end_with_the_one_that_started_them(made: Path, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    seen.mkdir()
    code = (
        "from functools import partial; from pathlib import Path; from tests.fault.test_checking_processes import *;"
        f" by_processes(Path({str(made)!r}), partial(stuck, Path({str(seen)!r})))"
    )
    child = Child("verifying", (sys.executable, "-c", code), tmp_path / "log")
    try:
        child.wait_until(lambda: any(seen.iterdir()), 60, "a process of its own")
    finally:
        child.kill()
    started = [Path("/proc") / path.name for path in seen.iterdir()]
    deadline = time.monotonic() + 60
    while any(path.exists() for path in started):
        assert time.monotonic() < deadline, "they go on without it"
        time.sleep(0.05)
