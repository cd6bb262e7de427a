"""Sections of the daemon that archives: source, hold, dispatch, archive, store, state, and what every process has."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.settings.option import GIB, KIB, MIB, ONE_DAY_MS, SettingsSection, ms, option, size

SHORTEST_WAIT_MS = 3000
"""Of archive.takeover_wait_ms, but for 0: a shorter silence proves nothing."""


@dataclass(frozen=True, slots=True)
class Source(SettingsSection):
    """Where messages come from: the broker's store directory, read beside the running broker."""

    kind: str = option(
        "commitlog",
        "what is read: the broker's own files",
        choices=("commitlog",),
        no_other="run beside a broker that has <store_dir>/commitlog: following a master over its HA port is not supported, "
        "and neither is reading DLedger commitlogs, which wrap each record and may cut uncommitted ones",
    )
    store_dir: str = option(
        "", "the broker's storePathRootDir; the commitlog is looked for below it", rocketmq="storePathRootDir"
    )
    commitlog_dirs: str = option(
        "",
        "comma-separated commitlog directories, when not <store_dir>/commitlog; without store_dir no restart is seen",
        rocketmq="storePathCommitLog",
    )
    cluster: str = option("DefaultCluster", "cluster name, part of every key", rocketmq="brokerClusterName")
    broker: str = option("broker-a", "broker name, part of every key", rocketmq="brokerName")
    start: str = option(
        "earliest", "where an empty archive begins: earliest, latest, or a store time in ms or ISO 8601"
    )
    poll_interval_ms: int = ms(
        20, "pause between looks at an idle tail; lower is fresher, higher is cheaper", 1, 10_000
    )
    confirm_reread_ms: int = ms(
        200, "how long the last record, with none after it, must stay unchanged before it counts", 1, 60_000
    )
    max_record_bytes: int = size(
        4 * MIB + 64 * KIB,
        "largest record archived, unless the broker, asked at replay.broker_address, accepts more; archiving waits in front "
        "of a larger one",
        1024,
        256 * MIB,
        rocketmq="maxMessageSize",
    )
    corrupt_wait_ms: int = ms(
        30_000,
        "how long unreadable bytes may stay at the log's end before what lies behind them counts; where the broker went on "
        "longer ago, nothing is waited for",
        0,
        ONE_DAY_MS,
    )
    exclude_topics: tuple[str, ...] = option(
        (), "shell patterns of topics not archived; a restore then lacks their records"
    )
    restart_check_ms: int = ms(
        1000, "how often lock and abort files are looked at for a broker restart", 50, 60_000
    )
    groups_ms: int = ms(
        30_000,
        "how often the broker's subscription groups and consumer offsets are looked at, for `tiered groups`; 0: not",
        0,
        86_400_000,
    )


@dataclass(frozen=True, slots=True)
class Hold(SettingsSection):
    """The hard-linked hold: commitlog files stay alive until they are archived."""

    directory: str = option(
        "", "where links live, on the broker's file system; empty: <store_dir>.tiered-hold beside the store"
    )
    max_bytes: int = size(
        64 * GIB,
        "disk space that the hold may keep in use; beyond it the oldest files are let go and a gap is recorded",
        0,
        1 << 50,
    )
    max_disk_percent: int = option(
        80,
        "partition usage above which the hold lets go (the broker itself stops at 85 to 90)",
        low=1,
        high=99,
        unit="%",
    )


@dataclass(frozen=True, slots=True)
class Dispatch(SettingsSection):
    """Group commit: what is gathered before a flush. A flush is one commit."""

    group_commit_interval_ms: int = ms(
        1000,
        "oldest age of a buffered message before a flush; shorter is fresher, longer is fewer requests",
        10,
        3_600_000,
        rocketmq="tieredStoreGroupCommitTimeout",
    )
    group_commit_bytes: int = size(
        44 * MIB,
        "bytes that trigger a flush; larger ones cost memory, save requests, and compress better where queues are many",
        64 * KIB,
        GIB,
        rocketmq="tieredStoreGroupCommitSize",
    )
    group_commit_count: int = option(
        200_000,
        "messages that trigger a flush; caps the columns a flush holds in memory",
        low=1,
        high=10_000_000,
        unit="messages",
        rocketmq="tieredStoreGroupCommitCount",
    )
    pipeline_flushes: int = option(
        3,
        "flushes prepared or uploading at once; more hides latency, each costs twice group_commit_bytes",
        low=1,
        high=8,
    )
    block_bytes: int = size(
        256 * KIB,
        "raw bytes of a block, the unit of reading; larger compresses better, smaller reads less",
        4 * KIB,
        16 * MIB,
    )
    inline_bytes: int = size(
        1 * MIB, "data up to this size travels inside the commit, one request in all; 0: never", 0, 4 * MIB
    )
    object_bytes: int = size(
        8 * MIB,
        "target size of one data object; a flush is cut into several and they go up in parallel",
        64 * KIB,
        GIB,
    )
    compression: str = option(
        "zstd", "zstd, or none to save CPU at the price of bytes", choices=("zstd", "none")
    )
    compression_level: int = option(1, "zstd level; higher is smaller and slower", low=1, high=19)
    dictionary_bytes: int = size(
        0,
        "dictionary for small blocks in each object, say 8KiB where queues are many and quiet; older programs then refuse the"
        " archive, for good; 0: none",
        0,
        64 * KIB,
    )
    threads: int = option(2, "threads that compress and checksum blocks", low=1, high=64)
    upload_threads: int = option(
        4, "data objects uploaded at once; each holds one connection", low=1, high=64
    )
    max_flush_keys: int = option(
        1_000_000,
        "most message keys of a flush, which ends earlier with more: each takes about 100 bytes of memory on its way",
        low=40_000,
        high=100_000_000,
        unit="keys",
    )
    lite_queues: bool = option(
        False,
        "archive which messages are in lite queues (%LMQ%…), too; older programs then refuse the archive, for good",
    )
    max_edit_bytes: int = size(
        1 * MIB,
        "a flush ends when its edits approach this size; readers fetch and fold it whole",
        64 * KIB,
        16 * MIB,
    )


