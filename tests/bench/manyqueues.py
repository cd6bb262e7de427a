"""A process that reads as a gateway does, with nothing of the archive kept before: its first cold pull, and then many queues.

python -m tests.bench.manyqueues ARCHIVE_URL < QUEUES.json prints its figures as JSON. QUEUES: [[topic, queue id], …].
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from tests.bench.counted import TOLD, counting
from tests.bench.readers import peak_bytes
from tiered.allocator import calm_collector, keep_freed_memory
from tiered.clock import SystemClock
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.metrics import Metrics
from tiered.settings import Archive, Settings
from tiered.store import MessageStore

COUNT = 32


def figures(messages: int) -> dict[str, Any]:
    """Of the process so far."""
    return {"messages": messages, "cpu_seconds": time.process_time(), "peak_bytes": peak_bytes(), **TOLD}


def main(url: str, queues: list[tuple[str, int]]) -> None:
    """Read the beginning of each queue; print what the first took, and all."""
    settings = replace(Settings(), archive=Archive(url=url))
    keep_freed_memory()  # as a gateway does
    with ExitStack() as stack:
        store = MessageStore.open(settings, SystemClock(), Metrics(), stack=stack, name="gateway")
        calm_collector()
        told, messages = [], 0
        for number, (topic, queue_id) in enumerate(queues):
            found = store.get_message(Pull(ReaderId(f"group-{number}"), topic, queue_id, 0, COUNT))
            messages += len(found.records)
            if number == 0:
                told.append(figures(messages))
        told.append(figures(messages))
    print(json.dumps(told))


if __name__ == "__main__":
    counting()
    main(sys.argv[1], [(topic, queue_id) for topic, queue_id in json.load(sys.stdin)])
