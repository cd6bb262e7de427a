"""Every metric of the program, declared once, in a registry of its own (no process-wide state).

Names start with ``tiered_``; units are in the names; a label has few values (a queue or topic is never a
label: their number is not bounded). Lag is the local end minus the *proven* commit, so a gauge cannot look
well while nothing is committed. Any thread may update; ``expose`` renders the Prometheus text format.
"""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from tiered.arrayhistogram import ArrayHistogram
from tiered.version import __version__

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

LATENCY_SECONDS = (
    0.05,
    0.1,
    0.2,
    0.35,
    0.5,
    0.75,
    1.0,
    1.5,
    2.0,
    3.0,
    5.0,
    10.0,
    20.0,
    40.0,
    120.0,
    600.0,
    3600.0,
)
REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
FLUSH_STAGES = ("wait", "copy", "encode", "upload", "append", "apply", "total")


class Metrics:
    """All metrics. Make one per process (or per test) and pass it down."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for every counter, which nobody asks for
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._declare_lag()
        self._declare_writing()
        self._declare_store()
        self._declare_reads()
        self._declare_replay()
        self._declare_fetch()
        self._declare_maintenance()
        self._declare_health()
        self._declare_gateway()
        self._declare_answers()

    def _gauge(self, name: str, doc: str, *labels: str) -> Gauge:
        return Gauge(f"tiered_{name}", doc, labels, registry=self.registry)

    def _counter(self, name: str, doc: str, *labels: str) -> Counter:
        return Counter(f"tiered_{name}", doc, labels, registry=self.registry)

    def _histogram(self, name: str, doc: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"tiered_{name}", doc, labels, buckets=buckets, registry=self.registry)

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
        self.flush_seconds = self._histogram(
            "flush_seconds", "Time of a flush by stage: " + ", ".join(FLUSH_STAGES), LATENCY_SECONDS, "stage"
        )
        self.gaps = self._counter("gaps", "Gaps recorded, by kind: queue, physical", "kind")
        self.gap_bytes = self._counter("gap_bytes", "Bytes of the commitlog lost to physical gaps")
        self.rewinds = self._counter("rewinds", "Times the broker lost its tail and the archive followed")
        self.generations = self._counter("generations", "Queues whose offsets restarted")
        self.epoch = self._gauge("epoch", "The writer's epoch")
        self.epochs = self._counter("epochs_opened", "Epochs opened by this process")
        self.fenced = self._counter("fenced", "Times this writer found itself fenced")

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
        self.maintenance_problem = self._gauge(
            "maintenance_problem", "1 while a task cannot do its work, or does not come to it", "task"
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

    def scrub(self, *, damaged: int, unchecked: int, skipped: int, progress: int) -> None:
        """Set what the scrub knows; ``progress`` in percent."""
        self.scrub_damaged.set(damaged)
        self.scrub_unchecked.set(unchecked)
        self.scrub_skipped.set(skipped)
        self.scrub_progress.set(progress / 100)

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

    def _declare_gateway(self) -> None:
        self.gateway_connections = self._gauge(
            "gateway_connections", "Client connections open now, by front: namesrv, broker", "front"
        )
        self.gateway_accepted = self._counter(
            "gateway_accepted", "Client connections accepted, by front", "front"
        )
        self.gateway_cut = self._counter(
            "gateway_cut", "Connections ended by the gateway, by reason", "reason"
        )
        self.gateway_requests = self._counter(
            "gateway_requests", "Requests of clients passed on, by class of their code", "kind"
        )
        self.gateway_answers = self._counter(
            "gateway_answers", "Frames that came from brokers and name servers"
        )
        self.gateway_bytes = self._counter(
            "gateway_bytes", "Bytes received, by origin: client, upstream", "side"
        )
        self.gateway_held = self._counter(
            "gateway_held",
            "Answers held and looked at, by outcome: replaced, passed, failed_closed",
            "outcome",
        )
        self.gateway_answer_bytes = self._gauge(
            "gateway_answer_bytes", "Bytes set aside for answers from the archive that are under way"
        )
        self.http_requests = self._counter("http_requests", "HTTP requests answered, by status", "status")
        self.http_cut = self._counter(
            "http_cut",
            "HTTP connections that ended before their answer did: client gone, too slow, or a fault",
        )
        self.gateway_brokers = self._gauge("gateway_brokers", "Broker addresses that the gateway listens for")
        self.gateway_brokers_away = self._gauge(
            "gateway_brokers_away", "Brokers that do not answer; their clients are refused until they do"
        )
        self.gateway_archive_open = self._gauge(
            "gateway_archive_open", "1 while the gateway can read the archive; hot traffic flows with 0 too"
        )

    def _declare_answers(self) -> None:
        self.cold_answers = self._counter(
            "cold_answers",
            "Answers of brokers that the gateway looked at, by what was asked and outcome: archive, no_match, corrected, moved,"
            " hole, retry, refused, passed, told",
            "what",
            "outcome",
        )
        self.cold_messages = self._counter("cold_messages", "Messages that consumers got from the archive")
        self.cold_bytes = self._counter("cold_bytes", "Bytes of those messages")
        self.cold_seconds = self._histogram(
            "cold_seconds",
            "Time from the broker's answer to the archive's, by what was asked",
            REQUEST_SECONDS,
            "what",
        )
        self.cold_holes = self._counter(
            "cold_holes", "Times a consumer was moved past messages that neither broker nor archive has"
        )
        self.cold_hole_messages = self._counter(
            "cold_hole_messages", "Queue offsets in those holes, counted each time"
        )
        self.gateway_bad_requests = self._counter(
            "gateway_bad_requests",
            "Requests, or brokers' answers, whose fields make no sense, by request code",
            "code",
        )
        self.gateway_broker_checks = self._counter(
            "gateway_broker_checks",
            "Comparisons of the broker's records with the archive's, by outcome: same, differs, unknown",
            "outcome",
        )
        self.gateway_broker_differs = self._gauge(
            "gateway_broker_differs",
            "1 while the broker is not the one that was archived, so that nothing archived is served to its clients",
        )
        self.gateway_garbage = self._counter(
            "gateway_garbage",
            "Broker answers to a view by id that did not hold the record, and were not passed on",
        )
        self.gateway_pop_skips = self._counter(
            "gateway_pop_skips", "POP answers that show that the broker skipped messages of a group"
        )
        self.gateway_pop_skipped_messages = self._counter(
            "gateway_pop_skipped_messages",
            "Queue offsets skipped in those answers; filtered messages count too",
        )

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

    def value(self, name: str, **labels: str) -> float | None:
        """The present value of a sample (``tiered_requests_total``), for the status page; ``None`` if there
        is none.
        """
        return self.registry.get_sample_value(name, labels)

    def expose(self) -> bytes:
        """The Prometheus text format (``CONTENT_TYPE``)."""
        return generate_latest(self.registry)
