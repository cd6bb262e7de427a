"""Tasks of the job ``backfill`` to which something happens. Here, and not in a test, because Spark's workers import them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from tiered.archive.keys import ArchiveKeys
from tiered.clock import SystemClock
from tiered.sink.backfill import BackfillBook
from tiered.sink.giving import PartPace, give_part
from tiered_jobs.backfill import parts
from tiered_spark.snapshot import shared_provider


@dataclass(frozen=True)
class DyingGive:
    """The first attempt at some parts is killed by the system with messages written and not flushed.

    ``marks``: a directory in which each attempt that dies leaves a file; ``at``: before which flush, counted from 1."""

    marks: str
    at: int

    def __call__(self, task: parts.PartTask) -> int:
        with patch.object(parts, "give_part", self._given):
            return parts.give(task)

    def _given(self, number: int, view: Any, sink: Any, ranges: Any, pace: PartPace) -> Any:
        calls = [0]

        def check() -> None:
            calls[0] += 1
            if calls[0] == self.at and _is_first(self.marks, number):
                os.kill(os.getpid(), signal.SIGKILL)
            pace.check()

        return give_part(number, view, sink, ranges, replace(pace, check=check))


@dataclass(frozen=True)
class OvertakenGive:
    """Before the first task, another job begins. ``marks``: as of ``DyingGive``."""

    marks: str

    def __call__(self, task: parts.PartTask) -> int:
        if _is_first(self.marks, "another"):
            place = task.place
            keys = ArchiveKeys(place.cluster, place.broker)
            book = BackfillBook(shared_provider(place.url), keys, place.archive_id)
            book.begin_job(task.plan, os.urandom(16), SystemClock().now_ms())
        return parts.give(task)


def _is_first(marks: str, name: object) -> bool:
    """Whether nobody has left this mark before."""
    try:
        os.close(os.open(f"{marks}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True
