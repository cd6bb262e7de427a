"""When to save the fold: every so many commits or bytes of edits, or after some time with commits. Never without commits.

A service of its own: a large fold takes seconds to save, and commits do not wait for it. What is saved was folded from the
bucket's own commits (``archive/log/shadow.py``) and is the same as the writer's fold, of which a snapshot is taken.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from typing import Protocol

from tiered.archive.checkpoint.store import (
    Manifest,
    checkpoint_keys,
    checkpoint_number,
    read_checkpoint,
    read_manifest,
    write_checkpoint,
)
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.log.reader import LogReader
from tiered.archive.log.shadow import FoldCheck, FoldsDiffer, Shadow
from tiered.archive.log.writer import CommitLog
from tiered.archive.state.layers import Pair
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.crashpoint import CrashPoint, reach
from tiered.errors import Conflict, Corrupt, NotFound, TieredError
from tiered.metadata.base import MetadataStore, MetadataView
from tiered.settings import Archive

LATE_INTERVALS = 3.0
"""Commits that no checkpoint holds after so many times ``archive.checkpoint_interval_ms`` are told."""


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
        own_keys: OwnKeys,
        lender: str | None = None,
        distrust: Callable[[], None] = lambda: None,
    ) -> None:
        """``lender``: key of the newest checkpoint that was listed before this process opened its epoch (K3)."""
        self._log = log
        self._own_keys = own_keys
        self._lender = lender
        self._shadow = Shadow(log.reader, shadow)
        self._events = events
        self._distrust = distrust
        self._commits = settings.checkpoint_commits
        self._edit_bytes = settings.checkpoint_edit_bytes
        self._seconds = settings.checkpoint_interval_ms / 1000
        self._clock = clock
        self._random_bytes = random_bytes
        self._previous: Manifest | None = None  # shards of it may be named again
        self._since = 0
        self._behind: int | None = None  # commits behind the newest checkpoint when this process began
        self._edits_saved = log.edit_bytes
        self._writing = threading.Lock()
        self._last = clock.monotonic()
        self._unsaved_since: float | None = None
        self._kept_by = "no error was met"

    def unsaved_seconds(self) -> float:
        """How long the oldest commit that was counted here has waited for a checkpoint; 0 while none waits. From any thread."""
        since = self._unsaved_since
        return 0.0 if since is None else self._clock.monotonic() - since

    def standstill(self) -> str | None:
        """Why no checkpoint is written, if none was for far too long although commits flow. From any thread."""
        seconds = self.unsaved_seconds()
        if seconds < LATE_INTERVALS * self._seconds:
            return None
        why = "one is being made" if self._writing.locked() else self._kept_by
        return f"commits have waited for a checkpoint for {seconds:.0f} s: {why}"

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
        if self._unsaved_since is None:
            self._unsaved_since = self._clock.monotonic()
        try:
            return self._write_if_due(counted, edits)
        except TieredError as error:
            self._kept_by = str(error)
            raise

    def _write_if_due(self, counted: int, edits: int) -> bool:
        reader = self._log.reader
        if self._behind is None:
            self._behind = self._left_behind(counted)
        enough = counted + self._behind >= self._commits or edits - self._edits_saved >= self._edit_bytes
        if not enough and self._clock.monotonic() - self._last < self._seconds:
            return False
        if self._lender is not None:
            self._previous, self._lender = self._lent(self._lender), None
        reach(CrashPoint.BEFORE_CHECKPOINT)
        try:
            saved, verdict = self._save_compared(reader, self._log.store.snapshot())
        except Conflict as e:  # something lies under our number: it counts as absent, the next number is free
            self._kept_by = str(e)
            return False
        except (Corrupt, NotFound) as e:
            self._kept_by = str(e)
            self._events.damaged(e)
            return False
        finally:
            self._since -= counted
            self._behind, self._edits_saved = 0, edits
            self._last = self._clock.monotonic()
        self._unsaved_since, self._kept_by = None, "no error was met"
        reach(CrashPoint.AFTER_CHECKPOINT)
        self._events.checkpointed(saved)
        self._judge(verdict, saved.seq)
        return True

    def _lent(self, key: str) -> Manifest | None:
        """The lender, if it is of the epoch just before this one, and sound (K3)."""
        reader, head = self._log.reader, self._log.proven().head()
        try:
            found = read_manifest(reader.provider, key)
            if head is None or found.epoch != head.epoch - 1:
                return None
            for _ in read_checkpoint(reader.provider, found):
                pass
        except Corrupt:
            return None
        return found

    def _save_compared(self, reader: LogReader, local: MetadataView) -> tuple[Manifest, FoldCheck]:
        """Save the fold of the log: the shadow's where ``local`` is the same, else what all commits say once more."""
        self._shadow.follow(local)
        try:
            return self._save(reader, self._shadow.compared(local)), FoldCheck.SAME
        except FoldsDiffer:
            verdict = self._shadow.judge(local)
        return self._save(reader), verdict

    def _save(self, reader: LogReader, pairs: Iterable[Pair] | None = None) -> Manifest:
        """Save the shadow's fold. All shards are in hand until the manifest is put, or given up."""
        view, own = self._shadow.view, self._own_keys.checkpoints
        head = ArchiveState(view).head()
        assert head is not None
        before = () if self._previous is None else self._previous.shards
        with ExitStack() as hand:
            hand.enter_context(self._own_keys.holding([shard.path for shard in before]))
            fold = self._log.planned()
            kept = tuple(shard for shard in before if not fold.is_retired(shard.path))
            made: dict[str, Callable[[], None]] = {}

            def new_shard_key() -> str:
                key = reader.keys.shard(head.epoch, self._random_bytes(16))
                path = str(reader.keys.path(key))
                own.makes(path)
                made[path] = hand.enter_context(self._own_keys.making(path))
                return key

            saved = write_checkpoint(
                reader.provider,
                reader.keys,
                view,
                None if self._previous is None else replace(self._previous, shards=kept),
                new_shard_key,
                pairs=pairs,
                before_manifest=lambda: reach(CrashPoint.AFTER_SHARDS),
            )
            if not {shard.path for shard in saved.shards} <= {*made, *(shard.path for shard in kept)}:
                self._previous = None  # somebody else's, of the same commit
                return saved
            own.add(saved)
            for done in made.values():
                done()
        self._previous = saved
        return saved

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
