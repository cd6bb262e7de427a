"""Every metric of the program, declared once, in a registry of its own (no process-wide state).

Names start with ``tiered_``; units are in the names; a label has few values (a queue or topic is never a
label: their number is not bounded). Lag is the local end minus the *proven* commit, so a gauge cannot look
well while nothing is committed. Any thread may update; ``expose`` renders the Prometheus text format.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from tiered.arrayhistogram import ArrayHistogram
from tiered.gatewaymetrics import GatewayMetrics
from tiered.metricregistry import REQUEST_SECONDS
from tiered.sinkmetrics import SinkMetrics
from tiered.version import __version__

LATENCY_SECONDS = (
    0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 120.0, 600.0, 3600.0,
)  # fmt: skip
FLUSH_STAGES = ("wait", "copy", "encode", "upload", "append", "apply", "total")

TABLES_SHOWN = 100
"""Tables with a series of their own: one is kept for each topic, of which there may be very many."""
OTHER_TABLES = "(all others)"
"""In the place of the name of a table: no table is called so."""
TENANTS_SHOWN = 20
"""Tenants with a series of their own."""
OTHER_TENANTS = "(all others)"
"""In the place of a tenant's name."""


class Metrics(GatewayMetrics):
    """All metrics. Make one per process (or per test) and pass it down."""

    def __init__(self) -> None:
        super().__init__()
        self._declare_lag()
        self._declare_writing()
        self._declare_store()
        self._declare_reads()
        self._declare_replay()
        self._declare_fetch()
        self._declare_maintenance()
        self._declare_index()
        self.sinks = SinkMetrics(self._gauge)
        self._declare_health()
        self._declare_gateway()
        self._declare_answers()
        self._declare_nodes()
        self._declare_key_values()

    def _declare_lag(self) -> None:
        self.lag_bytes = self._gauge("lag_bytes", "Local end of the commitlog minus the proven commit")
        self.lag_messages = self._gauge(
            "lag_messages", "Messages confirmed in the commitlog and not yet proven in the archive"
        )
        self.lag_seconds = self._gauge(
            "lag_seconds",
            "Age of the oldest message not yet proven, or time since the last proof, whichever is larger; 0 without lag",
        )
        self.local_end_bytes = self._gauge(
            "local_end_bytes", "Physical offset where the broker's commitlog ends"
        )
        self.proven_bytes = self._gauge(
            "proven_bytes", "Physical offset up to which the archive is proven complete"
        )
        self.buffer_bytes = self._gauge(
            "buffer_bytes", "Message bytes referenced by buffers and flushes under way"
        )
        self.buffer_messages = self._gauge("buffer_messages", "Messages in buffers and flushes under way")
        self.hold_bytes = self._gauge("hold_bytes", "Bytes on disk that only the hold keeps from deletion")
        self.proven_latency = ArrayHistogram(
            "tiered_proven_latency_seconds", "From the broker's append to the proven commit", LATENCY_SECONDS
        )
        self.registry.register(self.proven_latency)

    def _declare_writing(self) -> None:
        self.messages = self._counter("messages", "Messages proven archived by this process")
        self.message_bytes = self._counter(
            "message_bytes", "Bytes of those messages as the broker stores them"
        )
        self.uploads = self._counter("uploads", "Objects written, by kind: data, commit, checkpoint", "kind")
        self.upload_bytes = self._counter("upload_bytes", "Bytes of those objects, as stored", "kind")
        self.commits = self._counter("commits", "Commits written by this process and proven")
        self.commit_seq = self._gauge("commit_seq", "Number of the newest commit that this process knows")
        self.resends = self._counter("commit_resends", "Commits of unknown outcome that were sent again")
        self.vanished = self._counter(
            "vanished", "Times that the store did not have a commit that it had answered for"
        )
        self.flush_seconds = self._histogram(
            "flush_seconds", "Time of a flush by stage: " + ", ".join(FLUSH_STAGES), LATENCY_SECONDS, "stage"
        )
        self.gaps = self._counter("gaps", "Gaps recorded, by kind: queue, physical", "kind")
        self.gap_bytes = self._counter("gap_bytes", "Bytes of the commitlog lost to physical gaps")
        self.rewinds = self._counter("rewinds", "Times the broker lost its tail and the archive followed")
        self.generations = self._counter("generations", "Queues whose offsets restarted")
        self.aliases = self._counter("aliases", "Places of messages in lite queues that were archived")
        self.epoch = self._gauge("epoch", "The writer's epoch")
        self.epochs = self._counter("epochs_opened", "Epochs opened by this process")
        self.fenced = self._gauge(
            "fenced", "1 while another writer owns the archive: nothing is archived here"
        )

    def _declare_store(self) -> None:
        self.requests = self._counter(
            "requests",
            "Requests to the object store, each try of a request counted by its own outcome",
            "verb",
            "outcome",
        )
        self.request_seconds = self._histogram(
            "request_seconds",
            "Time of one try of a request, including its wait for the throttle",
            REQUEST_SECONDS,
            "verb",
        )
        self.sent_bytes = self._counter("request_sent_bytes", "Body bytes sent to the store", "verb")
        self.received_bytes = self._counter(
            "request_received_bytes", "Body bytes received from the store", "verb"
        )
        self.refuted = self._gauge(
            "probe_refuted", "1 for a promise of the store that the probe refuted", "promise"
        )

    def _declare_reads(self) -> None:
        self.reads = self._counter(
            "reads", "Reads of queues answered from the archive, by status or kind of error", "status"
        )
        self.read_messages = self._counter("read_messages", "Messages given to readers")
        self.read_bytes = self._counter("read_bytes", "Bytes of those messages")
        self.follows = self._counter(
            "follows", "Looks for new commits by a reader: new, same, or kind of error", "outcome"
        )
        self.read_seq = self._gauge("read_commit_seq", "Number of the newest commit that this reader knows")

    def _declare_fetch(self) -> None:
        self.fetch_blocks = self._counter(
            "fetch_blocks",
            "Blocks that readers needed, by where they were: memory, underway, away",
            "where",
        )
        self.fetched_bytes = self._counter(
            "fetched_bytes",
            "Stored bytes of blocks fetched from the store, by why: demand, ahead",
            "why",
        )
        self.wasted_bytes = self._counter(
            "fetch_wasted_bytes", "Stored bytes fetched ahead and dropped unread"
        )
        self.damaged_blocks = self._counter(
            "fetch_damaged", "Blocks and tables that failed their checksum; never served, never kept"
        )
        self.fetch_budget_bytes = self._gauge(
            "fetch_budget_bytes", "Bytes charged to the fetch budget: in flight and in the memory cache"
        )
        self.fetch_cache_bytes = self._gauge("fetch_cache_bytes", "Bytes of those in the memory cache")
        self.fetch_disk_bytes = self._gauge("fetch_disk_bytes", "Bytes in the disk tier of the cache")
        self.tenant_bytes = self._gauge(
            "tenant_fetched_bytes", "Stored bytes asked of the store for a tenant since the start", "tenant"
        )
        self.tenant_requests = self._gauge("tenant_requests", "Requests of these", "tenant")
        self.tenant_refused = self._gauge(
            "tenant_refused", "Times a tenant's reader was told to wait for its budget", "tenant"
        )
        self.fetch_disk_errors = self._gauge("fetch_disk_errors", "Failed accesses to the disk tier so far")

    def _declare_replay(self) -> None:
        self.replay_watched = self._gauge("replay_watched_queues", "Queues of POP groups that are watched")
        self.replay_unwatched = self._gauge(
            "replay_unwatched_groups",
            "POP groups that are not watched: messages that they skip are lost to them",
        )
        self.replay_unwatched_skipped = self._counter(
            "replay_unwatched_skipped_messages",
            "Messages that the broker deleted before a POP group that is not watched read them",
        )
        self.replay_look_age = self._gauge(
            "replay_last_look_timestamp_seconds", "When all POP positions were last read; 0: never"
        )
        self.replay_owed = self._gauge(
            "replay_owed_messages",
            "Messages that the broker deleted before a POP group read them, not sent yet",
        )
        self.replay_debts = self._counter(
            "replay_debts", "Ranges owed, by reason: skipped, asked, fifo", "reason"
        )
        self.replay_skipped = self._counter(
            "replay_skipped_messages", "Messages that the broker deleted before a POP group read them"
        )
        self.replay_fifo_skipped = self._counter(
            "replay_fifo_skipped_messages",
            "Messages deleted before a group that consumes in order read them: reported, never sent",
        )
        self.replay_settled = self._counter(
            "replay_settled_messages",
            "Owed messages settled, by outcome: sent, filtered, hole, refused",
            "outcome",
        )
        self.replay_problem = self._gauge(
            "replay_problem", "1 while a part of replay cannot do its work", "part"
        )

    def _declare_maintenance(self) -> None:
        self.maintenance_turns = self._counter("maintenance_turns", "Turns of work in the background", "task")
        self.maintenance_seconds = self._counter("maintenance_seconds", "Time that these turns took", "task")
        self.maintenance_done = self._counter(
            "maintenance_done", "What they did, each task in units of its own", "task", "what"
        )
        self.maintenance_left = self._gauge(
            "maintenance_left",
            "What waited when a task was last done, each in units of its own",
            "task",
            "what",
        )
        self.maintenance_problem = self._gauge(
            "maintenance_problem", "1 while a task cannot do its work, or does not come to it", "task"
        )
        self.maintenance_waiting = self._gauge(
            "maintenance_waiting_seconds",
            "How long a task has been due and was given no turn; 0 while it is not",
            "task",
        )
        self.maintenance_turn_age = self._gauge(
            "maintenance_turn_age_seconds",
            "Time since a turn of the task ended, or since the process began to archive",
            "task",
        )
        self.maintenance_success_age = self._gauge(
            "maintenance_success_age_seconds",
            "Time since the task came to its end without trouble, or since the process began to archive",
            "task",
        )
        self.checkpoint_unsaved = self._gauge(
            "checkpoint_unsaved_seconds",
            "How long the oldest commit of this process that no checkpoint holds has waited for one",
        )

        self.scrub_damaged = self._gauge(
            "scrub_damaged_keys", "Keys that the scrub found damaged or missing and that are not mended"
        )
        self.scrub_unchecked = self._gauge(
            "scrub_oldest_unchecked_seconds",
            "Age of the oldest byte of the archive that no walk compared, at most",
        )
        self.scrub_skipped = self._gauge(
            "scrub_skipped_keys", "Keys that the last walk could not compare with anything"
        )
        self.scrub_progress = self._gauge(
            "scrub_progress_ratio", "Part of all bytes that the walk under way has behind it"
        )
        self.scrub_ended = self._gauge(
            "scrub_last_end_timestamp_seconds",
            "When the last whole walk over keys (listing) or bytes (reading) ended, by this host's clock; 0: never",
            "walk",
        )
        self.scrub_overdue = self._gauge(
            "scrub_overdue", "1 while a walk of the scrub should have come to its end long ago and did not"
        )

        self.table_lag = self._gauge(
            "table_lag_commits",
            "Commits of the archive that a table of another engine does not reflect, as of the last round",
            "table",
        )
        self.table_behind = self._gauge(
            "table_behind_seconds", "Time since a round last found or brought a table up to date", "table"
        )
        self.table_partial = self._gauge(
            "table_partial_files",
            "Files of a table with rows that the archive no longer serves, visible until the file goes",
            "table",
        )

    def _declare_index(self) -> None:
        self.index_applied = self._gauge(
            "index_applied_bytes", "Physical offset up to which the consume-queue index has every message"
        )
        self.index_lag = self._gauge(
            "index_lag_bytes",
            "Bytes of the log given to archiving that the consume-queue index has not taken",
        )
        self.index_messages = self._gauge(
            "index_messages", "Messages that this process put into the consume-queue index"
        )
        self.index_keys = self._gauge(
            "index_entries",
            "Keys of the consume-queue index, as its store estimates: two a chunk, one a queue",
        )
        self.index_size = self._gauge("index_size_bytes", "What it takes on disk and in write buffers")
        self.index_begun_anew = self._gauge(
            "index_begun_anew", "Times this process emptied it: damaged, or a part of the log was gone"
        )
        self.index_stalled = self._gauge(
            "index_stalled", "1 while the consume-queue index is asked for and does not move, or is not open"
        )

        self.groups = self._gauge("groups", "Subscription groups that the broker knows, as last looked at")
        self.group_offsets = self._gauge("group_offsets", "Offsets of groups in queues that the broker keeps")
        self.groups_age = self._gauge(
            "groups_age_seconds", "Time since the broker's list of groups was last read or found unchanged"
        )

    def index(self, *, applied: int, lag: int, messages: int, keys: int, size: int, begun_anew: int) -> None:
        """Set what the consume-queue index says of itself."""
        self.index_applied.set(applied)
        self.index_lag.set(lag)
        self.index_messages.set(messages)
        self.index_keys.set(keys)
        self.index_size.set(size)
        self.index_begun_anew.set(begun_anew)

    def tables(self, found: Iterable[Mapping[str, object]]) -> None:
        """Set what is known of each table that is kept, by gauge of the ``TABLES_SHOWN`` with the highest values; of all others
        one series, ``OTHER_TABLES``, has the highest lag or age, or the sum of files. What is not kept is no longer shown."""
        gauges = (
            (self.table_lag, "lag_commits", max), (self.table_behind, "behind_seconds", max),
            (self.table_partial, "partial_files", sum),
        )  # fmt: skip
        rows = list(found)
        for gauge, name, together in gauges:
            values = sorted(((float(str(row[name])), str(row["table"])) for row in rows), reverse=True)
            gauge.clear()
            for value, table in values[:TABLES_SHOWN]:
                gauge.labels(table).set(value)
            if others := [value for value, _ in values[TABLES_SHOWN:]]:
                gauge.labels(OTHER_TABLES).set(together(others))

    def tenants(self, found: Mapping[str, Mapping[str, object]]) -> None:
        """Set what each tenant had of the store: of the ``TENANTS_SHOWN`` with most bytes, and of all others together."""
        gauges = (
            (self.tenant_bytes, "fetched_bytes"),
            (self.tenant_requests, "requests"),
            (self.tenant_refused, "refused"),
        )
        rows = list(found.items())  # those with most bytes come first
        for gauge, name in gauges:
            gauge.clear()
            for tenant, row in rows[:TENANTS_SHOWN]:
                gauge.labels(tenant).set(float(str(row[name])))
            if rows[TENANTS_SHOWN:]:
                gauge.labels(OTHER_TENANTS).set(sum(float(str(row[name])) for _, row in rows[TENANTS_SHOWN:]))

    def scrub(self, figures: Mapping[str, int], *, overdue: bool) -> None:
        """Set what the scrub knows; ``figures``: see ``care.notes.figures_of``."""
        self.scrub_damaged.set(figures["damaged_keys"])
        self.scrub_unchecked.set(figures["oldest_unchecked_seconds"])
        self.scrub_skipped.set(figures["skipped_keys"])
        self.scrub_progress.set(figures["progress_percent"] / 100)
        self.scrub_ended.labels("listing").set(figures["last_listed_end_ms"] / 1000)
        self.scrub_ended.labels("reading").set(figures["last_read_end_ms"] / 1000)
        self.scrub_overdue.set(overdue)

    def _declare_health(self) -> None:
        self.ready = self._gauge(
            "ready", "1 while /readyz is 200: this process archives, and nothing stands still or fails"
        )
        self.stalled = self._gauge(
            "stalled", "1 while nothing was archived for watchdog.stall_ms although something waits"
        )
        self.unavailable = self._gauge(
            "unavailable",
            "1 while a write to the store or the state has been failing for watchdog.unavailable_ms",
        )
        self.stuck = self._gauge("stuck", "1 while a step of this worker does not return", "service")
        self.service_errors = self._counter("service_errors", "Errors of workers, by kind", "service", "kind")
        self.log_dropped = self._gauge(
            "log_lines_dropped", "Lines of the log that standard error did not take, since the start"
        )
        self.log_dropped.set_function(lambda: getattr(sys.stderr, "dropped", 0))
        self.build = self._gauge("build_info", "1, labelled with the program's version", "version")
        self.build.labels(__version__).set(1)
        self.broker = self._gauge(
            "broker_info",
            "1, labelled with the cluster and broker that this process is for: join it to the others",
            "cluster",
            "broker",
        )

    def identify(self, cluster: str, broker: str) -> None:
        """Say which broker's archive this process writes or reads."""
        self.broker.labels(cluster, broker).set(1)

    def request(self, verb: str, outcome: str, bytes_sent: int, bytes_received: int, seconds: float) -> None:
        """Count one request to the store: the observer of the metered provider."""
        self.requests.labels(verb, outcome).inc()
        self.request_seconds.labels(verb).observe(seconds)
        if bytes_sent:
            self.sent_bytes.labels(verb).inc(bytes_sent)
        if bytes_received:
            self.received_bytes.labels(verb).inc(bytes_received)

    def lag(self, *, size: float, messages: float, seconds: float, local_end: int, proven: int) -> None:
        """Set the lag gauges together: bytes and messages (NaN: not known now), seconds, both offsets."""
        self.lag_bytes.set(size)
        self.lag_messages.set(messages)
        self.lag_seconds.set(seconds)
        self.local_end_bytes.set(local_end)
        self.proven_bytes.set(proven)

    def uploaded(self, kind: str, length: int) -> None:
        """Count one object of ``kind`` and its stored bytes."""
        self.uploads.labels(kind).inc()
        self.upload_bytes.labels(kind).inc(length)
