"""Every metric declared once, in its own registry."""

from __future__ import annotations

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tiered.arrayhistogram import ArrayHistogram
from tiered.metrics import OTHER_TABLES, TABLES_SHOWN, Metrics
from tiered.version import __version__


def test_two_programs_in_one_process_do_not_meet() -> None:
    one, two = Metrics(), Metrics()
    one.commits.inc()
    assert one.value("tiered_commits_total") == 1
    assert two.value("tiered_commits_total") == 0


def test_everything_asked_for_is_exposed_and_parses() -> None:
    metrics = Metrics()
    metrics.request("put", "ok", 10, 0, 0.2)
    metrics.proven_latency.observe_many(np.array([0.4, 0.6]))
    families = {f.name: f for f in text_string_to_metric_families(metrics.expose().decode())}
    names = (
        "lag_bytes lag_messages lag_seconds uploads upload_bytes requests request_seconds buffer_bytes hold_bytes gaps "
        "epoch epochs_opened fenced commits flush_seconds proven_latency_seconds stuck ready probe_refuted messages"
    )
    for name in names.split():
        assert f"tiered_{name}" in families, name
        assert families[f"tiered_{name}"].documentation
    assert metrics.value("tiered_build_info", version=__version__) == 1
    metrics.identify("c", "broker-a")
    assert metrics.value("tiered_broker_info", cluster="c", broker="broker-a") == 1


def test_the_process_is_measured_and_no_series_is_doubled() -> None:
    metrics = Metrics()
    metrics.request("put", "ok", 100, 0, 0.01)
    text = metrics.expose().decode()
    for name in ("cpu_seconds_total", "resident_memory_bytes", "open_fds", "start_time_seconds"):
        assert (metrics.value(f"process_{name}") or 0) > 0, name
    assert "tiered_requests_total" in text
    assert "_created" not in text


def test_requests_are_counted_by_verb_and_outcome() -> None:
    metrics = Metrics()
    metrics.request("put", "ok", 100, 0, 0.01)
    metrics.request("put", "conflict", 50, 0, 0.01)
    metrics.request("get", "ok", 0, 700, 0.5)
    assert metrics.value("tiered_requests_total", verb="put", outcome="ok") == 1
    assert metrics.value("tiered_requests_total", verb="put", outcome="conflict") == 1
    assert metrics.value("tiered_request_sent_bytes_total", verb="put") == 150
    assert metrics.value("tiered_request_received_bytes_total", verb="get") == 700
    assert metrics.value("tiered_request_seconds_count", verb="get") == 1
    assert metrics.value("tiered_request_received_bytes_total", verb="put") is None


def test_array_histogram_counts_like_one_by_one() -> None:
    values = np.concatenate([np.linspace(0, 12, 1001), [-5.0, 1.0, 2.0, 1e9]])
    histogram = ArrayHistogram("x_seconds", "doc", (1.0, 2.0, 10.0))
    histogram.observe_many(values[:400])
    histogram.observe_many(values[400:])
    (family,) = histogram.collect()
    buckets = {s.labels["le"]: s.value for s in family.samples if s.name == "x_seconds_bucket"}
    clipped = np.maximum(values, 0)
    wanted = {f"{bound:g}": int((clipped <= bound).sum()) for bound in (1.0, 2.0, 10.0)} | {
        "+Inf": len(values)
    }
    assert buckets == wanted
    assert histogram.count() == len(values)
    total = next(s.value for s in family.samples if s.name == "x_seconds_sum")
    assert total == pytest.approx(clipped.sum())


def test_quantiles_are_bucket_bounds() -> None:
    histogram = ArrayHistogram("x_seconds", "doc", (1.0, 2.0, 10.0))
    assert histogram.quantile(0.5) is None
    histogram.observe_many(np.array([0.5] * 90 + [5.0] * 9 + [100.0]))
    assert histogram.quantile(0.5) == 1.0
    assert histogram.quantile(0.99) == 10.0
    assert histogram.quantile(1.0) == float("inf")
    histogram.observe_many(np.array([]))
    assert histogram.count() == 100


def test_lag_moves_together() -> None:
    metrics = Metrics()
    metrics.lag(size=100, messages=7, seconds=1.5, local_end=1100, proven=1000)
    metrics.lag(size=50, messages=5, seconds=0.5, local_end=1100, proven=1050)
    assert metrics.value("tiered_lag_bytes") == 50
    assert metrics.value("tiered_lag_messages") == 5
    assert metrics.value("tiered_local_end_bytes") == 1100
    metrics.uploaded("data", 5)
    assert metrics.value("tiered_upload_bytes_total", kind="data") == 5


def test_series_of_tables_are_as_many_as_are_shown_however_many_tables_there_are() -> None:
    metrics, count = Metrics(), 3 * TABLES_SHOWN
    metrics.tables(
        {"table": f"t.{at:04d}", "lag_commits": at, "behind_seconds": count - at, "partial_files": 1} for at in range(count)
    )  # fmt: skip

    def value(name: str, table: str) -> float | None:
        return metrics.value(f"tiered_table_{name}", table=table)

    series = [
        line
        for line in metrics.expose().decode().splitlines()
        if line.startswith("tiered_table_lag_commits{")
    ]
    assert len(series) == TABLES_SHOWN + 1
    assert value("lag_commits", f"t.{count - 1:04d}") == count - 1, "the highest"
    assert value("lag_commits", "t.0000") is None
    assert value("lag_commits", OTHER_TABLES) == count - TABLES_SHOWN - 1, "the highest of the others"
    assert value("behind_seconds", "t.0000") == count
    assert value("partial_files", OTHER_TABLES) == count - TABLES_SHOWN
    metrics.tables([{"table": "t.a", "lag_commits": 1, "behind_seconds": 2, "partial_files": 3}])
    assert value("partial_files", OTHER_TABLES) is None
    assert value("partial_files", "t.a") == 3
