"""What every job has at hand: its arguments, the archive as a table, a session, and a way to speak."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from functools import reduce
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pyspark.sql import SparkSession

from tiered.clock import Clock, SystemClock
from tiered.errors import Invalid
from tiered.text.human import Kind
from tiered.text.output import Output, speaker
from tiered_spark.datasource import register
from tiered_spark.options import exactly, parse_options, perhaps
from tiered_spark.snapshot import Snapshot, open_snapshots
from tiered_spark.tables import METADATA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOCAL = "local[*]"

_KINDS = {"bytes": Kind.SIZE}


def shared_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags that every job has."""
    what = parser.add_argument_group("what is read")
    what.add_argument(
        "--archive", metavar="URL", required=True, help="the archive; several joined with commas"
    )
    what.add_argument("--cluster", default="*", help="shell patterns, joined with commas (all)")
    what.add_argument("--broker", default="*", help="shell patterns, joined with commas (all)")
    what.add_argument(
        "--topics", default="*", help="shell patterns, joined with commas (all but RocketMQ's own)"
    )
    what.add_argument("--include-system-topics", action="store_true", help="RocketMQ's own topics too")
    what.add_argument("--from", dest="start", metavar="TIME", help="store time, ISO 8601 or ms since 1970")
    what.add_argument("--to", dest="end", metavar="TIME", help="store time, excluded")
    what.add_argument("--as-of-commit", metavar="N", help="the archive as it was after a commit")
    how = parser.add_argument_group("how")
    how.add_argument("--master", help=f"Spark's master (that of spark-submit, or {LOCAL})")
    how.add_argument(
        "--conf", metavar="KEY=VALUE", action="append", default=[], help="a setting of Spark; repeatable"
    )
    how.add_argument(
        "--dry-run", action="store_true", help="show what would be read and written, and do nothing"
    )
    how.add_argument("--json", action="store_true", help="the summary as one JSON object on stdout")
    how.add_argument("--debug", action="store_true", help="tracebacks")


class Work:
    """One run of a job. A session that was there before is used and left alone; an own one ends with the run."""

    def __init__(self, job: str, args: argparse.Namespace, clock: Clock | None = None) -> None:
        """``Invalid`` for flags that the data source would refuse."""
        self.job = job
        self.args = args
        self.clock = clock or SystemClock()
        self.out: Output = speaker(json_output=args.json)
        self._session: SparkSession | None = None
        self._own = False
        parse_options(self.options())
        self._given = dict(_setting(pair) for pair in args.conf)

    @property
    def dry_run(self) -> bool:
        """Whether nothing may be written and no session be made."""
        return bool(self.args.dry_run)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None and self._own:
            self._session.stop()

    def options(self, **more: object) -> dict[str, str]:
        """Of the data source, from the shared flags; ``more`` by the names of ``spark/README.md``, ``None`` leaves one out."""
        args = self.args
        given: dict[str, object] = {
            "archive": args.archive, "cluster": args.cluster, "broker": args.broker, "topics": args.topics,
            "includeSystemTopics": str(args.include_system_topics).lower(), "startingTimestamp": args.start,
            "endingTimestamp": args.end, "asOfCommit": args.as_of_commit, **more,
        }  # fmt: skip
        return {name: str(value) for name, value in given.items() if value is not None}

    def read(self, columns: str | None = None, **more: object) -> DataFrame:
        """The archived messages that the flags name, or with ``table=…`` a table about them."""
        reader = self.spark.read.format("rocketmq_tiered").options(**self.options(columns=columns, **more))
        return reader.load()

    def read_at(self, snapshots: Iterable[Snapshot], columns: str | None = None, **more: object) -> DataFrame:
        """The same of exactly these snapshots, whatever is archived meanwhile, one below the other."""
        named = parse_options(self.options(**more)).topics
        topics = perhaps(named)  # not every archive need have them
        frames = (self.read(columns, **{**more, "topics": topics, **pinned(s)}) for s in snapshots)
        return reduce(lambda above, below: above.unionByName(below), frames)

    def snapshots(self) -> list[Snapshot]:
        """The archives that the flags name, as they are now; without a session."""
        return open_snapshots(parse_options(self.options()))

    def plan(self) -> list[dict[str, Any]]:
        """The rows of ``table=plan``, without a session: what a scan would read."""
        options = parse_options(self.options(table="plan"))
        table = METADATA["plan"]
        names = table.schema.names
        return [
            dict(zip(names, row, strict=True))
            for s in open_snapshots(options)
            for row in table.rows(s, options)
        ]

    def show_plan(self, writes: Iterable[str]) -> None:
        """The answer to ``--dry-run``."""
        for row in self.plan():
            self.out.record({**row, "would_write": list(writes)}, title="would read", kinds=_KINDS)

    def say(self, text: str) -> None:
        """Progress, on stderr, for machines too: a job may take hours. Not to those that use spark-submit, which sends the
        program's stderr to stdout."""
        if self.args.json and submitted():
            return
        speaker(json_output=False).note(f"{self.job}: {text}")

    @property
    def spark(self) -> SparkSession:
        """The session, made when first asked for."""
        if self._session is None:
            self._session, self._own = self._made()
        return self._session

    def _made(self) -> tuple[SparkSession, bool]:
        there = SparkSession.getActiveSession()
        if there is not None:
            register(there)
            return there, False
        builder = SparkSession.builder.appName(f"tiered-{self.job}")
        for name, value in self._conf().items():
            builder = builder.config(name, value)
        made = builder.getOrCreate()
        made.sparkContext.setLogLevel("ERROR")
        register(made)
        return made, True

    def _conf(self) -> Mapping[str, str]:
        master = self.args.master or (None if submitted() else LOCAL)
        conf = {"spark.sql.session.timeZone": "UTC", "spark.ui.showConsoleProgress": "false"}
        if master is not None:
            conf["spark.master"] = master
        if master is not None and master.startswith("local"):
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # noqa: TID251 - workers of this very Python
            conf |= {
                "spark.ui.enabled": "false",
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
            }
        return {**conf, **self._given}


def submitted() -> bool:
    """Whether spark-submit runs this program."""
    return "PYSPARK_GATEWAY_PORT" in os.environ  # noqa: TID251 - the only sign of it


def pinned(snapshot: Snapshot) -> dict[str, object]:
    """Options that name one archive as it is at a snapshot."""
    place = snapshot.place
    return {
        "archive": place.url, "cluster": exactly(place.cluster), "broker": exactly(place.broker), "asOfCommit": snapshot.commit,
    }  # fmt: skip


def commits(snapshots: Iterable[Snapshot]) -> dict[str, int]:
    """Archives by place, with the commit they end with."""
    return {str(s.place): s.commit for s in snapshots}


def _setting(pair: str) -> tuple[str, str]:
    name, equals, value = pair.partition("=")
    if not equals:
        raise Invalid("--conf takes KEY=VALUE", found=pair, hint="such as --conf spark.executor.memory=4g")
    return name, value
