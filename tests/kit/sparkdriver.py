"""A Spark driver in a process of its own, as ``spark-submit`` of a small program would have it: reads an archive into Parquet
files, or sends it to a broker again.

Its argument is one object of JSON: ``master``, ``directory`` (``rows`` and ``checkpoint`` in it), ``archive``, and of choice
``options``, ``filter`` (SQL), ``conf``, ``stream`` (``now``: until all is read; ``on``: until it is killed), ``replay``
(options of the write back, which then takes the rows), ``idle`` (nothing is read), ``say`` (words to print, for tests of a
search in its output), ``then`` (another task for the same session, in a directory of its own). It prints lines of JSON: ``jvm``
(process id), ``plan``, ``rows`` or ``progress``, ``error`` (the first line that a user sees).
"""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.kit.pysparks import session
from tests.kit.sparkcluster import keep
from tiered_spark import register

COMMON = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.executor.memory": "1g",
    "spark.ui.enabled": "false",
}


def say(**fields: object) -> None:
    """One line."""
    print(json.dumps(fields), flush=True)


def main(task: dict[str, Any]) -> int:
    """Run the task; 1 if Spark says that it failed."""
    directory = Path(task["directory"])
    local = directory / "local"
    conf = {**COMMON, "spark.local.dir": str(local), **task.get("conf", {})}
    with session(task["master"], **conf) as spark:
        register(spark)
        say(jvm=spark._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
        if task.get("say"):
            print(task["say"], flush=True)
        try:
            _do(spark, task, directory)
            if task.get("then"):
                _do(spark, task["then"], Path(task["then"]["directory"]))
        except Exception as error:
            say(error=str(error).splitlines()[0])
            return 1
        finally:
            if local.exists():
                keep(local, directory / "local-kept")
    return 0


def _do(spark: SparkSession, task: dict[str, Any], directory: Path) -> None:
    if task.get("idle"):
        return
    if task.get("stream"):
        _stream(spark, task, directory)
    elif task.get("replay"):
        _replay(spark, task)
    else:
        _scan(spark, task, directory)


def _load(reader: Any, task: dict[str, Any]) -> DataFrame:
    frame: DataFrame = (
        reader.format("rocketmq_tiered")
        .option("archive", task["archive"])
        .options(**task.get("options", {}))
        .load()
    )
    return frame.filter(task["filter"]) if task.get("filter") else frame


def _scan(spark: SparkSession, task: dict[str, Any], directory: Path) -> None:
    frame = _load(spark.read, task)
    plan = StringIO()
    with redirect_stdout(plan):
        frame.explain(mode="extended")
        frame.explain(mode="formatted")
    say(plan=plan.getvalue(), shown=repr(frame), logical=frame._jdf.queryExecution().toString())
    frame.write.mode("overwrite").parquet(str(directory / "rows"))
    say(rows=spark.read.parquet(str(directory / "rows")).count())


def _replay(spark: SparkSession, task: dict[str, Any]) -> None:
    writer = _load(spark.read, task).write.format("rocketmq_tiered_replay").mode("append")
    writer.options(**task["replay"]).save()


def _stream(spark: SparkSession, task: dict[str, Any], directory: Path) -> None:
    writer = (
        _load(spark.readStream, task).writeStream.format("parquet").option("path", str(directory / "rows"))
    )
    writer = writer.option("checkpointLocation", str(directory / "checkpoint"))
    now = task["stream"] == "now"
    query = (writer.trigger(availableNow=True) if now else writer.trigger(processingTime="1 second")).start()
    query.awaitTermination()
    plan = StringIO()
    with redirect_stdout(plan):
        query.explain(extended=True)
    say(plan=plan.getvalue(), progress=[p["numInputRows"] for p in query.recentProgress])


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
