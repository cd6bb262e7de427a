"""Standard error keeps nobody waiting, and loses nothing at an orderly end."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tiered import stderr
from tiered.metrics import Metrics
from tiered.stderr import UnblockedStderr

PAGE = 4096


class Pipe:
    """A pipe of one page that nobody reads until asked to."""

    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PAGE)
        self.stream = os.fdopen(write_end, "w", buffering=1, encoding="utf-8")

    def fill(self) -> None:
        """No more room."""
        os.write(self.stream.fileno(), b"x" * PAGE)

    def read(self) -> str:
        """What is there."""
        return os.read(self.read_end, 1 << 20).decode()

    def close(self) -> None:
        """Both ends, the reader's first."""
        os.close(self.read_end)
        self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


def test_what_finds_no_room_is_dropped_counted_and_told(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pipe.fill()
    stream = UnblockedStderr(pipe.stream, room=100)
    monkeypatch.setattr(sys, "stderr", stream)
    for number in range(20):
        stream.write(f"line {number:04}\n")
    assert stream.dropped == 10
    assert Metrics().value("tiered_log_lines_dropped") == 10
    assert not stream.drain(0.01)
    assert pipe.read() == "x" * PAGE
    assert stream.drain(10)
    assert pipe.read() == "".join(f"line {number:04}\n" for number in range(10))
    (told,) = caplog.records
    assert (told.levelno, vars(told)["lines"]) == (logging.WARNING, 10)
    stream.end()


def test_an_orderly_end_loses_nothing(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", pipe.stream)
    stderr.unblock()
    stderr.unblock()
    for number in range(100):
        print("last words", number, file=sys.stderr)
    stderr.settle(10)
    assert sys.stderr is pipe.stream
    assert pipe.read() == "".join(f"last words {number}\n" for number in range(100))


def test_a_reader_that_went_away_stops_nobody(pipe: Pipe) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), pipe.read_end)
    stream = UnblockedStderr(pipe.stream)
    stream.write("not heard\n")
    assert stream.drain(10)
    assert stream.dropped == 1
    stream.end()


def test_a_stream_without_a_descriptor_is_written_to_as_it_is() -> None:
    under = io.StringIO()
    stream = UnblockedStderr(under)
    stream.write("wörds\n")
    assert stream.drain(10)
    assert under.getvalue() == "wörds\n"
    stream.end()
    closed = UnblockedStderr(None)
    closed.write("nobody\n")
    assert (closed.isatty(), closed.dropped, closed.drain(0)) == (False, 1, True)


def test_a_process_ends_although_nobody_reads_its_stderr(pipe: Pipe) -> None:
    pipe.fill()
    program = (
        "import logging, sys\n"
        "from tiered import stderr\n"
        "from tiered.daemon import logs\n"
        "from tiered.settings import Log\n"
        "logs.configure(Log())\n"
        "logging.getLogger('tiered').info('nobody reads this')\n"
        "stderr.settle(0.05)\n"
        "sys.exit(3)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], stderr=pipe.stream, timeout=20, check=False)
    assert done.returncode == 3


def test_a_thread_that_hangs_does_not_hold_the_interpreters_end() -> None:
    program = (
        "import sys, threading\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from tiered.cli import entry\n"
        "entry.END_SECONDS = 0.05\n"
        "ThreadPoolExecutor().submit(threading.Event().wait)\n"
        "entry._end_soon(7)\n"
        "sys.exit(7)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], timeout=20, check=False)
    assert done.returncode == 7
