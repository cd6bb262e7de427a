"""Collection, as a task: names what nothing refers to, deletes what was named long enough ago, and says that it is gone."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

from cachetools import LRUCache

from tiered.archive.keys import CHECKPOINT_PREFIX, Area
from tiered.archive.log.maintenance import Done, Figures, Outlook, OwnKeys, Turn
from tiered.archive.log.reader import LogReader
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.collect import Listed, NameForDeletion, SayDeleted, orphans
from tiered.archive.rewrite.deletion import Deletion
from tiered.archive.rewrite.floor import Shelf, move_floor
from tiered.archive.rewrite.policy import agreed_now
from tiered.archive.rewrite.removal import removable
from tiered.archive.rewrite.storetime import commit_time
from tiered.archive.rewrite.uploads import abandoned, give_up_abandoned
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.crashpoint import AgeingPoint, reach
from tiered.errors import Denied, Invalid, Refused, TieredError
from tiered.settings.keeping import Gc

NAMED_KEYS = 4096
"""Keys that one commit names: about 300 KB of edits."""
ROUND_KEYS = 65_536
"""Keys that one listing gathers; what is left waits for the next."""
KEPT_NAMED = 65_536
"""Names of orphans that are remembered, the newest: about 10 MB."""
DELETED_KEYS = 4000
"""Keys deleted before a commit says so."""


_EVER_MS = 2**62


@dataclass(frozen=True, slots=True)
class Collectable:
    """What collection finds. ``unreferenced``, ``orphans`` and what is left of old checkpoints (``saved``) may be named; of
    those that ``wait`` (named, not deleted) ``due`` are past their grace; ``commits`` may be removed, ``uploads`` given up
    (``None``: the store does not tell)."""

    unreferenced: int = 0
    orphans: int = 0
    saved: int = 0
    wait: int = 0
    due: int = 0
    commits: int = 0
    uploads: int | None = 0
    foreign: int = 0
    listed: int = 0

    @property
    def nameable(self) -> int:
        """What may be named for deletion."""
        return self.unreferenced + self.orphans + self.saved

    @property
    def deletable(self) -> int:
        """What may be deleted."""
        return self.due + self.commits + (self.uploads or 0)


class Ages:
    """Which commits are old enough, each asked of the store once. ``Refused`` where clocks are apart."""

    def __init__(self, reader: LogReader, clock: Clock, floor: int) -> None:
        self._reader = reader
        self._clock = clock
        self._floor = floor
        self._ages_ms: dict[int, int] = {}
        self.unknown: int | None = None
        """A commit that is not there, so that nobody knows since when its keys are named."""

    def over(self, age_ms: int, seq: int) -> bool:
        """Whether so much time has passed since this commit came into the store, by the store's clock alone.

        One that was removed is older than anything that is asked for (D5).
        """
        if seq not in self._ages_ms:
            found = commit_time(self._reader, seq)
            if found is not None:
                agreed_now(self._clock.now_ms(), found.date_ms)
                self._ages_ms[seq] = found.age_ms
            else:
                self.unknown = seq if seq >= self._floor else self.unknown
                self._ages_ms[seq] = _EVER_MS if seq < self._floor else -1
        return self._ages_ms[seq] >= age_ms


def due(state: ArchiveState, ages: Ages, grace_ms: int) -> Iterator[str]:
    """Paths that were named for deletion a grace ago."""
    return (path for path, seq in state.retirements() if ages.over(grace_ms, seq))


def old_commits(reader: LogReader, state: ArchiveState, ages: Ages, settings: Gc) -> Iterator[str]:
    """Keys of commits that may be removed now."""
    past_retention = partial(ages.over, settings.commit_retention_ms)
    return removable(reader, state, past_retention, partial(ages.over, settings.grace_ms))


def look(
    reader: LogReader,
    state: ArchiveState,
    settings: Gc,
    clock: Clock,
    weak: Sequence[str] = (),
    own_keys: OwnKeys | None = None,
    damaged: Container[str] = (),
) -> Collectable:
    """What there is to collect, without changing anything; nothing is kept in memory of what is found. ``damaged``: paths that
    are left alone."""
    head = state.head()
    if head is None:
        return Collectable()
    check_store(weak)
    listed, ages = Listed(), Ages(reader, clock, head.floor)
    found = orphans(reader.provider, reader.keys, state, head.epoch, listed)
    strays = sum(path not in damaged for path in found)
    waiting = [ages.over(settings.grace_ms, seq) for _, seq in state.retirements()]
    return Collectable(
        unreferenced=sum(1 for _ in state.unreferenced()),
        orphans=strays,
        saved=sum(path not in damaged for path in Shelf().unneeded(reader, state, own_keys or OwnKeys())),
        wait=len(waiting),
        due=sum(waiting),
        commits=sum(1 for _ in old_commits(reader, state, ages, settings)),
        uploads=_uploads(reader, head.epoch, own_keys or OwnKeys()),
        foreign=listed.foreign,
        listed=listed.objects,
    )


def _uploads(reader: LogReader, epoch: int, own_keys: OwnKeys) -> int | None:
    try:
        return len(abandoned(reader.provider, reader.keys, epoch, own_keys))
    except (Denied, Invalid):
        return None


def check_store(weak: Sequence[str]) -> None:
    """``Refused`` for a store that breaks a promise: deletion relies on all of them."""
    if weak:
        raise Refused(
            "nothing is deleted from a store that does not keep what the archive relies on",
            hint="use another store; archive.accept_weak_store lets it be archived to, and no more", found=weak[0],
        )  # fmt: skip


class Collection:
    """The task. A turn deletes one batch of what is due, or removes one of commits, or moves the floor, or names one batch of
    what nothing refers to.

    ``weak``: promises that the store was seen to break.
    """

    name = "gc"

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        settings: Gc,
        own_keys: OwnKeys,
        weak: Sequence[str] = (),
        *,
        damaged: Callable[[], Container[str]] = tuple,
    ) -> None:
        """``damaged``: paths that are not to be named, though nothing refers to them: what is left of a lost commit may lie
        there, and cannot be read."""
        self._log = log
        self._clock = clock
        self._settings = settings
        self._off = settings.off(collected=log.reader.identity.collected)
        self._own_keys = own_keys
        self._weak = tuple(weak)
        self._damaged = damaged
        # Orphans: the fold forgets them, and a put of one may still arrive. One that is forgotten here is named once more.
        self._named: LRUCache[str, bool] = LRUCache(KEPT_NAMED)
        self._shelf = Shelf()
        self._deletion = Deletion(log.reader.provider, settings.delete_threads)
        self._commits: Iterator[str] | None = None
        self._given_up: dict[str, int] = {}
        self._unlisted: str | None = None
        self._round: list[str] | None = None
        self._failed: set[str] = set()
        self._locked_until_ms: dict[str, int] = {}  # what the store itself keeps: asked again after that
        self._next = clock.monotonic() + settings.interval_ms / 1000

    def due(self, now: float) -> bool:
        """An interval after the last round ended."""
        return self._off is None and now >= self._next

    def plan(self) -> Outlook:
        """See ``Task``. It lists the bucket."""
        if self._off is not None:
            return Outlook(0, f"off: {self._off}")
        log, own = self._log, self._own_keys
        found = look(log.reader, log.frozen(), self._settings, self._clock, self._weak, own, self._damaged())
        jobs = -(-found.nameable // NAMED_KEYS) + -(-found.deletable // DELETED_KEYS)
        return Outlook(jobs, said(found), figures(found))

    def run_once(self, turn: Turn) -> Done:
        """Delete, remove, move the floor, name; a batch of one of them."""
        state = self._log.frozen()
        head = state.head()
        if self._off is not None or head is None:
            return Done(more=False)
        check_store(self._weak)
        ages = Ages(self._log.reader, self._clock, head.floor)
        keys = self._log.reader.keys
        named = (p for p in due(state, ages, self._settings.grace_ms) if self._may_try(keys.key(p)))
        paths = list(islice(named, DELETED_KEYS))
        if paths:
            return self._delete(paths, turn)
        if self._commits is None:
            self._commits = old_commits(self._log.reader, state, ages, self._settings)
        commits = list(islice(filter(self._may_try, self._commits), DELETED_KEYS))
        if commits:
            return self._remove(commits, turn)
        if self._round is None:
            own, now = self._own_keys.checkpoints, self._clock.monotonic()
            if move_floor(self._log, own, self._settings.snapshot_retention_ms, now, turn):
                return Done(True, {"moved_floors": 1})
            self._round = list(islice(self._nameable(state), ROUND_KEYS))
            self._given_up = self._give_up_uploads(head.epoch)
        return self._name_some(turn, self._trouble(ages))

    def _trouble(self, ages: Ages) -> str | None:
        if ages.unknown is not None:
            return f"commit {ages.unknown} is missing: what it named for deletion is kept"
        if self._shelf.unread is not None:
            return (
                f"{self._shelf.unread} cannot be read: no shard of a checkpoint is given up while it is there"
            )
        return self._unlisted

    def _name_some(self, turn: Turn, trouble: str | None) -> Done:
        """The next batch of the round."""
        paths, self._round = (self._round or [])[:NAMED_KEYS], (self._round or [])[NAMED_KEYS:]
        named = {**(self._name(paths, turn) if paths else {}), **self._given_up}
        self._given_up = {}
        more = bool(self._round)
        if not more:
            self._end_round()
        return Done(more, named, trouble)

    def _give_up_uploads(self, epoch: int) -> dict[str, int]:
        """Have the store drop what other writers began to send and nobody completes (D9)."""
        reader = self._log.reader
        self._unlisted = None
        try:
            count = give_up_abandoned(reader.provider, reader.keys, epoch, self._own_keys)
        except TieredError as error:  # everything else is collected all the same
            self._unlisted = f"uploads that were not completed cannot be given up: {error}"
            return {}
        return {"given_up_uploads": count} if count else {}

    def _may_try(self, key: str) -> bool:
        """Whether its deletion has not failed in this round, and the store does not keep it, as far as is known."""
        return key not in self._failed and self._locked_until_ms.get(key, 0) <= self._clock.now_ms()

    def _end_round(self) -> None:
        self._round = self._commits = None
        self._failed.clear()
        now_ms = self._clock.now_ms()
        self._locked_until_ms = {key: ms for key, ms in self._locked_until_ms.items() if ms > now_ms}
        self._next = self._clock.monotonic() + self._settings.interval_ms / 1000

    def _nameable(self, state: ArchiveState) -> Iterator[str]:
        """Of the fold what nothing refers to; of the bucket what no commit knows; of this process what it gave up."""
        head, reader = state.head(), self._log.reader
        if head is None:
            return
        shards = f"{Area.SHARD.value}/"  # of these, manifests say what is needed
        given_up = (
            p for p in self._own_keys.given_up() if not p.startswith(shards) and state.object_at(p) is None
        )
        strays = orphans(reader.provider, reader.keys, state, head.epoch, Listed())
        damaged = self._damaged()
        yield from state.unreferenced()
        for path in chain(self._shelf.unneeded(reader, state, self._own_keys), given_up, strays):
            if path in damaged or path in self._named:
                continue
            if not self._own_keys.in_hand(path) and not state.is_retired(path):
                yield path

    def _name(self, paths: list[str], turn: Turn) -> Figures:
        reach(AgeingPoint.BEFORE_RETIRE)
        proven = turn.commit(NameForDeletion(paths, self._own_keys, self._clock.monotonic()))
        reach(AgeingPoint.AFTER_RETIRE)
        named = [] if proven is None else list(proven.flush.edits[0].columns["keys"][0])
        state = self._log.proven()
        for path in named:
            self._own_keys.retired(path)
            if state.object_at(path) is None:
                self._named[path] = True
        return {"named_keys": len(named)}

    def _delete(self, paths: list[str], turn: Turn) -> Done:
        """Manifests first, so that no checkpoint is named whose shards are gone (K4)."""
        turn.spend(0)
        reach(AgeingPoint.BEFORE_DELETE)
        keys = self._log.reader.keys
        manifests = [keys.key(path) for path in paths if path.startswith(CHECKPOINT_PREFIX)]
        rest = [keys.key(path) for path in paths if not path.startswith(CHECKPOINT_PREFIX)]
        failed = {**self._delete_all(manifests), **self._delete_all(rest)}
        gone = [path for path in paths if keys.key(path) not in failed]
        reach(AgeingPoint.AFTER_DELETE)
        if gone:
            turn.commit(SayDeleted(gone, self._clock.monotonic()))
            reach(AgeingPoint.AFTER_DELETED)
        counts = {"deleted_keys": len(gone), "failed_deletes": len(failed)}
        return Done(True, counts, _undeleted(failed, len(paths)))

    def _remove(self, keys: list[str], turn: Turn) -> Done:
        """Commits that nobody reads any more: no commit names them, before or after."""
        turn.spend(0)
        reach(AgeingPoint.BEFORE_REMOVAL)
        failed = self._delete_all(keys)
        reach(AgeingPoint.AFTER_REMOVAL)
        counts = {"removed_commits": len(keys) - len(failed), "failed_deletes": len(failed)}
        return Done(True, counts, _undeleted(failed, len(keys)))

    def _delete_all(self, keys: list[str]) -> dict[str, TieredError]:
        """Delete keys; those that are not known to be gone, and why."""
        failed = self._deletion.delete(keys)
        self._failed.update(failed)
        for key, error in failed.items():
            until_ms = error.fields.get("until_ms")
            if isinstance(until_ms, int):
                self._locked_until_ms[key] = until_ms
        return failed


def _undeleted(failed: Mapping[str, TieredError], count: int) -> str | None:
    first = next(iter(failed.values()), None)
    return f"{len(failed)} of {count} keys could not be deleted: {first}" if failed else None


def figures(found: Collectable) -> Figures:
    """For programs."""
    return {
        "unreferenced_objects": found.unreferenced,
        "orphans": found.orphans,
        "unneeded_checkpoint_objects": found.saved,
        "waiting_for_grace": found.wait - found.due,
        "deletable": found.due,
        "removable_commits": found.commits,
        "abandoned_uploads": found.uploads,
        "foreign_keys": found.foreign,
        "listed_objects": found.listed,
    }


def said(found: Collectable) -> str:
    """For people."""
    if not found.wait + found.nameable + found.commits + (found.uploads or 0):
        return "nothing to collect"
    uploads = "an unknown number of" if found.uploads is None else found.uploads
    return (
        f"{found.unreferenced} objects that nothing refers to, {found.saved} of old checkpoints and {found.orphans} orphans"
        f" to be named for deletion, {found.due} to be deleted, {found.wait - found.due} wait for the end of their grace,"
        f" {found.commits} commits to be removed, {uploads} abandoned uploads to be given up"
    )
