"""What every job has at hand: its arguments, the archive as a table, a session, and a way to speak."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from pyspark.sql import SparkSession

from tiered.clock import Clock, SystemClock
from tiered.errors import Invalid, NotFound
from tiered.text.human import Kind
from tiered.text.output import Output
from tiered.text.speaker import speaker
from tiered.text.values import number, one_of, whole
from tiered_spark.datasource import register
from tiered_spark.loss import gap_messages
from tiered_spark.options import exactly, parse_options, perhaps
from tiered_spark.plan import check_topics
from tiered_spark.queues import read_queues
from tiered_spark.snapshot import Snapshot, open_snapshots
from tiered_spark.tables import METADATA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LOCAL = "local[*]"

_KINDS = {"bytes": Kind.SIZE}
_PATTERNS = "Shell patterns, joined with commas."


def whole_flag(flag: str, low: int, high: int, text: str) -> Any:
    """A flag that takes a whole number from ``low`` to ``high``."""
    text = f"{text} {low:,} to {high:,}."
    return typer.Option(flag, metavar="N", help=text, parser=lambda given: whole(flag, str(given), low, high))


def number_flag(flag: str, low: float, high: float, text: str) -> Any:
    """A flag that takes a number from ``low`` to ``high``."""
    return typer.Option(
        flag, metavar="N", help=text, parser=lambda given: number(flag, str(given), low, high)
    )


def choice_flag(flag: str, choices: Sequence[str], text: str) -> Any:
    """A flag that takes a word of a list."""
    text = f"{text} {', '.join(choices)}."
    return typer.Option(flag, metavar="WORD", help=text, parser=lambda given: one_of(flag, given, choices))


@dataclass(frozen=True, kw_only=True, slots=True)
class SharedFlags:
    """The flags that every job has; a job's own ones are added below them."""

    archive: Annotated[
        str, typer.Option("--archive", metavar="URL", help="The archive; several joined with commas.")
    ]
    cluster: Annotated[str, typer.Option("--cluster", metavar="NAMES", help=_PATTERNS)] = "*"
    broker: Annotated[str, typer.Option("--broker", metavar="NAMES", help=_PATTERNS)] = "*"
    topics: Annotated[
        str,
        typer.Option("--topics", metavar="NAMES", help=f"{_PATTERNS} * is all but RocketMQ's own."),
    ] = "*"
    include_system_topics: Annotated[
        bool, typer.Option("--include-system-topics", help="RocketMQ's own topics too.")
    ] = False
    start: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Store time, ISO 8601 or ms since 1970.")
    ] = None
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Store time, not included.")] = None
    as_of_commit: Annotated[
        str | None,
        typer.Option("--as-of-commit", metavar="N", help="The archive as it was after a commit."),
    ] = None
    master: Annotated[
        str | None,
        typer.Option(
            "--master", metavar="URL", help=f"Spark's master; default: that of spark-submit, or {LOCAL}."
        ),
    ] = None
    conf: Annotated[
        list[str] | None,
        typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable."),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read and written, and do nothing.")
    ] = False
    json: Annotated[bool, typer.Option("--json", help="The summary as one JSON object on stdout.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False


class Work:
    """One run of a job. A session that was there before is used and left alone; an own one ends with the run."""

    def __init__(self, job: str, args: Any, clock: Clock | None = None) -> None:
        """``args``: the job's own ``Flags``. ``Invalid`` for flags that the data source would refuse."""
        self.job = job
        self.args = args
        self.clock = clock or SystemClock()
        self.out: Output = speaker(json_output=args.json)
        self._session: SparkSession | None = None
        self._own = False
        parse_options(self.options())
        self._given = dict(_setting(pair) for pair in args.conf or ())

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
        """The archived messages that the flags name, or with ``table=…`` a table about them. ``columns``: names, or with a type
        each, as a schema has them."""
        typed = columns is not None and " " in columns
        names = None if typed else columns
        reader = self.spark.read.format("rocketmq_tiered").options(**self.options(columns=names, **more))
        return (reader.schema(columns or "") if typed else reader).load()

    def read_at(self, snapshots: Iterable[Snapshot], columns: str | None = None, **more: object) -> DataFrame:
        """The same of exactly these snapshots, whatever is archived meanwhile, one below the other."""
        named = parse_options(self.options(**more)).topics
        topics = perhaps(named)  # not every archive need have them
        frames = (self.read(columns, **{**more, **topics, **pinned(s)}) for s in snapshots)
        return reduce(lambda above, below: above.unionByName(below), frames)

    def snapshots(self) -> list[Snapshot]:
        """The archives that the flags name, as they are now; without a session."""
        return open_snapshots(parse_options(self.options()))

    def check_topics(self, snapshots: Iterable[Snapshot], **more: object) -> None:
        """``NotFound`` for a topic that the flags name and none of these archives has, and for patterns that fit none: jobs
        that do not ask the data source by name would pass over it silently. ``more`` as of ``options``."""
        options = parse_options(self.options(**more))
        found = [read_queues(s.view.state, s.choice(options)).queues for s in snapshots]
        check_topics(options, found)
        if not any(map(len, found)) and options.topics != ("*",):
            raise NotFound(
                "no topic matches", topics=",".join(options.topics),
                hint="tiered topics lists them; RocketMQ's own need --include-system-topics",
            )  # fmt: skip

    def snapshot_of_sink(self) -> Snapshot:
        """The one archive that the flags name. ``Invalid`` if they name more or none."""
        found = self.snapshots()
        if len(found) != 1:
            raise Invalid(
                "a sink is of one archive", found=", ".join(str(each.place) for each in found[:5]), count=len(found),
                hint="name its cluster and broker: --cluster, --broker",
            )  # fmt: skip
        return found[0]

    def gap_messages(self, more: Mapping[str, object], snapshots: Iterable[Snapshot] | None = None) -> int:
        """Messages of what the flags name that were lost before they could be archived: no answer has them. Without a session.
        ``more`` as of ``options``; ``snapshots``: where they are open."""
        options = parse_options(self.options(**more))
        return gap_messages(options, open_snapshots(options) if snapshots is None else snapshots)

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

    def begin(self) -> None:
        """Make the session now: without one no column can be named, which searches do before they read anything."""
        _ = self.spark

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
