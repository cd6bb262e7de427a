"""Checking an archive: the fold against the store, and, deep, every byte against its checksums and every table against
the records it describes. Finds, never mends."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from tiered.archive.ahead import read_each
from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.checkpoint.store import read_checkpoint, read_manifest
from tiered.archive.keys import Area, CheckpointKey, parse
from tiered.archive.log.again import ReadCommit
from tiered.archive.log.beat import last_beat
from tiered.archive.log.named import last_named
from tiered.archive.log.reader import LogReader
from tiered.archive.log.standin import stand_in
from tiered.archive.log.word import word_behind
from tiered.archive.read.aliascheck import AliasCheck
from tiered.archive.read.besides import damaged_maps, damaged_orders, needs_path
from tiered.archive.read.content import ContentCheck
from tiered.archive.read.contentworkers import ContentWorkers
from tiered.archive.read.strays import ahead_of_log
from tiered.archive.read.view import View
from tiered.archive.state.scope import Scope
from tiered.archive.state.values import ObjectState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit, EditKind
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.model import ObjectRef

READ_AHEAD = 3
"""Requests of megabytes under way while what came before is checked."""
CHECKS_AT_ONCE = 2
"""Windows of megabytes checked at once: most of that is done without the interpreter lock."""
LOOKS_AGAIN = 5
LOOK_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Damage:
    """One thing that is wrong: what, where (object key, position), and what was expected and found."""

    what: str
    key: str
    detail: str


@dataclass(slots=True)
class Report:
    """What was looked at and what was found."""

    commits: int = 0
    objects: int = 0
    runs: int = 0
    blocks: int = 0
    messages: int = 0
    bytes: int = 0
    gaps: int = 0
    physical_gaps: int = 0
    repaired: int = 0
    aliases: int = 0
    orders: int = 0
    sink_maps: int = 0
    damage: list[Damage] = field(default_factory=list)
    notes: list[Damage] = field(default_factory=list)
    """What is worth knowing and no damage: commits that ``repair`` mended, shards that no checkpoint names, damaged objects
    that nothing refers to any more."""

    unseen: list[Damage] = field(default_factory=list)
    """What could not be looked at: the store refuses it, or does not give it, while it gives others."""
    lost_messages: int = 0
    """Queue offsets in gaps, of all generations."""

    @property
    def sound(self) -> bool:
        """All was looked at, and nothing wrong was found. Gaps are not damage: they are known and shown."""
        return not self.damage and not self.unseen


class Verifier:
    """Walks one archive. ``step`` hears after each object how many were done; ``wait`` lets a writer at work get ahead.

    ``workers``: what looks at objects instead of threads of this process, where no records are needed here: aliases of lite
    queues are compared with all of them.
    """

    def __init__(
        self,
        archive: View,
        step: Callable[[int], None] = lambda done: None,
        wait: Callable[[float], object] = lambda seconds: None,
        *,
        workers: ContentWorkers | None = None,
        newer: Callable[[], ArchiveState] | None = None,
    ) -> None:
        """``newer``: the fold as it is by now, which may need less than that of ``archive``."""
        self._wait = wait
        self._newer = newer
        self._workers = workers
        self._named_above: set[str] = (
            set()
        )  # data objects of commits above the fold, which may be of an earlier moment
        self._end = 0
        self._newest: Commit | None = None
        self._archive = archive
        self._state = archive.state
        self._objects = archive.objects
        self._aliases: AliasCheck | None = None
        self._hearing = threading.Lock()
        self._contents = ContentCheck(
            archive.log.provider, archive.keys, archive.identity.archive_id, records=True, ahead=READ_AHEAD,
            heard=self._hear, passes_over=True,
        )  # fmt: skip
        self._step = step

    def run(self, *, deep: bool, limit: int = 1000) -> Report:
        """Verify; at most ``limit`` damages are listed."""
        report = Report()
        self._log(report, limit)
        self._checkpoints(report, limit, deep=deep)
        self._queues(report, limit)
        by_object = self._runs_by_object(report)
        if deep:
            self._aliases = AliasCheck(self._state)
            self._deep(report, by_object, limit)
        else:
            for item in self._state.objects():
                self._footer(report, item, limit)
                self._step(report.objects)
        self._told_by_aliases(report, limit)
        ahead = self._listed(report, limit)
        self._besides(report, limit)
        if self._newer is not None and report.damage:
            fold = self._newer()
            report.damage = [damage for damage in report.damage if self._is_still(damage, fold)]
        self._strangers(report, ahead, limit)  # which no fold needs
        return report

    def _is_still(self, damage: Damage, fold: ArchiveState) -> bool:
        """Whether what was found wrong is still needed: beside a writer objects are retired, and deleted, meanwhile."""
        path = self._archive.keys.path(damage.key)
        if path is None or parse(path) is None:
            return True
        if not needs_path(fold, path):
            return False
        if isinstance(
            parse(path), CheckpointKey
        ):  # collected: nothing names it any more, not even as retired
            with suppress(NotFound):
                self._archive.log.provider.head(damage.key)
                return True
            return False
        return True

    def _besides(self, report: Report, limit: int) -> None:
        """Maps of sinks, and standing orders."""
        archive = self._archive
        with self._caught(report, report.damage, "", limit):
            for key, wrong in damaged_maps(archive):
                report.sink_maps += 1
                if wrong is not None:
                    _add(report.damage, limit, wrong.message, key, _fields(wrong))
        with self._caught(report, report.damage, "", limit):
            for key, wrong in damaged_orders(archive):
                report.orders += 1
                if wrong is not None:
                    _add(report.damage, limit, wrong.message, key, _fields(wrong))

    @contextlib.contextmanager
    def _caught(self, report: Report, to: list[Damage], key: str, limit: int) -> Iterator[None]:
        """Turns what is wrong with a key inside the block into a line of the report, and what the store does not give of it."""
        try:
            yield
        except (Corrupt, NotFound) as error:
            _add(to, limit, error.message, key or str(error.fields.get("key", "")), _fields(error))
        except (Unavailable, Invalid) as error:
            self._unseen(report, error, limit)

    def _unseen(self, report: Report, error: TieredError, limit: int) -> None:
        """Note what the store does not give. Its error where it is of no key, or it gives nothing else either."""
        key = error.fields.get("key")
        if key is None or isinstance(error, Refused):
            raise error
        self._archive.log.provider.get(self._archive.keys.identity, 0, 1)
        said = ", ".join(f"{k}={v}" for k, v in error.fields.items() if k != "key")
        if str(key) not in {found.key for found in report.unseen}:
            _add(report.unseen, limit, error.message, str(key), said)

    def _hear(self, runs: Sequence[RunState], records: Buffer) -> None:
        with self._hearing:
            if self._aliases is not None:
                self._aliases.hear(runs, records)

    def _told_by_aliases(self, report: Report, limit: int) -> None:
        """What records say of their places in lite queues is what aliases say of them."""
        if self._aliases is not None:
            report.aliases = len(self._aliases)
            for found in self._aliases.findings():
                to = report.damage if found.damage else report.notes
                _add(to, limit, found.what, found.lite_queue, found.detail)

    def _log(self, report: Report, limit: int) -> None:
        """Every commit from the floor to the newest that is there, whole, and named by the one after it."""
        head = self._state.head()
        first = 0 if head is None else head.floor
        last = -1 if head is None else head.seq
        log = read_log(self._archive.log, first, last, ahead=READ_AHEAD, passes_over=True)
        for seq, found, damage in log:
            report.commits += 1
            self._end = seq + 1
            if found is not None:
                self._newest = found.commit
            if found is not None and (head is None or seq > head.seq):
                self._named_above.update(_objects_of(found))
            key = self._archive.keys.commit(seq)
            if found is not None and damage is not None:
                report.repaired += 1
                _add(report.notes, limit, "a damaged commit is repaired", key, damage.message)
            elif isinstance(damage, _NotGiven):
                self._unseen(report, damage.error, limit)
            elif damage is not None:
                _add(report.damage, limit, damage.message, key, _fields(damage))

    def _listed(self, report: Report, limit: int) -> dict[str, str]:
        """What one listing shows of data objects and sealed files: those that something was written behind, and those that no
        commit names. Readers here ask for what the fold names; engines look for the end of a Parquet file and find no footer
        there."""
        state, keys, provider = self._state, self._archive.keys, self._archive.log.provider
        ahead: dict[str, str] = {}
        for area in (Area.DATA, Area.SEGMENT):
            for stored in provider.list(keys.prefix(area)):
                path = str(keys.path(stored.key))
                item = state.object_at(path)
                if item is None:
                    with self._caught(report, report.damage, stored.key, limit):
                        if area is Area.DATA and ahead_of_log(provider, keys, state, stored) is not None:
                            ahead[path] = stored.key
                elif item.retired_by is None and stored.length > item.length:
                    what = "an object is longer than the fold says"
                    detail = f"position={item.length}, expected={item.length}, found={stored.length}"
                    _add(_list_for(report, item), limit, what, stored.key, detail)
        return ahead

    def _strangers(self, report: Report, found: dict[str, str], limit: int) -> None:
        """Data objects with records above the proven offset that no commit names: left behind, or of a commit that is lost.

        A writer at work puts objects before the commit that names them, so the log is asked again for a while.
        """
        reader = self._archive.log
        for path in self._named_above:
            found.pop(path, None)
        for _ in range(LOOKS_AGAIN):
            if not found:
                return
            self._wait(LOOK_AGAIN_SECONDS)
            while (later := reader.read(self._end)) is not None:
                self._end, self._newest = self._end + 1, later.commit
                for path in _objects_of(later):
                    found.pop(path, None)
        lost = bool(found) and self._ended_behind_more()
        for key in found.values():
            _add(
                report.damage if lost else report.notes, limit,
                "no commit names this data object, and it is newer than the newest commit", key,
                "its writer ended behind a later commit, which is lost; tiered repair shows what can be done" if lost
                else "left behind by a writer that ended before its commit: its messages are archived again when the daemon "
                "runs, and then gc removes it",
            )  # fmt: skip

    def _ended_behind_more(self) -> bool:
        """Whether the writer of the newest commit said goodbye behind another one, which is not there then. What landed late,
        behind the goodbye, made it void."""
        head, newest = self._state.head(), self._newest
        if head is None or newest is None:
            return False
        last = last_beat(self._archive.log.provider, self._archive.keys, head.epoch)
        return last is not None and last.key.ended_at not in (None, newest.commit_id, newest.previous_id)

    def _checkpoints(self, report: Report, limit: int, *, deep: bool) -> None:
        """Every checkpoint and its shards. A damaged one costs readers time and nothing else, but should be known.

        Shards that no checkpoint names are told: a checkpoint was deleted, or its writer ended before it was done.
        """
        provider, keys = self._archive.log.provider, self._archive.keys
        named = {r.path for r in self._state.retired()}
        for stored in provider.list(keys.checkpoint_prefix):
            with self._caught(report, report.damage, stored.key, limit):
                manifest = read_manifest(provider, stored.key)
                named.update(shard.path for shard in manifest.shards)
                if deep:
                    for _ in read_checkpoint(provider, manifest):
                        pass
        for stored in provider.list(keys.prefix(Area.SHARD)):
            if keys.path(stored.key) not in named:
                _add(
                    report.notes, limit, "no checkpoint names this shard", stored.key,
                    "a checkpoint was deleted or is damaged, or its writer ended before completing it; no data is missing",
                )  # fmt: skip

    def _queues(self, report: Report, limit: int) -> None:
        """Every queue's current generation is covered by runs and gaps, without overlap."""
        for queue in self._state.queues():
            if queue.generation is None:
                continue
            covered = [(r.start, r.end) for r in self._state.runs(queue.queue, queue.generation)]
            gaps = [
                (g.start, g.end) for g in self._state.gaps(queue.queue) if g.generation == queue.generation
            ]
            report.gaps += len(gaps)
            at = queue.min_offset
            for start, end in sorted(
                covered + [(max(a, queue.min_offset), b) for a, b in gaps if b > queue.min_offset]
            ):
                if start != at:
                    _add(
                        report.damage,
                        limit,
                        "queue offsets are not contiguous",
                        str(queue.queue),
                        f"{at} then {start}",
                    )
                at = max(at, end)
            if at != queue.max_offset:
                _add(
                    report.damage,
                    limit,
                    "a queue does not end where its runs do",
                    str(queue.queue),
                    f"{at}, not {queue.max_offset}",
                )
        report.physical_gaps = sum(1 for _ in self._state.phys_gaps())
        report.lost_messages = sum(gap.end - gap.start for gap in self._state.gaps())

    def _runs_by_object(self, report: Report) -> dict[ObjectRef, list[RunState]]:
        by_object: dict[ObjectRef, list[RunState]] = defaultdict(list)
        for run in self._all_runs():
            by_object[run.object].append(run)
            report.runs += 1
        return by_object

    def _all_runs(self) -> Iterator[RunState]:
        yield from self._state.runs_all()
        yield from self._state.closed_parts()

    def _footer(self, report: Report, item: ObjectState, limit: int) -> None:
        report.objects += 1
        if item.retired_by is not None:  # it may be deleted at any moment
            return
        with self._caught(report, _list_for(report, item), self._objects.key_of(item), limit):
            self._objects.check_footer(item)

    def _deep(self, report: Report, by_object: dict[ObjectRef, list[RunState]], limit: int) -> None:
        objects = [item for item in self._state.objects() if item.retired_by is None]
        retired = sum(1 for _ in self._state.objects()) - len(objects)
        report.objects += retired
        tasks = ((item, by_object.get(item.ref, [])) for item in objects)
        if self._workers is not None and not self._aliases:
            each = self._workers.each(tasks)
        else:
            self._contents.expect(map(self._contents.first_range, objects))
            each = self._contents.each(tasks, CHECKS_AT_ONCE)
        try:
            for item, steps in each:
                if steps is None:
                    report.objects += 1
                    self._step(report.objects)
                for looked in steps or ():
                    if looked.unseen is not None:
                        self._unseen(report, looked.unseen, limit)
                    if looked.damage is not None:
                        to, damage = _list_for(report, item), looked.damage
                        _add(to, limit, damage.message, self._objects.key_of(item), _fields(damage))
                    report.blocks += looked.blocks
                    report.messages += looked.messages
                    report.bytes += looked.record_bytes
        finally:
            self._contents.end()


