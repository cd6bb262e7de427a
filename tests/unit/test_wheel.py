"""What a wheel of this project holds: packages at its top, whatever folder they have here, and the files they read."""

from __future__ import annotations

from pathlib import Path

from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[2]


def test_packages_are_at_the_top_with_the_files_they_read() -> None:
    found = {one.distribution_path for one in WheelBuilder(str(ROOT)).recurse_included_files()}
    wanted = {
        str(path.relative_to(ROOT / above))
        for above, package in ((".", "tiered"), ("spark", "tiered_spark"), ("spark/jobs", "tiered_jobs"))
        for path in (ROOT / above / package).rglob("*.py")
    }
    assert {path for path in found if path.endswith(".py")} == wanted
    assert "tiered_jobs/estimate/prices.toml" in found
