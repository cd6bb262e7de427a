"""A process of many cold readers at once, as behind a gateway: each has one read out at any time; prints its memory.

python -m tests.bench.readers ARCHIVE_URL TOPIC READERS BUDGET_BYTES
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tiered.allocator import calm_collector, keep_freed_memory
from tiered.clock import SystemClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.metrics import Metrics
from tiered.model import GetMessageResult
from tiered.settings import Archive, Fetch, Settings
from tiered.store import MessageStore

COUNT = 32


class Crowd:
    """One reader for each queue; ``done`` is set when all are at their ends, or one has failed."""

    def __init__(self, store: MessageStore, topic: str, readers: int) -> None:
        self._store = store
        self._topic = topic
        self._lock = threading.Lock()
        self._left = readers
        self.messages = self.bytes = 0
        self.done = threading.Event()
        self.error: BaseException | None = None

    def ask(self, queue_id: int, offset: int, end: int) -> None:
        """Read on, and again when the answer is there; answers that are there at once are not recursed into."""
        while not self.done.is_set():
            answer = self._store.get_message_async(
                Pull(ReaderId(f"group-{queue_id}"), self._topic, queue_id, offset, COUNT)
            )
            if not answer.done():
                answer.add_done_callback(lambda done: self._answered(done, queue_id, end))
                return
            following = self._take(answer, end)
            if following is None:
                return
            offset = following

    def _answered(self, answer: Future[GetMessageResult], queue_id: int, end: int) -> None:
        following = self._take(answer, end)
        if following is not None:
            self.ask(queue_id, following, end)

    def _take(self, answer: Future[GetMessageResult], end: int) -> int | None:
        try:
            result = answer.result()
        except Exception as error:
            self.error = error
            self.done.set()
            return None
        with self._lock:
            self.messages += len(result.records)
            self.bytes += result.buffer_bytes
            at_end = result.next_begin_offset >= end
            self._left -= at_end
            if not self._left:
                self.done.set()
        return None if at_end else result.next_begin_offset


def peak_bytes() -> int:
    """Most memory this program had resident. (``ru_maxrss`` would count the parent's, from before the exec.)"""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1]) * 1024


def main(url: str, topic: str, readers: int, budget_bytes: int) -> int:
    """Read everything, print figures as JSON."""
    fetch = Fetch(budget_bytes=budget_bytes)
    settings = replace(Settings(), archive=Archive(url=url), fetch=fetch)
    keep_freed_memory()  # as a gateway does
    with ExitStack() as stack:
        store = MessageStore.open(settings, SystemClock(), Metrics(), stack=stack)
        calm_collector()
        ends = [store.max_offset(topic, queue) for queue in range(readers)]
        idle = peak_bytes()
        crowd = Crowd(store, topic, readers)
        started = time.monotonic()
        for queue_id, end in enumerate(ends):
            assert end is not None, f"queue {queue_id} is not archived"
            crowd.ask(queue_id, 0, end)
        crowd.done.wait(600)
        if crowd.error is not None:
            raise crowd.error
        took = time.monotonic() - started
        peak = peak_bytes()
        told = {"messages": crowd.messages, "bytes": crowd.bytes, "seconds": took, "peak_bytes": peak}
        print(json.dumps({**told, "idle_bytes": idle}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
