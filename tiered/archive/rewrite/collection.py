"""Collection, as a task: names what nothing refers to, deletes what was named long enough ago, and says that it is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice

from tiered.archive.log.maintenance import Done, Figures, Outlook, OwnKeys, Turn
from tiered.archive.log.reader import LogReader
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.collect import Listed, NameForDeletion, SayDeleted, orphans
from tiered.archive.rewrite.policy import agreed_now
from tiered.archive.rewrite.storetime import commit_time
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.crashpoint import AgeingPoint, reach
from tiered.errors import Refused, TieredError
from tiered.settings.keeping import Gc

NAMED_KEYS = 4096
"""Keys that one commit names: about 300 KB of edits."""
ROUND_KEYS = 65_536
"""Keys that one listing gathers; what is left waits for the next."""
DELETED_KEYS = 1024
"""Keys deleted before a commit says so."""


@dataclass(frozen=True, slots=True)
class Collectable:
    """What collection finds. ``unreferenced`` and ``orphans`` may be named; of those that ``wait`` (named, not deleted) ``due``
    are past their grace."""

    unreferenced: int
    orphans: int
    wait: int
    due: int
    foreign: int
    listed: int


class Graces:
    """Which commits named their keys long enough ago, each asked of the store once. ``Refused`` where clocks are apart."""

    def __init__(self, reader: LogReader, clock: Clock, grace_ms: int) -> None:
        self._reader = reader
        self._clock = clock
        self._grace_ms = grace_ms
        self._over: dict[int, bool] = {}
        self.unknown: int | None = None
        """A commit that is not there, so that nobody knows since when its keys are named."""

    def over(self, seq: int) -> bool:
        """Whether a grace has passed since this commit came into the store, by the store's clock alone."""
        if seq not in self._over:
            found = commit_time(self._reader, seq)
            if found is None:
                self.unknown = seq
            else:
                agreed_now(self._clock.now_ms(), found.date_ms)
            self._over[seq] = found is not None and found.age_ms >= self._grace_ms
        return self._over[seq]

    def due(self, state: ArchiveState) -> Iterator[str]:
        """Paths that may be deleted now."""
        return (path for path, seq in state.retirements() if self.over(seq))


def look(
    reader: LogReader, state: ArchiveState, settings: Gc, clock: Clock, weak: Sequence[str] = ()
) -> Collectable:
    """What there is to collect, without changing anything; nothing is kept in memory of what is found."""
    head = state.head()
    if head is None:
        return Collectable(0, 0, 0, 0, 0, 0)
    check_store(weak)
    listed, graces = Listed(), Graces(reader, clock, settings.grace_ms)
    strays = sum(1 for _ in orphans(reader.provider, reader.keys, state, head.epoch, listed))
    unreferenced = sum(1 for _ in state.unreferenced())
    waiting = [graces.over(seq) for _, seq in state.retirements()]
    return Collectable(unreferenced, strays, len(waiting), sum(waiting), listed.foreign, listed.objects)


def check_store(weak: Sequence[str]) -> None:
    """``Refused`` for a store that breaks a promise: deletion relies on all of them."""
    if weak:
        raise Refused(
            "nothing is deleted from a store that does not keep what the archive relies on",
            hint="use another store; archive.accept_weak_store lets it be archived to, and no more", found=weak[0],
        )  # fmt: skip