@dataclass(frozen=True, slots=True)
class Archive(SettingsSection):
    """The archive in the bucket."""

    url: str = option("", "file:///…, s3://bucket/prefix?endpoint=…, fsspec+gs://…")
    takeover_wait_ms: int = ms(
        120_000,
        "how long another writer must have shown no sign of life before this one takes over; an idle writer shows three in that"
        " time, each a request that writes; 0: nobody waits, and nobody shows any",
        0,
        ONE_DAY_MS,
    )
    checkpoint_commits: int = option(
        256,
        "most commits between checkpoints; fewer makes opening faster and costs writes",
        low=1,
        high=1_000_000,
        unit="commits",
    )
    checkpoint_edit_bytes: int = size(
        64 * MIB,
        "most bytes of edits (decompressed) between checkpoints: what every reader that opens has to fold",
        64 * KIB,
        GIB,
    )
    checkpoint_interval_ms: int = ms(
        600_000, "longest time between checkpoints while commits flow", 1000, ONE_DAY_MS
    )
    accept_weak_store: bool = option(
        False,
        "go on although the probe refuted a promise of the store; the lost guarantee is logged and shown",
    )
    probe_interval_ms: int = ms(
        30 * ONE_DAY_MS,
        "how long a start relies on what the probe of this store found (about 270 requests); 0: every start probes",
        0,
        366 * ONE_DAY_MS,
    )
    new_lineage: bool = option(
        False, "accept a broker whose log shares nothing with the archive, as a new lineage"
    )
    resend_wait_ms: int = ms(
        1000, "pause before a commit of unknown outcome is sent again, doubled up to 30 s", 1, 30_000
    )


@dataclass(frozen=True, slots=True)
class Store(SettingsSection):
    """The driver. Credentials come through the SDK's standard chain; keys here are for stores without one."""

    engine: str = option(
        "direct",
        "who signs reads from S3: direct costs half of boto3's CPU and asks boto3 where it is not answered with bytes; "
        "obstore was older versions' choice, and is direct now",
        choices=("direct", "boto3", "obstore"),
    )
    region: str = option("", "S3 region; empty: the SDK's own choice")
    endpoint: str = option(
        "", "S3 endpoint URL; empty: what archive.url or the SDK's own configuration says, or AWS"
    )
    path_style: bool = option(True, "address buckets by path, as most S3-compatible stores want")
    profile: str = option("", "profile of the shared credentials file")
    role_arn: str = option("", "IAM role to assume")
    access_key_id: str = option("", "static key id, when no standard chain is there", secret=True)
    secret_access_key: str = option("", "static secret, when no standard chain is there", secret=True)
    session_token: str = option("", "static session token", secret=True)
    ca_bundle: str = option("", "file of CA certificates for TLS")
    sse: str = option(
        "", "server-side encryption: empty, AES256 or aws:kms", choices=("", "AES256", "aws:kms")
    )
    sse_kms_key_id: str = option("", "KMS key for aws:kms")
    storage_class: str = option("", "S3 storage class of new objects; archive classes cannot be read at once")
    checksum: str = option(
        "CRC32C", "checksum sent with each upload", choices=("", "CRC32", "CRC32C", "SHA1", "SHA256")
    )
    object_lock: str = option(
        "",
        "S3 Object Lock for all that a restore needs: GOVERNANCE can be lifted by who may, COMPLIANCE by nobody; the bucket"
        " must be made for it",
        choices=("", "GOVERNANCE", "COMPLIANCE"),
    )
    object_lock_ms: int = ms(
        0,
        "how long each new object is locked; longer outlives more, and costs what retention and collection would free",
        0,
        36_500 * ONE_DAY_MS,
    )
    multipart_bytes: int = size(64 * MIB, "objects above this go up in parts of this size", 5 * MIB, 5 * GIB)
    connect_timeout_ms: int = ms(5_000, "time to connect", 1, 600_000)
    read_timeout_ms: int = ms(
        20_000, "time without a byte; a black hole costs attempts times this", 1, 600_000
    )
    attempts: int = option(
        5, "tries per request before the outcome is reported unavailable", low=1, high=100, unit="tries"
    )
    retry_base_ms: int = ms(100, "first pause between tries; doubles with full jitter", 1, 60_000)
    retry_max_ms: int = ms(10_000, "longest pause between tries", 1, 600_000)
    max_connections: int = option(
        128,
        "connections that are kept for the next request; one beyond them is closed after its answer. An archive far behind "
        "its checkpoint is opened by up to 128 requests at once, uploads are dispatch.upload_threads",
        low=1,
        high=1024,
        unit="connections",
    )
    max_bytes_per_second: int = option(
        0, "throttle that leaves bandwidth to the broker; 0: no throttle", low=0, unit="bytes/s"
    )
    max_requests_per_second: int = option(0, "throttle of requests; 0: no throttle", low=0, unit="requests/s")


