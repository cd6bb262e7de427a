"""docs/scale.md shows what its script computes."""

from __future__ import annotations

from pathlib import Path

from tests.bench.scale import (
    DEFAULTS,
    FLEET,
    MONTH_SECONDS,
    cold_reads,
    count,
    money,
    size_of,
    tables,
    written,
)
from tiered.settings import MIB

PAGE = Path(__file__).resolve().parents[2] / "docs/scale.md"


def test_the_page_has_the_tables_of_the_script_and_no_others() -> None:
    found = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    assert found == [line for table in tables() for line in table.splitlines()], (
        "run python -m tests.bench.scale, and put what it prints into docs/scale.md"
    )


def test_sums_are_those_of_the_page_on_costs() -> None:
    """One write a flush up to 1 MiB, two above; a tenth with ten seconds."""
    small, large = written(10_000, 1.0), written(4 * MIB, 1.0)
    assert MONTH_SECONDS < small.writes < 1.03 * MONTH_SECONDS
    pieces = FLEET.rewrites * 4 * MIB * FLEET.stored_share * MONTH_SECONDS / DEFAULTS.dispatch.object_bytes
    assert 2 * MONTH_SECONDS < large.writes - pieces < 2.03 * MONTH_SECONDS
    assert abs(written(10_000, 10.0).commits - small.commits / 10) < 1
    assert cold_reads(2 * MIB)[1] == FLEET.cold_share * 2 * MIB * FLEET.stored_share * MONTH_SECONDS


def test_figures_for_people() -> None:
    assert [count(n) for n in (999.6, 4.2e6, 3e9)] == ["1,000", "4.2 million", "3.0 billion"]
    assert [money(n) for n in (1.234, 1234.5)] == ["1.23 USD", "1,234 USD"]
    assert [size_of(n) for n in (5, 1536, 50 * MIB, 2**50)] == ["5 bytes", "1.5 KiB", "50 MiB", "1,024 TiB"]
