"""Every metric of the program, declared once, in a registry of its own (no process-wide state).

Names start with ``tiered_``; units are in the names; a label has few values (a queue or topic is never a
label: their number is not bounded). Lag is the local end minus the *proven* commit, so a gauge cannot look
well while nothing is committed. Any thread may update; ``expose`` renders the Prometheus text format.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily
from prometheus_client.registry import Collector

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


class ArrayHistogram(Collector):
    """A histogram fed whole arrays: one call per flush, however many messages it holds.

    ``bounds_seconds`` are the upper, inclusive bucket bounds, ascending; a last bucket takes everything
    above. Values below zero (a broker whose clock runs ahead) count as zero.
    """

    def __init__(self, name: str, documentation: str, bounds_seconds: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._bounds = np.asarray(bounds_seconds, dtype=np.float64)
        self._counts = np.zeros(len(self._bounds) + 1, dtype=np.int64)
        self._sum = 0.0
        self._lock = threading.Lock()

    def observe_many(self, seconds: npt.NDArray[np.float64]) -> None:
        """Count every value of a float array, in seconds."""
        values = np.maximum(np.asarray(seconds, dtype=np.float64), 0.0)
        slots = np.searchsorted(self._bounds, values, side="left")
        counts = np.bincount(slots, minlength=len(self._counts))
        with self._lock:
            self._counts += counts
            self._sum += float(values.sum())

    def count(self) -> int:
        """Values counted so far."""
        with self._lock:
            return int(self._counts.sum())

    def quantile(self, q: float) -> float | None:
        """Upper bound in seconds of the bucket that holds quantile ``q`` (0 to 1); ``None`` without values."""
        with self._lock:
            running = np.cumsum(self._counts)
        if not running[-1]:
            return None
        slot = int(np.searchsorted(running, q * running[-1], side="left"))
        return float(self._bounds[slot]) if slot < len(self._bounds) else float("inf")

    def collect(self) -> Iterable[HistogramMetricFamily]:
        """One family in Prometheus' cumulative form."""
        with self._lock:
            running, total = np.cumsum(self._counts).tolist(), self._sum
        names = [f"{bound:g}" for bound in self._bounds] + ["+Inf"]
        family = HistogramMetricFamily(self._name, self._documentation)
        family.add_metric([], buckets=list(zip(names, running, strict=True)), sum_value=total)
        return [family]


class Metrics:
    """All metrics. Make one per process (or per test) and pass it down."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._declare_lag()
        self._declare_writing()
        self._declare_store()
        self._declare_health()

    def _gauge(self, name: str, doc: str, *labels: str) -> Gauge:
        return Gauge(f"tiered_{name}", doc, labels, registry=self.registry)

    def _counter(self, name: str, doc: str, *labels: str) -> Counter:
        return Counter(f"tiered_{name}", doc, labels, registry=self.registry)

    def _histogram(self, name: str, doc: str, buckets: Sequence[float], *labels: str) -> Histogram:
        return Histogram(f"tiered_{name}", doc, labels, buckets=buckets, registry=self.registry)

    def _declare_lag(self) -> None:
        self.lag_bytes = self._gauge("lag_bytes", "Local end of the commitlog minus the proven commit")
        self.lag_messages = self._gauge(
            "lag_messages", "Messages confirmed in the commitlog and not proven archived"
        )
        self.lag_seconds = self._gauge(
            "lag_seconds", "Age of the oldest message that is not proven archived; 0 if none"
        )
        self.local_end_bytes = self._gauge(
            "local_end_bytes", "Physical offset where the broker's commitlog ends"
        )
        self.proven_bytes = self._gauge("proven_bytes", "Physical offset up to which the archive is proven")
        self.buffer_bytes = self._gauge(
            "buffer_bytes", "Message bytes referenced by buffers and flushes under way"
        )
        self.buffer_messages = self._gauge("buffer_messages", "Messages in buffers and flushes under way")
        self.hold_bytes = self._gauge("hold_bytes", "Disk that only the hold keeps alive")
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
        self.commits = self._counter("commits", "Commits that count, written by this process")
        self.commit_seq = self._gauge("commit_seq", "Number of the archive's newest commit known here")
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
        self.requests = self._counter("requests", "Requests to the object store", "verb", "outcome")
        self.request_seconds = self._histogram(
            "request_seconds", "Time of a request", REQUEST_SECONDS, "verb"
        )
        self.sent_bytes = self._counter("request_sent_bytes", "Body bytes sent to the store", "verb")
        self.received_bytes = self._counter(
            "request_received_bytes", "Body bytes received from the store", "verb"
        )
        self.refuted = self._gauge(
            "probe_refuted", "1 for a promise of the store that the probe refuted", "promise"
        )

    def _declare_health(self) -> None:
        self.ready = self._gauge("ready", "1 while this process archives: epoch held, broker found")
        self.stuck = self._gauge("stuck", "1 while a step of this worker does not return", "service")
        self.service_errors = self._counter("service_errors", "Errors of workers, by kind", "service", "kind")
        self.build = self._gauge("build_info", "1, labelled with the program's version", "version")
        self.build.labels(__version__).set(1)

    def request(self, verb: str, outcome: str, bytes_sent: int, bytes_received: int, seconds: float) -> None:
        """Count one request to the store: the observer of the metered provider."""
        self.requests.labels(verb, outcome).inc()
        self.request_seconds.labels(verb).observe(seconds)
        if bytes_sent:
            self.sent_bytes.labels(verb).inc(bytes_sent)
        if bytes_received:
            self.received_bytes.labels(verb).inc(bytes_received)

    def lag(self, *, size: int, messages: int | None, seconds: float, local_end: int, proven: int) -> None:
        """Set the lag gauges together: bytes, messages (``None``: not known now), age in seconds, both
        offsets.
        """
        self.lag_bytes.set(size)
        if messages is not None:
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
