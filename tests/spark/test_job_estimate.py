"""``estimate``: its arithmetic against figures reckoned by hand, its measures against the files of an archive."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.kit import golden
from tests.kit.sparkscene import archive, batches_of
from tiered.archive.read.objects import ObjectReader
from tiered.errors import Invalid
from tiered.model import ByteRange
from tiered.text.prices import Price, read_prices
from tiered_jobs.estimate.job import _loads
from tiered_jobs.estimate.model import Load, Scenario, month
from tiered_jobs.estimate.stats import load_of, scaled, stats_of
from tiered_jobs.main import main
from tiered_spark.options import parse_options
from tiered_spark.snapshot import open_snapshots
from tiered_spark.tables import METADATA

pytestmark = [pytest.mark.spark, pytest.mark.slow]

GIB, MIB = 1 << 30, 1 << 20
MONTH = 365 / 12
PRICE = Price(
    "x", storage_gb_month=0.02, put_per_1000=0.01, get_per_1000=0.001, retrieval_gb=0.03, egress_gb=0.1
)
DAY = Load(
    raw=10 * GIB, blocks=2 * GIB, tables=0, puts=1000, gets=100, data=np.array([GIB, GIB], np.float64), data_a_day=1,
    commits=np.zeros(0), commits_a_day=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """20,000 messages that a real broker wrote, archived."""
    directory = tmp_path_factory.mktemp("estimate")
    root = golden.unpack("broker-store", directory) / golden.STORE_DIRS["broker-store"][0]
    return archive(root, directory)


def run(*words: str, url: str, code: int = 0) -> int:
    found = main(["estimate", "--archive", url, *words])
    assert found == code
    return found


# ---- arithmetic


def test_a_month_as_it_was_written() -> None:
    cost = month(DAY, Scenario(30), PRICE, reads=2, leaves=True)
    assert cost.stored == 60 * GIB
    assert cost.storage_cost == pytest.approx(60 * 0.02)
    assert cost.puts == pytest.approx(1000 * MONTH)
    assert cost.put_cost == pytest.approx(1000 * MONTH / 1000 * 0.01)  # 0.3042
    assert cost.gets == 2 * 100 * 30
    assert cost.get_cost == pytest.approx(0.006)
    assert cost.retrieval_cost == pytest.approx(2 * 60 * 0.03)
    assert cost.egress_cost == pytest.approx(12.0)
    assert cost.total == pytest.approx(1.2 + 0.30416667 + 0.006 + 3.6 + 12.0)
    assert month(DAY, Scenario(30), PRICE, reads=2, leaves=False).egress_cost == 0
    assert month(DAY, Scenario(30), PRICE, reads=0, leaves=True).total == pytest.approx(1.2 + 0.30416667)


def test_what_a_store_charges_for_at_least() -> None:
    kept = replace(PRICE, minimum_days=90)
    assert month(DAY, Scenario(30), kept, reads=1, leaves=False).storage_cost == pytest.approx(2 * 90 * 0.02)
    assert month(DAY, Scenario(365), kept, reads=1, leaves=False).storage_cost == pytest.approx(
        2 * 365 * 0.02
    )
    large = replace(PRICE, minimum_object_bytes=3 * GIB)
    cost = month(DAY, Scenario(30), large, reads=1, leaves=False)
    assert (cost.stored, cost.storage_cost) == (60 * GIB, pytest.approx(2 * 3 * 30 * 0.02))
    small = replace(DAY, commits=np.array([1000.0, 200_000.0]), commits_a_day=5)
    billed = month(small, Scenario(10), replace(PRICE, minimum_object_bytes=131_072), reads=0, leaves=False)
    assert billed.storage_cost == pytest.approx((20 + 10 * 5 * (131_072 + 200_000) / GIB) * 0.02)
    assert billed.stored == pytest.approx(20 * GIB + 10 * 5 * 201_000)
    decimal = month(DAY, Scenario(30), replace(PRICE, bytes_per_gb=1e9), reads=0, leaves=False)
    assert decimal.storage_cost == pytest.approx(60 * GIB / 1e9 * 0.02)


def test_a_month_of_merged_objects() -> None:
    cost = month(DAY, Scenario(30, merge_bytes=512 * MIB), PRICE, reads=2, leaves=False)
    assert cost.stored == pytest.approx((60 + 2) * GIB)  # fresh objects stay a day longer
    assert cost.puts == pytest.approx((1000 + 4 * (8 + 2)) * MONTH)  # four objects a day, of eight parts
    assert cost.gets == pytest.approx(2 * 30 * 4 * (1 + 320) + 100 * MONTH)
    assert cost.retrieval_cost == pytest.approx((2 * 60 + 2 * MONTH) * 0.03)
    whole = month(DAY, Scenario(30, merge_bytes=64 * MIB), PRICE, reads=0, leaves=False)
    assert whole.puts == pytest.approx((1000 + 32) * MONTH)
    logged = replace(DAY, commits=np.array([float(GIB)]), commits_a_day=1, standing=5.0 * GIB)
    kept = month(logged, Scenario(30, merge_bytes=512 * MIB), PRICE, reads=0, leaves=False)
    assert kept.stored == pytest.approx((60 + 2 + 7 + 5) * GIB)
    least = month(logged, Scenario(30, 512 * MIB), replace(PRICE, minimum_days=90), reads=0, leaves=False)
    assert least.storage_cost == pytest.approx((2 * 90 + 2 * 90 + 90 + 5) * 0.02)


def test_a_month_with_another_codec() -> None:
    half = month(DAY, Scenario(30, codec="zstd-9", factor=0.5), PRICE, reads=1, leaves=True)
    assert (half.stored, half.egress_cost) == (30 * GIB, pytest.approx(3.0))
    tabled = replace(DAY, blocks=1.5 * GIB, tables=0.5 * GIB)
    assert month(tabled, Scenario(1, factor=0.5), PRICE, reads=0, leaves=False).stored == pytest.approx(
        1.25 * GIB
    )
    merged = month(tabled, Scenario(1, 128 * MIB, factor=0.5), PRICE, reads=0, leaves=False)
    assert merged.stored == pytest.approx((1.25 + 2) * GIB)
    twice = scaled(DAY, 20 * GIB)
    cost = month(twice, Scenario(30), PRICE, reads=2, leaves=True)
    assert cost.total == pytest.approx(2 * month(DAY, Scenario(30), PRICE, reads=2, leaves=True).total)


# ---- measures


def _files(url: str, *names: str) -> list[int]:
    root = Path(url.removeprefix("file://")) / "DefaultCluster" / "broker-a"
    return [p.stat().st_size for name in names for p in (root / name).rglob("*") if p.is_file()]


def test_what_was_measured_is_what_lies_there(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("--json", "--retention", "30d", "--merge", "32MiB", "--levels", "1,6", url=url)
    made = json.loads(capsys.readouterr().out)
    blocks = [row for s in open_snapshots(_all(url)) for row in METADATA["blocks"].rows(s, _all(url))]
    found = made["measured"]
    assert found["messages"] == sum(int(row[6]) for row in blocks)  # type: ignore[call-overload]
    assert found["stored_bytes"] == sum(_files(url, "commit", "data", "checkpoint", "shard"))
    assert (found["objects"], found["commits"]) == (len(_files(url, "data")), len(_files(url, "commit")))
    assert found["record_bytes"] == sum(int(row[11]) for row in blocks)  # type: ignore[call-overload]
    assert found["block_bytes"] == sum(int(row[10]) for row in blocks)  # type: ignore[call-overload]
    assert found["table_bytes"] > 0
    now, again, better = made["codecs"]
    assert (now["codec"], again["codec"], better["codec"]) == ("zstd", "zstd-1", "zstd-6")
    assert (
        again["stored_bytes"] == now["stored_bytes"] > better["stored_bytes"]
    )  # the archive was written with level 1
    assert now["blocks"] <= 64
    stored = {(r["store"], r["merge_bytes"], r["codec"]): r for r in made["scenarios"]}
    assert len(stored) == len(made["scenarios"]) == 4 * 2 * 3
    same = stored["s3-standard", None, "zstd-1"]
    assert same == {**stored["s3-standard", None, "now"], "codec": "zstd-1"}
    days = found["span_seconds"] / 86_400
    assert same["stored_bytes"] == pytest.approx(found["stored_bytes"] / days * 30, rel=1e-3)
    assert same["storage_cost"] == pytest.approx(same["stored_bytes"] / GIB * 0.023, rel=1e-4)
    assert any("Steady state" in line for line in made["assumptions"])


def _all(url: str) -> Any:
    return parse_options({"archive": url, "includeSystemTopics": "true"})


def _count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    fetch = ObjectReader._fetch

    def counted(self: ObjectReader, key: str, wanted: ByteRange) -> bytes:
        asked.append(key)
        return fetch(self, key, wanted)

    monkeypatch.setattr(ObjectReader, "_fetch", counted)
    return asked


def test_requests_of_a_full_read_are_those_of_a_scan(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (snapshot,) = open_snapshots(_all(url))
    foreseen = stats_of(snapshot).scan_gets
    asked = _count(monkeypatch)
    rows = sum(
        len(b) for b in batches_of({"archive": url, "includeSystemTopics": "true", "columns": "topic,body"})
    )
    assert (rows, len(asked)) == (stats_of(snapshot).messages, foreseen)


def test_a_sample_is_bounded_and_none_opens_no_object(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = _count(monkeypatch)
    run("--json", "--sample-blocks", "0", url=url)
    made = json.loads(capsys.readouterr().out)
    assert (asked, made["codecs"]) == ([], [])
    assert {row["codec"] for row in made["scenarios"]} == {"now"}
    run("--json", "--sample-blocks", "5", url=url)
    made = json.loads(capsys.readouterr().out)
    assert made["codecs"][0]["blocks"] == 5
    assert 5 < len(asked) <= 5 + len(set(asked))  # a block each, and the tables of their objects


def test_a_given_rate_scales_everything(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    costs = []
    for rate in ("10GiB", "20GiB"):
        run("--json", "--sample-blocks", "0", "--retention", "30d", "--bytes-per-day", rate, url=url)
        made = json.loads(capsys.readouterr().out)
        assert made["measured"]["record_bytes_per_day"] == int(rate[:2]) * GIB
        costs.append([row["total"] for row in made["scenarios"]])
    assert costs[1] == pytest.approx([2 * cost for cost in costs[0]], rel=1e-3)


def test_messages_of_one_moment_have_no_rate(url: str) -> None:
    (snapshot,) = open_snapshots(_all(url))
    stats = replace(stats_of(snapshot), message_span=0)
    with pytest.raises(Invalid, match="--bytes-per-day"):
        _loads([stats], None)
    (load,) = _loads([stats], 7 * GIB)
    assert load.raw == 7 * GIB
    assert load.blocks / load.raw == pytest.approx(stats.blocks / stats.raw)
    for span in range(1, 2000):  # how long the log took to write is another each time
        (load,) = _loads([replace(stats, commit_span=span)], 7 * GIB)
        assert load.raw == 7 * GIB, span


def test_a_log_that_outlives_its_messages(url: str) -> None:
    (snapshot,) = open_snapshots(_all(url))
    day = 86_400_000
    stats = replace(stats_of(snapshot), message_span=day, commit_span=10 * day)
    load = load_of(stats)
    assert (load.raw, load.puts) == pytest.approx((stats.raw, (len(stats.data) + stats.commit_count) / 10))
    assert load.commits_billed(0) == pytest.approx(float(stats.commits.sum()) / 10)


# ---- how it speaks


def test_for_people(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("--retention", "30d,1d", "--stores", "r2-standard", "--sample-blocks", "4", "--levels", "3", url=url)
    found = capsys.readouterr()
    rows = [line.split() for line in found.out.splitlines() if "r2-standard " in line]
    assert [(row[0], row[2]) for row in rows] == [
        (n, "r2-standard") for n in ("30", "30", "30", "30", "1", "1", "1", "1")
    ]
    assert "list price of 2025-09, check yours" in found.out
    assert "4 blocks" in found.err


def test_a_dry_run_reads_the_prices_and_no_more(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = _count(monkeypatch)
    run("--dry-run", "--json", url=url)
    assert json.loads(capsys.readouterr().out)["would_write"] == []
    assert asked == []
    bad = tmp_path / "p.toml"
    bad.write_text("[store.a]\nstorage_gb_month = -1")
    run("--dry-run", "--prices", str(bad), url=url, code=2)


def test_own_prices(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "p.toml"
    mine.write_text(
        'currency = "EUR"\n[store.attic]\nstorage_gb_month = 1\nput_per_1000 = 0\nget_per_1000 = 0\nbytes_per_gb = 1000000000'
    )
    run("--json", "--prices", str(mine), "--sample-blocks", "0", "--retention", "10d", url=url)
    made = json.loads(capsys.readouterr().out)
    assert made["prices"]["currency"] == "EUR"
    for row in made["scenarios"]:
        assert row["store"] == "attic"
        assert row["total"] == row["storage_cost"] == pytest.approx(row["stored_bytes"] / 1e9, rel=1e-6)


def test_the_price_table_that_comes_with_it() -> None:
    stores = read_prices(None).stores
    assert (stores["s3-standard"].storage_gb_month, stores["s3-standard"].put_per_1000) == (0.023, 0.005)
    assert (stores["s3-glacier-ir"].minimum_days, stores["s3-standard-ia"].minimum_object_bytes) == (
        90,
        128 * 1024,
    )
    assert stores["r2-standard"].egress_gb == 0
    assert all(price.title and price.source and price.date for price in stores.values())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "[store.a]\nstorage_gb_month = -1\nput_per_1000 = 1\nget_per_1000 = 1",
            ("store.a.storage_gb_month", "found=-1"),
        ),
        (
            "[store.a]\nstorage_gb_month = 'x'\nput_per_1000 = 1\nget_per_1000 = 1",
            ("storage_gb_month", "found=x", "number from 0"),
        ),
        (
            "[store.a]\nstorage_gb_month = nan\nput_per_1000 = 1\nget_per_1000 = 1",
            ("storage_gb_month", "found=nan"),
        ),
        (
            "[store.a]\nstorage_gb_month = 1\nput_per_1000 = 1",
            ("store.a.get_per_1000", "found=nothing", "get_per_1000 = 0.01"),
        ),
        (
            "[store.a]\nstorage_gb_month = 1\nputs_per_1000 = 1",
            ("store.a.puts_per_1000", "did you mean put_per_1000?"),
        ),
        ("[store.a]\nbytes_per_gb = 7", ("store.a.bytes_per_gb", "found=7", "1073741824")),
        ("[store.a]\ntitle = 7", ("store.a.title", "found=7", "text")),
        ("[stores.a]\nstorage_gb_month = 1", ("key=stores", "did you mean store?")),
        ("currency = 'USD'", ("key=store", "at least one")),
        ("currency = 3\n[store.a]", ("key=currency", "found=3")),
        ("[store.a", ("not TOML",)),
    ],
)
def test_a_bad_price_table(
    url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: tuple[str, ...]
) -> None:
    path = tmp_path / "prices.toml"
    path.write_text(text)
    run("--prices", str(path), url=url, code=2)
    found = capsys.readouterr().err
    assert str(path) in found
    assert "→" in found
    for part in says:
        assert part in found


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--topics", "Orders"], 2, "leave --topics out"),
        (["--from", "2026-01-01"], 2, "leave --from out"),
        (["--retention", "7d,soon"], 2, "--retention is wrong (found=soon"),
        (["--retention", "0d"], 2, "such as --retention 30d"),
        (["--levels", "3,99"], 2, "--levels is wrong (found=99"),
        (["--merge", "big"], 2, "--merge is wrong (found=big"),
        (["--reads-per-month", "-1"], 2, "--reads-per-month is wrong (found=-1"),
        (["--reads-per-month", "nan"], 2, "--reads-per-month is wrong (found=nan"),
        (["--sample-blocks", "1e3"], 2, "--sample-blocks is wrong (found=1e3"),
        (["--stores", "s3-standart"], 2, "did you mean s3-standard?"),
        (["--stores", ","], 2, "--stores names none"),
        (["--prices", "/nowhere/p.toml"], 5, "the file of --prices does not exist (file=/nowhere/p.toml"),
        (["--broker", "other"], 5, "no archive is here"),
    ],
)
def test_bad_input(
    url: str, capsys: pytest.CaptureFixture[str], words: list[str], code: int, says: str
) -> None:
    run(*words, url=url, code=code)
    assert says in capsys.readouterr().err
