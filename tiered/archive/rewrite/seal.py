"""Sealing, as a task: finished days become Parquet files, one topic and one day each (level 0 and 1 to 2)."""

from __future__ import annotations

import importlib.util
import os
from bisect import insort
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cachetools import LRUCache

from tiered.archive.log.flush import DataObject
from tiered.archive.log.maintenance import Done, Figures, Outlook, OwnKeys, Turn
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.plan import NOTHING, DamagedObjects, Job, KnownObjects, LeftOut, none_damaged
from tiered.archive.rewrite.sealplan import (
    SEGMENT_LEVEL,
    Sealable,
    SealBounds,
    TopicDay,
    days_of,
    seal_job,
    sealable,
    slab_end,
)
from tiered.archive.rewrite.sources import Sources, UnevenCut
from tiered.archive.rewrite.spool import Spool
from tiered.archive.rewrite.swap import Replacement, Swap
from tiered.archive.rewrite.uploads import give_up_abandoned
from tiered.archive.rewrite.writing import Layout
from tiered.archive.state.layout import OPEN
from tiered.clock import Clock
from tiered.crashpoint import SealPoint, reach
from tiered.errors import Corrupt, NotFound, Refused, TieredError
from tiered.model import ObjectRef
from tiered.provider.resolve import put_own
from tiered.settings import MIB, ONE_DAY_MS, Settings

if TYPE_CHECKING:
    from tiered.archive.rewrite.sealing import SegmentShape

WINDOW_BYTES = 16 * MIB
"""Rows and stored blocks that are read at once; a second such window is read meanwhile."""
ROW_GROUP_BYTES = 128 * MIB
"""Of records, before compression: what engines take at once. Each row group costs them metadata and a start, and sealing the
columns of two in memory."""
BAND_BYTES = 4 * MIB
"""Of records in a band of a row group: what a consumer's first message is fetched and decoded with."""
TABLE_BYTES = 64 * MIB
"""Tables of sources that are kept while a file is made, and as much of their columns, as they are stored."""
JOB_OBJECTS = 512
"""Sources of one file: each window then asks each of them for some 100 KiB."""
KNOWN_TOPICS = 1000
"""Topics whose columns with nulls are kept in mind: their next files are not begun twice."""
LOOK_SECONDS = 0.5
NO_PYARROW = "off: pyarrow is not installed (pip install 'rocketmq-tiered[parquet]')"


@dataclass(frozen=True, slots=True)
class SealOptions:
    """When, what, how much at once. ``directory``: where a file is put together; ``None``: where temporary files are."""

    enabled: bool
    interval_seconds: float
    bounds: SealBounds
    segment_bytes: int
    window_bytes: int
    rest_bytes: int
    rest: Layout
    directory: str | None
    encrypted: bool = False
    row_group_bytes: int = ROW_GROUP_BYTES
    band_bytes: int = BAND_BYTES

    @classmethod
    def of(cls, settings: Settings) -> SealOptions:
        """As the settings say; what is left to other days is written like a merge."""
        seal, care = settings.seal, settings.maintenance
        return cls(
            seal.enabled,
            seal.interval_ms / 1000,
            SealBounds(seal.min_age_ms, JOB_OBJECTS, care.merge_runs),
            seal.segment_bytes,
            WINDOW_BYTES,
            care.merge_bytes,
            Layout.of(settings),
            settings.state_directory or None,
            settings.encryption.on,
        )

    @property
    def off(self) -> str | None:
        """Why nothing is sealed; ``None`` where it is."""
        if not self.enabled:
            return "off: seal.enabled is false"
        if self.encrypted:
            return "off: the archive is encrypted, and Spark could not open sealed files with its key"
        return None if importlib.util.find_spec("pyarrow") else NO_PYARROW

    def shape(self) -> SegmentShape:
        """For whoever makes the files."""
        from tiered.archive.rewrite.sealing import SegmentShape

        return SegmentShape(
            self.segment_bytes,
            self.window_bytes,
            self.rest_bytes,
            self.rest,
            self.row_group_bytes,
            self.band_bytes,
        )


