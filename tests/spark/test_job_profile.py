"""``profile`` against a slow reading of the same messages in plain Python; its report as a browser would take it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import astuple
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.kit import golden
from tests.kit.pysparks import session
from tests.kit.sparkscene import archive, expected
from tiered_jobs.main import main
from tiered_jobs.profile import job as profile
from tiered_jobs.profile.facts import FACTS_DTYPE, Facts, TopicFacts, gather
from tiered_jobs.profile.histogram import LARGEST, bars, bounds, bucket_of, percentile
from tiered_jobs.profile.html import page
from tiered_jobs.profile.result import summary
from tiered_jobs.profile.scan import OTHERS, Counted, count_headers
from tiered_spark.columns import COLUMNS, ColumnCost
from tiered_spark.options import parse_options
from tiered_spark.snapshot import open_snapshots
from tiered_spark.tables import METADATA

pytestmark = [pytest.mark.spark, pytest.mark.slow]

Rows = list[dict[str, Any]]
EVIL = "<script>alert('\"&')</script>"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """20,000 messages that a real broker wrote, archived."""
    directory = tmp_path_factory.mktemp("profile")
    root = golden.unpack("broker-store", directory) / golden.STORE_DIRS["broker-store"][0]
    return archive(root, directory)


@pytest.fixture(scope="module")
def sent(url: str) -> Rows:
    return expected(url)


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with session() as made:
        yield made


# ---- the whole of it


def test_everything_about_every_topic(
    spark: SparkSession, url: str, sent: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "profile.html"
    assert (
        main(["profile", "--archive", url, "--json", "--bucket", "1s", "--top", "2", "--html", str(report)])
        == 0
    )
    made = json.loads(capsys.readouterr().out)
    by_topic = defaultdict(list)
    for row in sent:
        by_topic[row["topic"]].append(row)
    ranked = sorted(by_topic, key=lambda topic: (-len(by_topic[topic]), topic))
    assert [topic["topic"] for topic in made["topics"]] == ranked
    assert made["others"] is None
    blocks = _blocks(url)
    for topic in made["topics"]:
        _compare(topic, by_topic[topic["topic"]])
        mine = [row for row in blocks if row[2] == topic["topic"]]
        assert topic["record_bytes"] == sum(row[11] for row in mine)
        assert topic["stored_bytes"] == sum(row[10] for row in mine)
    totals = made["totals"]
    assert (totals["messages"], totals["body_bytes"]) == (len(sent), sum(row["body_size"] for row in sent))
    assert totals["producers"] == len({_address(row) for row in sent})
    _about(totals["unique_keys_approx"], {row["unique_key"] for row in sent if row["unique_key"]})
    _about(totals["keys_approx"], {key for row in sent for key in row["keys"]})
    assert totals["unique_keys_approx"] <= totals["messages"]
    assert list(made["archives"].values()) == [open_snapshots(parse_options({"archive": url}))[0].commit]
    text = report.read_text()
    found = _checked(text)
    for topic in made["topics"]:
        assert {topic["topic"], f"{topic['messages']:,}"} <= found.texts
    assert f"{len(sent):,}" in found.texts
    assert len(found.plots) == 4 * len(made["topics"])
    assert not list(tmp_path.glob("*.part"))


def _compare(topic: dict[str, Any], rows: Rows) -> None:
    sizes = [row["body_size"] for row in rows]
    delays = [row["store_timestamp"] - row["born_timestamp"] for row in rows]
    stored = [row["store_timestamp"] for row in rows]
    assert (topic["messages"], topic["body_bytes"]) == (len(rows), sum(sizes))
    assert (topic["first_store_timestamp"], topic["last_store_timestamp"]) == (min(stored), max(stored))
    assert topic["queues"] == len({row["queue_id"] for row in rows})
    assert topic["largest_queue_messages"] == max(Counter(row["queue_id"] for row in rows).values())
    assert topic["gaps"] == {"ranges": 0, "messages": 0}
    assert topic["over_time"] == [
        [at * 1000, n] for at, n in sorted(Counter(ms // 1000 for ms in stored).items())
    ]
    assert (topic["body_size"]["min"], topic["body_size"]["max"]) == (min(sizes), max(sizes))
    assert (topic["delay_ms"]["max"], topic["delay_ms"]["negative"]) == (
        max(delays),
        sum(d < 0 for d in delays),
    )
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99)):
        for found, values in ((topic["body_size"], sizes), (topic["delay_ms"], [max(0, d) for d in delays])):
            exact = int(np.percentile(values, share, method="inverted_cdf"))
            assert exact <= found[name] <= exact * 33 / 32 + 0.5
    assert sum(n for _, _, n in topic["sizes"]) == sum(n for _, _, n in topic["delays"]) == len(rows)
    tags = Counter(row["tags"] for row in rows if row["tags"] is not None)
    ranked = sorted(tags.items(), key=lambda pair: (-pair[1], pair[0]))
    assert [(one["tag"], one["messages"]) for one in topic["tags"]] == ranked[:2]
    assert topic["distinct_tags"] == len(tags)
    addresses = Counter(map(_address, rows))
    assert [(one["address"], one["messages"]) for one in topic["producers"]] == addresses.most_common(2)
    assert topic["distinct_producers"] == len(addresses)
    assert topic["keyed_messages"] == sum(bool(row["keys"]) for row in rows)
    _about(topic["unique_keys_approx"], {row["unique_key"] for row in rows if row["unique_key"]})
    _about(topic["keys_approx"], {key for row in rows for key in row["keys"]})
    assert topic["unique_keys_approx"] <= sum(row["unique_key"] is not None for row in rows)
    assert topic["keys_approx"] <= sum(len(row["keys"]) for row in rows)


def _address(row: dict[str, Any]) -> str:
    return str(row["born_host"]).rpartition(":")[0]


def _about(found: int, exact: set[str]) -> None:
    assert found == pytest.approx(len(exact), rel=0.06, abs=1)


def _blocks(url: str) -> list[tuple[Any, ...]]:
    options = parse_options({"archive": url})
    return [row for s in open_snapshots(options) for row in METADATA["blocks"].rows(s, options)]


def test_quick_for_a_time_with_others(
    spark: SparkSession, url: str, sent: Rows, capsys: pytest.CaptureFixture[str]
) -> None:
    times = sorted(row["store_timestamp"] for row in sent)
    low, high = times[len(times) // 4], times[len(times) // 2]
    words = ["--quick", "--limit", "1", "--from", str(low), "--to", str(high)]
    assert main(["profile", "--archive", url, "--json", *words]) == 0
    made = json.loads(capsys.readouterr().out)
    counts = Counter(row["topic"] for row in sent if low <= row["store_timestamp"] < high)
    (first, messages), *rest = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    (topic,) = made["topics"]
    others = made["others"]
    assert (topic["topic"], topic["messages"]) == (first, messages)
    assert (others["topics"], others["messages"]) == (
        len({row["topic"] for row in sent}) - 1,
        sum(n for _, n in rest),
    )
    assert (
        made["totals"]["messages"]
        == sum(counts.values())
        == sum(n for _, n in topic["over_time"] + others["over_time"])
    )
    assert sum(n for _, _, n in others["sizes"]) == others["messages"]
    assert (topic["producers"], topic["keys_approx"], made["totals"]["producers"]) == (None, None, None)
    assert 0 < made["totals"]["stored_bytes"] < sum(row[10] for row in _blocks(url))
    assert not made["records_read"]


def test_headers_cost_no_block() -> None:
    names = [column.split()[0] for column in profile.HEADERS.split(",")]
    assert all(COLUMNS[name].cost is not ColumnCost.BLOCK for name in names)


def test_buckets_that_spark_makes(spark: SparkSession) -> None:
    edges = [1 << e for e in range(63)]
    values = sorted({v + d for v in edges for d in (-1, 0, 1)} | set(range(200)) | {-5, LARGEST})
    frame = spark.range(len(values)).selectExpr(
        f"element_at(array({','.join(f'{v}L' for v in values)}), int(id) + 1) v"
    )
    for row in frame.select("v", bucket_of(frame.v).alias("bucket")).collect():
        low, high = bounds(row.bucket)
        assert low <= max(0, row.v) <= high <= max(low, low * 33 / 32)


# ---- parts


def test_born_times_of_any_number(spark: SparkSession) -> None:
    """Clients send any: unset, seconds, long ago, in the future, too far for a timestamp or for a difference."""
    stored = 1_767_312_000_000
    unset = [0, -1, 1_767_312_000, -60_000_000_000_000, -(1 << 63)]
    future = [stored + 1, stored + 86_400_000, 253_402_300_800_000, (1 << 63) - 1]
    born = [*unset, *future, *(stored - delay for delay in range(7))]
    delays = [min((1 << 63) - 1, stored - ms) for ms in born]
    frame = spark.createDataFrame([("T", stored, ms, "a", 10) for ms in born], profile.HEADERS)
    found = count_headers(frame, 1000, 10, 2)
    one = found["T"]
    assert (one.messages, one.slowest) == (len(born), max(delays))
    assert (one.negative_delays, one.absurd_clocks) == (len(future), len(unset) + 2)
    made = summary(found, known({"T": TopicFacts(1)}, (0, 1)), {}, 1000, None, made_ms=0)
    (topic,) = made["topics"]
    assert (topic["delay_ms"]["negative"], topic["delay_ms"]["absurd_clock"]) == (4, 7)
    for name, share in (("p50", 50), ("p90", 90), ("p99", 99)):
        exact = sorted(max(0, delay) for delay in delays)[-(-share * len(delays) // 100) - 1]
        assert exact <= topic["delay_ms"][name] <= exact * 33 // 32 + 1
    assert sum(n for _, _, n in topic["delays"]) == len(born)
    assert "7 have a born time that no clock has set" in page(made, 1)


def test_percentiles_and_bars() -> None:
    assert percentile({}, 0.5, 10) is None
    assert [percentile({3: 5, 9: 5}, share, 9) for share in (0.5, 0.51, 1)] == [3, 9, 9]
    assert percentile({200: 1}, 0.99, bounds(200)[0]) == bounds(200)[0]
    assert bars({}) == []
    assert bars({0: 1, 3: 2}) == [(0, 1, 1), (1, 2, 0), (2, 3, 0), (3, 4, 2)]
    found = bars({100: 1, 140: 2})
    assert sum(n for _, _, n in found) == 3
    assert all(a[1] == b[0] for a, b in pairwise(found))
    assert found[0][0] <= bounds(100)[0] < found[0][1]
    assert [bounds(b)[1] + 1 for b in range(500)] == [bounds(b)[0] for b in range(1, 501)]


def test_time_buckets() -> None:
    hour = 3_600_000
    assert profile.bucket_width((0, 100_000), None) == 1000
    assert profile.bucket_width((0, 24 * 7 * hour), None) == 6 * hour
    assert profile.bucket_width((0, 5000 * 365 * 24 * hour), None) == 365 * 24 * hour
    assert profile.bucket_width(None, None) == 1000
    assert profile.bucket_width((0, 24 * hour), hour) == hour


def known(topics: dict[str, TopicFacts], times: tuple[int, int]) -> Facts:
    table = np.array([astuple(facts) for facts in topics.values()], FACTS_DTYPE)
    return Facts(pa.array(list(topics), pa.string()), table, times)


def test_gaps_and_silent_topics() -> None:
    facts = known({"a": TopicFacts(2, 5, 100, 50, 1, 7), "b": TopicFacts(1), "c": TopicFacts(1)}, (0, 10))
    found: dict[str | None, Counted] = {
        "a": Counted(messages=5, largest=9, size={9: 5}, delay={1: 5}, first=1, last=2)
    }
    profile._add_silent(found, facts, 2)
    made = summary(found, facts, {"x": 1}, 1000, None, made_ms=0)
    assert [t["topic"] for t in made["topics"]] == ["a", "b"]
    assert made["topics"][0]["gaps"] == {"ranges": 1, "messages": 7}
    assert made["topics"][1]["messages"] == 0
    assert made["others"]["topics"] == 1
    assert (made["totals"]["gap_messages"], made["totals"]["queues"], made["totals"]["topics"]) == (7, 4, 3)
    _checked(page(made, 10))


def test_facts_of_a_time_that_nothing_is_of(url: str) -> None:
    options = parse_options({"archive": url, "endingTimestamp": "1000"})
    facts = gather(open_snapshots(options), options)
    assert facts.times is None
    every = facts.without()
    assert (every.record_bytes, every.stored_bytes) == (0, 0)
    assert every.queues > 0


# ---- the report


class _Page(HTMLParser):
    """Checks that tags are balanced and nothing is loaded; keeps texts and plots."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: set[str] = set()
        self.tags: Counter[str] = Counter()
        self.plots: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        assert not {name for name, _ in attrs} & {
            "src",
            "href",
            "srcset",
            "data",
            "action",
            "xlink:href",
            "style",
        }
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag == "path"

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            assert "url(" not in data
            assert "@import" not in data
        self.texts.add(data.strip())