@dataclass(frozen=True, slots=True)
class State(SettingsSection):
    """Local state: the cached fold, the writer id, the lock. Deleting it loses nothing but time."""

    directory: str = option(
        "",
        "where; empty: <store_dir>.tiered beside the store. It holds the fold twice: as the daemon made it (metadata) "
        "and as it is read back from the bucket for checkpoints (shadow)",
    )
    metadata: str = option(
        "rocksdb", "provider of the cached fold; json suits few queues", choices=("rocksdb", "json", "memory")
    )
    cache_bytes: int = size(
        64 * MIB, "block cache and write buffers of the metadata store", 1 * MIB, 16 * GIB
    )


@dataclass(frozen=True, slots=True)
class Web(SettingsSection):
    """Health, metrics and status over HTTP."""

    host: str = option("127.0.0.1", "address to bind; anything but loopback exposes metrics to the network")
    port: int = option(
        9477,
        "TCP port; 0: any free one, -1: off; run --once opens one only where this is set",
        low=-1,
        high=65_535,
    )
    open: bool = option(
        False,
        "let *.http_listen and serve.listen be reached from elsewhere without a token: whoever gets there may read all"
        " messages, and write keys",
    )


@dataclass(frozen=True, slots=True)
class Log(SettingsSection):
    """Structured logs on stderr."""

    format: str = option("console", "console for people, json for machines", choices=("console", "json"))
    level: str = option("info", "least severity shown", choices=("debug", "info", "warning", "error"))


@dataclass(frozen=True, slots=True)
class Maintenance(SettingsSection):
    """Work in the background on what is archived already. Archiving goes before it."""

    enabled: bool = option(
        True,
        "whether the daemon does it by itself; with false, have cron run tiered maintain --once while it is stopped",
    )
    max_bytes_per_second: int = option(
        32 * MIB,
        "bytes read and written by all of it together; more is done sooner and leaves less to archiving; 0: no bound",
        low=0,
        unit="bytes/s",
    )
    max_wait_ms: int = ms(
        60_000,
        "how long a task that is due waits for a quiet moment of archiving and for other tasks; after that it works beside a"
        " busy archive, a tenth of the time at most; longer leaves a daemon that catches up undisturbed",
        1000,
        ONE_DAY_MS,
    )
    merge_interval_ms: int = ms(
        600_000,
        "pause between two rounds of merging; longer makes fewer and larger objects, and more runs for readers until then",
        1000,
        ONE_DAY_MS,
    )
    merge_waiting_runs: int = option(
        500_000,
        "so many fresh runs, as many queues make them, begin a round before its time; fewer keep the state smaller, where each "
        "takes about 75 bytes, more make larger runs at once",
        low=16,
        high=100_000_000,
        unit="runs",
    )
    merge_bytes: int = size(
        256 * MIB,
        "records and their tables that one merged object is made of; about as much memory is taken, twice that where records "
        "do not compress",
        MIB,
        4 * GIB,
    )
    merge_runs: int = option(
        100_000,
        "most runs that one commit replaces: folding it takes about 4 µs for each, and the commits behind it wait so long",
        low=16,
        high=500_000,
        unit="runs",
    )


@dataclass(frozen=True, slots=True)
class Watchdog(SettingsSection):
    """When a worker that does not come back becomes visible, and when it ends the process."""

    stuck_ms: int = ms(
        60_000, "a step running longer shows in the stuck metric and turns /healthz red", 1000, ONE_DAY_MS
    )
    fatal_ms: int = ms(
        600_000,
        "a step running longer ends the process; keep it above store.attempts times store.read_timeout_ms, and, with "
        "store.max_bytes_per_second, what the throttle takes for as many times dispatch.object_bytes",
        1000,
        ONE_DAY_MS,
    )
    drain_ms: int = ms(30_000, "time the first signal leaves for the last flush", 0, 3_600_000)
    stall_ms: int = ms(
        60_000,
        "how long nothing may be archived while something waits, beyond dispatch.group_commit_interval_ms, before log, "
        "/status, /readyz and tiered_stalled say so",
        1000,
        ONE_DAY_MS,
    )
    unavailable_ms: int = ms(
        10_000,
        "how long a write to the store or the state directory may fail before log, /status, /readyz and tiered_unavailable "
        "say so",
        100,
        ONE_DAY_MS,
    )
