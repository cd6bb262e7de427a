"""Marks of rows of tables (pyarrow, whose module is not needed here)."""

from __future__ import annotations

from typing import Any

from tiered.sink.comparison.base import Marks
from tiered.sink.comparison.content import content_of, marks_of, origin_of

COLUMNS = ("topic", "queue_id", "queue_offset", "msg_id", "body", "properties")


def table_marks(table: Any) -> Marks:
    """Of rows of a table that has ``COLUMNS`` (pyarrow)."""
    columns = {name: table.column(name).to_pylist() for name in COLUMNS}
    return marks_of(
        list(zip(columns["topic"], columns["queue_id"], strict=True)),
        columns["queue_offset"],
        map(origin_of, columns["msg_id"]),
        (
            content_of(body or b"", dict(properties or ()).items())
            for body, properties in zip(columns["body"], columns["properties"], strict=True)
        ),
    )
