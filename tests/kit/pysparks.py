"""Whether PySpark can run here, and sessions of it."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kit.classarchive import written_at_exit
from tests.kit.sparkworker import python_for_workers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for minutes does not repay its best compiler: without it a module of tests costs a third less."""
LOCAL = "local["
BEST_JVM = ""
"""For what is measured, or takes long."""


def home() -> Path:
    """Where PySpark lies."""
    found = importlib.util.find_spec("pyspark")
    assert found is not None, "PySpark is not installed"
    assert found.origin is not None
    return Path(found.origin).parent


@cache
def quick_jvm() -> str:
    """Options of the JVMs of tests: ``PLAIN_JVM`` with their classes archived, by which a JVM starts for half the CPU."""

    def train(option: str) -> None:
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"}
        command = [sys.executable, "-m", "tests.kit.sparktraining", option]
        subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, check=True)

    return f"{PLAIN_JVM} {written_at_exit('spark', sorted((home() / 'jars').glob('*.jar')), train)}"


def missing() -> str | None:
    """What is absent; ``None`` if nothing is."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return "PySpark is not installed → make install-spark"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "there is no java on the PATH → install Java 17"
    return None


@contextmanager
def session(master: str = "local[2]", *, jvm: str | None = None, **conf: object) -> Iterator[SparkSession]:
    """A session on loopback, in UTC, without a web page; ``__`` in names of settings stands for a dot.

    ``jvm``: options of its JVMs, which then start as users' do, and Python workers with them; without it both take what was
    prepared for tests.

    A session's settings of SQL, views and catalogs are its own. The context below it stays for the next session of the same
    master and other settings, with its Python workers, unless it is of a cluster or has a JVM of its own.
    """
    from pyspark.sql import SparkSession

    prepared = jvm is None and master.startswith(LOCAL)
    os.environ["PYSPARK_PYTHON"] = python_for_workers() if prepared else sys.executable
    java = quick_jvm() if jvm is None else jvm
    builder = SparkSession.builder.master(master).appName("tiered-tests")
    settings: dict[str, object] = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.showConsoleProgress": "false",
        **{name.replace("__", "."): value for name, value in conf.items()},
    }
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    below = (master, *sorted(pair for pair in settings.items() if not pair[0].startswith("spark.sql.")))
    _KEPT.offer(below)
    made = builder.getOrCreate()
    try:
        yield made
    finally:
        if prepared:
            _KEPT.leave(made, below)
        else:
            made.stop()


def end_jvm() -> None:
    """End this process's JVM, if there is one: only a new one sees what the environment says since."""
    from pyspark import SparkContext

    _KEPT.end()
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # it ends with its input
    gateway.proc.wait(60)
    SparkContext._gateway = SparkContext._jvm = None


class _Kept:
    """The context that the last session left behind."""

    def __init__(self) -> None:
        self._settings: tuple[object, ...] = ()

    def offer(self, settings: tuple[object, ...]) -> None:
        """End it if the next session needs another."""
        if settings != self._settings:
            self.end()

    def leave(self, made: SparkSession, settings: tuple[object, ...]) -> None:
        """Keep the context of a session, and nothing else of it: the next ``getOrCreate`` makes a session of its own."""
        from pyspark.sql import SparkSession

        for query in made.streams.active:
            query.stop()
        assert made._jvm is not None
        java = made._jvm.org.apache.spark.sql.classic.SparkSession
        java.clearDefaultSession()
        java.clearActiveSession()
        SparkSession._instantiatedSession = SparkSession._activeSession = None
        self._settings = settings

    def end(self) -> None:
        """Nothing if there is none."""
        if "pyspark" not in sys.modules:
            return  # every process that has this module ends here: none imports PySpark for that
        from pyspark import SparkContext

        if SparkContext._active_spark_context is not None:
            SparkContext._active_spark_context.stop()
        self._settings = ()


_KEPT = _Kept()
atexit.register(_KEPT.end)
