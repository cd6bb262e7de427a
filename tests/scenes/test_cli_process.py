"""The command as a process of its own: completion in a shell, pipes that close, full disks, signals while it starts."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from tests.unit.test_cli_tables import ORDERS, lines
from tiered.codec.record.frame import scan

TIERED = [sys.executable, "-m", "tiered.cli.entry"]


def completed(line: str) -> list[str]:
    """What bash would offer for the last word of ``line``."""
    words = line.split(" ")
    environment = {
        **os.environ, "_TIERED_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)
    }  # fmt: skip
    done = subprocess.run(TIERED, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_shell_completes_verbs_and_flags() -> None:
    assert completed("tiered que") == ["queues", "query"]
    assert completed("tiered read --ar") == ["--archive"]
    assert completed("tiered config p") == ["print"]
    script = subprocess.run(
        [*TIERED, "completion", "bash"], capture_output=True, text=True, check=True
    ).stdout
    shown = subprocess.run(
        ["bash", "-c", f"{script}\ncomplete -p tiered"], capture_output=True, text=True, check=True
    ).stdout
    assert shown.split()[-3:] == ["-F", "_tiered_completion", "tiered"]


def test_help_imports_no_verb() -> None:
    code = "import sys; from tiered.cli.main import main; main(['--help']); sys.exit('tiered.cli.read' in sys.modules)"
    assert (
        subprocess.run([sys.executable, "-c", code], stdout=subprocess.DEVNULL, check=False).returncode == 0
    )


def test_the_jobs_are_listed_without_pyspark(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'pyspark'\", name='pyspark')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def spark(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*TIERED, "spark", *words], env=environment, capture_output=True, text=True, check=False
        )

    for words in (("--help",), ("-h",)):
        done = spark(*words)
        assert (done.returncode, done.stderr) == (0, "")
        assert "profile" in done.stdout
    done = spark("profile", "--archive", "file:///a")
    assert (done.returncode, done.stdout) == (2, "")
    assert "rocketmq-tiered[spark]" in done.stderr
    assert spark("profil").returncode == 2


@pytest.mark.parametrize("words", [("config", "default"), ("config", "print", "--json"), ("--help",)])
def test_a_reader_that_goes_away_is_no_traceback(words: tuple[str, ...]) -> None:
    """As every program that is ended by SIGPIPE, for a shell."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as stdout:
        done = subprocess.run(
            [*TIERED, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("words", [("config", "default"), ("config", "print", "--json"), ("config", "print")])
def test_no_room_for_the_answer(words: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as stdout:
        done = subprocess.run(
            [*TIERED, *words], stdout=stdout, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 4
    assert "No space left on device" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    with open("/dev/full", "wb") as full:
        code = subprocess.call([*TIERED, "config", "check"], stdout=full, stderr=full)
    assert code == 2, "nothing can be said, and the exit code still says it"


@pytest.mark.parametrize("module", ["typer", "numpy"])
def test_ctrl_c_while_modules_are_imported(module: str, tmp_path: Path) -> None:
    """The command's own modules, and those of its verb."""
    (tmp_path / f"{module}.py").write_text(
        "import sys, time\nprint('importing', flush=True)\n"
        "try:\n    time.sleep(60)\nexcept BaseException:\n    raise ImportError('swallowed')\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(
        [*TIERED, "topics"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "importing\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
    assert (child.returncode, err) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("verb", "moment"), [("run", "typer"), ("run", "numpy"), ("gateway", "settings")])
def test_a_service_that_is_told_to_stop_before_it_listens_ends_well(
    verb: str, moment: str, number: signal.Signals, tmp_path: Path
) -> None:
    """While the command's modules are imported, its verb's, and while settings are read."""
    words, environment = [verb], {**os.environ, "PYTHONPATH": str(tmp_path)}
    if moment == "settings":
        os.mkfifo(tmp_path / "settings")
        words += ["--config", str(tmp_path / "settings")]
    else:
        (tmp_path / f"{moment}.py").write_text(
            "import time\nprint('importing', flush=True)\n"
            "try:\n    time.sleep(60)\nexcept BaseException:\n    raise ImportError('swallowed')\n"
        )
    with subprocess.Popen(
        [*TIERED, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        writer = (tmp_path / "settings").open("wb") if moment == "settings" else None
        if writer is None:
            assert child.stdout.readline() == "importing\n"
        child.send_signal(number)
        _, err = child.communicate(timeout=30)
        if writer is not None:
            writer.close()
    assert (child.returncode, err) == (0, "")


GEN = [sys.executable, "-m", "tiered.cli.main", "gen"]


def records(store: Path) -> int:
    count = 0
    for path in sorted((store / "commitlog").iterdir()):
        data = path.read_bytes()
        count += len(scan(data, base=int(path.name), max_record_bytes=1 << 24))
    return count


def test_following_stops_cleanly_on_a_signal(tmp_path: Path) -> None:
    store = tmp_path / "store"
    args = [
        "--store",
        str(store),
        "--follow",
        "--rate",
        "2000",
        "--body-bytes",
        "64",
        "--file-bytes",
        "1MiB",
        "--json",
    ]
    child = subprocess.Popen([*GEN, *args], stdout=subprocess.PIPE, text=True)
    with child:
        deadline = time.monotonic() + 30
        while not (store / "abort").exists() or records(store) == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        child.send_signal(signal.SIGTERM)
        out, _ = child.communicate(timeout=30)
        assert child.returncode == 0
    assert json.loads(out)["messages"] == records(store) > 0
    assert not (store / "abort").exists()


def test_a_real_terminal() -> None:
    """Through a pty of 80 columns: the bytes that a person would see."""
    code = (
        "from tiered.text.speaker import speaker\n"
        "from tiered.cli.queues import COLUMNS\n"
        f"speaker(json_output=False).table(COLUMNS, [{ORDERS!r}] * 2)\n"
    )
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=slave, stdout=slave, stderr=subprocess.DEVNULL,
        env={**environment, "TERM": "xterm"},
    )  # fmt: skip
    os.close(slave)
    seen = b""
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            break
        if not data:
            break
        seen += data
    assert child.wait(30) == 0
    os.close(master)
    import re

    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen.decode())
    shown = lines(text)
    assert len(shown) == 3
    assert all(len(line) <= 80 for line in shown)
    assert shown[0].split()[:2] == ["topic", "queue"]