def _checked(text: str) -> _Page:
    found = _Page()
    found.feed(text)
    found.close()
    assert found.open == []
    assert not found.tags.keys() & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert "http" not in text
    for part in text.split("<svg")[1:]:
        plot = ET.fromstring("<svg" + part.split("</svg>")[0] + "</svg>")
        assert plot.get("role") == "img"
        assert plot.findtext("title")
        assert plot.find("path") is not None
        found.plots.append(part)
    return found


def test_what_messages_say_is_escaped() -> None:
    facts = known({EVIL: TopicFacts(1, 3, 10, 5)}, (0, 1))
    counted = Counted(
        messages=3, body_bytes=3, first=0, last=1, smallest=1, largest=1, slowest=4, at={0: 3}, size={1: 3}, delay={4: 3},
        tags=[(EVIL, 2), ("\x1b[31m\0", 1)], distinct_tags=2, producers=[(EVIL, 3)], distinct_producers=1, keyed=0, keys=0,
        unique_keys=3,
    )  # fmt: skip
    made = summary({EVIL: counted}, facts, {f"file:///a {EVIL}": 1}, 1000, (3, 0, 1), made_ms=0)
    text = page(made, 10)
    found = _checked(text)
    assert "<script" not in text
    assert "\x1b" not in text
    assert EVIL in found.texts  # whole, as text
    assert len(found.plots) == 4
    assert "3 messages have" not in found.texts
    assert _checked(page(made, 0)).tags["details"] == 0


