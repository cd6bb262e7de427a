"""What scans cost, as rows: Spark 4.1 to 4.3 has no metrics for a Python data source, but keeps workers' logs as a table."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOGGING = "spark.sql.pyspark.worker.logging.enabled"
"""The setting of Spark with which it keeps them."""

NUMBERS = ("rows", "requests", "bytes", "partitions", "objects", "without")
"""Of a partition that was read: rows, requests and bytes received. Of a plan: partitions, and bytes of their records. Of keys
that a plan looked for: objects, those of them without the keys, requests and bytes."""

log = logging.getLogger("tiered.spark.metrics")


def note(event: str, place: object, **numbers: int) -> None:
    """One line of a worker's log, at level INFO; kept by Spark where its setting says so."""
    if "PYSPARK_SPARK_SESSION_UUID" in os.environ:  # noqa: TID251 - the sign of that setting
        log.setLevel(logging.INFO)
    told = " ".join(f"{name}={value}" for name, value in numbers.items())
    context = {"event": event, "archive": str(place), **{name: str(value) for name, value in numbers.items()}}
    log.info("%s of %s: %s", event, place, told, extra={"context": context})


def metrics(spark: SparkSession) -> DataFrame:
    """What this session's scans noted since it keeps the workers' logs: a row for each partition that was read (``read``), each
    plan (``planned``) and each look for keys (``keys``), with time, event, archive, and ``NUMBERS``, null where there is none.

    Nothing, unless ``LOGGING`` was true while they ran.
    """
    from pyspark.sql import functions as f

    found = spark.tvf.python_worker_logs().where(f.col("logger") == log.name)
    names = [f.col("context")[name].alias(name) for name in ("event", "archive")]
    return found.select("ts", *names, *(f.col("context")[name].cast("long").alias(name) for name in NUMBERS))
