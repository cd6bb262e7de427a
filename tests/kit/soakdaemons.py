"""Two daemons on one archive, kept alive through a randomised campaign beside a broker that writes while anybody waits."""

from __future__ import annotations

import math
import random
import time
from pathlib import Path

from tests.kit.daemonproc import CRASHED, SMALL_FLUSHES, Daemon
from tests.kit.hurried import AGEING
from tests.kit.process import HURRIED, PATIENCE
from tests.kit.soaksources import TRIMMED_TOPIC, Place, SoakSource
from tiered.clock import SystemClock
from tiered.settings import ONE_DAY_MS

UNAVAILABLE, KILLED = 4, -9
STILL_SECONDS = 60.0
ASK_SECONDS = 1.0
MOST_BEHIND_BYTES = 16 << 20
"""A broker that writes faster than a daemon archives on a machine without time makes a campaign of nothing else."""
VARIANTS: tuple[dict[str, object], ...] = (
    {},
    {"dispatch.inline_bytes": 0, "dispatch.object_bytes": 65_536},
    {"archive.checkpoint_commits": 3},
    {"dispatch.group_commit_bytes": 1 << 20, "dispatch.block_bytes": 65_536},
    {"gc.snapshot_retention_ms": 0, "maintenance.merge_bytes": 1 << 20},
)


class SoakError(Exception):
    """The campaign met something that must not happen."""


class Daemons:
    """The owner of the archive and the other one. ``least_keep_ms``: the shortest rule of retention that any of them had."""

    def __init__(self, work: Path, source: SoakSource, place: Place, chance: random.Random) -> None:
        self.chance = chance
        self.source = source
        self.place = place
        self.least_keep_ms = math.inf
        self._owner, self._other = (
            Daemon(
                work, source.store, place.url, name=name, environment=place.environment, command=HURRIED,
                **{**SMALL_FLUSHES, **AGEING, **place.settings, "state.cache_bytes": 4 << 20},
            )
            for name in ("one", "two")
        )  # fmt: skip
        self._base = dict(self._owner.settings)
        self._expected: set[int] = {UNAVAILABLE}
        self._ask_at = 0.0
        self._behind_bytes = 0

    def start(self, *flags: str) -> None:
        """Start the owner, with one of several sets of settings."""
        self.draw_settings()
        self._expected = {UNAVAILABLE}
        self._owner.start(*flags, ready=False)

    def draw_settings(self) -> None:
        """Draw the owner's settings. Retention keeps a day of one topic, by the broker's clock of now."""
        keep_seconds = (max(0, SystemClock().now_ms() - self.source.now_ms()) + ONE_DAY_MS) // 1000
        self.least_keep_ms = min(self.least_keep_ms, keep_seconds * 1000)
        rule = {"retain.topics": f"{TRIMMED_TOPIC}={keep_seconds}s"}
        self._owner.settings = {**self._base, **self.chance.choice(VARIANTS), **rule}

    def stop(self) -> None:
        """Tell the owner to end, and see that it ends well."""
        if (code := self._owner.stop(60)) != 0:
            raise SoakError(
                f"the daemon ended with {code} when told to stop:\n{self._owner.output()[-2000:]}"
            )

    def revive(self, *flags: str) -> None:
        """Start the owner again if it ended in a way that is allowed."""
        if self._owner.alive:
            return
        code = self._owner.wait()
        if code not in self._expected | {KILLED, CRASHED}:
            raise SoakError(f"the daemon ended with {code}:\n{self._owner.output()[-2000:]}")
        if self._owner.said("Traceback"):
            raise SoakError(f"a traceback:\n{self._owner.output()[-3000:]}")
        self.start(*flags)

    def wait_ready(self, *flags: str) -> None:
        """Wait for the owner to archive, starting it again if it ends on the way; the broker writes on."""
        deadline = time.monotonic() + 60 * PATIENCE
        while not self._owner.ready():
            if time.monotonic() > deadline:
                raise SoakError(f"not ready in time:\n{self._owner.output()[-2000:]}")
            self.revive(*flags)
            self.rest(0.05)

    def wait_archived(self, end: int) -> None:
        """Wait for the owner to archive up to ``end``, starting it again as often as it takes; as long as it gets anywhere."""
        proven, moved = -1, time.monotonic()
        while proven != end:
            if time.monotonic() - moved > STILL_SECONDS * PATIENCE:
                raise SoakError(
                    f"nothing was archived for {STILL_SECONDS * PATIENCE:.0f} s, up to {proven} of {end}:"
                    f" {self._owner.status()}\n{self._owner.output()[-1500:]}"
                )
            self.revive()
            time.sleep(0.1)
            found = int(self._owner.status().get("proven_offset") or -1)
            if found not in (-1, proven):
                proven, moved = found, time.monotonic()

    def rest(self, seconds: float) -> None:
        """Let the broker write for a while, unless the owner is far behind: it would only have more of the same to do."""
        until = time.monotonic() + seconds
        while True:
            if not self._is_far_behind():
                self.source.write(self.chance)
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))

    def _is_far_behind(self) -> bool:
        """As it was when the owner was last asked, a second ago at most; one that does not answer is as far as it was."""
        if time.monotonic() >= self._ask_at:
            lag = self._owner.status().get("lag") or {}
            self._behind_bytes = int(lag.get("bytes", self._behind_bytes) or 0)
            self._ask_at = time.monotonic() + ASK_SECONDS
        return self._behind_bytes > MOST_BEHIND_BYTES
