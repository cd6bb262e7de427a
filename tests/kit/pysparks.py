"""Whether PySpark can run here, and sessions of it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A JVM that lives for minutes does not repay its best compiler: without it a module of tests costs a third less."""
BEST_JVM = ""
"""For what is measured, or takes long."""


def missing() -> str | None:
    """What is absent; ``None`` if nothing is."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        return "PySpark is not installed → make install-spark"
    if shutil.which("java") is None and not os.environ.get("JAVA_HOME"):
        return "there is no java on the PATH → install Java 17"
    return None


@contextmanager
def session(master: str = "local[2]", **conf: object) -> Iterator[SparkSession]:
    """A session on loopback, in UTC, without a web page; ``__`` in names of settings stands for a dot."""
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("tiered-tests")
    settings: dict[str, object] = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.executor.extraJavaOptions": QUICK_JVM,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.showConsoleProgress": "false",
        **{name.replace("__", "."): value for name, value in conf.items()},
    }
    for name, value in settings.items():
        builder = builder.config(name, str(value))
    made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()
