"""A JVM of Spark that does once what the tests' JVMs do, so that their classes are archived when it ends (``classarchive.py``).

``python -m tests.kit.sparktraining OPTION`` — a process of its own, as a JVM outlives the sessions of its process. It reads a
small archive as table and as stream, and is driver, master and worker of a cluster.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import SparkContext

from tests.kit.pysparks import PLAIN_JVM, session
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive
from tiered_spark import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(option: str) -> None:
    """All of it, to the end of the JVM."""
    jvm = f"{PLAIN_JVM} {option}"
    with tempfile.TemporaryDirectory(prefix="training-") as made:
        directory = Path(made)
        tiered("gen", "--store", directory / "store", "--messages", 200, "--topics", 2)
        url = archive(directory / "store", directory)
        with session(jvm=jvm) as spark:
            _read(spark, url, directory)
            gateway = spark.sparkContext._gateway
        with session("local-cluster[1,1,1024]", jvm=PLAIN_JVM, spark__executor__memory="1g") as spark:
            spark.range(100).groupBy("id").count().collect()
    assert gateway is not None
    assert SparkContext._gateway is gateway
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def _read(spark: SparkSession, url: str, directory: Path) -> None:
    register(spark)
    frame = spark.read.format("rocketmq_tiered").option("archive", url).load()
    frame.createOrReplaceTempView("messages")
    spark.sql(
        "SELECT topic, count(*), sum(body_size), row_number() OVER (ORDER BY topic) FROM messages m "
        "JOIN (SELECT max(queue_offset) last, queue_id FROM messages GROUP BY queue_id) q USING (queue_id) "
        "WHERE queue_offset <= last AND tags IS NOT NULL GROUP BY topic ORDER BY topic LIMIT 5"
    ).collect()
    frame.toArrow()
    frame.explain(mode="extended")
    spark.createDataFrame([(1, '{"a": 1}')], "id int, text string").selectExpr(
        "from_json(text, 'a int').a"
    ).collect()
    frame.write.mode("overwrite").partitionBy("topic").parquet(str(directory / "rows"))
    spark.read.parquet(str(directory / "rows")).dropDuplicates(["topic"]).count()
    stream = spark.readStream.format("rocketmq_tiered").option("archive", url).load()
    writer = stream.writeStream.option("checkpointLocation", str(directory / "checkpoint")).format("parquet")
    writer.trigger(availableNow=True).start(str(directory / "streamed")).awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1])
