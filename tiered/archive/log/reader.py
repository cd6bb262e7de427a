"""Reading the log: a commit, all later commits, the end; folding them into a metadata store.

The rules are DESIGN.md, "Opening", "Reading the log": the end is a 404 and then a listing of ``checkpoint/``
that shows none above; a commit that does not fit is first answered by starting again from the newest checkpoint. A listing of
commits that names a later one, however much later, says that it was a hole and not the end; so does the word of its writer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tiered.archive.ahead import read_numbers
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.checkpoint.shardview import DamagedShard
from tiered.archive.checkpoint.store import load_newest, load_oldest, newest_number
from tiered.archive.fold.apply import apply
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.again import KeptCommits, ReadCommit
from tiered.archive.log.identity import ArchiveIdentity, is_identity_of
from tiered.archive.log.named import commits_named, first_behind
from tiered.archive.log.standin import stand_in
from tiered.archive.log.word import Word, word_behind
from tiered.archive.state.layers import Changes, Overlay, store_changes
from tiered.archive.state.recentqueues import Planning, RecentQueues
from tiered.archive.state.scope import EVERYTHING
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock, SystemClock
from tiered.codec.format.commit import decode_commit, decode_commit_footer
from tiered.errors import Corrupt, NotFound, Refused
from tiered.metadata.base import MetadataStore, MetadataView
from tiered.provider.base import Provider
from tiered.provider.resolve import guard

TAIL_BYTES = 256 * 1024
"""First request for a commit: footer and edits of all but the largest commits, without their inline data."""
MERGE_COMMITS = 64
"""Commits folded before one batch goes into the metadata store."""
MERGE_KEYS = 16_384
"""And at most about so many keys, which every further commit looks through once more for each commit that waits."""
LOOK_AGAIN_MS = 3_600_000
"""How long after it last saw all checkpoints a reader believes a commit: at most half of any ``gc.commit_retention_ms``."""
LOOK_BEHIND_SECONDS = 60.0
"""How long an end that does not move is believed before a listing is asked again whether more lies behind it."""

_NEVER_MS = -(2**62)

log = logging.getLogger("tiered.archive")


@dataclass(frozen=True, slots=True)
class _Seen:
    """No checkpoint stood above this position of a fold, or it was loaded from the newest, at this time of the store."""

    position: bytes | None
    date_ms: int


@dataclass(frozen=True, slots=True)
class _Looked:
    """When the end of this fold moved last, or a listing showed nothing behind it."""

    store: MetadataStore
    at: float


@dataclass(frozen=True, slots=True)
class _Reached:
    """Where reading stopped. ``date_ms``: of the last answer that was taken; ``newer``: the checkpoint to begin anew from,
    because the next answer came too late."""

    seq: int
    date_ms: int | None = None
    newer: int | None = None


class LogReader:
    """A plain reader of one archive's log. Any number of them may run. From here on the provider answers for this archive
    alone: where its identity cannot be seen nothing counts as absent.
    """

    def __init__(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        identity: ArchiveIdentity,
        clock: Clock | None = None,
        *,
        hears: bool = True,
    ) -> None:
        """``clock``: by which an end that does not move is looked behind now and then. ``hears``: whether the writer's word
        counts, which may know of commits that are not there."""
        self.provider = provider
        self.keys = keys
        self.identity = identity
        self._lost: dict[int, ReadCommit] = {}  # what stands for commits whose keys are gone
        self._seen: _Seen | None = None
        self._clock = clock or SystemClock()
        self._hears = hears
        self.answered: Word | None = None
        """A word that counts no more: the messages of the commits that it speaks of are archived again."""
        self._looked: _Looked | None = None
        self._kept = KeptCommits()
        guard(provider, keys.identity, partial(is_identity_of, identity.archive_id))

    def read(self, seq: int) -> ReadCommit | None:
        """Commit ``seq``, or ``None`` if its key is not there. ``Corrupt``/``Refused`` as the decoder says.

        Where the key holds no commit any more, what ``tiered repair`` put beside it stands for it.
        """
        try:
            return self.read_at(self.keys.commit(seq), seq) or self._lost.get(seq)
        except Corrupt:
            found = stand_in(self, seq)
            if found is None:
                raise
            return found

    def has_stand_in(self, seq: int) -> bool:
        """Whether something else stands for commit ``seq``, whose key is gone."""
        return seq in self._lost

    def read_at(self, key: str, seq: int) -> ReadCommit | None:
        """The commit under a key, which must be number ``seq``; ``None`` if the key is not there."""
        try:
            tail = self.provider.get(key, -TAIL_BYTES)
        except NotFound:
            return None
        data = tail.data
        total = tail.object_length  # which not every store tells: a full tail may then be a part
        if total is None and len(data) < TAIL_BYTES:
            total = len(data)
        footer = decode_commit_footer(data, key=key)
        needed = footer.tail_length
        if needed > len(data):
            if total is None or needed <= total:
                data = self.provider.get(key, -needed).data
                total = len(data)
            if needed > total:
                raise Corrupt(
                    "a commit is shorter than its footer says", key=key, expected=needed, found=total
                )
        # Without the inline data: its damage is the damage of one object, which its readers meet, and not of the whole log.
        edits = memoryview(data)[len(data) - needed :]
        commit = decode_commit(edits, key=key)
        if commit.seq != seq or commit.archive_id != self.identity.archive_id:
            raise Corrupt("a commit is stored under another's key", key=key, expected=seq, found=commit.seq)
        times = (tail.date_ms, tail.last_modified_ms)
        found = ReadCommit(commit, *times, commit.inline_length, footer.edits_raw_length)
        self._kept.keep(seq, found, edits)
        return found

    def _read_again(self, seq: int) -> ReadCommit | None:
        """``read`` of a commit that may have been read before, without a request then."""
        return self._kept.find(seq, self.keys.commit(seq)) or self.read(seq)

    def checkpoint_above(self, seq: int) -> bool:
        """Whether any checkpoint, usable or not, is named above ``seq``."""
        after = self.keys.checkpoint(seq) if seq >= 0 else None
        return (
            next(self.provider.list(self.keys.checkpoint_prefix, start_after=after, limit=1), None)
            is not None
        )

    def fold(self, store: MetadataStore, progress: Callable[[int], None] | None = None) -> Head | None:
        """Bring ``store`` to the end of the log: from its own position if the bucket agrees, else from the newest checkpoint.

        Returns the head, ``None`` for an empty log. ``Refused`` if the bucket ends before the cached fold, ``Corrupt`` if a
        commit does not fit the fold twice.
        """
        self._check_cache(store)
        return self.follow(store, progress)

    def follow(self, store: MetadataStore, progress: Callable[[int], None] | None = None) -> Head | None:
        """``fold`` for a store that stands where this reader has put it: only later commits are asked for, and whether more
        lies behind the end at the first time with this store, and now and then while it does not move.
        """
        while True:
            before = ArchiveState(store).head()
            head = self._follow_anew(store, progress)
            if self._looked is not None and self._looked.store is store:
                if head != before:
                    self._looked = _Looked(store, self._clock.monotonic())
                if self._clock.monotonic() - self._looked.at < LOOK_BEHIND_SECONDS:
                    return head
            self._looked = None
            if not self.goes_on_behind(head):
                self._looked = _Looked(store, self._clock.monotonic())
                return head

    def goes_on_behind(self, head: Head | None) -> bool:
        """Whether the log goes on behind ``head``, by a listing of its commits, or by its writer's word; what stands for a lost
        one is read from now on.

        ``Corrupt`` if nothing stands for it: a log that lost commits is never taken for a shorter one.
        """
        reached = -1 if head is None else head.seq
        named = first_behind(self.provider, self.keys, reached)
        word = word_behind(self, reached) if named is None and self._hears else None
        if named is None and (word is None or word == self.answered):
            return False
        if self.read(reached + 1) is None:  # else it was written meanwhile
            found = stand_in(self, reached + 1)
            if found is None and self.checkpoint_above(reached):
                return True  # this look took so long that what it asked for was collected
            if found is None:
                raise commits_lost(self.keys, reached + 1, named, word)
            self._lost[reached + 1] = found
        return True

    def _follow_anew(
        self, store: MetadataStore, progress: Callable[[int], None] | None = None
    ) -> Head | None:
        """Fold what follows; from the newest checkpoint where something does not fit."""
        if isinstance(store, PartialStore) and store.outgrown:
            store.clear()
            self.begin_newest(store)
        again = False
        while True:
            try:
                head = self._follow(store, progress)
                _begun(store)
                return head
            except DamagedShard as error:
                _refuse(store, error)  # so a loop over the checkpoints there are
            except Corrupt:
                if again:
                    raise
                again = True
                self._kept.clear()
            store.clear()
            self.begin_newest(store)

    def fold_until(
        self, store: MetadataStore, seq: int, progress: Callable[[int], None] | None = None
    ) -> Head:
        """The fold as it was after commit ``seq``; no later one is read. ``NotFound`` names the commits there are.

        What ``store`` holds is used if it lies before ``seq`` and agrees with the bucket.
        """
        head, outgrown = ArchiveState(store).head(), isinstance(store, PartialStore) and store.outgrown
        if head is None or outgrown or head.seq > seq or not self._agrees(head):
            store.clear()
            head = self.begin_newest(store, seq)
        while True:
            try:
                head = self._fold_on(store, head, seq, progress)
                _begun(store)
                return head
            except DamagedShard as error:
                _refuse(store, error)
            store.clear()
            head = self.begin_newest(store, seq)

    def fold_all(self, store: MetadataStore, seq: int, *, floor: int = 0) -> Head:
        """``fold_until`` from the log's first commit on, whatever checkpoints say; where that is gone, since the ``floor`` lies
        above it, from the oldest checkpoint that verifies."""
        store.clear()
        try:
            return self._fold_on(store, None, seq, None)
        except (NotFound, Corrupt):
            if floor == 0:
                raise
            store.clear()
            head = load_oldest(self.provider, self.keys, store)
            if head is None or head.seq > seq:
                raise
        return self._fold_on(store, head, seq, None)

    def _fold_on(
        self, store: MetadataStore, head: Head | None, seq: int, progress: Callable[[int], None] | None
    ) -> Head:
        while True:
            reached = self._follow_once(store, -1 if head is None else head.seq, progress, until=seq).seq
            head = ArchiveState(store).head()
            if head is not None and reached == seq:
                return head
            found = stand_in(self, reached + 1)
            if found is None:
                break
            self._lost[reached + 1] = found
        if self._named_above(reached):
            raise NotFound(
                "a commit that this state is made from is gone",
                commit=reached + 1, expected=f"commits {reached + 1} to {seq}", hint="choose a later commit",
            )  # fmt: skip
        valid = "none" if reached < 0 else f"commits {0 if head is None else head.floor} to {reached}"
        raise NotFound(
            "the archive has no such commit", commit=seq, expected=valid, hint="choose one of these"
        )

    def _named_above(self, seq: int) -> bool:
        """Whether a commit or a checkpoint is named above ``seq + 1``: then the archive does not end at ``seq``."""
        return self.checkpoint_above(seq) or first_behind(self.provider, self.keys, seq + 1) is not None

    def is_there(self, seq: int) -> bool:
        """Whether something lies under a commit's own key."""
        try:
            self.provider.head(self.keys.commit(seq))
        except NotFound:
            return False
        return True

    def _agrees(self, head: Head) -> bool:
        """Whether a fold's head is the bucket's commit of that number."""
        if head.archive_id != self.identity.archive_id:
            return False
        found = self.read(head.seq)
        return found is not None and found.commit.commit_id == head.commit_id

    def _remake(self, store: PartialStore, position: bytes) -> None:
        """Fold ``store`` up to the commit that ``position`` (``Head.position``) names. ``Corrupt`` if that cannot be done."""
        seq = int.from_bytes(position[:8], "big")
        missing: NotFound | None = None
        try:
            self.fold_until(store, seq)
        except NotFound as error:
            missing = error
        if missing is not None or store.applied() != position:
            raise Corrupt(
                "the archive as it was cannot be rebuilt: a checkpoint is damaged, and commits that it stands for are gone",
                key=self.keys.commit(seq), expected=f"commit {seq}", found="another history" if missing is None else missing,
            )  # fmt: skip

    def _check_cache(self, store: MetadataStore) -> None:
        """Keep the cached fold only if archive id and commit id at its position agree with the bucket."""
        head = ArchiveState(store).head()
        if head is not None and head.archive_id == self.identity.archive_id:
            found = self.read(head.seq)
            if found is not None and found.commit.commit_id == head.commit_id:
                self._saw(store, found.date_ms)
                return
            lost = found is None and stand_in(self, head.seq) is None
            if lost and not self.checkpoint_above(head.seq - 1):
                raise Refused(
                    "the archive ends before what this machine has seen of it: commits are missing from the bucket",
                    hint="restore the bucket; or delete the local state directory to accept the bucket as it is",
                    key=self.keys.commit(head.seq),
                    expected=head.commit_id.hex(),
                    found="no such commit",
                )
        if head is not None:
            store.cleared = f"it was of another history: archive {head.archive_id.hex()}, commit {head.seq}"
            log.warning("the cached fold is made again from the bucket", extra={"reason": store.cleared})
        self._kept.clear()
        store.clear()
        self.begin_newest(store)

    def begin_newest(self, store: MetadataStore, below: int | None = None) -> Head | None:
        """Begin anew in an empty store: at the newest checkpoint that can be used, at or under commit ``below``."""
        dates: list[int] = []
        if isinstance(store, PartialStore):
            store.remake = self._remake
            head = store.attach(self.provider, self.keys, below, listed=dates.append)
        else:
            head = load_newest(self.provider, self.keys, store, below=below, listed=dates.append)
        if dates:
            self._saw(store, dates[0])
        return head

    def _follow(self, store: MetadataStore, progress: Callable[[int], None] | None) -> Head | None:
        stopped_at: int | None = None
        begun_from: int | None = None
        while True:
            head = ArchiveState(store).head()
            seq = head.seq if head is not None else -1
            reached = self._follow_once(store, seq, progress, begun_from=begun_from)
            if reached.newer is not None:
                begun_from = reached.newer
                store.clear()
                self.begin_newest(store)
                continue
            if not self.checkpoint_above(reached.seq):
                if reached.date_ms is not None:
                    self._saw(store, reached.date_ms)
                return ArchiveState(store).head()
            if self.read(reached.seq + 1) is None:
                found = stand_in(self, reached.seq + 1)
                if found is not None:
                    self._lost[reached.seq + 1] = found
                    continue
                if stopped_at is not None and reached.seq <= stopped_at:
                    raise Corrupt(
                        "commits are missing below a checkpoint, and no checkpoint above them can be used",
                        hint="restore the missing commits, or a checkpoint with all its shards",
                        key=self.keys.commit(reached.seq + 1),
                        expected="a commit",
                        found="nothing, although a checkpoint above it is named",
                    )
                stopped_at = reached.seq
                store.clear()
                self.begin_newest(store)

    def _saw(self, store: MetadataView, date_ms: int) -> None:
        self._seen = _Seen(store.applied(), date_ms)

    def _follow_once(
        self,
        store: MetadataStore,
        seq: int,
        progress: Callable[[int], None] | None,
        *,
        until: int | None = None,
        begun_from: int | None = None,
    ) -> _Reached:
        """Fold commits up to ``until``, or else to the first that is not there, or whose answer came too late to be believed
        while there is a checkpoint above it (but ``begun_from``, which was tried already)."""
        scope = store.scope if isinstance(store, PartialStore) else EVERYTHING
        seen = self._seen
        since_ms = seen.date_ms if seen is not None and seen.position == store.applied() else _NEVER_MS
        pending, recent = list[Changes](), RecentQueues()
        date_ms: int | None = None
        self._kept.keeping |= isinstance(store, PartialStore)
        read = self.read if until is None else self._read_again
        named = partial(commits_named, self.provider, self.keys)
        for found in read_numbers(read, seq + 1, until, lambda commit: commit.edit_bytes, named):
            if until is None and not 0 <= found.date_ms - since_ms <= LOOK_AGAIN_MS:
                newest = newest_number(self.provider, self.keys)
                if newest > seq and newest != begun_from:
                    store_changes(store, pending)
                    return _Reached(seq, date_ms, newest)
                since_ms = found.date_ms  # no commit above this was ever removed
            pending.append(apply(Planning(Overlay(store, pending), recent), found.commit, scope))
            recent.planned(pending[-1])
            date_ms = found.date_ms
            seq += 1
            if progress is not None:
                progress(seq)
            if len(pending) >= MERGE_COMMITS or sum(len(c.values) for c in pending) >= MERGE_KEYS:
                store_changes(store, pending)
                pending = []
        store_changes(store, pending)
        return _Reached(seq, date_ms)


def commits_lost(keys: ArchiveKeys, first: int, named: int | None, word: Word | None = None) -> Corrupt:
    """Commits from ``first`` on are not there, although ``named`` is, or their writer said that they were."""
    last = max(first, named - 1) if named is not None else first if word is None else word.seq
    return Corrupt(
        f"commits are missing from the log, although {'later ones are' if word is None else 'their writer saw them'} there",
        key=keys.commit(first), expected=f"commit {first}" if first == last else f"commits {first} to {last}",
        found="nothing" if named is None else f"nothing; the next one is commit {named}",
    )  # fmt: skip


def _begun(store: MetadataStore) -> None:
    """``store`` is folded to where it was wanted: if it began anew, that is complete now."""
    if isinstance(store, PartialStore):
        store.begun()


def _refuse(store: MetadataStore, error: DamagedShard) -> None:
    assert isinstance(store, PartialStore)  # no other reads shards while it folds
    store.refuse(error.checkpoint)
