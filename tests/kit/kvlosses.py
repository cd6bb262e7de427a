"""Two key-value views of a broker that loses the end of its log now and then, and a view whose disk runs full.

What is lost are writes to a namespace of its own, applied by both views, while the clients wait: a history of writes that were
acknowledged and lost could not be checked. Other writes take their place, and at the end both views have what the log has.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from tests.kit.broker import Broker
from tests.kit.fulldisk import MIB, SmallDisk, small_disk
from tests.kit.golden import commitlog_files, records
from tests.kit.kvplain import PlainLog
from tests.kit.kvsoak import AGAIN_SECONDS, KvCampaign, KvOutcome
from tiered.errors import TieredError

LOST, FULL = "tail lost", "disk full"
_DISK_BYTES = 64 * MIB
_WRITES = 20


class LossCampaign(KvCampaign):
    """The first view has a small disk, where this may mount one; else none runs full."""

    def __init__(self, work: Path, broker: Broker, seed: int) -> None:
        super().__init__(work, broker, seed)
        self.lossy = f"lossy-{self.namespace}"
        self._disk: SmallDisk
        self._actions[LOST] = (1, self.lose_tail)

    def run(self, seconds: float, once: Sequence[str], *, acknowledged: int = 0) -> KvOutcome:
        """See ``KvCampaign``."""
        with ExitStack() as stack:
            self._disk = stack.enter_context(small_disk(self.views[0].state, _DISK_BYTES))
            if self._disk.mounted:
                self._actions[FULL] = (3, self.fill_disk)
                once = (*once, FULL)
            return super().run(seconds, once, acknowledged=acknowledged)

    def _begin(self) -> None:
        super()._begin()
        self.views[0].values().create(self.lossy)

    def fill_disk(self) -> None:
        """No byte is left below the store of the first view for a while."""
        self._disk.fill()
        self.rest(self.chance.choice((0.3, 1.0, 3.0)))
        self._disk.free()

    def lose_tail(self) -> None:
        """kill -9 of a broker whose last pages never came to the disk."""
        with self.workload.held():
            for view in self.views:
                if not view.alive:
                    view.start()
                view.wait_ready()
            self.rest(0.5)  # what was on its way to the broker when its client gave up
            kept = max(each.physical_offset + len(each.raw) for each in records(self.broker.store_dir))
            self._put("lost")
            for view in self.views:
                self._all(view, self.lossy)
            self.broker.kill()
            for path in commitlog_files(self.broker.store_dir):
                within = max(0, kept - int(path.name))
                if within < (size := path.stat().st_size):
                    with path.open("r+b") as file:
                        file.seek(within)
                        file.write(bytes(size - within))
            self.rest(self.chance.random())
            self.broker.start()
            self._put("in its place")
            self._check_lossy()

    def _put(self, text: str) -> None:
        values = self.chance.choice(self.views).values()
        for number in range(self.chance.randint(1, _WRITES)):
            key = b"%d" % self.chance.randrange(_WRITES)
            until = time.monotonic() + AGAIN_SECONDS
            while True:
                try:
                    values.put(self.lossy, key, f"{text} {number}".encode())
                    break
                except (TieredError, OSError):
                    if time.monotonic() > until:
                        raise
                    self.rest(0.1)

    def _check_lossy(self) -> None:
        plain = PlainLog.of(records(self.broker.store_dir), "KV_" + self.lossy)
        for view in self.views:
            self._hold(view, self._all(view, self.lossy), plain)

    def _finish(self) -> None:
        super()._finish()
        self._check_lossy()
