"""The result of ``profile`` as plain values: what ``--json`` prints, and tables and the report show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiered.text.human import Kind
from tiered_jobs.profile.facts import Facts, TopicFacts
from tiered_jobs.profile.histogram import bars, percentile
from tiered_jobs.profile.scan import OTHERS, Counted

SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}

TOTAL_KINDS = {
    "topics": Kind.COUNT, "messages": Kind.COUNT, "body_bytes": Kind.SIZE, "record_bytes": Kind.SIZE,
    "stored_bytes": Kind.SIZE, "queues": Kind.COUNT, "gap_messages": Kind.COUNT, "unique_keys_approx": Kind.COUNT,
    "keys_approx": Kind.COUNT, "producers": Kind.COUNT, "first_store_timestamp": Kind.TIME,
    "last_store_timestamp": Kind.TIME,
}  # fmt: skip


def summary(
    found: Mapping[str | None, Counted],
    facts: Facts,
    archives: Mapping[str, int],
    bucket_ms: int,
    in_all: tuple[int, int, int] | None,
    *,
    made_ms: int,
) -> dict[str, Any]:
    """Of all topics. ``in_all``: unique keys, keys and producers over all topics, ``None`` if no record was read; times in ms
    since 1970."""
    named = {name: one for name, one in found.items() if name is not OTHERS}
    of = facts.of(named)
    topics = [{"topic": name, **_topic(one, of[name], bucket_ms)} for name, one in named.items()]
    others = None
    if OTHERS in found:
        one = found[OTHERS]
        others = {"topics": one.topics, **_topic(one, facts.without(named), bucket_ms)}
    every = facts.without()
    first = [one.first for one in found.values() if one.first is not None]
    last = [one.last for one in found.values() if one.last is not None]
    unique, keys, producers = in_all or (None, None, None)
    totals = {
        "topics": len(facts.topics), "messages": sum(one.messages for one in found.values()),
        "body_bytes": sum(one.body_bytes for one in found.values()), "record_bytes": every.record_bytes,
        "stored_bytes": every.stored_bytes, "queues": every.queues, "gaps": every.gaps,
        "gap_messages": every.gap_messages, "unique_keys_approx": unique, "keys_approx": keys, "producers": producers,
        "first_store_timestamp": min(first, default=None), "last_store_timestamp": max(last, default=None),
    }  # fmt: skip
    return {
        "job": "profile", "made": made_ms, "archives": dict(archives), "bucket_ms": bucket_ms,
        "records_read": in_all is not None, "totals": totals, "topics": topics, "others": others,
    }  # fmt: skip


def _topic(one: Counted, facts: TopicFacts, bucket_ms: int) -> dict[str, Any]:
    sizes = {name: percentile(one.size, share, one.largest) for name, share in SHARES.items()}
    delays = {name: percentile(one.delay, share, max(0, one.slowest)) for name, share in SHARES.items()}
    some = one.messages > 0
    return {
        "messages": one.messages,
        "body_bytes": one.body_bytes,
        "record_bytes": facts.record_bytes,
        "stored_bytes": facts.stored_bytes,
        "queues": facts.queues,
        "largest_queue_messages": facts.largest_queue,
        "first_store_timestamp": one.first,
        "last_store_timestamp": one.last,
        "body_size": {
            "min": one.smallest if some else None, **sizes, "max": one.largest if some else None,
            "mean": round(one.body_bytes / one.messages, 1) if some else None,
        },
        "delay_ms": {
            **delays, "max": one.slowest if some else None, "negative": one.negative_delays,
            "absurd_clock": one.absurd_clocks,
        },
        "distinct_tags": one.distinct_tags,
        "tags": [{"tag": tag, "messages": n} for tag, n in one.tags],
        "unique_keys_approx": one.unique_keys,
        "keys_approx": one.keys,
        "keyed_messages": one.keyed,
        "distinct_producers": one.distinct_producers,
        "producers": None if one.producers is None else [{"address": a, "messages": n} for a, n in one.producers],
        "gaps": {"ranges": facts.gaps, "messages": facts.gap_messages},
        "over_time": [[at * bucket_ms, one.at[at]] for at in sorted(one.at)],
        "sizes": [list(bar) for bar in bars(one.size)],
        "delays": [list(bar) for bar in bars(one.delay)],
    }  # fmt: skip
