"""Sections of the processes that read: fetch, gateway, replay."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.settings.option import GIB, KIB, MIB, ONE_DAY_MS, SettingsSection, ms, option, size


@dataclass(frozen=True, slots=True)
class Fetch(SettingsSection):
    """Reading from the archive: budget, cache, read-ahead."""

    budget_bytes: int = size(
        256 * MIB,
        "bytes in flight and in the memory cache together; more readers at full speed, more memory",
        8 * MIB,
        64 * GIB,
        rocketmq="readAheadCacheSizeThresholdRate",
    )
    cache_expiry_ms: int = ms(
        10_000,
        "a cached block that no known reader will need is dropped after this long unread",
        100,
        ONE_DAY_MS,
        rocketmq="readAheadCacheExpireDuration",
    )
    wanted_ms: int = ms(
        300_000,
        "a cached block that a known reader will reach within this stays while there is room; longer serves slower groups",
        100,
        ONE_DAY_MS,
    )
    live_ms: int = ms(
        120_000,
        "a group, or a broadcasting client, not seen for this long no longer keeps blocks in the cache",
        1000,
        ONE_DAY_MS,
    )
    positions: int = option(
        32_768,
        "most (group or client, queue) positions remembered, about 0.5 KiB each; the one not seen for longest goes first",
        low=1,
        high=10_000_000,
    )
    request_bytes: int = size(
        8 * MIB,
        "most bytes of one ranged GET; adjacent blocks are fetched together up to this",
        64 * KIB,
        GIB,
    )
    commit_cache_bytes: int = size(
        16 * MIB,
        "small commits kept as they came while the log was read, so that their messages are not fetched again",
        0,
        GIB,
    )
    table_cache_bytes: int = size(
        64 * MIB,
        "decoded tables of objects (blocks, runs, columns, keys) kept in memory by each reader; more, fewer requests",
        MIB,
        64 * GIB,
    )
    compact_bytes: int = size(
        64 * MIB,
        "memory for the keys of a queue whose newest messages are looked for; what is more lies in temporary local files",
        MIB,
        64 * GIB,
    )
    threads: int = option(16, "ranged GETs at once, all readers together", low=1, high=256)
    read_ahead: bool = option(
        True, "fetch ahead of readers that read on; off: every miss waits for the store"
    )
    disk_directory: str = option("", "directory of the disk tier of the cache; empty: no disk tier")
    disk_bytes: int = size(GIB, "most bytes of the disk tier", 16 * MIB, 1 << 50)
    follow_ms: int = ms(
        1000,
        "a reader looks for new commits at most this often, and only when a read asks for them",
        10,
        3_600_000,
    )
    fold_directory: str = option(
        "",
        "directory where a long-lived reader (gateway, replay) keeps its copy of the archive's log, so that it starts at once;"
        " never the daemon's own; empty: a temporary one, made anew once more than a few queues were asked for; its memory is"
        " bounded by state.cache_bytes",
    )
    storage_level: str = option(
        "NOT_IN_DISK",
        "when the archive answers: DISABLE never, NOT_IN_DISK when the broker has deleted it, NOT_IN_MEM when it is not in"
        " the broker's page cache, FORCE always",
        choices=("DISABLE", "NOT_IN_DISK", "NOT_IN_MEM", "FORCE"),
        rocketmq="tieredStorageLevel",
    )
    topic_storage_levels: tuple[str, ...] = option(
        (), "levels of single topics: topic=LEVEL; the first pattern that fits decides (* and ? allowed)"
    )


@dataclass(frozen=True, slots=True)
class Gateway(SettingsSection):
    """The process that stands between consumers and broker. Empty upstream: not started by ``tiered run``."""

    namesrv_upstream: str = option("", "name servers behind the gateway: host:port, several joined with ;")
    namesrv_listen: str = option("127.0.0.1:9976", "address of the gateway's name-server front")
    broker_listen_host: str = option(
        "127.0.0.1", "address of the gateway's broker fronts, one port per broker"
    )
    broker_listen_ports: str = option(
        "12911-12999", "ports for the broker fronts, first-last; 0: any free port"
    )
    brokers: str = option(
        "all",
        "brokers whose clients come through the gateway: all, or own, only source.broker (several gateways in a row)",
        choices=("all", "own"),
    )
    advertise_host: str = option("", "host put into route answers; empty: broker_listen_host")
    max_frame_bytes: int = size(16 * MIB, "largest frame accepted from either side", 64 * KIB, 256 * MIB)
    max_connections: int = option(
        4096,
        "client connections, of one host at most seven eighths; beyond that the oldest silent one is closed, else the new one",
        low=1,
        high=1_000_000,
    )
    max_pending_bytes: int = size(
        64 * MIB, "bytes waiting for one slow peer before its connection is cut", 64 * KIB, 4 * GIB
    )
    idle_timeout_ms: int = ms(
        180_000,
        "a connection on which nothing moves this long is closed; RocketMQ's own limit is 2m",
        120_000,
        ONE_DAY_MS,
    )
    stall_timeout_ms: int = ms(
        30_000, "a peer that takes none of the bytes waiting for it this long is cut off", 100, 3_600_000
    )
    answer_bytes: int = size(
        64 * MIB,
        "answers from the archive on their way to clients, all connections together; more answers wait",
        MIB,
        64 * GIB,
    )
    read_timeout_ms: int = ms(
        10_000, "time the archive has for one answer; after it the consumer is told to retry", 100, 600_000
    )
    call_timeout_ms: int = ms(
        2_500,
        "the same for searches by time, key and id and for resets, on which clients give up after 3s; at most read_timeout_ms",
        100,
        600_000,
    )
    max_pull_bytes: int = size(
        MIB,
        "most bytes of one cold pull answer, when the client's own limit is not smaller",
        4 * KIB,
        12 * MIB,
    )
    access_key: str = option(
        "", "key for the gateway's own questions, where the broker asks for one; empty: unsigned", secret=True
    )
    secret_key: str = option("", "its secret key", secret=True)
    lite_queues: bool = option(
        False,
        "answer pulls of lite queues (%LMQ%…), questions about them, their tables and resets from the archive, too, where the"
        " broker has deleted messages of them; needs dispatch.lite_queues",
    )
    cold_recheck_ms: int = option(
        1000,
        "a reader deep below the broker's begin is answered without asking the broker for this long after it was asked;"
        " 0: every pull is asked",
        low=0,
        high=1000,
    )
    unproven_reads: bool = option(
        False,
        "also answer signed lite pulls and views by id when nothing shows that the broker grants the key this topic",
    )
    http_listen: str = option("", "address of the read-only HTTP pages, host:port; empty: no pages")
    http_token: str = option("", "bearer token that HTTP readers must send; empty: not needed", secret=True)
    tls_certificate: str = option("", "PEM file: certificate chain of the gateway; empty: no TLS")
    tls_key: str = option("", "PEM file: private key of the gateway")
    tls_upstream: bool = option(False, "speak TLS to name servers and brokers")
    tls_upstream_certificate: str = option(
        "", "PEM file: certificate the gateway shows to servers that ask for one; empty: none"
    )
    tls_upstream_key: str = option("", "PEM file: private key of that certificate")
    tls_upstream_ca: str = option(
        "",
        "PEM file: certificate authorities trusted for name servers and brokers; empty: any, as RocketMQ's clients do",
    )
    kv_url: str = option(
        "",
        "key-value view whose requests the gateway takes, http://host:port; empty: they go to the broker, who knows none",
    )
    read_nodes: tuple[str, ...] = option(
        (),
        "read nodes that read the archive for cold pulls, host:port each; empty: this process reads for itself",
    )
    read_node_token: str = option("", "what read nodes want to be shown (serve.token)", secret=True)
    read_node_timeout_ms: int = ms(
        2_000,
        "time one read node has for a read; then the next one is asked, and at last this process reads",
        10,
        600_000,
    )
    placement: str = option(
        "hash",
        "which read node a queue has: hash, all alike; or table, by the newest one of tiered placement --publish, by which"
        " busy queues lie so that predicted load is even, and all others by hashing",
        choices=("hash", "table"),
    )
    membership: str = option(
        "",
        "where read nodes announce themselves: bucket (leases in the archive); empty: those of gateway.read_nodes",
        choices=("", "bucket"),
    )
    member_poll_ms: int = ms(
        5_000, "how often the gateway looks who is there; each look at a bucket is one request", 200, 600_000
    )
    node_beat_ms: int = ms(1_000, "time between two heartbeats that a read node is asked for", 50, 60_000)
    node_phi: int = option(
        8,
        "suspicion at which a silent read node is left alone: 8 is wrong once in 10^8 beats; higher is slower",
        low=1,
        high=100,
    )
    node_slow_factor: int = option(
        4,
        "a read node rests whose reads take so many times the median of the others'; 0: none",
        low=0,
        high=1_000,
    )
    node_load_percent: int = option(
        25,
        "reads under way that a node may have beyond the mean of all; more keeps queues where they are cached, less spreads",
        low=1,
        high=10_000,
        unit="percent",
    )
    web_listen: str = option(
        "127.0.0.1:9478", "address of /healthz /readyz /metrics /status of the gateway; empty: none"
    )
    state_directory: str = option(
        "",
        "where the gateway remembers the ports it gave to brokers; empty: gateway/ in state.directory, else not remembered",
    )


@dataclass(frozen=True, slots=True)
class Replay(SettingsSection):
    """Cold messages for POP consumers: watched, owed, sent to the group's POP retry topic."""

    enabled: bool = option(False, "watch POP groups and replay what the broker deleted before they read it")
    groups: tuple[str, ...] = option(
        (),
        "POP groups to watch: patterns (* and ?), needed for clients of a Proxy; empty: those that the broker names",
    )
    broker_address: str = option("127.0.0.1:10911", "the broker this daemon archives, host:port")
    access_key: str = option("", "access key of an administrator, where the broker asks for one", secret=True)
    secret_key: str = option("", "its secret key", secret=True)
    timeout_ms: int = ms(5_000, "time to connect to the broker, and for each of its answers", 100, 60_000)
    poll_ms: int = ms(
        3000, "time between two looks at all positions; duplicates are bounded by it", 100, 600_000
    )
    window_messages: int = option(1000, "messages sent ahead of the group, per group", low=1, high=1_000_000)
    window_bytes: int = size(8 * MIB, "bytes sent ahead of the group, per group", 64 * KIB, GIB)


