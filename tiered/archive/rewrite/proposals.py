"""Proposals, as a task: what was sealed elsewhere is checked and put in its sources' place, or refused (DESIGN.md,
"Proposals")."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from tiered.archive.keys import Area, ObjectKey, parse
from tiered.archive.log.maintenance import Done, Figures, Outlook, OwnKeys, Turn
from tiered.archive.log.writer import CommitLog
from tiered.archive.read.content import ContentCheck
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import COALESCE_BYTES
from tiered.archive.rewrite.collect import NameForDeletion
from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.proposal import Proposal, ProposedObject, check_runs, read_proposal
from tiered.archive.rewrite.sealplan import SEGMENT_LEVEL
from tiered.archive.rewrite.swap import Replacement, Swap
from tiered.archive.state.layout import RUN_RECORD_DTYPE, table
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.crashpoint import ProposalPoint, reach
from tiered.errors import Corrupt, Invalid, NotFound, Refused, Unavailable
from tiered.model import ObjectRef

log = logging.getLogger("tiered.archive")


class _No(Exception):
    """Why a proposal is refused; ``paths``: of objects that go with it."""

    def __init__(self, why: str, paths: tuple[str, ...] = ()) -> None:
        super().__init__(why)
        self.why, self.paths = why, paths


class Proposals:
    """The task. A turn settles one proposal of the epoch in force; those of earlier epochs are orphans, and collected.

    One that cannot be judged now, since something that it needs is not given or is damaged, waits for the next round, and no
    other waits for it.
    """

    name = "proposals"

    def __init__(self, commit_log: CommitLog, clock: Clock, interval_ms: int, own_keys: OwnKeys) -> None:
        self._log = commit_log
        self._clock = clock
        self._interval_seconds = interval_ms / 1000
        self._own_keys = own_keys
        self._settled: set[str] = set()  # proposals and objects of refused ones: no key is ever named again
        self._passed: set[str] = set()  # in this round
        self._trouble: str | None = None
        self._next = clock.monotonic() + self._interval_seconds

    def due(self, now: float) -> bool:
        """An interval after the last round ended."""
        return now >= self._next

    def plan(self) -> Outlook:
        """See ``Task``. It lists the bucket. A process that has yet to open its epoch has nothing to do: proposals of the one
        before are refused then."""
        waiting = sum(1 for _ in self._waiting())
        said = f"{waiting} proposals wait for the daemon of this epoch" if waiting else "no proposals"
        return Outlook(0, said, {"proposals": waiting})

    def run_once(self, turn: Turn) -> Done:
        """Settle the first proposal that is there."""
        path = next(self._waiting(), None)
        if path is None:
            trouble, self._trouble = self._trouble, None
            self._passed.clear()
            self._next = self._clock.monotonic() + self._interval_seconds
            return Done(more=False, trouble=trouble)
        try:
            done = self._accept(path, turn)
        except _No as no:
            done = self._refuse(path, no, turn)
        except (Corrupt, Unavailable, Invalid) as error:
            if "key" not in error.fields:  # of no object that this one needs
                raise
            self._passed.add(path)
            self._trouble = f"a proposal cannot be judged now: {path}: {error}"
            return Done(more=True, trouble=self._trouble)
        self._settled.add(path)
        return Done(more=True, figures=done)

    def _waiting(self) -> Iterator[str]:
        """Paths of proposals of the epoch in force."""
        state, reader = self._log.frozen(), self._log.reader
        head = state.head()
        if head is None:
            return
        prefix = f"{reader.keys.prefix(Area.PROPOSAL)}{head.epoch:010d}-"
        for stored in reader.provider.list(prefix):
            path = str(reader.keys.path(stored.key))
            made = parse(path)
            done = path in self._settled or path in self._passed
            if isinstance(made, ObjectKey) and not done and not state.is_retired(path):
                yield path

    # ---- checks

    def _accept(self, path: str, turn: Turn) -> Figures:
        state, keys = self._log.frozen(), self._log.reader.keys
        try:
            made = read_proposal(self._log.reader.provider, keys.key(path))
        except NotFound:
            return {}
        except (Corrupt, Refused) as error:
            raise _No(str(error)) from error
        self._check_origin(made, state)
        paths = tuple(item.path for item in made.objects)
        if any(
            state.object_at(p) is not None for p in paths
        ):  # an error came between its commit and the end of it
            self._retire(path, (), turn)
            return {"accepted_proposals": 1}
        if any(state.is_retired(p) or p in self._settled or self._own_keys.in_hand(p) for p in paths):
            raise _No("an object of it was named for deletion, or is in use")
        return self._commit(path, made, turn)

    def _check_origin(self, made: Proposal, state: ArchiveState) -> None:
        """That it was made of this archive, in this epoch."""
        head, reader = state.head(), self._log.reader
        assert head is not None  # there are proposals of its epoch
        if made.archive_id != reader.identity.archive_id:
            raise _No("it is of another archive")
        for item in made.objects:
            key = parse(item.path)
            if (
                not isinstance(key, ObjectKey)
                or key.area not in (Area.SEGMENT, Area.DATA)
                or (key.epoch, key.object_id) != (head.epoch, item.object_id)
            ):
                raise _No("it names what no object of this epoch is called")
        found = reader.read(made.planned_on) if head.epoch_seq <= made.planned_on <= head.seq else None
        if found is None or found.commit.commit_id != made.commit_id:
            raise _No("it was planned on a commit that this epoch has not")

    def _commit(self, path: str, made: Proposal, turn: Turn) -> Figures:
        paths = tuple(item.path for item in made.objects)
        with ExitStack() as stack:
            stack.enter_context(self._own_keys.holding(paths))
            try:
                replacements = tuple(self._checked(item, turn) for item in made.objects)
                # Given up from here on, if its commit does not count: what cannot be read now is checked again.
                counted = [stack.enter_context(self._own_keys.making(p)) for p in paths]
                runs = table(list(made.values), RUN_RECORD_DTYPE)
                job = Job(made.keys, made.values, runs, np.zeros(len(runs), np.int64), ())
                reach(ProposalPoint.BEFORE_ACCEPTED)
                proven = turn.commit(Swap(job, replacements, self._clock.monotonic()))
            except (Corrupt, NotFound, Refused) as error:
                raise _No(str(error), paths) from error
            if proven is None:
                raise _No("its sources have changed", paths)
            for each in counted:
                each()
        reach(ProposalPoint.AFTER_ACCEPTED)
        self._retire(path, (), turn)
        return {
            "accepted_proposals": 1,
            "sealed_files": sum(item.level == SEGMENT_LEVEL for item in made.objects),
            "sealed_runs": len(made.keys),
            "written_bytes": sum(item.length for item in made.objects),
        }

    def _checked(self, item: ProposedObject, turn: Turn) -> Replacement:
        """An object that is there, every byte as its own checksums say, and holds the runs that are proposed."""
        reader, archive_id = self._log.reader, self._log.reader.identity.archive_id
        state = ObjectState(
            ObjectRef(0, 0), item.path, item.object_id, item.level, item.length, item.sections, 0, None
        )
        looks = ContentCheck(reader.provider, reader.keys, archive_id, records=False, spend=turn.spend)
        for looked in looks.steps(state):
            if looked.damage is not None:
                raise looked.damage
        objects = ObjectReader(reader.provider, reader.keys, archive_id, cache_bytes=COALESCE_BYTES)
        check_runs(item, objects.directory(state))
        return item.replacement()

    # ---- the end of it

    def _refuse(self, path: str, no: _No, turn: Turn) -> Figures:
        """One ``Retire`` of the proposal and of those of its files that the fold does not know."""
        log.warning("a proposal is refused", extra={"path": path, "why": no.why})
        self._settled.update(no.paths)
        for each in no.paths:
            self._own_keys.give_up(each)
        self._retire(path, no.paths, turn)
        return {"refused_proposals": 1}

    def _retire(self, path: str, objects: tuple[str, ...], turn: Turn) -> None:
        """``objects``: given up by now."""
        self._own_keys.give_up(path)  # so that a collection finds it if it cannot be named now
        named = [path, *objects]
        turn.commit(NameForDeletion(named, self._own_keys, self._clock.monotonic()))
        for each in named:
            self._own_keys.retired(each)
        reach(ProposalPoint.AFTER_SETTLED)