class Collection:
    """The task. A turn deletes one batch of what is due, or names one batch of what nothing refers to.

    ``weak``: promises that the store was seen to break.
    """

    name = "gc"

    def __init__(
        self, log: CommitLog, clock: Clock, settings: Gc, own_keys: OwnKeys, weak: Sequence[str] = ()
    ) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings
        self._own_keys = own_keys
        self._weak = tuple(weak)
        self._named: set[str] = set()  # orphans: the fold forgets them, and a put of one may still arrive
        self._round: list[str] | None = None
        self._failed: set[str] = set()
        self._locked_until_ms: dict[str, int] = {}  # what the store itself keeps: asked again after that
        self._next = clock.monotonic() + settings.interval_ms / 1000

    def due(self, now: float) -> bool:
        """An interval after the last round ended."""
        return self._settings.enabled and now >= self._next

    def plan(self) -> Outlook:
        """See ``Task``. It lists the bucket."""
        if not self._settings.enabled:
            return Outlook(0, "off: gc.enabled is false")
        found = look(self._log.reader, self._log.proven(), self._settings, self._clock, self._weak)
        named = found.unreferenced + found.orphans
        jobs = -(-named // NAMED_KEYS) + -(-found.due // DELETED_KEYS)
        return Outlook(jobs, said(found), figures(found))

    def run_once(self, turn: Turn) -> Done:
        """Delete, then name; a batch of one of them."""
        if not self._settings.enabled:
            return Done(more=False)
        check_store(self._weak)
        state = self._log.proven()
        graces = Graces(self._log.reader, self._clock, self._settings.grace_ms)
        due = list(islice((p for p in graces.due(state) if self._may_try(p)), DELETED_KEYS))
        if due:
            return self._delete(due, turn)
        trouble = None
        if graces.unknown is not None:
            trouble = f"commit {graces.unknown} is missing: what it named for deletion is kept"
        if self._round is None:
            self._round = list(islice(self._nameable(state), ROUND_KEYS))
        if not self._round:
            self._end_round()
            return Done(more=False, trouble=trouble)
        paths, self._round = self._round[:NAMED_KEYS], self._round[NAMED_KEYS:]
        done = self._name(paths, turn)
        more = bool(self._round)
        if not more:
            self._end_round()
        return Done(more, done, trouble)

    def _may_try(self, path: str) -> bool:
        """Whether its deletion has not failed in this round, and the store does not keep it, as far as is known."""
        return path not in self._failed and self._locked_until_ms.get(path, 0) <= self._clock.now_ms()

    def _end_round(self) -> None:
        self._round = None
        self._failed.clear()
        now_ms = self._clock.now_ms()
        self._locked_until_ms = {path: ms for path, ms in self._locked_until_ms.items() if ms > now_ms}
        self._next = self._clock.monotonic() + self._settings.interval_ms / 1000

    def _nameable(self, state: ArchiveState) -> Iterator[str]:
        """Of the fold what nothing refers to; of the bucket what no commit knows; of this process what it gave up."""
        head, reader = state.head(), self._log.reader
        if head is None:
            return
        given_up = (p for p in self._own_keys.given_up() if state.object_at(p) is None)
        strays = orphans(reader.provider, reader.keys, state, head.epoch, Listed())
        yield from state.unreferenced()
        for path in chain(given_up, strays):
            if path not in self._named and not self._own_keys.in_hand(path) and not state.is_retired(path):
                yield path

    def _name(self, paths: list[str], turn: Turn) -> Figures:
        own = set(self._own_keys.given_up())
        reach(AgeingPoint.BEFORE_RETIRE)
        proven = turn.commit(NameForDeletion(paths, own, self._clock.monotonic()))
        reach(AgeingPoint.AFTER_RETIRE)
        named = [] if proven is None else list(proven.flush.edits[0].columns["keys"][0])
        state = self._log.proven()
        for path in named:
            self._own_keys.retired(path)
            if state.object_at(path) is None:
                self._named.add(path)
        return {"named_keys": len(named)}

    def _delete(self, paths: list[str], turn: Turn) -> Done:
        turn.spend(0)
        reach(AgeingPoint.BEFORE_DELETE)
        with ThreadPoolExecutor(self._settings.delete_threads, thread_name_prefix="delete") as pool:
            answers = list(pool.map(self._delete_one, paths))
        failed = {path: error for path, error in zip(paths, answers, strict=True) if error is not None}
        gone = [path for path in paths if path not in failed]
        self._failed.update(failed)
        for path, error in failed.items():
            until_ms = error.fields.get("until_ms")
            if isinstance(until_ms, int):
                self._locked_until_ms[path] = until_ms
        reach(AgeingPoint.AFTER_DELETE)
        if gone:
            turn.commit(SayDeleted(gone, self._clock.monotonic()))
            reach(AgeingPoint.AFTER_DELETED)
        first = next(iter(failed.values()), None)
        trouble = f"{len(failed)} of {len(paths)} keys could not be deleted: {first}" if failed else None
        return Done(True, {"deleted_keys": len(gone), "failed_deletes": len(failed)}, trouble)

    def _delete_one(self, path: str) -> TieredError | None:
        """Delete a key; why it is not known to be gone."""
        reader = self._log.reader
        try:
            reader.provider.delete(reader.keys.key(path))
        except TieredError as error:
            return error
        reach(AgeingPoint.AFTER_FIRST_DELETE)
        return None


def figures(found: Collectable) -> Figures:
    """For programs."""
    return {
        "unreferenced_objects": found.unreferenced,
        "orphans": found.orphans,
        "waiting_for_grace": found.wait - found.due,
        "deletable": found.due,
        "foreign_keys": found.foreign,
        "listed_objects": found.listed,
    }


def said(found: Collectable) -> str:
    """For people."""
    if not found.wait + found.unreferenced + found.orphans:
        return "nothing to collect"
    return (
        f"{found.unreferenced} objects that nothing refers to and {found.orphans} orphans to be named for deletion, "
        f"{found.due} to be deleted, {found.wait - found.due} wait for the end of their grace"
    )
