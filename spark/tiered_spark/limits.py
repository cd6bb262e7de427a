"""Limits of a stream's batches, as Spark has them since 4.2. Spark 4.1 has none: ``ADMISSION`` says which it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "ADMISSION",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
]

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )

    ADMISSION: bool
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxBytes,
            ReadMaxRows,
            SupportsTriggerAvailableNow,
        )

        ADMISSION = True
    except ImportError:
        ADMISSION = False

        class ReadLimit:
            """Of one batch."""

        class ReadAllAvailable(ReadLimit):
            """None."""

        class ReadMaxBytes(ReadLimit):
            """Bytes."""

        class ReadMaxRows(ReadLimit):
            """Rows."""

        class SupportsTriggerAvailableNow:
            """What Spark asks a stream for that ends."""
