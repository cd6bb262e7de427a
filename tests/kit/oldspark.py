"""A session of the PySpark on the path, whichever it is, with the archive in Delta and Iceberg: what it saw, as JSON on stdout.

``python -m tests.kit.oldspark ARCHIVE DIRECTORY JARS`` — a process of its own, as the tests have a newer PySpark loaded.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

from tests.kit.pysparks import session
from tiered_spark import late_frame, register

COLUMNS = "topic,queue_id,queue_offset,tags,body"
_FORMATS = {
    "delta": lambda directory: f"delta.`{directory}/delta-table`",
    "iceberg": lambda directory: "ice.db.messages",
}


def main(url: str, directory: Path, jars: Path) -> None:
    """All of it in one session."""
    classes = [
        str(p)
        for p in sorted(jars.glob("*.jar"))
        if p.name.startswith(("delta-", "iceberg-", "unitycatalog"))
    ]
    conf = {
        "spark.jars": ",".join(classes),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": f"file://{directory}/ice",
        "spark.sql.warehouse.dir": f"{directory}/warehouse",
    }
    seen: dict[str, Any] = {"version": pyspark.__version__}
    with session(**{name.replace(".", "__"): value for name, value in conf.items()}) as spark:
        register(spark)
        reader = spark.read.format("rocketmq_tiered").option("archive", url).option("columns", COLUMNS)
        frame = reader.option("decodeBody", "false").load()
        seen["rows"] = _rows(frame)
        seen["view"] = _rows(late_frame(spark, archive=url, columns=COLUMNS, decodeBody="false"))
        stream = (
            spark.readStream.format("rocketmq_tiered").option("archive", url).option("decodeBody", "false")
        )
        for name, table in _FORMATS.items():
            place = table(directory)
            frame.filter("queue_id = 0").writeTo(place).using(name).create()
            frame.filter("queue_id <> 0").writeTo(place).append()
            seen[name] = _rows(spark.table(place))
            writer = stream.option("columns", COLUMNS).load().writeStream.format(name)
            writer = writer.option("checkpointLocation", f"{directory}/checkpoint-{name}").trigger(
                availableNow=True
            )
            if name == "delta":
                copy = f"delta.`{directory}/delta-stream`"
                query = writer.start(f"{directory}/delta-stream")
            else:
                copy = "ice.db.streamed"
                spark.sql(f"create table {copy} using iceberg as select * from {place} limit 0")
                query = writer.toTable(copy)
            assert query.awaitTermination(120)
            seen[f"{name} stream"] = _rows(spark.table(copy))
        bounded = stream.option("maxMessagesPerTrigger", "100").load().writeStream.format("noop")
        seen["bounded"] = _error(
            lambda: bounded.option("checkpointLocation", f"{directory}/bounded").start().awaitTermination(60)
        )
    print(json.dumps(seen))


def _rows(frame: Any) -> list[list[Any]]:
    """How many, and about what they are: a sum that changes with every value of theirs."""
    from pyspark.sql import functions as f

    values = [f.coalesce(f.col(name).cast("string"), f.lit("-")) for name in COLUMNS.split(",")[:-1]]
    hashed = f.crc32(f.concat_ws("|", *values, f.md5("body")))
    return [list(row) for row in frame.agg(f.count("*"), f.sum(hashed)).collect()]


def _error(run: Callable[[], object]) -> str:
    try:
        run()
    except Exception as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
