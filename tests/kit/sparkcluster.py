"""A standalone Spark cluster on loopback: a master and workers in processes of their own, whose executors are processes too.

::

    with cluster(directory, environment=credentials) as made:
        driver = Driver(directory / "scan", made.url, archive=url)
        assert driver.run() == 0, driver.output()
        rows = table_of(driver.rows)

PySpark brings the jars. Executors take the variables of their worker, as they would on a machine of their own, and nothing of
the driver's: its working directory, its modules and its environment are not theirs.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.kit.daemonproc import wait_for
from tests.kit.ports import free_port
from tests.kit.process import Child, Scratch
from tests.kit.pysparks import home, quick_jvm

ROOT = Path(__file__).parents[2]
READY_SECONDS = 60.0

_OPENED = (
    "java.lang",
    "java.net",
    "java.nio",
    "java.util",
    "java.util.concurrent",
    "sun.nio.ch",
    "sun.util.calendar",
)


def class_path() -> str:
    """As Spark's own scripts put it together for drivers and executors; an archive of classes is of one class path."""
    jars = home() / "jars"
    (first,) = jars.glob("slf4j-api-*.jar")
    return f"{home() / 'conf'}:{first}:{jars / '*'}"


class Cluster:
    """A master and its workers, one core and 1 GiB each; ``work`` takes what the executors write."""

    def __init__(
        self, directory: Path, *, workers: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self.directory = directory
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._workers = workers
        self._environment = dict(environment or {})
        self._scratch = Scratch(directory / "tmp")
        self._children: list[Child] = []

    @property
    def work(self) -> Path:
        """Work directories of the workers; below them ``stdout`` and ``stderr`` of each executor."""
        return self.directory / "work"

    def start(self) -> Cluster:
        """Start all, and wait until every worker is registered."""
        port = self.url.rpartition(":")[2]
        master = self._spawn("Master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        master.wait_until(lambda: "New state: ALIVE" in master.output(20_000), READY_SECONDS, "its election")
        workers = [
            self._spawn(
                "Worker", "--host", "127.0.0.1", "--webui-port", "0", "--cores", "1", "--memory", "1g",
                "--work-dir", str(self.work / str(number)), self.url, number=number,
            )
            for number in range(self._workers)
        ]  # fmt: skip
        for worker in workers:
            worker.wait_until(
                lambda worker=worker: "Successfully registered" in worker.output(20_000),  # type: ignore[misc]
                READY_SECONDS,
                "its registration",
            )
        return self

    def _spawn(self, role: str, *arguments: str, number: int = 0) -> Child:
        self._scratch.make()
        java = ["java", "-Xmx256m", *quick_jvm().split(), self._scratch.java_option]
        java += [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        java += ["-Dspark.master.rest.enabled=false"]  # it would take port 6066
        java += ["-cp", class_path(), f"org.apache.spark.deploy.{role.lower()}.{role}"]
        own = {} if role == "Master" else self._environment
        environment = {
            **own, "SPARK_HOME": str(home()), "SPARK_SCALA_VERSION": "2.13",  # as spark-class sets it
            "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOCAL_DIRS": str(self.directory / "local"),
        }  # fmt: skip
        log = self.directory / f"{role.lower()}-{number}.log"
        child = Child(f"Spark {role} {number}", [*java, *arguments], log, environment)
        self._children.append(child)
        return child

    def stop(self) -> None:
        """End the workers, which end their executors, and then the master."""
        for child in reversed(self._children):
            child.stop()
        self._children.clear()
        self._scratch.remove()

    def kill(self) -> None:
        """kill -9 to what still runs."""
        for child in reversed(self._children):
            child.kill()
        self._children.clear()
        self._scratch.remove()


@contextmanager
def cluster(
    directory: Path, *, workers: int = 1, environment: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """A running cluster. ``environment``: variables of its workers, such as credentials."""
    made = Cluster(directory, workers=workers, environment=environment)
    try:
        yield made.start()
        made.stop()
    finally:
        made.kill()


class Driver:
    """``sparkdriver.py`` as a child process: a scan, or a stream, of an archive into Parquet files.

    ``task``: what ``sparkdriver.py`` lists. Its output is ``log``; everything it writes lies below ``directory``.
    """

    def __init__(
        self, directory: Path, master: str, *, environment: Mapping[str, str] | None = None, **task: Any
    ) -> None:
        self.directory = directory
        self.rows = directory / "rows"
        self.log = directory / "driver.log"
        self._task = {"master": master, "directory": str(directory), **task}
        self._environment = {"PYTHONPATH": str(ROOT), **(environment or {})}
        self._child: Child | None = None

    @property
    def child(self) -> Child:
        """The process last started."""
        assert self._child is not None, "the driver was never started"
        return self._child

    def start(self) -> Driver:
        """Start it, and wait until it has a session."""
        self.directory.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "tests.kit.sparkdriver", json.dumps(self._task)]
        self._child = Child("Spark driver", command, self.log, self._environment)
        self._child.wait_until(lambda: self.said("jvm") != [], READY_SECONDS, "its session")
        return self

    def run(self, seconds: float = 120.0) -> int:
        """Start it and wait for its end; the exit code."""
        try:
            return self.start().child.wait(seconds)
        finally:
            self.kill()

    def output(self) -> str:
        """The end of what it wrote."""
        return self.child.output(20_000)

    def said(self, name: str) -> list[Any]:
        """Values of the lines of JSON that the process last started wrote, where they have this name."""
        lines = self.child.output(1 << 20).splitlines()
        found = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
        return [line[name] for line in found if name in line]

    def kill(self) -> None:
        """kill -9 to its JVM and to itself; fine if they are gone."""
        if self._child is None:
            return
        for pid in self.said("jvm"):
            if b"SparkSubmit" in _command_line(pid):
                os.kill(pid, signal.SIGKILL)
            wait_for(lambda pid=pid: not _command_line(pid), "the end of its JVM")  # type: ignore[misc]
        self._child.kill()


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def table_of(directory: Path) -> pa.Table:
    """All rows of Parquet files that Spark has written."""
    return pa.concat_tables([pq.read_table(path) for path in sorted(directory.glob("*.parquet"))])


def keep(directory: Path, copy: Path) -> None:
    """A copy of files that Spark removes at its end."""
    shutil.copytree(directory, copy, dirs_exist_ok=True, ignore_dangling_symlinks=True)
