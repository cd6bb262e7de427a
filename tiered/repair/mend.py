"""What can be mended of a log, and mending it.

For each commit that cannot be read one is made that may stand for it. It counts only if it fits: folded on what lies before it,
with every commit behind it on top, it must give the later fold it was made from, pair by pair; without such a fold, all commits
behind it must at least be taken by the fold. Where nothing tells what it held, what stands for it says what is lost: a gap, for
which the rest is as it was. It is put beside the damage (``repair/``), or, where the commit's own key is free
and nothing of it is missing, under that key, as a put of its writer that arrived late would be.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from tiered.archive.care.othercopy import fitting_commit
from tiered.archive.checkpoint.store import checkpoint_keys, checkpoint_number
from tiered.archive.fold.apply import apply
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.again import ReadCommit
from tiered.archive.log.identity import ArchiveIdentity
from tiered.archive.log.named import last_named
from tiered.archive.log.planned import Place
from tiered.archive.log.shadow import difference
from tiered.archive.log.word import word_behind
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.strays import Stray
from tiered.archive.read.verify import first_needed, read_log
from tiered.archive.state.layers import store_changes
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.commit import encode_commit, encode_stand_in
from tiered.codec.format.edits import Commit, EditBatch, EditKind
from tiered.errors import Corrupt, NotFound, Refused
from tiered.metadata.base import MetadataStore, MetadataView
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own
from tiered.repair.around import FOLLOWING, Surroundings
from tiered.repair.behind import look_behind
from tiered.repair.derive import derive, opened_silently
from tiered.repair.fromlog import ArchivedTo, BrokerLog
from tiered.repair.infer import infer, lose, unsure
from tiered.repair.later import Later, Planned, same_but_for_marks, told_id
from tiered.repair.runs import runs_of_fold
from tiered.repair.step import Step, lost_with

MOST_TRIES = 200
"""Combinations tried for neighbouring damage before each is mended by itself."""
ZERO_ID = bytes(16)
_COPY = "the other copy"
_LOG = "the broker's commitlog"
_OBJECTS = "its objects and the commits behind it"
_REST = "the commits behind it"
MESSAGES_ELSEWHERE = (
    "its messages travelled inside it and are gone from the bucket: until a copy or the broker's commitlog gives them back "
    "(tiered scrub --once --repair, --copy or --store) they cannot be read; all others can"
)
"""They tell what is missing, and nothing else does."""


class Mender:
    """Looks at one archive. ``local``: the daemon's own fold, if there is one; nobody writes it meanwhile. ``copy``: another
    copy of the archive, ``log``: the broker's commitlog; what they have must fit like all else."""

    def __init__(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        identity: ArchiveIdentity,
        local: MetadataView | None,
        random_bytes: Callable[[int], bytes],
        *,
        table_cache_bytes: int,
        copy: Provider | None = None,
        log: BrokerLog | None = None,
    ) -> None:
        self._provider = provider
        self._copy = copy
        self._log = log
        self._keys = keys
        self._identity = identity
        self._reader = Planned(provider, keys, identity)
        self._objects = ObjectReader(provider, keys, identity.archive_id, cache_bytes=table_cache_bytes)
        head = None if local is None else ArchiveState(local).head()
        ours = local is not None and head is not None and head.archive_id == identity.archive_id
        self._local = Later("the local state", ArchiveState(local), head) if ours and local and head else None
        self._around = Surroundings(provider, keys, identity, self._reader, self._local, random_bytes)
        self._broken: list[tuple[int, Corrupt]] = []
        self._newest = self._end = -1
        self._tries = 0

    def plan(self, progress: Callable[[int], None] = lambda seq: None) -> list[Step]:
        """What is damaged and what can be done about each, in order; nothing is written."""
        saved = next(checkpoint_keys(self._provider, self._keys), None)
        newest = -1 if saved is None else checkpoint_number(saved)
        known = max(newest, -1 if self._local is None else self._local.head.seq)
        broken: list[tuple[int, Corrupt]] = []
        self._around.word = word = word_behind(self._reader, last_named(self._provider, self._keys))
        first = first_needed(self._reader, 0 if self._local is None else self._local.head.floor)
        for seq, found, damage in read_log(self._reader, first, known):
            progress(seq)
            if found is None and damage is not None:
                broken.append((seq, damage))
            newest = max(newest, seq) if found is not None or self._reader.is_there(seq) else newest
        self._broken, self._newest, self._tries = broken, newest, 0
        self._end = newest if word is None else max(newest, word.seq)
        steps: list[Step] = []
        while len(steps) < len(broken):
            steps += self._chain(len(steps)) or [self._alone(len(steps))]
        return steps

    def mend(self, steps: Sequence[Step]) -> None:
        """Put what was planned, in order. ``Conflict`` if a key is there by now: plan again."""
        for step in steps:
            for key, parts in step.objects:
                put_own(self._provider, key, parts)
            if step.put is not None:
                self._provider.put(step.put, step.parts, create_only=True)

    def _chain(self, number: int) -> list[Step] | None:
        """A step for damage ``number``, and for as much behind it as is told apart by the same later fold only; ``None`` if
        there are none that all fit together."""
        for step in self._options(number):
            if not self._linked(number):
                return [step]
            rest = self._chain(number + 1)
            if rest is not None:
                return [step, *rest]
            if self._tries > MOST_TRIES:
                break
        self._reader.planned.pop(self._broken[number][0], None)
        return None

    def _alone(self, number: int) -> Step:
        """The best for one damage, when nothing fits it and those behind it together."""
        seq, damage = self._broken[number]
        advice = "restore the key from the bucket's versions or a copy"
        return next(
            self._options(number), Step(seq, self._keys.commit(seq), damage.message, None, advice=advice)
        )

    def _linked(self, number: int) -> bool:
        """Whether the next damage lies before the fold that tells what this commit was, or, without one, among the commits
        that do."""
        if number + 1 == len(self._broken):
            return False
        (seq, _), (following, _) = self._broken[number : number + 2]
        later = self._around.later(seq)
        return following <= seq + FOLLOWING if later is None else later.head.seq >= following

    def _options(self, number: int) -> Iterator[Step]:
        """Steps for one damage that fit what lies before it and what can be read behind it, the most certain first."""
        seq, damage = self._broken[number]
        until = self._broken[number + 1][0] - 1 if number + 1 < len(self._broken) else None
        base = MemoryStore()
        if seq:
            with contextlib.suppress(Corrupt, NotFound):
                self._reader.fold_until(base, seq - 1)
            if ArchiveState(base).head() is None:
                return
        following = list(self._around.following(seq))
        later = self._around.later(seq)
        copied_step = self._copied(base, seq, damage, following, later, until)
        if copied_step is not None:
            yield copied_step
        strays = list(self._around.strays(base, seq, following))
        commit_id = self._around.commit_id(seq, following, strays, later)
        logged = self._logged(base, seq, commit_id, damage, following, later, until)
        if logged is not None:
            yield logged
        for source, edits in self._candidates(base, seq, later, following, strays, until):
            self._tries += 1
            made = self._fitting(base, seq, edits, commit_id, later, until)
            if made is not None and (
                made[1] or source in (_OBJECTS, _REST) or later is None or not self._reached(later, until)
            ):
                doubt = unsure(made[0], ArchiveState(base), following) if source == _OBJECTS else ""
                yield self._mended(source, *made, damage, lost_end=seq > self._newest, doubt=doubt)

    def _copied(
        self,
        base: MetadataStore,
        seq: int,
        damage: Corrupt,
        following: Sequence[Commit],
        later: Later | None,
        until: int | None,
    ) -> Step | None:
        """The very commit, out of the other copy: under its own key where that is free, beside the damage else."""
        if self._copy is None:
            return None
        head, key = ArchiveState(base).head(), self._keys.commit(seq)
        previous = ZERO_ID if head is None else head.commit_id
        try:
            data = bytes(self._copy.get(key).data)
            known = told_id(seq, following, later)
            commit = fitting_commit(data, key, self._identity.archive_id, seq, previous, known)
        except (Corrupt, NotFound, Refused):
            return None
        if self._folded(base, commit, later, until) is None:
            return None
        if not self._reader.is_there(seq):
            return Step(seq, key, damage.message, _COPY, True, key, (data,))
        inline = (
            "tiered scrub --once --deep --repair --copy writes its messages anew"
            if commit.inline_length
            else ""
        )
        beside = self._keys.repair(seq, commit.commit_id)
        return Step(
            seq, key, damage.message, _COPY, True, beside, tuple(encode_stand_in(commit)), advice=inline
        )

    def _logged(
        self,
        base: MetadataStore,
        seq: int,
        commit_id: bytes,
        damage: Corrupt,
        following: Sequence[Commit],
        later: Later | None,
        until: int | None,
    ) -> Step | None:
        """The flush made again from the broker's commitlog, under the commit's own key where that is free."""
        head = ArchiveState(base).head()
        if self._log is None or head is None:
            return None
        reach = _archived_to(head, seq, following, later)
        if reach is None:
            return None
        gone, key = not self._reader.is_there(seq), self._keys.commit(seq)
        place = Place(self._identity.archive_id, seq, head.epoch, commit_id, head.commit_id)
        flush = self._log.flush(ArchiveState(base), place, reach, following, inline=gone)
        if flush is None:
            return None
        self._tries += 1
        made = self._fitting(base, seq, list(flush.edits), commit_id, later, until)
        if made is None:
            return None
        commit, exact = made
        parts = encode_commit(commit, flush.inline) if gone else encode_stand_in(commit)
        objects = tuple((self._keys.key(o.path), o.encoded.parts) for o in flush.uploads)
        put = key if gone else self._keys.repair(seq, commit_id)
        return Step(seq, key, damage.message, _LOG, exact, put, tuple(parts), objects)

    def _mended(
        self, source: str, commit: Commit, exact: bool, damage: Corrupt, *, lost_end: bool, doubt: str
    ) -> Step:
        """What to put for a commit that stands for ``damage``, and where."""
        seq = commit.seq
        key = self._keys.commit(seq)
        gone = not self._reader.is_there(seq)
        if gone and lost_end and commit.inline_length:
            return Step(
                seq, key, damage.message, None,
                advice="its messages travelled inside it and are gone from the bucket: the local state is folded again, and "
                "the daemon archives anew what the broker still has",
                fold_again=True,
            )  # fmt: skip
        lost = lost_with(commit)
        whole = gone and not commit.inline_length and not lost and not doubt
        put = key if whole else self._keys.repair(seq, commit.commit_id)
        advice = ""
        if lost:
            advice = (
                "what it held becomes a recorded gap, all else stays as it is; if a copy (--copy), the broker's commitlog "
                "(--store) or the bucket's versions still have it, give that first: then nothing is lost"
            )
        elif doubt:
            advice = doubt
        elif gone and not whole:
            advice = MESSAGES_ELSEWHERE
        return Step(
            seq,
            key,
            damage.message,
            source,
            exact,
            put,
            tuple(encode_stand_in(commit)),
            advice=advice,
            lost=lost,
        )

    def _candidates(
        self,
        base: MetadataStore,
        seq: int,
        later: Later | None,
        following: Sequence[Commit],
        strays: Sequence[Stray],
        until: int | None,
    ) -> Iterator[tuple[str, list[EditBatch]]]:
        state = ArchiveState(base)
        if later is not None:
            with contextlib.suppress(Corrupt, NotFound, Refused):
                # without the writer's word: its mark is of this commit, not of one behind it
                written = [commit for commit in following if commit.commit_id != ZERO_ID]
                for edits in derive(state, later.state, seq, written, self._objects):
                    yield later.name, edits
        with contextlib.suppress(Corrupt, NotFound, Refused):
            for edits in infer(state, seq, strays, following, self._objects):
                yield _OBJECTS, edits
        head = state.head()
        if head is None or (opened_silently(head, seq, following) and following[0].seq == seq + 1):
            return
        damaged = {number for number, _ in self._broken}
        for last in dict.fromkeys((until, None)):  # other damage may hide what a queue was then, or not
            behind = self._around.behind(seq, self._end if last is None else last, damaged)
            edits_left = lose(state, strays, look_behind(behind, head.lineage))
            if edits_left is not None:
                yield _REST, edits_left

    def _fitting(
        self,
        base: MetadataStore,
        seq: int,
        edits: list[EditBatch],
        commit_id: bytes,
        later: Later | None,
        until: int | None,
    ) -> tuple[Commit, bool] | None:
        """The commit with these edits, and whether it leads to the very fold there was; ``None`` if it does not fit.

        Where a later fold is in reach it must be met in all but marks, which only comparisons with the broker look at.
        """
        commit = self._commit(base, seq, edits, commit_id)
        exact = self._folded(base, commit, later, until)
        return None if exact is None else (commit, exact)

    def _folded(
        self, base: MetadataStore, commit: Commit, later: Later | None, until: int | None
    ) -> bool | None:
        """Whether a commit leads to the very fold there was, or only to one that may be; ``None`` if it does not fit."""
        seq, copy = commit.seq, MemoryStore()
        copy.put_many(base.iterate(b""), applied=base.applied())
        try:
            store_changes(copy, [apply(copy, commit)])
            self._reader.planned[seq] = ReadCommit(commit, 0, None, commit.inline_length, 0)
            if later is not None and self._reached(later, until):
                self._reader.fold_until(copy, later.head.seq)
                exact = difference(copy, later.state.view) is None
                if not exact and not same_but_for_marks(copy, later.state.view):
                    raise Corrupt("another fold than the one there is", commit=seq)
            else:
                exact = False
                self._reader.fold_until(copy, until if until is not None else self._around.end(seq))
        except (Corrupt, NotFound, Refused):
            self._reader.planned.pop(seq, None)
            return None
        return exact

    @staticmethod
    def _reached(later: Later, until: int | None) -> bool:
        """Whether no other damage lies before a later fold."""
        return until is None or later.head.seq <= until

    def _commit(self, base: MetadataStore, seq: int, edits: list[EditBatch], commit_id: bytes) -> Commit:
        head = ArchiveState(base).head()
        opening = next((e.row(0) for e in edits if e.kind is EditKind.OPEN_EPOCH), None)
        inline = [
            length
            for e in edits
            if e.kind is EditKind.ADD_OBJECT
            for path, length in zip(e.columns["key"], e.ints("length").tolist(), strict=True)
            if not path
        ]
        return Commit(
            seq=seq,
            epoch=opening["epoch"] if opening is not None else 0 if head is None else head.epoch,
            archive_id=self._identity.archive_id,
            commit_id=commit_id,
            previous_id=ZERO_ID if head is None else head.commit_id,
            writer_id=opening["writer_id"]
            if opening is not None
            else ZERO_ID
            if head is None
            else head.writer_id,
            edits=edits,
            inline_length=inline[0] if inline else 0,
        )


def _archived_to(head: Head, seq: int, following: Sequence[Commit], later: Later | None) -> ArchivedTo | None:
    """Where the records of a commit on top of ``head`` ended, if anything tells."""
    if later is not None:
        ours = [run.numbers["physical_end"] for run in runs_of_fold(later.state, seq)]
        if ours:
            return ArchivedTo(max(ours), by_runs=True)
        if later.head.seq == seq and head.lineage in later.head.progress:
            return ArchivedTo(later.head.progress[head.lineage].physical_offset)
    end = look_behind(following, head.lineage).reach
    return None if end is None else ArchivedTo(end, several=not following or following[0].seq != seq + 1)
