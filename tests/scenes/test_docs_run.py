"""Every command line that the README and the how-to pages show as code is run as it is printed.

The bucket is a directory, absolute paths lie below the test's own home, and a service is stopped once it is up. A line that
needs machines which are not here (a Kafka, a view) must say so by its exit code; each such line is listed below.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import pytest

from tests.kit.command import archive_once
from tests.kit.pipeline import Crafted
from tests.kit.ports import free_block
from tests.unit.test_docs_commands import ROOT
from tiered.cli import main as cli

Said = TypeVar("Said")

pytestmark = pytest.mark.timeout(300)

SHOWN = re.compile(r"^(?:    |\t)(?:\$ )?(tiered .*)$", re.MULTILINE)
PAGES = (
    "README.md",
    "docs/reference/verbs.md",
    *sorted(f"deploy/{page.name}" for page in (ROOT / "deploy").glob("*.md")),
    "docs/SINKS.md",
)
SERVICES = {"run": "archiving", "gateway": "listen", "serve": "listen"}
"""Verbs that go on until they are stopped, and a word of the log line that says they are up."""

NOT_THERE = {
    "sink add to-kafka": (4, "Kafka at kafka-1"),
    "kv ": (4, "a key-value view"),
    "table enable iceberg --catalog https": (4, "a catalog at catalog.example.com"),
    "placement": (2, "read nodes that have announced themselves"),
    "doctor --set encryption": (1, "an archive that is encrypted: the page is for a new one"),
}  # fmt: skip
"""Lines that need what is not here, which they must say by this exit code, and what that is."""

NOT_RUN = {
    "spark": "a job starts Spark: tests/spark runs each",
    "kv serve": "needs a broker: tests/e2e runs it",
    "gen --store /tmp/store --messages 100000": "ten seconds; scenes of the generator run it",
    "sink offsets": "needs the Kafka that the sink above it names",
}
"""Lines that other tests run, each with the place."""


def shown(page: str) -> list[str]:
    """The command lines of a page's code."""
    return SHOWN.findall((ROOT / page).read_text().replace("\\\n", " "))


class Place:
    """A user's machine: a broker's store, an archive of it, and the environment in which lines are run."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.archive = f"file://{home}/bucket"
        broker = Crafted(home / "store", file_bytes=1 << 20)
        for number in range(40):
            broker.send(
                "Orders", number % 2, body=b"order %d" % number, properties={"KEYS": f"order-{number}"}
            )
            broker.send("State", 0, body=b"state %d" % number, properties={"KEYS": f"key-{number % 4}"})
        config = home / "store" / "config"
        config.mkdir(exist_ok=True)
        (config / "topics.json").write_text(
            json.dumps({"topicConfigTable": {name: {"topicName": name} for name in ("Orders", "State")}})
        )
        (config / "consumerOffset.json").write_text('{"offsetTable":{"Orders@OrderService":{0:3,1:4}}}')
        (config / "subscriptionGroup.json").write_text(
            json.dumps({"subscriptionGroupTable": {"OrderService": {"groupName": "OrderService"}}})
        )
        assert archive_once(home / "store", self.archive).code == 0
        key = home / "etc" / "rocketmq-tiered" / "archive-key"
        key.parent.mkdir(parents=True)
        key.write_bytes(bytes(range(32)))
        key.chmod(0o600)
        key.with_name("tiered.toml").touch()
        declared = '[all]\nkind = "file"\n[all.options]\nlocation = "%s/all"\n'
        (home / "sinks.toml").write_text(declared % home.as_uri())
        (home / "mine.toml").write_bytes((ROOT / "tiered" / "text" / "prices.toml").read_bytes())
        (home / "data").mkdir()
        (home / "data" / "rocketmq").symlink_to(home)
        (home / "var" / "lib").mkdir(parents=True)
        port = free_block()
        self.env = {
            "HOME": str(home), "TIERED_ARCHIVE_URL": self.archive, "TIERED_SOURCE_STORE_DIR": f"{home}/store",
            "TIERED_WEB_PORT": "0", "TIERED_GATEWAY_WEB_LISTEN": "127.0.0.1:0", "TIERED_SERVE_WEB_LISTEN": "127.0.0.1:0",
            "TIERED_GATEWAY_NAMESRV_LISTEN": f"127.0.0.1:{port}",
            "TIERED_GATEWAY_BROKER_LISTEN_PORTS": f"{port + 1}-{port + 4}",
            "TIERED_GATEWAY_STATE_DIRECTORY": f"{home}/gateway", "TIERED_SERVE_STATE_DIRECTORY": f"{home}/node",
        }  # fmt: skip

    def words(self, line: str) -> list[str]:
        """The words of a line, as a shell of this machine gives them."""
        line = line.replace("s3://my-bucket/rocketmq", self.archive).replace("=…", "=secret").replace("…", "")
        line = line.replace("10.0.0.21:10930", "127.0.0.1:0")
        for root in ("/data", "/var/lib", "/etc/rocketmq-tiered"):
            line = line.replace(f"://{root}", f"://{self.home}{root}")
            line = line.replace(f" {root}", f" {self.home}{root}").replace(f"={root}", f"={self.home}{root}")
        words = shlex.split(line, comments=True)[1:]
        return [f"{self.home}{word[1:]}" if word.startswith("~/") else word for word in words]


def listed(table: Mapping[str, Said], words: list[str]) -> Said | None:
    """What a table says of a line, by how it begins."""
    said = " ".join(words)
    return next((why for start, why in table.items() if said.startswith(start)), None)


def serve(words: list[str], env: dict[str, str]) -> tuple[int, str]:
    """A service, stopped once it says that it is up: exit code and log."""
    command = [sys.executable, "-m", "tiered.cli.main", *words]
    with subprocess.Popen(command, env={**os.environ, **env}, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            if SERVICES[words[0]] in line:
                process.send_signal(signal.SIGTERM)
                break
        said += process.stderr.readlines()
    return process.returncode, "".join(said)


@pytest.mark.parametrize("page", [page for page in PAGES if shown(page)])
def test_the_lines_of_a_page_run_as_printed(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = Place(tmp_path)
    monkeypatch.chdir(tmp_path)
    wrong = []
    for line in shown(page):
        words = place.words(line)
        if listed(NOT_RUN, words):
            continue
        if words[0] in SERVICES and "--once" not in words:
            code, said = serve(words, place.env)
        else:
            with monkeypatch.context() as patched:
                for name, value in place.env.items():
                    patched.setenv(name, value)
                code = cli.main(words)
            said = capsys.readouterr().err
        expected, _ = listed(NOT_THERE, words) or (0, "")
        if code != expected:
            wrong.append((line, code, said[-600:]))
    assert wrong == []
