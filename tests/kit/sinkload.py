"""A sender that goes on whatever becomes of the broker: messages of some topics, spoken directly, at a steady rate.

What it is told does not say what the broker has: a send that is not answered may be stored. It counts both, and tries no
message twice; whether an acknowledged one is there is asked of the broker's log.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Mapping

from tests.kit.remoting import SEND_MESSAGE, Connection

SIZES = (20, 200, 200, 1_000)
_PAUSE_SECONDS = 0.05


class SinkLoad:
    """One thread. ``topics``: how many queues each has. Every ``large_every``-th message on average has ``large`` bytes."""

    def __init__(
        self, address: str, topics: Mapping[str, int], seed: int, *, rate: float, large: int, large_every: int
    ) -> None:
        self._address = address
        self._queues = [(topic, queue) for topic, count in topics.items() for queue in range(count)]
        self._chance = random.Random(f"load {seed}")
        self._name = f"{seed:04X}{random.SystemRandom().randrange(1 << 32):08X}"
        self.rate = rate
        """Messages a second."""
        self._large, self._large_every = large, large_every
        self.counts: Counter[str] = Counter()
        """*acknowledged*, *unknown*: sent and not answered, *refused*."""
        self.acknowledged: set[bytes] = set()
        """Unique keys."""
        self._number = 0
        self._rests = threading.Event()
        self._goes = threading.Event()
        self._ended = False
        self._thread = threading.Thread(target=self._run, name="sink-load", daemon=True)

    def start(self) -> None:
        """Send from now on."""
        self._goes.set()
        self._thread.start()

    def rest(self) -> None:
        """Send nothing until ``go``; nothing is on its way when this returns."""
        self._goes.clear()
        if not self._rests.wait(60):
            raise AssertionError("the sender does not come to rest")

    def go(self) -> None:
        """Send on."""
        self._rests.clear()
        self._goes.set()

    def end(self) -> None:
        """No more."""
        self._ended = True
        self._goes.set()
        if self._thread.is_alive():
            self._thread.join(60)

    def _run(self) -> None:
        connection: Connection | None = None
        due = time.monotonic()
        while not self._ended:
            if not self._goes.is_set():
                self._rests.set()
                self._goes.wait(1)
                due = time.monotonic()
                continue
            try:
                connection = connection or Connection(self._address, timeout_seconds=5)
                self._send(connection)
            except (OSError, ValueError):
                if connection is not None:
                    connection.__exit__()
                connection = None
                time.sleep(_PAUSE_SECONDS)
            due = max(due + 1 / self.rate, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
        if connection is not None:
            connection.__exit__()

    def _send(self, connection: Connection) -> None:
        self._number += 1
        topic, queue = self._chance.choice(self._queues)
        key = f"{self._name}{self._number:012X}"
        large = self._chance.randrange(self._large_every) == 0
        size = self._large if large else self._chance.choice(SIZES)
        body = f"{key} ".encode().ljust(size, b"x")
        fields = {
            "producerGroup": "sink-load", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4",
            "queueId": str(queue), "sysFlag": "0", "bornTimestamp": str(int(time.time() * 1000)), "flag": "0",
            "properties": f"UNIQ_KEY\x01{key}\x02TAGS\x01soak", "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
        }  # fmt: skip
        try:
            connection.send(SEND_MESSAGE, fields, body)
            answer = connection.receive()[1]
        except OSError:
            self.counts["unknown"] += 1
            raise
        if answer.code == 0:
            self.counts["acknowledged"] += 1
            self.acknowledged.add(key.encode())
        else:
            self.counts["refused"] += 1
            time.sleep(_PAUSE_SECONDS)
