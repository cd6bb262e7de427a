"""When to save the fold: every so many commits or bytes of edits, or after some time with commits. Never without commits.

A service of its own: a large fold takes seconds to save, and commits do not wait for it. What is saved was folded from the
bucket's own commits (``archive/log/shadow.py``) and is the same as the writer's fold, of which a snapshot is taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from tiered.archive.checkpoint.store import (
    Manifest,
    checkpoint_keys,
    checkpoint_number,
    newest_checkpoint,
    write_checkpoint,
)
from tiered.archive.log.reader import LogReader
from tiered.archive.log.shadow import FoldCheck, Shadow
from tiered.archive.log.writer import CommitLog
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Conflict, Corrupt, NotFound, TieredError
from tiered.metadata.base import MetadataStore
from tiered.settings import Archive


class CheckpointEvents(Protocol):
    """Who hears what becomes of checkpoints."""

    def checkpointed(self, manifest: Manifest) -> None:
        """A checkpoint was written."""
        ...

    def damaged(self, error: TieredError) -> None:
        """What was read back of the archive is damaged: no checkpoint is made of it, archiving goes on."""
        ...


class Checkpointer:
    """Called after every proven commit, in the committer's thread; writes a checkpoint when one is due.

    Commits that earlier processes left behind the newest checkpoint count too, so that restarts do not pile them up.

    The fold that is saved is the proven one, and nothing else changes it meanwhile. A checkpoint of the same commit that
    somebody else wrote is left alone. ``distrust`` is called before the error that a local fold which is not the log's ends the
    process with.
    """

    def __init__(
        self,
        log: CommitLog,
        settings: Archive,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        shadow: MetadataStore,
        events: CheckpointEvents,
        distrust: Callable[[], None] = lambda: None,
    ) -> None:
        self._log = log
        self._shadow = Shadow(log.reader, shadow)
        self._events = events
        self._distrust = distrust
        self._commits = settings.checkpoint_commits
        self._edit_bytes = settings.checkpoint_edit_bytes
        self._seconds = settings.checkpoint_interval_ms / 1000
        self._clock = clock
        self._random_bytes = random_bytes
        self._previous: Manifest | None = None
        self._looked = False
        self._since = 0
        self._behind: int | None = None  # commits behind the newest checkpoint when this process began
        self._edits_saved = log.edit_bytes
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
        counted, edits = self._since, self._log.edit_bytes
        if not counted:
            return False
        reader = self._log.reader
        if self._behind is None:
            self._behind = self._left_behind(counted)
        enough = counted + self._behind >= self._commits or edits - self._edits_saved >= self._edit_bytes
        if not enough and self._clock.monotonic() - self._last < self._seconds:
            return False
        if not self._looked:
            self._previous = newest_checkpoint(reader.provider, reader.keys)
            self._looked = True
        reach(CrashPoint.BEFORE_CHECKPOINT)
        try:
            verdict = self._shadow.compare(self._log.store.snapshot())
            self._previous = self._save(reader)
        except Conflict:  # something lies under our number: it counts as absent, the next number is free
            return False
        except (Corrupt, NotFound) as e:
            self._events.damaged(e)
            return False
        finally:
            self._since -= counted
            self._behind, self._edits_saved = 0, edits
            self._last = self._clock.monotonic()
        reach(CrashPoint.AFTER_CHECKPOINT)
        self._events.checkpointed(self._previous)
        self._judge(verdict, self._previous.seq)
        return True

    def _save(self, reader: LogReader) -> Manifest:
        view = self._shadow.view
        head = ArchiveState(view).head()
        assert head is not None
        return write_checkpoint(
            reader.provider,
            reader.keys,
            view,
            self._previous,
            lambda: reader.keys.shard(head.epoch, self._random_bytes(16)),
            before_manifest=lambda: reach(CrashPoint.AFTER_SHARDS),
        )

    def _judge(self, verdict: FoldCheck, seq: int) -> None:
        """Say what the comparison found, now that a checkpoint made from the log alone stands."""
        if verdict is FoldCheck.CHECKPOINT_WRONG:
            self._events.damaged(
                Corrupt(
                    "an older checkpoint is not the fold of the log; the one just written is",
                    hint="readers take the newest; open archives again that were opened before",
                    checkpoint=seq,
                )
            )
        elif verdict is FoldCheck.LOCAL_WRONG:
            self._distrust()
            raise Corrupt(
                "the local fold is not the fold of the archive's log; the checkpoint just written is made from the log",
                hint="start the daemon again: it folds the log anew, nothing in the archive is wrong",
                checkpoint=seq,
            )

    def _left_behind(self, counted: int) -> int:
        """Commits above the newest checkpoint's number before the first that was counted here."""
        reader, head = self._log.reader, self._log.proven().head()
        key = next(checkpoint_keys(reader.provider, reader.keys), None)
        assert head is not None
        return max(0, head.seq - counted - (-1 if key is None else checkpoint_number(key)))
