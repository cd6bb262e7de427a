"""A streaming job that keeps its batches in the key-value view, so that one that is applied twice is noticed.

    spark-submit spark/examples/kvoffsets.py --archive s3://bucket/archive --topics Orders --out /data/orders \\
        --server http://127.0.0.1:8089 --stream orders-by-day --checkpoint /data/checkpoint

Spark hands a batch to ``foreachBatch`` again, with the same number, if the job died before its checkpoint knew of it. Sinks
that can overwrite a batch do not mind; for all others somebody has to know. Here the view does: a batch is *begun* and *done*
by compare-and-set on one key, and what is read there before a batch is applied says whether it is a new one, was done (it is
left out), or may have been applied in part (the sink is told, and replaces it). The entry also holds how far each queue was
read. Two jobs with one stream's name do not mix: the one that loses a compare-and-set stops.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from tiered.client.sync import LATEST, KeyValueClient
from tiered.errors import Conflict, Invalid, Unavailable
from tiered.keyvalue import Condition, Entry

Offsets = Mapping[str, int]
"""By ``topic/queue``: the offset behind the last one that was read."""


class BatchStanding(Enum):
    """What the view knows of a batch that is to be applied."""

    NEW = "new"
    REPEATED = "repeated"
    """It was begun before, and nobody knows whether it was applied."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class StreamRecord:
    """The entry of a stream: the last batch that was begun, whether it is done, and how far each queue was read."""

    batch: int
    done: bool
    offsets: Offsets

    def encode(self) -> bytes:
        """As the view holds it."""
        return json.dumps({"batch": self.batch, "done": self.done, "offsets": dict(self.offsets)}).encode()

    @classmethod
    def decode(cls, entry: Entry) -> StreamRecord:
        """``Invalid`` if somebody else put it there."""
        try:
            found = json.loads(entry.value)
            return cls(int(found["batch"]), bool(found["done"]), dict(found["offsets"]))
        except (ValueError, TypeError, KeyError):
            raise Invalid(
                "the key holds something else than a stream's record",
                found=ascii(entry.value[:60]),
                hint="name the stream otherwise",
            ) from None


class BatchLedger:
    """Batches of one stream, begun and done in the view. For the driver; one batch at a time."""

    def __init__(self, client: KeyValueClient, namespace: str, stream: str) -> None:
        self._client = client
        self._namespace = namespace
        self._key = stream.encode()
        self._version: int | None = None
        self._offsets: Offsets = {}

    def begin(self, batch: int) -> BatchStanding:
        """Note that ``batch`` is being applied, unless it was done. ``Invalid``: the stream is at a later or much earlier
        batch: the checkpoint is another's. ``Conflict``: another job has the stream's name."""
        entry = self._client.get(self._namespace, self._key, LATEST)
        self._version = None if entry is None else entry.version
        before = None if entry is None else StreamRecord.decode(entry)
        self._offsets = {} if before is None else before.offsets
        if before is not None and before.batch == batch:
            return BatchStanding.DONE if before.done else BatchStanding.REPEATED
        expected = 0 if before is None else before.batch + 1
        if batch != expected or (before is not None and not before.done):
            raise Invalid(
                "the stream's checkpoint and its record in the view do not belong together", found=batch,
                expected=expected if before is None or before.done else before.batch,
                hint="use the checkpoint it was, or another name for the stream",
            )  # fmt: skip
        self._put(StreamRecord(batch, False, self._offsets))
        return BatchStanding.NEW

    def finish(self, batch: int, offsets: Offsets) -> None:
        """Note that ``batch`` is applied; ``offsets`` of the queues that it read."""
        self._offsets = {**self._offsets, **offsets}
        self._put(StreamRecord(batch, True, self._offsets))

    def _put(self, record: StreamRecord) -> None:
        condition = Condition(absent=True) if self._version is None else Condition(version=self._version)
        try:
            self._version = self._client.put(self._namespace, self._key, record.encode(), condition=condition)
        except (Conflict, Unavailable):
            # Where the outcome is unknown the record may be there; if it is not, the job stops, and is started again.
            entry = self._client.get(self._namespace, self._key, LATEST)
            if entry is None or entry.value != record.encode() or entry.version == self._version:
                raise
            self._version = entry.version


def recorded(
    ledger: BatchLedger,
    apply: Callable[[Any, int, bool], Offsets],
    say: Callable[[str], None] = lambda text: None,
) -> Callable[[Any, int], None]:
    """What ``foreachBatch`` is given. ``apply`` writes a frame; its last argument says whether the batch may be there already,
    in part or in full, and must be replaced. It returns how far each queue was read."""

    def of_batch(frame: Any, batch: int) -> None:
        standing = ledger.begin(batch)
        if standing is BatchStanding.DONE:
            say(f"batch {batch} was applied before: it is left out")
            return
        if standing is BatchStanding.REPEATED:
            say(f"batch {batch} may have been applied before: it is replaced")
        ledger.finish(batch, apply(frame, batch, standing is BatchStanding.REPEATED))

    return of_batch


def stream(spark: Any, given: argparse.Namespace, ledger: BatchLedger, say: Callable[[str], None]) -> None:
    """Write what the archive has of the topics up to now, a directory of Parquet files for each batch."""
    from pyspark.sql import functions

    def apply(frame: Any, batch: int, repeated: bool) -> Offsets:
        frame.persist()
        try:
            mode = "overwrite" if repeated else "errorifexists"
            frame.write.mode(mode).parquet(f"{given.out}/batch={batch}")
            last = frame.groupBy("topic", "queue_id").agg(functions.max("queue_offset").alias("last"))
            return {f"{row.topic}/{row.queue_id}": row["last"] + 1 for row in last.collect()}
        finally:
            frame.unpersist()

    source = spark.readStream.format("rocketmq_tiered").option("archive", given.archive)
    frame = source.option("topics", given.topics).load()
    writer = frame.writeStream.foreachBatch(recorded(ledger, apply, say))
    writer = writer.option("checkpointLocation", given.checkpoint).trigger(availableNow=True)
    writer.start().awaitTermination()


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description="Archived messages as Parquet; batches are recorded in the view."
    )
    for name in ("archive", "topics", "out", "checkpoint", "server", "stream"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--namespace", default="streams")
    parser.add_argument("--token-file", type=Path, help="a file with kv.http_token")
    return parser.parse_args(arguments)


def main() -> None:
    """The job."""
    from pyspark.sql import SparkSession

    from tiered_spark import register

    given = parsed()
    token = given.token_file.read_text().strip() if given.token_file else ""
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    with KeyValueClient(given.server, token=token) as client:
        client.create(given.namespace)
        ledger = BatchLedger(client, given.namespace, given.stream)
        stream(spark, given, ledger, lambda text: print(text, file=sys.stderr))  # noqa: T201


if __name__ == "__main__":
    main()
