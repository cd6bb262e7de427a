"""Which records belong to one life: by the key indexes, and from record to record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tiered.archive.read.lookup import locate_physical
from tiered.codec.record.hosts import decode_message_id
from tiered.errors import Invalid
from tiered.model import PhysicalOffset
from tiered_jobs.trace.steps import OP_TOPIC, TRACE_TOPIC, Row, open_halves, place
from tiered_jobs.work import Work
from tiered_spark.options import exactly, perhaps
from tiered_spark.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


MAX_HOPS = 8
"""Look-ups, each by what the one before has found."""

KEYS_AT_ONCE = 500

DECIDED_WITHIN_MS = 24 * 3600 * 1000
"""How long behind a half message its end is looked for; brokers give up within minutes, by default."""

PLAIN = (
    "cluster", "broker", "topic", "queue_id", "queue_offset", "tags", "keys", "unique_key", "msg_id", "born_host", "sys_flag",
    "reconsume_times", "prepared_transaction_offset", "physical_offset", "body_size",
)  # fmt: skip

PROPERTIES = (
    "ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID", "RETRY_TOPIC", "REAL_TOPIC", "ORIGIN_GROUP", "PGROUP", "DELAY",
    "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_OUT_MS", "TRANSACTION_CHECK_TIMES", "__transactionId__",
)  # fmt: skip
"""The properties that a life is read from."""

ANYWHERE: dict[str, object] = {"topics": "*", "startingTimestamp": None, "endingTimestamp": None}
"""Only the start of a search is bound to the topics and times of the flags."""

ORIGINS = ("ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_MESSAGE_ID")


class Search:
    """Finds at most ``limit`` records; ``more`` tells that there were others, ``unfollowed`` that ``MAX_HOPS`` were too few."""

    def __init__(self, work: Work, snapshots: Sequence[Snapshot], *, limit: int) -> None:
        self._work, self._snapshots, self._limit = work, snapshots, limit
        self._found: dict[tuple[Any, ...], Row] = {}
        self.more = self.unfollowed = False

    def find(self, kind: str, value: str) -> list[Row]:
        """Records of the life of a ``key``, ``unique_key``, ``message_id`` or ``transaction``, by time."""
        from pyspark.sql import functions as F  # noqa: N812 - its usual name

        asked: set[str] = set()
        if kind == "message_id":
            self._take_located([value])
        elif kind == "key":
            self._take(F.array_contains("keys", value), keys=json.dumps([value]))
        else:
            good = _about([value])
            if kind == "transaction":
                good = good | (F.col("properties")["__transactionId__"] == value)
            self._take(good, keys=json.dumps([value]))
            args = self._work.args
            if (args.topics, args.start, args.end) == ("*", None, None):
                asked.add(value)
        for hop in range(MAX_HOPS):
            origins = self._origins() - asked
            self._take_located(sorted(origins))  # first: other copies name the same origin
            keys = self._keys()
            asked |= origins
            if keys <= asked or self.more:
                break
            self._work.say(f"look-up {hop + 2}: {len(self._found)} records so far")
            self._take_keys(sorted(keys - asked), sorted(row["msg_id"] for row in self._found.values()))
            asked |= keys
        else:
            self.unfollowed = not self._origins() | self._keys() <= asked
        return sorted(self._found.values(), key=lambda row: (row["store_timestamp"], row["physical_offset"]))

    def _origins(self) -> set[str]:
        """Message ids that what is found names as its origin, and that are not found."""
        named = {row[name] for row in self._found.values() for name in ORIGINS if row[name]}
        return named - {row["msg_id"] for row in self._found.values()}

    def _keys(self) -> set[str]:
        """Unique keys of what is found; the keys, where there is none."""
        keys = {row["unique_key"] for row in self._found.values() if row["unique_key"]}
        return keys | {key for row in self._found.values() if not row["unique_key"] for key in row["keys"]}

    def decisions(self, found: Sequence[Row]) -> list[Row]:
        """Records of the broker that end half messages without a commit among ``found``; ``ends``: queue offsets of these."""
        from pyspark.sql import functions as F  # noqa: N812

        halves = open_halves(found)
        if not halves:
            return []
        first = min(row["store_timestamp"] for row in halves)
        last = max(row["store_timestamp"] for row in halves)
        self._work.say(f"the end of {len(halves)} half messages")
        frame = self._work.read(
            ",".join((*PLAIN, "store_timestamp", "properties", "body")), **perhaps([OP_TOPIC]), includeSystemTopics="true",
            startingTimestamp=first, endingTimestamp=last + DECIDED_WITHIN_MS,
        )  # fmt: skip
        wanted = F.array(*(F.lit(text) for text in sorted({str(row["queue_offset"]) for row in halves})))
        ends = F.array_intersect(F.split(F.decode("body", "utf-8"), ","), wanted)
        frame = frame.withColumn("ends", ends).filter((F.size("ends") > 0) & (F.col("tags") == "d"))
        return self._collected(frame, "ends")

    # ---- steps of the search

    def _take_keys(self, keys: Sequence[str], origins: Sequence[str]) -> None:
        """Records whose unique key is one of ``keys``, or that have one of them and name one of ``origins``."""
        from pyspark.sql import functions as F  # noqa: N812

        for first in range(0, len(keys), KEYS_AT_ONCE):
            part = keys[first : first + KEYS_AT_ONCE]
            good = _about(part)
            for name in ORIGINS:
                good = good | F.col("properties")[name].isin(list(origins))
            self._take(good, keys=json.dumps(part), **ANYWHERE)

    def _take_located(self, message_ids: Iterable[str]) -> None:
        """The records that have these ids, looked up by physical offset; those that are not archived are passed over."""
        from pyspark.sql import functions as F  # noqa: N812

        for message_id in message_ids:
            try:
                host, offset = decode_message_id(message_id)
            except Invalid:
                continue
            for snapshot in self._snapshots:
                head = snapshot.view.head
                for lineage in range(head.highest_lineage if head is not None else 0, 0, -1):
                    item = locate_physical(
                        snapshot.view.state, snapshot.view.objects, PhysicalOffset(offset), lineage
                    )
                    if item is None or item.message.store_host != host:
                        continue
                    here = (F.col("queue_id") == item.queue.queue_id) & (
                        F.col("queue_offset") == int(item.queue_offset)
                    )
                    self._take(
                        here & (F.col("msg_id") == message_id.upper()),
                        **{
                            **ANYWHERE, "topics": exactly(item.queue.topic),
                            "cluster": exactly(snapshot.place.cluster), "broker": exactly(snapshot.place.broker),
                        },
                    )  # fmt: skip

    def _take(self, good: Column, **options: object) -> None:

        columns = ",".join((*PLAIN, "store_timestamp", "properties"))
        frame = self._work.read(columns, **{"includeSystemTopics": "true", **options})
        rows = self._collected(frame.filter(good))
        for row in rows:
            self._found.setdefault(place(row), row)
        if len(self._found) > self._limit:
            self.more = True
            kept = sorted(
                self._found.values(), key=lambda row: (row["store_timestamp"], row["physical_offset"])
            )
            self._found = {place(row): row for row in kept[: self._limit]}

    def _collected(self, frame: DataFrame, *more: str) -> list[Row]:
        """At most one above the limit, the oldest."""
        from pyspark.sql import functions as F  # noqa: N812

        chosen = frame.select(
            *PLAIN, *more, F.unix_millis("store_timestamp").alias("store_timestamp"),
            *(F.col("properties")[name].alias(name) for name in PROPERTIES),
        )  # fmt: skip
        ordered = chosen.orderBy("store_timestamp", "physical_offset").limit(self._limit + 1)
        return [row.asDict() for row in ordered.collect()]


def _about(keys: Sequence[str]) -> Column:
    """Messages with these unique keys, and what clients traced of them."""
    from pyspark.sql import functions as F  # noqa: N812

    traced = F.arrays_overlap("keys", F.array(*map(F.lit, keys)))
    return F.col("unique_key").isin(list(keys)) | ((F.col("topic") == TRACE_TOPIC) & traced)
