"""``python -m tests.kit.hurried run …`` is ``tiered run …`` for which an hour of ageing takes about a second.

The settings may name any time, and the windows in which writers and readers believe what they saw are as much shorter as the
time that commits stay: what these protect from happens within seconds too. Disks that are marked full are full for it
(``fulldisk.py``). Everything else is the program as it is.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import Field
from typing import Any

from tests.kit.fulldisk import lie

WINDOW_MS = 1000
"""Stores tell times in whole seconds, so less is nothing."""

AGEING: Mapping[str, object] = {
    "archive.checkpoint_interval_ms": 1000,
    "maintenance.merge_interval_ms": 2000,
    "maintenance.max_bytes_per_second": 0,
    "maintenance.max_wait_ms": 2000,
    "seal.min_age_ms": 0,
    "seal.interval_ms": 2500,
    "retain.min_age_ms": 1000,
    "retain.interval_ms": 1000,
    "retain.max_trim_percent": 100,
    "gc.enabled": True,
    "gc.interval_ms": 500,
    "gc.grace_ms": 2000,
    "gc.commit_retention_ms": 5 * WINDOW_MS,
    "gc.snapshot_retention_ms": 1000,
    "scrub.list_interval_ms": 3000,
    "scrub.read_interval_ms": 15_000,
    "scrub.max_bytes_per_second": 32 << 20,
}
"""Settings with which an archive ages while one looks on."""


def hurry() -> None:
    """Make this process one that is in a hurry."""
    from tiered.archive.log import counting, reader
    from tiered.daemon import maintenance, placing
    from tiered.placement import readloads
    from tiered.settings import option

    check = option.check_value

    def any_time(section: str, f: Field[Any], value: Any) -> None:
        if f.metadata.get("unit") != "ms" or type(value) is not int or value < 0:
            check(section, f, value)

    vars(option)["check_value"] = any_time
    vars(counting)["COUNTED_WINDOW_MS"] = WINDOW_MS
    vars(reader)["LOOK_AGAIN_MS"] = WINDOW_MS
    vars(maintenance)["LOOK_SECONDS"] = 0.1
    vars(maintenance)["MOST_WAIT_SECONDS"] = 1.0
    vars(placing)["LOOK_SECONDS"] = 0.5
    vars(readloads)["STEP_SECONDS"] = 1.0
    lie()


if __name__ == "__main__":
    from tiered.cli.main import main

    hurry()
    sys.exit(main())