@dataclass(frozen=True, slots=True)
class ConsumeQueue(SettingsSection):
    """The consume-queue index in the state directory: searches by time and offset that ask no store. It may be deleted."""

    enabled: bool = option(
        False,
        "whether the daemon keeps it; some 12 bytes of disk and a third of a microsecond of CPU for each message of busy"
        " queues, five where each flush has a few messages of each queue",
    )
    buffer_messages: int = option(
        250_000,
        "messages gathered before they are written, some 150 bytes each; more make larger chunks of quiet queues, and as many"
        " are read again from the broker's log after a crash",
        low=1_000,
        high=10_000_000,
        unit="messages",
    )
    cache_bytes: int = size(64 * MIB, "block cache and write buffers of its RocksDB", 1 * MIB, 16 * GIB)
    flush_ms: int = ms(
        30_000,
        "how often it is made durable; what came since is seen by no other process, and read again after a crash",
        1000,
        ONE_DAY_MS,
    )
    keep_ms: int = ms(
        7 * ONE_DAY_MS,
        "how long messages stay in it by their store time; searches for older ones ask the archive; longer takes more disk",
        60_000,
        36_500 * ONE_DAY_MS,
    )


@dataclass(frozen=True, slots=True)
class Kv(SettingsSection):
    """The key-value view (``tiered kv serve``): writes as messages, applied to a store that is read."""

    topic_prefix: str = option("KV_", "a namespace's topic is this and its name; all others are left alone")
    store: str = option(
        "rocksdb",
        "where entries live: rocksdb (more than memory holds) or map (all in memory, written to disk every flush_ms; faster)",
        choices=("rocksdb", "map"),
    )
    state_directory: str = option(
        "", "store and lock of the view; empty: kv under state.directory; it may be deleted"
    )
    cache_bytes: int = size(256 * MIB, "block cache and write buffers of its RocksDB", 1 * MIB, 64 * GIB)
    map_bytes: int = size(
        GIB,
        "largest sum of keys, values and 200 bytes for each entry of its map; beyond it no write is taken",
        1 * MIB,
        1024 * GIB,
    )
    flush_ms: int = ms(
        10_000,
        "how often what was applied is made durable; seldom: more is applied again after a crash; for the map: all is written",
        100,
        ONE_DAY_MS,
    )
    http_listen: str = option("127.0.0.1:8089", "address of /v1/kv, host:port; port 0: any; empty: none")
    http_token: str = option("", "what clients must show as a bearer token; empty: nothing", secret=True)
    web_listen: str = option("127.0.0.1:0", "address of health and metrics; empty: none")
    broker_address: str = option(
        "127.0.0.1:10911", "the master that takes writes, host:port; not used with kv.namesrv"
    )
    namesrv: str = option(
        "",
        "name servers, host:port;host:port, that know who is the master of source.broker; empty: kv.broker_address is",
    )
    access_key: str = option(
        "", "access key to send and create topics with, where the broker asks for one", secret=True
    )
    secret_key: str = option("", "its secret key", secret=True)
    timeout_ms: int = ms(
        5_000, "longest that a write, or a read of the latest, waits for broker and redo", 100, 600_000
    )
    ask_end: bool = option(
        False,
        "ask the broker for its log's end for reads of the latest, instead of looking at the log beside this process: needed"
        " where that is a slave's, or there is none and the archive is followed; with kv.namesrv it always is; costs such"
        " reads a request",
    )
    poll_ms: int = ms(
        20, "pause between two looks at a log where nothing is new; a write is looked for at once", 1, 60_000
    )
    confirm_ms: int = ms(
        1,
        "how long the log's last record must stay unchanged before it counts, unless it is a write of this view that the broker"
        " beside it answered for; more delays other writers' records, and all writes with kv.ask_end or kv.namesrv",
        1,
        10_000,
    )
    max_value_bytes: int = size(
        1 * MIB, "largest value; at most the broker's maxMessageSize, less a few KiB", 1 * KIB, 64 * MIB
    )
    snapshot_ms: int = ms(
        3_600_000,
        "how often a snapshot of the view goes into the archive's bucket, if anything changed; an empty view begins with the"
        " newest, so retention may trim what lies before it; 0: never",
        0,
        30 * ONE_DAY_MS,
    )
    snapshots_kept: int = option(2, "newest snapshots that stay", low=1, high=10_000)
    batch_bytes: int = size(
        16 * MIB, "bytes of the log that redo takes at once; each takes about three times that", 64 * KIB, GIB
    )
    connections: int = option(16, "connections to the broker, and so writes at one time", low=1, high=1024)
