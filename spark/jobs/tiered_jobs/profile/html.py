"""The report of ``profile``: tiles, the table of topics, and plots of those with most messages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from tiered.text.human import duration, moment, size
from tiered_jobs.profile import report
from tiered_jobs.profile.report import Part, Tile
from tiered_jobs.profile.svg import bars, spark

_OPEN = 5
"""Topics whose plots are seen at once."""

_MONTHS_MS, _HOURS_MS = 60 * 86_400_000, 2 * 3_600_000


def page(made: dict[str, Any], plots: int) -> str:
    """The file's text, of what ``result.summary`` returned; plots of the first ``plots`` topics."""
    topics = list(made["topics"])
    if made["others"] is not None:
        topics.append({**made["others"], "topic": f"({made['others']['topics']:,} others)"})
    span = _span(topics, made["bucket_ms"])
    about = [f"{name}, as of commit {commit:,}" for name, commit in made["archives"].items()]
    about.append(f"Made {_minute(made['made'])}. All times are UTC.")
    parts = [
        report.tiles(_tiles(made["totals"])),
        report.heading("Topics"),
        report.box("wide", _table(topics, span, made["records_read"])),
    ]
    if plots and topics:
        parts.append(report.heading("Topic by topic"))
        parts += [_topic(t, span, made["bucket_ms"], is_open=n < _OPEN) for n, t in enumerate(topics[:plots])]
        if len(topics) > plots:
            parts.append(
                report.paragraph(f"{len(topics) - plots:,} more topics have no plots; --plots shows more.")
            )
    parts.append(report.heading("How it was counted"))
    parts += [report.paragraph(line) for line in _notes(made["records_read"])]
    return report.document("Profile of an archive", about, parts)


def _tiles(totals: dict[str, Any]) -> list[Tile]:
    stored, raw = totals["stored_bytes"], totals["record_bytes"]
    found = [
        Tile(
            "Messages", f"{totals['messages']:,}", f"{totals['topics']:,} topics, {totals['queues']:,} queues"
        ),
        Tile("Bodies", size(totals["body_bytes"]), f"{size(raw)} with headers"),
        Tile("In the bucket", size(stored), f"{stored / raw:.0%} of the records" if raw else ""),
        Tile("First stored", _minute(totals["first_store_timestamp"])),
        Tile("Last stored", _minute(totals["last_store_timestamp"])),
        Tile(
            "Lost to gaps",
            f"{totals['gap_messages']:,}",
            f"in {totals['gaps']:,} gaps",
            warn=totals["gaps"] > 0,
        ),
    ]
    if totals["unique_keys_approx"] is not None:
        found.append(
            Tile("Unique keys", f"≈ {totals['unique_keys_approx']:,}", f"≈ {totals['keys_approx']:,} keys")
        )
        found.append(Tile("Producers", f"{totals['producers']:,}", "addresses"))
    return found


def _table(topics: Sequence[dict[str, Any]], span: range, records: bool) -> Element:
    headings = ["Topic", "Messages", "Over time", "Bodies", "In the bucket", "Queues", "Lost"]
    headings += ["≈ Unique keys, keys"] if records else []
    headings += ["Size p50, p99", "Delay p50, p99", "First and last stored"]
    rows: list[list[Part | Sequence[Part]]] = []
    for topic in topics:
        keys = [_two(topic, ("unique_keys_approx", "keys_approx"), _count)] if records else []
        over_time = spark(_over_time(topic, span), name="messages over time")
        rows.append([
            topic["topic"], f"{topic['messages']:,}", over_time, size(topic["body_bytes"]),
            size(topic["stored_bytes"]), f"{topic['queues']:,}", f"{topic['gaps']['messages']:,}", *keys,
            _two(topic["body_size"], ("p50", "p99"), _size), _two(topic["delay_ms"], ("p50", "p99"), _delay),
            _two(topic, ("first_store_timestamp", "last_store_timestamp"), _minute),
        ])  # fmt: skip
    texts = {0, 2, len(headings) - 1}
    return report.table(headings, rows, set(range(len(headings))) - texts, "Topics by number of messages")


def _two(found: dict[str, Any], names: tuple[str, str], shown: Callable[[Any], str]) -> Sequence[Part]:
    """Two values, one above the other."""
    return report.lines(*(shown(found[name]) for name in names))


