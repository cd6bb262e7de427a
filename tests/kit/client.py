"""The real Java client, driven from Python. ``tests/kit/java/Client.java`` lists the commands and their options."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.kit import cache, classarchive
from tests.kit.process import Child, ChildError, Scratch


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one command did: its summary, and the file with one JSON object per message."""

    summary: dict[str, Any]
    answers: list[dict[str, Any]]
    path: Path

    def lines(self) -> list[dict[str, Any]]:
        """The messages, in the order in which the client wrote them down."""
        return list(read_lines(self.path))


CRASHED = 137
"""Exit code of a consumer that was told to crash, and of one that was killed, as a shell would say it."""


class Running:
    """A command that runs beside the test. Consumers can be paused, ended and killed."""

    def __init__(self, command: str, child: Child, path: Path, scratch: Scratch) -> None:
        self.child = child
        self._scratch = scratch
        self.path = path
        self._command = command

    @property
    def control(self) -> Path:
        """The file through which a consumer is told what to do."""
        return self.path.with_suffix(".control")

    def pause(self) -> None:
        """Let a consumer pull nothing more; what its client holds already is still handed out."""
        self.control.write_text("pause")

    def resume(self) -> None:
        """Let it go on."""
        self.control.write_text("run")

    def finish(self, seconds: float = 60.0) -> Outcome:
        """Let a consumer end now, in good order."""
        self.control.write_text("stop")
        return self.wait(seconds)

    def kill(self) -> list[dict[str, Any]]:
        """kill -9; what it had written down, which it does before it says that a message is consumed."""
        self.child.kill()
        self._scratch.remove()
        return list(read_lines(self.path))

    def crashed(self, seconds: float = 120.0) -> list[dict[str, Any]]:
        """Wait for a consumer with ``crash_after`` to end as if killed; what it had written down."""
        code = self.child.wait(seconds)
        self._scratch.remove()
        if code != CRASHED:
            raise ChildError(f"client command {self._command} ended with {code}:\n{self.child.output()}")
        return list(read_lines(self.path))

    def taken(self) -> int:
        """How many messages it has written down so far."""
        return self.path.read_bytes().count(b"\n") if self.path.exists() else 0

    def wait_taken(self, count: int, seconds: float = 60.0) -> None:
        """Wait until that many are written down; ChildError when it ends before or time is up."""
        self.child.wait_until(lambda: self.taken() >= count, seconds, f"{count} messages")

    def wait(self, seconds: float = 120.0) -> Outcome:
        """Wait for its end; ChildError when it failed."""
        try:
            code = self.child.wait(seconds)
        finally:
            self._scratch.remove()
        output = self.child.output(last_bytes=1 << 24)
        if code != 0:
            raise ChildError(f"client command {self._command} ended with {code}:\n{output[-4000:]}")
        answers = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        return Outcome(answers[-1], answers, self.path)


class JavaClient:
    """Runs commands of Client.java with the jars of one RocketMQ version. ``directory`` takes logs and results."""

    def __init__(
        self, version: str, directory: Path, *, name_server: str, broker: str, broker_name: str = "broker-a"
    ) -> None:
        self.version = version
        self.directory = directory
        self._broker_name = broker_name
        self._servers = {"namesrv": name_server, "broker": broker, "broker_name": broker_name}

    @property
    def name_server(self) -> str:
        """Where it asks for routes."""
        return self._servers["namesrv"]

    def through(self, name_server: str, *, version: str | None = None, broker: str | None = None) -> Self:
        """The same client, told another name server; perhaps with the jars of another version."""
        return type(self)(
            version or self.version,
            self.directory,
            name_server=name_server,
            broker=broker or self._servers["broker"],
            broker_name=self._broker_name,
        )

    def run(
        self,
        command: str,
        *,
        seconds: float = 120.0,
        heap_mib: int = 256,
        properties: Mapping[str, str] | None = None,
        **options: object,
    ) -> Outcome:
        """Run a command to its end; ChildError with the client's own words when it fails."""
        return self.start(command, heap_mib=heap_mib, properties=properties, **options).wait(seconds)

    def start(
        self,
        command: str,
        *,
        heap_mib: int = 256,
        properties: Mapping[str, str] | None = None,
        **options: object,
    ) -> Running:
        """Start a command; ``out`` defaults to a new file in the directory, ``properties`` are the JVM's."""
        classes = cache.client_classes(self.version)
        if not (classes / "Client.class").exists():
            raise FileNotFoundError(
                f"{classes} is missing: run python tests/kit/install.py rocketmq-{self.version}"
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        name = self._unused(command)
        path = Path(str(options.pop("out", self.directory / f"{name}.jsonl")))
        chosen = {**self._servers, "control": path.with_suffix(".control"), **options, "out": path}
        java = ["java", f"-Xmx{heap_mib}m", "-Xms32m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java += ["--add-opens=java.base/java.util=ALL-UNNAMED", "--add-opens=java.base/java.lang=ALL-UNNAMED"]
        java += [f"-Duser.home={self.directory}", "-Dfile.encoding=UTF-8", "-Drocketmq.client.logLevel=WARN"]
        scratch = Scratch(self.directory / f"{name}-tmp")
        scratch.make()
        java += ["-Drocketmq.client.rebalance.waitInterval=1000", scratch.java_option]
        java += [f"-D{key}={value}" for key, value in (properties or {}).items()]
        java += classarchive.options(self.version)
        arguments = [f"{key}={value}" for key, value in chosen.items()]
        child = Child(
            f"client {command} {self.version}",
            [*java, "-cp", cache.class_path(self.version, classes), "Client", command, *arguments],
            self.directory / f"{name}.out",
            {"LC_ALL": "C.UTF-8"},
        )
        return Running(command, child, path, scratch)

    def logged(self, last_bytes: int = 4000) -> str:
        """The end of the client library's own log, warnings and worse; all clients of the directory share it."""
        path = self.directory / "logs/rocketmqlogs/rocketmq_client.log"
        return path.read_bytes()[-last_bytes:].decode(errors="replace") if path.exists() else ""

    def _unused(self, command: str) -> str:
        names = (f"{command}-{number}" for number in itertools.count(1))
        return next(name for name in names if not (self.directory / f"{name}.out").exists())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a JSON-lines file that may still be growing; nothing when it is not there yet."""
    if not path.exists():
        return
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.endswith("\n"):
                return  # half a line: going on would give its other half, if that is written meanwhile
            yield json.loads(line)
