"""A real master and its slave, one broker name, that take turns: what the master answered for, the slave has.

::

    with BrokerPair(version, work, name_server) as pair:
        pair.create_topic("KV_x", queues=1)
        pair.fail(); pair.promote(); pair.rejoin()

The master waits for its slave (``SYNC_MASTER`` with two replicas in sync) before it answers, so a slave that is promoted has
everything acknowledged. A switch is what an operator does without a controller: the slave starts again as the master, and who
was the master begins, as its slave, with a copy of its store.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.kit import remoting
from tests.kit.broker import READY_SECONDS, Broker, NameServer

MASTER: dict[str, object] = {"brokerId": 0, "brokerRole": "SYNC_MASTER", "inSyncReplicas": 2}
SLAVE: dict[str, object] = {"brokerId": 1, "brokerRole": "SLAVE"}
HA_STATUS = 907
SLAVE_TIMEOUT_MS = 1000


class BrokerPair:
    """``master`` and ``slave``: who has which role now, whether it runs or not."""

    def __init__(self, version: str, work: Path, name_server: NameServer, **conf: object) -> None:
        """``conf``: of both."""
        shared = {"slaveTimeout": SLAVE_TIMEOUT_MS, **conf}
        self.master, self.slave = (
            Broker(version, work / place, name_server, heap_mib=256, **shared, **role)
            for place, role in (("a", MASTER), ("b", SLAVE))
        )

    def __enter__(self) -> Self:
        try:
            self.master.start()
            self.rejoin()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def kill(self) -> None:
        """kill -9 of both."""
        self.master.kill()
        self.slave.kill()

    def create_topic(self, topic: str, queues: int) -> None:
        """Make a topic at both: a slave asks its master for new ones every ten seconds, and only then one outlives a switch."""
        self.master.create_topic(topic, queues)
        self.slave.create_topic(topic, queues)

    def fail(self) -> None:
        """kill -9 of the master."""
        self.master.kill()

    def promote(self) -> None:
        """The slave starts again, as the master; it answers, and acknowledges nothing before ``rejoin``."""
        self.slave.kill()
        self.master, self.slave = self.slave, self.master
        shutil.rmtree(self.slave.store_dir)
        shutil.copytree(self.master.store_dir, self.slave.store_dir)
        self.master.configure(**MASTER)
        self.slave.configure(**SLAVE)
        self.master.start()

    def rejoin(self) -> None:
        """Who was the master starts, as the slave, with the store that the new master began with."""
        self.slave.start()
        self.wait_in_sync()

    def wait_in_sync(self) -> None:
        """Wait until the slave follows the master: it first looks for it five seconds after its start."""
        _until(self._in_sync, "a slave in sync")

    def _in_sync(self) -> bool:
        told = remoting.request(self.master.address, HA_STATUS, {})
        return b'"inSyncSlaveNums":1' in told.body


def _until(ready: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while not ready():
        if time.monotonic() > deadline:
            raise AssertionError(f"not seen: {what}")
        time.sleep(0.05)