def test_few_are_seen_beside_many() -> None:
    """Delays of one message beside ten thousand: their bars are tall enough to be seen."""
    from tiered_jobs.profile.svg import bars as drawn

    def heights(*, decades: bool) -> list[float]:
        plot = ET.tostring(drawn([10_000, 1, 100, 0, 5], [], name="n", says="s", decades=decades), "unicode")
        shape = plot.split('class="one" d="')[1].split('"')[0]
        return [float(part.split("v-")[1].split("h")[0]) for part in shape.split("M")[1:]]

    many, one, hundred, five = heights(decades=True)
    assert one > 5
    assert one < five < hundred < many
    assert heights(decades=False)[1:] == [1.0, 1.2, 1.0]


def test_a_report_of_many_topics_has_plots_of_some() -> None:
    facts = known({f"t{i}": TopicFacts(1) for i in range(30)}, (0, 1))
    found: dict[str | None, Counted] = {}
    for i in range(20):
        found[f"t{i}"] = Counted(messages=30 - i, at={0: 30 - i}, size={1: 1}, delay={1: 1})
    found[OTHERS] = Counted(topics=10, messages=5, at={3: 5})
    text = page(summary(found, facts, {}, 1000, None, made_ms=0), 7)
    checked = _checked(text)
    assert (checked.tags["details"], text.count("<details open")) == (7, 5)
    assert "14 more topics have no plots; --plots shows more." in checked.texts
    assert "(10 others)" in checked.texts


# ---- how it speaks


def test_a_dry_run_writes_nothing(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = tmp_path / "p.html"
    assert main(["profile", "--archive", url, "--dry-run", "--json", "--html", str(report)]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["would_write"] == [f"{report}: a report in HTML"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--topics", "Nothing*"], 5, "no topic matches (topics=Nothing*)"),
        (["--topics", "*,Nothing"], 5, "no archive here has this topic (topic=Nothing)"),
        (["--html", "/nowhere/at/all.html"], 5, "mkdir -p /nowhere/at"),
        (["--html", "/tmp"], 2, "--html is a directory"),
        (["--limit", "0"], 2, "--limit is wrong (found=0"),
        (["--top", "many"], 2, "--top is wrong (found=many"),
        (["--bucket", "1"], 2, "--bucket is wrong (found=1"),
        (["--bucket", "1ms"], 2, "--bucket is too short"),
        (["--from", "yesterday"], 2, "found=yesterday"),
        (["--plot", "3"], 2, "--plot"),
        (["--as-of-commit", "99999"], 5, "no such commit"),
    ],
)
def test_bad_input(
    url: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    assert main(["profile", "--archive", url, *words]) == code
    found = capsys.readouterr().err
    assert says in found
    assert "→" in found