def _list_for(report: Report, item: ObjectState) -> list[Damage]:
    """Where damage of an object belongs: nobody misses what nothing refers to."""
    return report.damage if item.references else report.notes


def first_needed(reader: LogReader, floor: int) -> int:
    """The lowest commit that anything is made from: the checkpoint at the log's floor holds what its own commit did, and those
    below it may be removed. ``floor``: what is known of it elsewhere."""
    saved = PartialStore(Scope({})).attach(reader.provider, reader.keys)
    floor = max(floor, 0 if saved is None else saved.floor)
    return floor + 1 if floor else 0


def read_log(
    reader: LogReader, first: int, last: int, *, ahead: int = 1, passes_over: bool = False
) -> Iterator[tuple[int, ReadCommit | None, Corrupt | None]]:
    """Each commit from ``first`` to the newest that is there, or was by its writer's word, at least ``last``: its number, the
    commit or what stands for it, and what is wrong with its own key. ``ahead``: how many are under way at once;
    ``passes_over``: what the store does not give is ``_NotGiven``, and not raised."""
    there = last_named(reader.provider, reader.keys)
    word = word_behind(reader, there)
    previous: bytes | None = None
    numbers = range(first, max(last, there if word is None else word.seq) + 1)
    for seq, looked in zip(
        numbers, read_each(partial(_own, reader, passes_over), numbers, ahead), strict=True
    ):
        expected, previous = previous, None  # behind a commit that cannot be read nothing is compared
        if expected is not None and isinstance(looked, ReadCommit) and looked.commit.previous_id != expected:
            key = reader.keys.commit(seq)
            looked = Corrupt("a commit does not name the one before it", key=key, expected=expected.hex())
        damage = looked if isinstance(looked, Corrupt) else None
        found = looked if isinstance(looked, ReadCommit) else None
        if damage is not None and not isinstance(damage, _NotGiven):
            found = stand_in(reader, seq)
        if found is not None:
            previous = found.commit.commit_id
        yield seq, found, damage


class _NotGiven(Corrupt):
    """A commit that the store does not give, with what it says."""

    def __init__(self, error: TieredError) -> None:
        super().__init__(error.message, key=error.fields.get("key"))
        self.error = error


def _own(reader: LogReader, passes_over: bool, seq: int) -> ReadCommit | Corrupt:
    """What lies under a commit's own key, or what is wrong with it."""
    key = reader.keys.commit(seq)
    try:
        return reader.read_at(key, seq) or Corrupt("a commit is missing from the log", key=key)
    except Corrupt as error:
        return error
    except (Unavailable, Invalid) as error:
        if not passes_over or isinstance(error, Refused) or error.fields.get("key") != key:
            raise
        return _NotGiven(error)


def _objects_of(found: ReadCommit) -> Iterator[str]:
    for edit in found.commit.edits:
        if edit.kind is EditKind.ADD_OBJECT:
            yield from edit.columns["key"]


def _add(to: list[Damage], limit: int, what: str, key: str, detail: str) -> None:
    if len(to) < limit:
        to.append(Damage(what, key, detail))


def _fields(error: TieredError) -> str:
    return ", ".join(f"{k}={v}" for k, v in error.fields.items())
