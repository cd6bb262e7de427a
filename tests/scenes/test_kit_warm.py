"""A forked command is a process like one that was loaded anew: output, exit code, signals, environment, directory."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.kit.process import TIERED, Child, ChildError
from tests.kit.warm import EXEC_ONLY, WARM, Forked, Warm, can_fork


def command(log: Path, *words: str, **environment: str) -> Child:
    return Child("tiered", (*TIERED, *words), log, environment, fork=True)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Child]:
    """A service that reads its settings from a pipe that nobody writes to."""
    os.mkfifo(tmp_path / "settings")
    child = command(tmp_path / "log", "gateway", "--config", str(tmp_path / "settings"))
    yield child
    child.kill()


def test_output_and_exit_code_are_its_own(tmp_path: Path) -> None:
    for words, code, said in ((("--version",), 0, "tiered "), (("config", "check"), 2, "source.store_dir")):
        child = command(tmp_path / "log", *words)
        assert child.wait(30) == code
        assert said in child.output(100_000)
        assert isinstance(child._process, Forked)


def test_environment_and_directory_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.toml").write_text("[web]\nport = 4711\n")
    child = command(
        tmp_path / "log", "config", "print", "--config", "here.toml", TIERED_ARCHIVE_URL="memory://x"
    )
    assert child.wait(30) == 0
    assert "4711" in child.output(100_000)
    assert "memory://x" in child.output(100_000)
    again = command(tmp_path / "log", "config", "print")
    assert again.wait(30) == 0
    assert "memory://x" not in again.output(100_000), "what one was given the next has not"


def test_it_is_alone_in_its_process(waiting: Child) -> None:
    other = command(waiting.log.with_name("other"), "--version")
    assert len({os.getpid(), waiting.pid, other.pid}) == 3
    assert other.wait(30) == 0
    assert waiting.running
    with pytest.raises(ChildError, match="did not end"):
        waiting.wait(0.05)


def test_a_signal_that_kills_is_told(waiting: Child) -> None:
    waiting.kill()
    assert not waiting.running
    assert waiting.wait(1) == -signal.SIGKILL
    waiting.send(signal.SIGTERM)  # nobody is there: nothing happens


def test_variables_that_act_at_loading_need_a_real_exec() -> None:
    assert WARM.enabled
    assert can_fork({"TIERED_ARCHIVE_URL": "x", "AWS_REGION": "y"})
    for start in EXEC_ONLY:
        assert not can_fork({start + "X": "1"})


def test_both_outputs_of_a_command_that_ends() -> None:
    done = WARM.run(["config", "check", "--json"], {}, 30)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"source.store_dir" in done.stderr


def test_scenes_that_are_built_side_by_side_share_it() -> None:
    warm = Warm()
    try:
        with ThreadPoolExecutor(4) as pool:
            done = list(pool.map(lambda _: warm.run(["--help"], {}, 60), range(4)))
        assert [one.returncode for one in done] == [0] * 4
    finally:
        warm.end()
