"""A session of the PySpark on the path, whichever it is: what it saw of an archive, in Delta and, where its jar is there, in
Iceberg too, as JSON on stdout.

``python -m tests.kit.olderspark ARCHIVE SEALED DIRECTORY JARS``: a process of its own, as tests have a newer PySpark loaded.
``SEALED`` is the archive again, its days sealed.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyspark

from tests.kit.pysparks import PLAIN_JVM, session
from tiered_jobs.main import main as job
from tiered_jobs.pipeline.formats import FORMATS
from tiered_spark import SteadyQuery, frame, late_frame, register

COLUMNS = "topic,queue_id,queue_offset,tags,body"
ICEBERG = "ice.db.messages"
ICEBERG_CONF = {
    "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.ice.type": "hadoop",
}
A_BATCH = "5000"
"""Messages of a batch of the stream that is bounded: fewer than the archive has."""


def main(url: str, sealed: str, directory: Path, jars: Path) -> None:
    """All of it in one session."""
    classes = [
        str(jar)
        for jar in sorted(jars.glob("*.jar"))
        if jar.name.startswith(("delta-", "iceberg-", "unitycatalog"))
    ]
    conf = {
        "spark.jars": ",".join(classes),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
    }
    iceberg = any("iceberg" in jar for jar in classes)
    if iceberg:
        conf |= {**ICEBERG_CONF, "spark.sql.catalog.ice.warehouse": f"file://{directory}/ice"}
    seen: dict[str, Any] = {"version": pyspark.__version__}
    with session(jvm=PLAIN_JVM, **{name.replace(".", "__"): value for name, value in conf.items()}) as spark:
        register(spark)
        options = {"archive": url, "columns": COLUMNS, "decodeBody": "false"}
        scanned = spark.read.format("rocketmq_tiered").options(**options).load()
        seen["rows"] = _rows(scanned)
        seen["view"] = _rows(late_frame(spark, **options))
        seen["sealed"] = _rows(frame(spark, sealed, columns=COLUMNS, decodeBody=False))
        scanned.write.format("delta").save(f"{directory}/delta")
        seen["delta"] = _rows(spark.read.format("delta").load(f"{directory}/delta"))
        if iceberg:
            scanned.writeTo(ICEBERG).create()
            seen["iceberg"] = _rows(spark.table(ICEBERG))

        def start(**more: str) -> Any:
            found = spark.readStream.format("rocketmq_tiered").options(**options, **more).load()
            place = f"{directory}/checkpoint-{len(more)}"
            writer = found.writeStream.format("delta").option("checkpointLocation", place)
            return writer.trigger(availableNow=True).start(f"{directory}/streamed-{len(more)}")

        SteadyQuery(start).wait()
        seen["delta stream"] = _rows(spark.read.format("delta").load(f"{directory}/streamed-0"))
        for name in ("delta", "iceberg") if iceberg else ("delta",):
            seen[f"pipeline {name}"] = _pipeline(spark, url, f"{directory}/pipeline-{name}", name)
        try:
            SteadyQuery(lambda: start(maxMessagesPerTrigger=A_BATCH)).wait()
        except Exception as error:
            seen["refused"] = str(error)
        else:
            streamed = spark.read.format("delta").load(f"{directory}/streamed-1")
            seen["bounded stream"] = _rows(streamed)
            logs = (Path(directory, f"streamed-{n}", "_delta_log") for n in (0, 1))
            seen["batches"] = [len(list(log.glob("*.json"))) for log in logs]
    print(json.dumps(seen))


def _pipeline(spark: Any, url: str, table: str, name: str) -> list[list[Any]]:
    """Bronze in a format; a second run adds nothing. On a busy machine Spark may give up a worker: the run is done again."""
    for _ in range(2):
        words = ["--archive", url, "--table", table, "--layers", "bronze", "--format", name]
        assert any(job(["pipeline", *words]) == 0 for _ in range(3))
    return _rows(FORMATS[name].read(spark, f"{table}/bronze"))


def _rows(frame: Any) -> list[list[Any]]:
    """How many, and about what they are: a sum that changes with every value of theirs."""
    from pyspark.sql import functions as f

    values = [f.coalesce(f.col(name).cast("string"), f.lit("-")) for name in COLUMNS.split(",")[:-1]]
    hashed = f.crc32(f.concat_ws("|", *values, f.md5("body")))
    return [list(row) for row in frame.agg(f.count("*"), f.sum(hashed)).collect()]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
