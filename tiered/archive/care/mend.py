"""Mending what the scrub found, from another copy of the archive, from the broker's commitlog, or from what an object was made
of: by the law of create-only stores, no object of the fold and no commit is written over.

What is missing and in the copy is put again under its own key, the very bytes. What is damaged stays as it is: the rows of
its runs are read elsewhere, with every check that a reader makes, and written as a new object, which one ``ReplaceRuns``
puts in their place. So is what is missing and what the copy has not whole. Nothing refers to the damaged object then, and
collection takes it like any other. What no run lies in (identity, checkpoints, shards, orders, data keys, …) has one place
alone: there the copy's bytes, which are those that were there, are put over damaged ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.care.commitlog import LocalRecords
from tiered.archive.care.loose import LooseChecks
from tiered.archive.care.notes import Notebook
from tiered.archive.care.opening import epochs_without_key, put_lost_keys, put_over
from tiered.archive.care.othercopy import OtherCopy, fitting_commit
from tiered.archive.care.rebuild import rebuilt
from tiered.archive.checkpoint.store import read_manifest
from tiered.archive.keys import CHECKPOINT_PREFIX, Area, CheckpointKey, CommitKey, ObjectKey, parse
from tiered.archive.log.maintenance import Done, Figures, Outlook, OwnKeys, Turn
from tiered.archive.log.reader import LogReader
from tiered.archive.log.standin import stand_in
from tiered.archive.log.writer import CommitLog
from tiered.archive.read.besides import is_needed
from tiered.archive.read.content import ContentCheck
from tiered.archive.read.runs import is_segment
from tiered.archive.rewrite.merge import MergeOptions, replaced
from tiered.archive.rewrite.plan import Job, job_of
from tiered.archive.rewrite.sources import Gathered, Sources, UnevenCut
from tiered.archive.rewrite.writing import Rewritten, rewrite
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.codec.format.commit import encode_stand_in
from tiered.codec.format.edits import Commit
from tiered.crashpoint import ScrubPoint, reach
from tiered.errors import Corrupt, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own

MEND_AGAIN_SECONDS = 3600.0
"""Pause before what could not be mended is tried again: the copy may have what it lacked."""

PUT_AGAIN = "put again"
WRITTEN_ANEW = "written anew"


@dataclass(frozen=True, slots=True)
class Remedy:
    """What can be done about a listed key. ``how``: ``PUT_AGAIN``, ``WRITTEN_ANEW``, or ``None`` with the reason in ``why``."""

    path: str
    how: str | None
    why: str
    item: ObjectState | None = None


class Mend:
    """The task. A turn mends one key, or a part of a large object. ``copy`` opens the copy, when something is to be mended
    (``None``: there is none); ``local``: the log of the broker beside this process, if there is one."""

    name = "mend"

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        options: MergeOptions,
        own_keys: OwnKeys,
        notebook: Notebook,
        copy: Callable[[], Provider] | None,
        random_bytes: Callable[[int], bytes] = os.urandom,
        *,
        local: LocalRecords | None = None,
    ) -> None:
        self._log = log
        self._clock = clock
        self._options = options
        self._own_keys = own_keys
        self._book = notebook
        self._copy = None if copy is None else OtherCopy(log.reader, copy)
        self._local = local
        self._random_bytes = random_bytes
        encrypts = log.reader.provider.capabilities.encryptor is not None
        self._keys_from = self._copy if encrypts else None
        self._keys_looked = False  # in this round
        self._tried: set[str] = set()
        self._left = False  # by the last round, so that another one says when it no longer is
        self._next = clock.monotonic()

    def due(self, now: float) -> bool:
        """While a round is under way; when something is listed, or was left by the last one, and its hour is over. Where data
        keys may be gone nothing can be listed: each hour."""
        listed = bool(self._book.notes.findings or self._tried or self._left)
        return now >= self._next and (listed or self._keys_from is not None)

    def plan(self) -> Outlook:
        """See ``Task``. It asks the store what is missing."""
        fold = self._log.frozen()
        remedies = [self._remedy(path, fold) for path in self._book.notes.findings]
        count = sum(remedy.how is not None for remedy in remedies)
        rows = tuple({"key": r.path, "how": r.how or "left", "why": r.why} for r in remedies)
        said = (
            f"{count} of {len(remedies)} damaged or missing keys to be mended"
            if remedies
            else "nothing is damaged"
        )
        left = len(remedies) - count
        trouble = f"{left} of {len(remedies)} damaged or missing keys cannot be mended" if left else None
        return Outlook(count, said, {"mendable_keys": count, "damaged_keys": len(remedies)}, rows, trouble)

    def run_once(self, turn: Turn) -> Done:
        """Mend the first that was not tried in this round; before all, data keys that are gone."""
        count = 0 if self._keys_looked else self._lost_keys()
        if count:
            return Done(True, {"put_keys": count})
        # a missing commit is known by the one behind it, a shard by a checkpoint
        listed = sorted(self._book.notes.findings, key=_is_known_by, reverse=True)
        path = next((p for p in listed if p not in self._tried), None)
        if path is None:
            self._left = bool(self._tried)
            self._keys_looked = False
            self._tried.clear()
            self._next = self._clock.monotonic() + MEND_AGAIN_SECONDS
            return Done(more=False)
        remedy = self._remedy(path, self._log.frozen())
        if self._copy is not None:
            self._copy.away = None  # of another key
        try:
            figures, done = self._mend(remedy, turn)
        except UnevenCut:
            figures, done, remedy = {}, True, Remedy(path, None, "retention cut into an inner batch of it")
        except (Corrupt, NotFound) as error:
            figures, done, remedy = {}, True, Remedy(path, None, f"it is nowhere else, whole: {error}")
        except (Unavailable, Invalid) as error:
            # Of this key, and not of the store: other keys do not wait for it.
            if isinstance(error, Refused) or error.fields.get("key") != self._log.reader.keys.key(path):
                raise
            figures, done, remedy = {}, True, Remedy(path, None, f"what it still has cannot be read: {error}")
        if remedy.how is None:
            self._tried.add(path)
            key = self._log.reader.keys.key(path)
            return Done(True, figures, f"a key cannot be mended: {key}: {remedy.why}")
        if done:
            self._book.notes = self._book.notes.sound(path)
            self._book.keep()
        return Done(True, figures)

    def _lost_keys(self) -> int:
        """Data keys that were put again; none where the copy does not answer: who needs one says which it is."""
        self._keys_looked = True
        reader, head = self._log.reader, self._log.proven().head()
        if self._keys_from is None or head is None:
            return 0
        lacking = epochs_without_key(reader.provider, reader.keys, head.epoch)
        if not lacking:
            return 0
        try:
            copy = self._keys_from.whole()
            count = put_lost_keys(reader.provider, reader.keys, copy, reader.identity.archive_id, lacking)
        except NotFound:
            return 0
        encryptor = reader.provider.capabilities.encryptor
        if count and encryptor is not None:
            encryptor.check(reader.keys.root)  # which lists them again: what was read as plain was not
        return count

    def _remedy(self, path: str, fold: ArchiveState) -> Remedy:
        """What is to be done about a listed key, by what the store and the fold say of it now."""
        made, reader = parse(path), self._log.reader
        missing = not self._is_there(path)
        if isinstance(made, CommitKey):
            item = next((o for o in fold.objects_of(made.seq) if not o.path and is_needed(o)), None)
            if missing and (item is None or self._copy is not None):
                return self._again(path, item)
            if missing:
                return Remedy(path, WRITTEN_ANEW, "the messages inside it are gone", item)
            if item is None or not _reads(reader, made.seq):
                return Remedy(
                    path, None, "its edits are damaged: tiered repair puts beside it what stands for it"
                )
            return Remedy(path, WRITTEN_ANEW, "its inline data is damaged", item)
        if isinstance(made, ObjectKey) and made.area in (Area.DATA, Area.SEGMENT):
            item = fold.object_at(path)
            if item is None or not is_needed(item):
                return Remedy(path, None, "no run lies in it")
            if missing and self._copy and (is_segment(item) or item.length <= self._options.bounds.job_bytes):
                return Remedy(path, PUT_AGAIN, "it is missing", item)
            return Remedy(path, WRITTEN_ANEW, "it is missing" if missing else "it is damaged", item)
        return self._again(path, what="it is missing" if missing else "it is damaged")

    def _again(self, path: str, item: ObjectState | None = None, what: str = "it is missing") -> Remedy:
        if self._copy is None:
            return Remedy(path, None, f"{what}, and only a copy of the archive has it (scrub.copy_url)")
        return Remedy(path, PUT_AGAIN, what, item)

    def _is_there(self, path: str) -> bool:
        try:
            self._log.reader.provider.head(self._log.reader.keys.key(path))
        except NotFound:
            return False
        return True

    def _mend(self, remedy: Remedy, turn: Turn) -> tuple[Figures, bool]:
        """What was done, and whether nothing is left to be done about this key."""
        if remedy.how is None:
            return {}, True
        lacking: Corrupt | NotFound | None = None
        if remedy.how == PUT_AGAIN:
            try:
                return self._put_again(remedy, turn), True
            except (Corrupt, NotFound) as error:
                if remedy.item is None:  # nothing else has it
                    raise
                lacking = error
        assert remedy.item is not None  # of an object
        try:
            return self._write_anew(remedy.item, turn)
        except (Corrupt, NotFound) as error:
            away = None if self._copy is None else self._copy.away
            raise away or lacking or error from error

    def _put_again(self, remedy: Remedy, turn: Turn) -> Figures:
        """The very bytes under the key that they had, once they are known to be those."""
        assert self._copy is not None  # or nobody would ask
        reader, copy = self._log.reader, self._copy.whole()
        key = reader.keys.key(remedy.path)
        turn.spend(2 * copy.head(key).length)
        data, made = bytes(copy.get(key).data), parse(remedy.path)
        if isinstance(made, CommitKey):
            self._check_commit(data, key, made.seq)
        if remedy.item is not None:
            self._compare(copy, remedy.item, turn)
        elif not isinstance(made, CommitKey):
            self._check_loose(copy, remedy.path, data, turn)
            if self._is_sound(remedy.path, turn):
                return {}
        reach(ScrubPoint.BEFORE_PUT_AGAIN)
        if remedy.item is not None or isinstance(made, CommitKey):
            put_own(reader.provider, key, [data])
        else:
            put_over(reader.provider, key, data)
        reach(ScrubPoint.AFTER_PUT_AGAIN)
        return {"put_keys": 1, "put_bytes": len(data)}

    def _write_anew(self, item: ObjectState, turn: Turn) -> tuple[Figures, bool]:
        """Runs of a damaged object, read elsewhere, as an object of level 1; days of a sealed file are sealed again later."""
        made = self._made(item, turn)
        if made is None:  # trimmed, or replaced meanwhile
            return {}, True
        job, rewritten = made
        written_bytes = replaced(
            self._log, self._own_keys, job, rewritten, turn, self._clock.monotonic(), self._random_bytes(16)
        )
        if written_bytes is None:
            return {"dropped_jobs": 1}, False
        reach(ScrubPoint.AFTER_WRITTEN_ANEW)
        after = self._log.proven().object(item.ref)
        figures = {
            "mended_runs": len(job.runs),
            "messages": len(rewritten.tables.rows),
            "written_bytes": written_bytes,
        }
        return figures, after is None or not is_needed(after)

    def _made(self, item: ObjectState, turn: Turn) -> tuple[Job, Rewritten] | None:
        """Runs of a damaged object, written anew from the first source whose bytes are whole; ``None`` if none lie in it.
        ``Corrupt`` or ``NotFound`` where they are nowhere else. Bodies are compared only while they are written."""
        lacking: Corrupt | NotFound | None = None
        for find in (self._in_copy, self._elsewhere):
            try:
                found = find(item, turn)
                if found is not None:
                    return found[0], rewrite(*found, self._options.layout, lambda: turn.spend(0))
            except (Corrupt, NotFound) as error:
                lacking = lacking or error
        if job_of(self._log.frozen(), item, 1) is None:
            return None
        keys = self._log.reader.keys
        key = keys.key(item.path) if item.path else keys.commit(item.ref.commit_seq)
        raise lacking or NotFound("no copy, no local log and no object has its records", key=key)

    def _in_copy(self, item: ObjectState, turn: Turn) -> tuple[Job, Gathered] | None:
        """As the copy has the very object; of sealed files ``rebuilt`` asks it, after all else."""
        if self._copy is None or is_segment(item):
            return None
        reader, bounds = self._log.reader, self._options.bounds
        job = job_of(self._log.frozen(), item, bounds.job_bytes)
        if job is None:
            return None
        sources = Sources(self._copy.whole(), reader.keys, reader.identity.archive_id, turn.spend)
        return job, sources.gather(job)

    def _elsewhere(self, item: ObjectState, turn: Turn) -> tuple[Job, Gathered] | None:
        """As objects that it was made of have its records, or the local log."""
        copy = self._copy.whole if self._copy is not None and is_segment(item) else None
        found = rebuilt(
            self._log.reader, self._log.frozen(), item, self._options.bounds.job_bytes, turn.spend, self._local, copy
        )  # fmt: skip
        return None if found is None else (found.job, found.gathered)

    def _compare(self, copy: Provider, item: ObjectState, turn: Turn) -> None:
        """``Corrupt`` or ``NotFound`` unless the copy holds this object, whole."""
        reader = self._log.reader
        check = ContentCheck(copy, reader.keys, reader.identity.archive_id, records=False, spend=turn.spend)
        for step in check.steps(item):
            if step.damage is not None:
                raise step.damage

    def _check_loose(self, copy: Provider, path: str, data: bytes, turn: Turn) -> None:
        """``Corrupt`` unless what the copy has beside the objects of the fold is whole: of a shard a manifest says that, all
        others do so themselves."""
        reader, fold, made = self._log.reader, self._log.frozen(), parse(path)
        key = reader.keys.key(path)
        if isinstance(made, ObjectKey) and made.area is Area.SHARD:
            self._loose(turn).check_shard(path, data, key, fold)
            return
        if isinstance(made, CheckpointKey):
            self._check_history(copy, key)
        checks = LooseChecks(LogReader(copy, reader.keys, reader.identity), turn.spend)
        if checks.knows(made):
            checks.check(made, path, copy.head(key), fold)

    def _check_history(self, copy: Provider, key: str) -> None:
        """``Corrupt`` unless the copy's checkpoint is of the commit that has its number here, as far as that is there."""
        manifest, reader = read_manifest(copy, key), self._log.reader
        found = reader.read(manifest.seq)
        if found is not None and found.commit.commit_id != manifest.commit_id:
            raise Corrupt(
                "the copy's checkpoint is of another history", key=key, expected=found.commit.commit_id.hex()
            )

    def _is_sound(self, path: str, turn: Turn) -> bool:
        """Whether what no run lies in is whole by now. What the store does not give is raised."""
        reader, made = self._log.reader, parse(path)
        checks = self._loose(turn)
        try:
            stored = reader.provider.head(reader.keys.key(path))
            if not checks.knows(made):
                return True
            checks.check(made, path, stored, self._log.frozen())
        except (Corrupt, NotFound):
            return False
        return True

    def _loose(self, turn: Turn) -> LooseChecks:
        damaged = self._book.notes.findings
        return LooseChecks(self._log.reader, turn.spend, lambda: damaged)

    def _check_commit(self, data: bytes, key: str, seq: int) -> None:
        """``Corrupt`` unless these are the bytes of a commit that fits between those before and behind it."""
        reader, head = self._log.reader, self._log.proven().head()
        assert head is not None  # the epoch that mends is in it
        behind, before = reader.read(seq + 1), reader.read(seq - 1) if seq else None
        named = head.commit_id if behind is None else behind.commit.previous_id
        previous = None if before is None else before.commit.commit_id
        commit = fitting_commit(data, key, reader.identity.archive_id, seq, previous, named)
        mended = stand_in(reader, seq)
        if mended is not None and not _same_edits(mended.commit, commit):
            raise Corrupt(
                "a repair stands for this commit and says otherwise: folds are made of that", key=key
            )


def _is_known_by(path: str) -> tuple[bool, str]:
    return path.startswith(CHECKPOINT_PREFIX), path


def _same_edits(one: Commit, other: Commit) -> bool:
    return encode_stand_in(one)[0] == encode_stand_in(other)[0]


def _reads(reader: LogReader, seq: int) -> bool:
    """Whether a commit's edits can be read."""
    try:
        return reader.read(seq) is not None
    except TieredError:
        return False
