"""When to save the fold: every so many commits, or after some time with commits. Never without commits.

A service of its own: a large fold takes seconds to save, and commits do not wait for it. What is saved is a snapshot.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tiered.archive.checkpoint import Manifest, newest_checkpoint, write_checkpoint
from tiered.archive.log import CommitLog
from tiered.clock import Clock
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Conflict, Corrupt
from tiered.settings import Archive


class Checkpointer:
    """Called after every proven commit, in the committer's thread; writes a checkpoint when one is due.

    The fold that is saved is the proven one, and nothing else changes it meanwhile. A checkpoint of the same commit that
    somebody else wrote is left alone.
    """

    def __init__(
        self,
        log: CommitLog,
        settings: Archive,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        written: Callable[[Manifest], None] = lambda manifest: None,
    ) -> None:
        self._log = log
        self._commits = settings.checkpoint_commits
        self._seconds = settings.checkpoint_interval_ms / 1000
        self._clock = clock
        self._random_bytes = random_bytes
        self._written = written
        self._previous: Manifest | None = None
        self._looked = False
        self._since = 0
        self._writing = threading.Lock()
        self._last = clock.monotonic()

    def count(self) -> None:
        """One more commit was proven. Called by the committer's thread; costs nothing."""
        self._since += 1

    def step(self) -> bool:
        """Write a checkpoint if one is due; true if it was written. One thread at a time."""
        with self._writing:
            return self._step()

    def _step(self) -> bool:
        counted = self._since
        enough = counted >= self._commits
        if not counted or not (enough or self._clock.monotonic() - self._last >= self._seconds):
            return False
        reader = self._log.reader
        if not self._looked:
            self._previous = newest_checkpoint(reader.provider, reader.keys)
            self._looked = True
        head = self._log.proven().head()
        assert head is not None
        reach(CrashPoint.BEFORE_CHECKPOINT)
        try:
            self._previous = write_checkpoint(
                reader.provider,
                reader.keys,
                self._log.store.snapshot(),
                self._previous,
                lambda: reader.keys.shard(head.epoch, self._random_bytes(16)),
                before_manifest=lambda: reach(CrashPoint.AFTER_SHARDS),
            )
        except (
            Conflict,
            Corrupt,
        ):  # something lies under our number: it counts as absent, the next number is free
            return False
        finally:
            self._since -= counted
            self._last = self._clock.monotonic()
        reach(CrashPoint.AFTER_CHECKPOINT)
        self._written(self._previous)
        return True
