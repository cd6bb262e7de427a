"""Archives of the same messages at every stage of ageing, as directories that Spark can read; what their rows must be."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

from tests.kit.aged import TRIMMED_OFFSET, Stage, age, saved
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.sealing import HOUR_MS, MIDNIGHT_MS
from tests.kit.sparkscene import by_place, scan

Rows = dict[tuple[Any, ...], dict[str, Any]]

STAGES = [stage for stage in Stage if stage is not Stage.ENCRYPTED]
"""Those that differ for Spark; what is encrypted is never sealed."""
SYSTEM = {"includeSystemTopics": "true"}
CHOICES: list[dict[str, str]] = [
    {"topics": "Orders", "queueIds": "1"},
    {"topics": "Orders,Payments", "columns": "topic,queue_id,queue_offset,tags,body_size", "tags": "tag-1,tag-2"},
    {"startingOffset": "3", "endingOffset": "9", "decodeBody": "false"},
    {"startingTimestamp": str(MIDNIGHT_MS - HOUR_MS), "endingTimestamp": str(MIDNIGHT_MS + HOUR_MS)},
    {"startingOffsets": json.dumps({"Orders": {"0": 2, "1": 7}}), "endingOffsets": json.dumps({"Orders": {"*": 11}})},
    {"endingTimestamps": json.dumps({"Payments": {"0": MIDNIGHT_MS}}), "failOnDataLoss": "false"},
    {"keys": "k3,u7"},
]  # fmt: skip
"""Options that choose some of the messages, before and behind the midnight between the two days."""

_COMPRESSED = 0x1  # of a record's system flags


def compressed(made: Scene) -> None:
    """A few messages of the first day, every second with a body that its client compressed."""
    made.broker.time_ms = MIDNIGHT_MS - 3 * HOUR_MS
    for number in range(6):
        body = zlib.compress(b"%d " % number * 20) if number % 2 else b"plain"
        made.broker.send("Orders", 1, body, sys_flag=_COMPRESSED * (number % 2))
    made.daemon.settle(2.0)


def aged_archives(directory: Path) -> dict[Stage, str]:
    """The URL of each stage's."""
    found = {}
    for stage in STAGES:
        own = directory / stage.value
        with scene(own) as made:
            compressed(made)
            age(made, stage)
            found[stage] = saved(made, own / "archive")
    return found


def aged_rows(archives: dict[Stage, str], stage: Stage, **options: str) -> Rows:
    """What a stage must show: rows of the same messages before they aged, those without that a trim took."""
    rows = by_place(scan({"archive": archives[Stage.FRESH], **options}))
    if stage is Stage.TRIMMED:
        gone = [at for at in rows if at[:2] == (ORDERS.topic, ORDERS.queue_id) and at[2] < TRIMMED_OFFSET]
        for at in gone:
            del rows[at]
    return rows