class Sealing:
    """The task. A turn makes one file. Its memory is two windows of blocks as they are stored, the tables of its sources, the
    columns of two row groups, and what it leaves to other days; the file itself lies on the local disk until it is up.

    What cannot be read, or not be proven, is left out until the next round: its runs stay as they are, all others are sealed.
    """

    name = "seal"

    def __init__(
        self,
        log: CommitLog,
        clock: Clock,
        options: SealOptions,
        own_keys: OwnKeys,
        random_bytes: Callable[[int], bytes] = os.urandom,
        *,
        damaged: DamagedObjects = none_damaged,
    ) -> None:
        self._log = log
        self._clock = clock
        self._options = options
        self._off = options.off
        self._own_keys = own_keys
        self._random_bytes = random_bytes
        self._damaged = damaged
        self._next = clock.monotonic() + options.interval_seconds
        self._left_out = NOTHING
        self._round: list[TopicDay] | None = None
        self._passed: set[TopicDay] = set()  # in this round, whatever came of them
        self._slab: ObjectRef | None = None
        self._objects: KnownObjects | None = None  # of the round
        self._trouble: str | None = None
        self._nullable: LRUCache[str, frozenset[str]] = LRUCache(KNOWN_TOPICS)  # columns, by topic

    def due(self, now: float) -> bool:
        """An interval after the last round ended."""
        return self._off is None and now >= self._next

    def plan(self) -> Outlook:
        """See ``Task``."""
        if self._off is not None:
            return Outlook(0, self._off)
        found = self._sealable()
        figures: Figures = {
            "topic_days": len(found),
            "runs": sum(each.runs for each in found),
            "messages": sum(each.messages for each in found),
            "record_bytes": sum(each.record_bytes for each in found),
            "mixed_messages": sum(each.mixed_messages for each in found),
        }
        said = f"{len(found)} days of topics, {figures['messages']} messages, {figures['record_bytes']} bytes"
        if figures["mixed_messages"]:
            said += (
                f"; {figures['mixed_messages']} of the messages are in runs that reach into later days, and are told with"
                " the first: each is sealed with its own day, once that is over"
            )
        return Outlook(
            len(found), said if found else "no day that is over waits", figures, tuple(map(_row, found))
        )

    def run_once(self, turn: Turn) -> Done:
        """Make one file of the oldest day that waits."""
        if self._off is not None:
            return Done(more=False)
        if self._round is None:
            self._give_up_uploads(turn)
        while (what := self._at_hand()) is not None:
            made = self._job(what)
            if made is not None:
                self._expect_the_rest(what, made)
                return self._seal(what, made, turn)
            self._pop()
            turn.spend(0)
        trouble, self._trouble = self._trouble, None
        self._round, self._left_out, self._objects = None, NOTHING, None
        self._passed.clear()
        self._next = self._clock.monotonic() + self._options.interval_seconds
        return Done(more=False, trouble=trouble)

    def _job(self, what: TopicDay) -> Job | None:
        """The next of a topic's day. Which objects it reads is found out by a walk over all its runs, so they are kept in mind
        until they hold nothing more of it."""
        state, bounds, made, avoided = self._log.frozen(), self._options.bounds, None, self._avoided()
        self._objects = objects = KnownObjects.of(state, avoided, self._objects)
        if self._slab is not None:
            made = seal_job(state, bounds, what, self._slab, objects, avoided)
        if made is None:
            self._slab = slab_end(state, bounds, what, objects, avoided)
            if self._slab is not None:
                made = seal_job(state, bounds, what, self._slab, objects, avoided)
        return made

    def _expect_the_rest(self, what: TopicDay, job: Job) -> None:
        """What is cut at midnight begins in the next day, and has its turn with all else of it: it would be a file of its own
        later."""
        assert self._round is not None
        following = replace(what, day=what.day + 1)
        over = (following.day + 1) * ONE_DAY_MS <= self._options.bounds.cutoff_ms(self._clock.now_ms())
        if over and following not in self._round and days_of(job.runs["max_store_time"]).max() > what.day:
            insort(self._round, following)

    def _pop(self) -> None:
        """On to the next day of a topic."""
        assert self._round is not None
        self._passed.add(self._round.pop(0))
        self._slab = None

    def _at_hand(self) -> TopicDay | None:
        """The oldest of what was found to wait. Behind the last of it this looks again: nothing else may begin in a day that
        others were cut at."""
        if not self._round:
            self._round = [each.what for each in self._sealable() if each.what not in self._passed]
        return self._round[0] if self._round else None

    def _give_up_uploads(self, turn: Turn) -> None:
        """Of writers before this one: files are what goes up in parts."""
        head, reader = self._log.proven().head(), self._log.reader
        turn.spend(0)
        try:
            if head is not None:
                give_up_abandoned(reader.provider, reader.keys, head.epoch, self._own_keys)
        except TieredError as error:  # files are made all the same
            self._trouble = f"uploads that were not completed cannot be given up: {error}"

    def _sealable(self) -> list[Sealable]:
        return sealable(self._log.frozen(), self._options.bounds, self._clock.now_ms(), self._avoided())

    def _avoided(self) -> LeftOut:
        return self._left_out.and_objects(self._damaged(self._log.frozen()))

    def _seal(self, what: TopicDay, job: Job, turn: Turn) -> Done:
        try:
            with Spool(self._options.directory) as spool:
                return self._swap(what, job, spool, turn)
        except UnevenCut as uneven:
            runs = self._left_out.runs | {job.keys[i] for i in uneven.runs.tolist()}
            self._left_out = replace(self._left_out, runs=runs)
            return Done(more=True)
        except (Corrupt, NotFound) as error:
            damaged = job.object_of(error, self._log.reader.keys)
            if damaged is None:
                raise
            self._left_out = replace(self._left_out, objects=self._left_out.objects | {damaged.ref})
            return Done(more=True, trouble=f"an object cannot be sealed: {error}")
        except Refused as error:
            self._pop()
            return Done(more=True, trouble=f"{what.topic} of {what.date} cannot be sealed: {error}")

    def _swap(self, what: TopicDay, job: Job, spool: Spool, turn: Turn) -> Done:
        """Make the file, put it, then have the commit that names it."""
        from tiered.archive.rewrite.sealedday import NewObjects, SealedDay

        reader, head = self._log.reader, self._log.proven().head()
        assert head is not None  # there are runs
        archive_id = reader.identity.archive_id
        sources = Sources(reader.provider, reader.keys, archive_id, turn.spend, table_bytes=TABLE_BYTES)
        ids = NewObjects(archive_id, head.epoch, self._random_bytes)
        known = self._nullable.get(what.topic, frozenset())
        day = SealedDay(what, job, sources, self._options.shape(), ids, turn.spend, known)
        with ExitStack() as stack:
            replacements: list[Replacement] = []
            counted = []
            for item in day.objects(spool):
                if not replacements:
                    reach(SealPoint.BEFORE_SEALED)
                replacements.append(item)
                counted.append(stack.enter_context(self._own_keys.making(item.data.path)))
                self._put(item.data, turn)
                if item.level == SEGMENT_LEVEL:
                    reach(SealPoint.AFTER_SEALED)
            reach(SealPoint.AFTER_REST)
            if day.nullable:
                self._nullable[what.topic] = day.nullable
            proven = turn.commit(Swap(day.used, replacements, self._clock.monotonic()))
            if proven is None:
                self._pop()  # in the next round, as it is then
                return Done(more=True, figures={"dropped_jobs": 1})
            for each in counted:
                each()
        reach(SealPoint.AFTER_SEAL)
        return Done(True, day.figures)

    def _put(self, data: DataObject, turn: Turn) -> None:
        """A large file is on its way for longer than a step may be silent; the store's own time limits end what hangs."""
        reader = self._log.reader
        pool = ThreadPoolExecutor(1, thread_name_prefix="seal")
        try:
            put = pool.submit(put_own, reader.provider, reader.keys.key(data.path), data.encoded.parts)
            while not wait((put,), LOOK_SECONDS).done:
                turn.spend(0)
            put.result()
        finally:
            pool.shutdown(wait=False)


def _row(each: Sealable) -> Figures:
    """A day of a topic in a dry run."""
    return {
        "topic": each.what.topic,
        "day": each.what.date.isoformat(),
        "closed_by": None if each.what.closed_by == OPEN else each.what.closed_by,
        "runs": each.runs,
        "messages": each.messages,
        "record_bytes": each.record_bytes,
        "mixed_messages": each.mixed_messages,
    }