def _topic(topic: dict[str, Any], span: range, bucket_ms: int, *, is_open: bool) -> Element:
    counts = _over_time(topic, span)
    sizes, delays = topic["body_size"], topic["delay_ms"]
    peak = max(counts, default=0)
    plots = [
        report.figure(
            f"Messages per {duration(bucket_ms)}",
            bars(counts, _time_labels(span), name="Messages over time", says=f"At most {peak:,} per {duration(bucket_ms)}."),
        ),
        report.figure(
            "Body size",
            bars(
                [n for _, _, n in topic["sizes"]], _range_labels(topic["sizes"], size), colour="two",
                name="Body sizes", says=_says(sizes, _size),
            ),
        ),
        report.figure(
            "Delay from birth to storing (powers of ten)",
            bars(
                [n for _, _, n in topic["delays"]], _range_labels(topic["delays"], duration), colour="three",
                name="Delays", says=_says(delays, _delay), decades=True,
            ),
        ),
    ]  # fmt: skip
    facts = [
        ("Body size", f"{_says(sizes, _size)} Mean {_size(sizes['mean'])}."),
        (
            "Delay",
            _says(delays, _delay)
            + (f" {delays['negative']:,} stored before they were born." if delays["negative"] else "")
            + (
                f" {delays['absurd_clock']:,} have a born time that no clock has set."
                if delays["absurd_clock"]
                else ""
            ),
        ),
        ("Stored", f"{_minute(topic['first_store_timestamp'])} to {_minute(topic['last_store_timestamp'])}"),
        ("Queues", f"{topic['queues']:,}, the largest with {topic['largest_queue_messages']:,} messages"),
        ("Gaps", f"{topic['gaps']['ranges']:,}, {topic['gaps']['messages']:,} messages lost"),
    ]
    if topic["keyed_messages"] is not None:
        facts.append(
            (
                "Keys",
                f"{topic['keyed_messages']:,} messages have one, ≈ {_count(topic['keys_approx'])} are distinct",
            )
        )
        facts.append(("Unique keys", f"≈ {_count(topic['unique_keys_approx'])} distinct"))
    lists = [report.table(("Fact", ""), facts, (), "Facts")]
    if topic["tags"]:
        lists.append(_listed(f"Tags ({topic['distinct_tags']:,})", topic["tags"], "tag"))
    if topic["producers"]:
        lists.append(_listed(f"Producers ({topic['distinct_producers']:,})", topic["producers"], "address"))
    columns = [report.element("div", one) for one in lists]
    remark = f"{topic['messages']:,} messages, {size(topic['body_bytes'])}"
    return report.folded(
        topic["topic"], remark, report.box("plots", *plots), report.box("lists", *columns), is_open=is_open
    )


def _listed(title: str, found: Sequence[dict[str, Any]], name: str) -> Element:
    rows = [(one[name], f"{one['messages']:,}") for one in found]
    return report.table((title, "Messages"), rows, (1,), title)


def _notes(records: bool) -> list[str]:
    notes = [
        "Messages, bytes of bodies, tags and times are exact. Percentiles are at most 1/32 too high. A delay is the store time "
        "minus the born time, by two clocks; negative ones count as 0. A born time outside of the years 2000 to 9999 was "
        "set by no clock (0, -1, seconds in place of ms); such delays count, too.",
        "In the bucket: the blocks that may hold these messages, as they are compressed, without the objects' tables.",
        "Lost: queue offsets that can never be served, whatever the time range.",
    ]
    if records:
        notes.append(
            "Numbers of keys are approximate, usually within 3 %, and never more than were counted. A producer is an address, "
            "without its port."
        )
    return notes


def _span(topics: Sequence[dict[str, Any]], bucket_ms: int) -> range:
    """Starts of the time buckets, from the first to the last that has a message, ms."""
    starts = [at for topic in topics for at, _ in topic["over_time"]]
    return range(min(starts), max(starts) + 1, bucket_ms) if starts else range(0, bucket_ms, bucket_ms)


def _over_time(topic: dict[str, Any], span: range) -> list[int]:
    counts = [0] * len(span)
    for at, messages in topic["over_time"]:
        counts[span.index(at)] = messages
    return counts


def _time_labels(span: range) -> list[tuple[float, str]]:
    end = span[-1] + span.step
    long = end - span[0]
    return [(0, _label(span[0], long)), (0.5, _label((span[0] + end) // 2, long)), (1, _label(end, long))]


def _label(ms: int, long: int) -> str:
    """A moment, as exactly as a plot that is so long (ms) needs it."""
    shown = moment(ms)
    return shown[:10] if long > _MONTHS_MS else shown[5:16] if long > _HOURS_MS else shown[5:19]


def _range_labels(found: Sequence[Sequence[int]], shown: Any) -> list[tuple[float, str]]:
    if not found:
        return []
    middle = len(found) // 2
    labels = [(0.0, shown(found[0][0])), (1.0, shown(found[-1][1]))]
    return (
        labels if len(found) < 4 else [labels[0], (middle / len(found), shown(found[middle][0])), labels[1]]
    )


def _says(found: dict[str, Any], shown: Any) -> str:
    return ", ".join(f"{name} {shown(found[name])}" for name in ("p50", "p90", "p99", "max")) + "."


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _size(value: float | None) -> str:
    return "–" if value is None else size(round(value))


def _delay(value: int | None) -> str:
    return "–" if value is None else duration(value)


def _minute(ms: int | None) -> str:
    return "–" if ms is None else moment(ms)[:19].replace("T", " ")
