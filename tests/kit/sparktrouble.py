"""The data source of Spark whose tasks meet trouble behind their first row: killed by the system, or halted till told to go on.

Formats ``killing`` and ``waiting``, with the options of ``rocketmq_tiered`` and ``marks``, a directory that tasks write into,
each under its process id. They are here, and not in a test, because Spark's workers import them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tiered_spark.datasource import MessageReader, TieredDataSource
from tiered_spark.stream import MessageStreamReader

GO = "go"
"""The file in ``marks`` that halted tasks wait for."""
FIRST = "first"
"""The file in ``marks`` of the one that waits behind its first row; the others wait before theirs, so that none has read
what it is to miss."""
_PAUSE_SECONDS = 0.02


class _InTrouble:
    marks: str
    kills: int
    """So many are killed; -1: none, they wait."""

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The first row, then trouble, then all others; or trouble first."""
        batches = super().read(partition)  # type: ignore[misc]
        if self.kills < 0 and not self._is_first():
            self._meet()
            yield from batches
            return
        first = next(batches, None)
        if first is None:
            return
        yield first.slice(0, 1)
        self._meet()
        yield first.slice(1)
        yield from batches

    def _is_first(self) -> bool:
        try:
            os.close(os.open(f"{self.marks}/{FIRST}", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    def _meet(self) -> None:
        mark = f"{self.marks}/{os.getpid()}"
        if self.kills < 0:
            open(mark, "w").close()
            while not os.path.exists(f"{self.marks}/{GO}"):
                time.sleep(_PAUSE_SECONDS)
        elif len(os.listdir(self.marks)) < self.kills:
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


class _Scan(_InTrouble, MessageReader):
    """A scan in trouble."""


class _Stream(_InTrouble, MessageStreamReader):
    """A stream in trouble."""


class WaitingSource(TieredDataSource):
    """Tasks wait for ``GO``."""

    @classmethod
    def name(cls) -> str:
        """The format's."""
        return "waiting"

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._marks, self._kills = options.pop("marks"), int(options.pop("kills", "-1"))

    def reader(self, schema: StructType) -> DataSourceReader:
        """The format's own, in trouble."""
        return self._troubled(super().reader(schema), _Scan)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """The format's own, in trouble."""
        return self._troubled(super().streamReader(schema), _Stream)

    def _troubled(self, reader: Any, kind: type[_InTrouble]) -> Any:
        made = kind.__new__(kind)
        made.__dict__.update(reader.__dict__)
        made.marks, made.kills = self._marks, self._kills
        return made


class KillingSource(WaitingSource):
    """Of the tasks, the first ``kills``, an option, are killed."""

    @classmethod
    def name(cls) -> str:
        """The format's."""
        return "killing"
