"""Sections of how the archive ages: sealing, retention, collection, scrub."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.errors import Invalid
from tiered.settings.option import GIB, MIB, ONE_DAY_MS, SettingsSection, ms, option, size


@dataclass(frozen=True, slots=True)
class Seal(SettingsSection):
    """Sealing: finished days become Parquet files, one topic and one UTC day each, that any engine reads."""

    enabled: bool = option(
        True,
        "whether days are sealed, which takes about 400 MiB of memory meanwhile; needs the extra parquet (pyarrow), without"
        " which, or with false, merged objects are the archive's last form",
    )
    min_age_ms: int = ms(
        3_600_000,
        "how long a day must be over before it is sealed; longer leaves fewer files where messages are archived late",
        0,
        3650 * ONE_DAY_MS,
    )
    interval_ms: int = ms(
        3_600_000, "pause between two looks for days to seal; longer seals later", 1000, 30 * ONE_DAY_MS
    )
    segment_bytes: int = size(
        1024 * MIB,
        "stored bytes at which a file ends; larger is fewer files, and takes as much room in state.directory while it is made",
        MIB,
        4 * GIB,
    )


LEAST_COMMIT_RETENTION_MS = 3 * 3_600_000
"""More than two windows in which a writer counts successes, and no less than two times that readers believe what they saw."""


@dataclass(frozen=True, slots=True)
class Retain(SettingsSection):
    """Retention: how long messages stay readable in the archive. Nothing set: for ever."""

    keep_ms: int = ms(
        0,
        "messages stay at least this long after the broker stored them; shorter is cheaper; 0: for ever",
        0,
        36_500 * ONE_DAY_MS,
        rocketmq="tieredStoreFileReservedTime",
    )
    keep_bytes: int = size(
        0,
        "the newest bytes of each topic that stay, as records before compression; smaller is cheaper; 0: all",
        0,
        1 << 60,
    )
    topics: tuple[str, ...] = option(
        (),
        "rules of single topics, instead of the two above: Orders*=30d, Trace=7d 100GiB, Audit=forever; the first pattern that"
        " fits decides",
    )
    topic_attributes: bool = option(
        True,
        "whether a topic's attributes at the broker count (5.x): reserve.time in place of keep_ms, cleanup.policy=COMPACTION"
        " for ever; with true, nothing is trimmed while the broker's list of topics cannot be read",
    )
    deleted_topic_ms: int = ms(
        0,
        "messages of a topic that the broker deleted stay at least this long after that was seen; shorter is cheaper; 0: for as"
        " long as those of any topic; the value of min_age_ms: as short as can be",
        0,
        36_500 * ONE_DAY_MS,
    )
    forget_queues: bool = option(
        True,
        "whether queues of such topics are forgotten once nothing of them was left for gc.grace_ms, where deleted_topic_ms is"
        " not 0; with false, each queue that ever was keeps a record of some hundred bytes, and older programs can read on",
    )
    min_age_ms: int = ms(
        ONE_DAY_MS,
        "what the store has held for less than this is never trimmed, whatever a rule says; longer outlives more mistakes",
        3_600_000,
        3650 * ONE_DAY_MS,
    )
    interval_ms: int = ms(
        3_600_000, "pause between two rounds; longer keeps messages somewhat longer", 60_000, 30 * ONE_DAY_MS
    )
    max_trim_percent: int = option(
        10,
        "share of the archive that one run may trim; a run that would trim more is refused until it is confirmed with a figure",
        low=0,
        high=100,
        unit="%",
    )

    @property
    def forgets_queues(self) -> bool:
        """Whether queues of deleted topics are forgotten."""
        return self.forget_queues and self.deleted_topic_ms > 0


@dataclass(frozen=True, slots=True)
class Gc(SettingsSection):
    """Collection: deleting what nothing in the archive refers to any more."""

    enabled: str = option(
        "new",
        "whether anything is deleted: new (in archives that were made since this is the default), true, or false: what was"
        " trimmed or merged is no longer served, stays stored and is paid for",
        choices=("new", "true", "false"),
    )
    interval_ms: int = ms(
        3_600_000,
        "pause between two rounds, each of which lists the bucket; longer costs fewer requests",
        60_000,
        ONE_DAY_MS,
    )
    grace_ms: int = ms(
        ONE_DAY_MS,
        "how long what was named for deletion is kept, by the store's clock; longer serves slower readers and jobs",
        600_000,
        3650 * ONE_DAY_MS,
    )
    commit_retention_ms: int = ms(
        7 * ONE_DAY_MS,
        "how long commits stay below the log's floor; longer outlives longer pauses of readers and writers; above grace_ms",
        LEAST_COMMIT_RETENTION_MS,
        3650 * ONE_DAY_MS,
    )
    snapshot_retention_ms: int = ms(
        ONE_DAY_MS,
        "how far back the archive can be read as it was; longer keeps more commits and checkpoints; at most grace_ms",
        0,
        3650 * ONE_DAY_MS,
    )
    delete_threads: int = option(8, "deletions at once; each holds one connection", low=1, high=64)

    def off(self, *, collected: bool) -> str | None:
        """Why nothing is deleted from an archive; ``None``: it is. ``collected``: by default (``ArchiveIdentity``)."""
        if self.enabled == "false":
            return "gc.enabled is false"
        if self.enabled == "new" and not collected:
            return 'gc.enabled is "new", and this archive was made before collection was the default'
        return None


@dataclass(frozen=True, slots=True)
class Encryption(SettingsSection):
    """Encryption of the archive before its bytes leave this process. Nothing set: off. Once on it stays on."""

    key_file: str = option(
        "",
        "file with the key that wraps the archive's keys (`tiered key new` makes one), one a line, the newest first; whoever"
        " loses it loses the archive; empty: not from a file",
    )
    key_env: str = option(
        "",
        "name of the environment variable with that key, in the same form; empty: not from the environment",
    )
    key_command: str = option(
        "",
        "command of a key service, run with wrap or unwrap as its last argument, base64 in and out: the key stays outside;"
        " empty: no command",
    )
    command_timeout_ms: int = ms(
        10_000, "time that command has for one answer; an archive waits for it as for its store", 100, 600_000
    )

    def __post_init__(self) -> None:
        SettingsSection.__post_init__(self)
        named = [name for name in ("key_file", "key_env", "key_command") if getattr(self, name)]
        if len(named) > 1:
            raise Invalid(
                "only one of encryption.key_file, encryption.key_env and encryption.key_command may name the key",
                found=", ".join(f"encryption.{name}" for name in named),
                hint="unset the others",
            )

    @property
    def on(self) -> bool:
        """Whether a key is named."""
        return bool(self.key_file or self.key_env or self.key_command)


@dataclass(frozen=True, slots=True)
class Scrub(SettingsSection):
    """The scrub: looking at what lies in the bucket again and again, before a reader needs it."""

    enabled: bool = option(
        True,
        "whether the daemon does it; with false, damage is found by readers, or by tiered scrub --once and tiered verify",
    )
    list_interval_ms: int = ms(
        6 * 3_600_000,
        "from one walk over the bucket's listing to the next: what is missing or has another length is found within this;"
        " shorter costs more listings, one request for a thousand objects",
        1000,
        30 * ONE_DAY_MS,
    )
    read_interval_ms: int = ms(
        30 * ONE_DAY_MS,
        "from one walk over every byte to the next: any other damage is found within this; shorter reads more",
        1000,
        3650 * ONE_DAY_MS,
    )
    max_bytes_per_second: int = option(
        8 * MIB,
        "bytes that it reads, within maintenance.max_bytes_per_second; a walk over 20 TiB takes a month at the default; 0: no"
        " bound of its own",
        low=0,
        unit="bytes/s",
    )
    copy_url: str = option(
        "",
        "another copy of this archive, as archive.url names one, from which what is damaged or missing is mended by itself;"
        " read with the same credentials; empty: from the broker's commitlog and from objects that are not collected yet alone",
    )


@dataclass(frozen=True, slots=True)
class Tables(SettingsSection):
    """Tables of other engines (Iceberg) over the sealed files. Which are kept stands in the bucket: tiered table enable."""

    interval_ms: int = ms(
        300_000,
        "pause between two looks at tables, each of which lists the orders in the bucket; longer shows new files later",
        1000,
        ONE_DAY_MS,
    )
    batch_files: int = option(
        200,
        "files added to a table in one commit of its catalog; more is fewer commits, and a longer turn between others",
        low=1,
        high=10_000,
        unit="files",
    )


@dataclass(frozen=True, slots=True)
class Sinks(SettingsSection):
    """Replication of the log to other stores, by the writer. Which sinks there are stands in the bucket: tiered sink add."""

    enabled: bool = option(
        True, "replicate to the sinks that are ordered; without any, nothing runs but the look for them"
    )
    orders_file: str = option(
        "",
        "TOML file with sinks, as `tiered sink apply` takes it: what differs from the bucket's orders is put there at the start"
        " and whenever the file changes; empty: none",
    )
    look_ms: int = ms(
        10_000,
        "pause between two looks for changed orders, each one listing; longer takes a change up later",
        100,
        3_600_000,
    )
    flush_bytes: int = size(
        8 * MIB,
        "a sink is flushed when as much was written to it: more costs memory, and what comes again after a failure",
        4096,
        1 * GIB,
    )
    flush_ms: int = ms(
        500,
        "or when the oldest message is as old, or the last flush where nothing more is there to be written; longer shows"
        " messages at the destination later",
        1,
        3_600_000,
    )
    backfill_flush_ms: int = ms(
        2_000,
        "flush_ms of a sink while it is given the archive, where short runs would else be a flush each; less than a Kafka"
        " sink's transaction_timeout_ms",
        1,
        3_600_000,
    )
    backfill_ahead: int = option(
        8,
        "short runs of the archive that are read at once, before they are wanted, for each sink that is given the archive: 1"
        " reads one after another",
        low=1,
        high=64,
    )
    backfill_bytes_per_second: int = option(
        0,
        "bytes of records that each sink is given while it reads the archive; 0: as fast as its destination takes them",
        low=0,
        unit="bytes/s",
    )
    in_order_bytes: int = size(
        256 * MIB,
        "records that a sink with --in-order holds of the archive's queues, which it reads side by side; less reads in smaller"
        " pieces, and blocks larger than a piece several times",
        1 * MIB,
        16 * GIB,
    )
    batch_bytes: int = size(1 * MIB, "read from the log at a time, for each sink", 64 * 1024, 256 * MIB)
    poll_ms: int = ms(100, "pause of a sink where nothing is new", 1, 60_000)
    commit_ms: int = ms(
        10_000,
        "how far sinks are rides on commits of messages; where none comes, a commit of its own at most so often",
        100,
        3_600_000,
    )
    ahead_of_archive: bool = option(
        False,
        "replicate what the broker confirmed before it is archived: sooner, but a tail that the broker loses then is at the"
        " destination, and what replaced it comes on top",
    )
