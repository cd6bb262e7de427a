"""The objects that sealing a topic's day makes.

Needs pyarrow, which is an extra: this module is imported when something is sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tiered.archive.keys import Area, ObjectKey, build, segment_key
from tiered.archive.log.flush import DataObject
from tiered.archive.log.maintenance import Figures
from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.sealing import MadeSegment, SegmentMaker, SegmentShape, rewrite_rests
from tiered.archive.rewrite.sealplan import SEGMENT_LEVEL, TopicDay
from tiered.archive.rewrite.sources import Sources
from tiered.archive.rewrite.spool import Spool
from tiered.archive.rewrite.swap import Replacement
from tiered.archive.rewrite.writing import MERGED_LEVEL, Target
from tiered.archive.state.layout import OPEN
from tiered.codec.format.object import EncodedObject, encode_object
from tiered.codec.format.sections import SectionKind
from tiered.codec.segment.writer import DECLARED, LateNulls, SealedSegment
from tiered.codec.types import Buffer
from tiered.model import MessageQueue


@dataclass(frozen=True, slots=True)
class NewObjects:
    """How objects of an archive are named: they are of an epoch, and have ids of their own."""

    archive_id: bytes
    epoch: int
    random_bytes: Callable[[int], bytes]


class SealedDay:
    """One file of a topic's day and what it leaves to other days, made of the first runs of a job.

    ``spend`` hears of bytes before they are written. ``used``: the runs that what was made replaces, once it is. ``nullable``:
    columns that are known to have nulls in this topic; what is found out while the file is made is added.
    """

    def __init__(
        self,
        what: TopicDay,
        job: Job,
        sources: Sources,
        shape: SegmentShape,
        ids: NewObjects,
        spend: Callable[[int], None],
        nullable: frozenset[str] = frozenset(),
    ) -> None:
        self.nullable = nullable
        self._what, self._job, self._sources, self._shape = what, job, sources, shape
        self._ids, self._spend = ids, spend
        self.used = job
        self._made = MadeSegment(0, None, ())

    def objects(self, spool: Spool) -> Iterator[Replacement]:
        """The file, if there is one, which is put together in ``spool``; then, of level 1, what belongs to other days. Each is
        made when it is asked for, to be put before the next. Errors as of ``SegmentMaker.make``."""
        object_id = self._ids.random_bytes(16)

        def write(piece: Buffer) -> None:
            self._spend(len(piece))
            spool.write(piece)

        try:
            self._made = self._make(object_id, write)
        except LateNulls as late:
            self.nullable |= late.columns
            spool.restart()
            try:
                self._made = self._make(object_id, write)
            except LateNulls:  # such a topic is not worth a third beginning that may fail
                self.nullable = frozenset(DECLARED)
                spool.restart()
                self._made = self._make(object_id, write)
        self.used = self._job.part(0, self._made.used)
        if self._made.sealed is not None:
            yield self._segment(self._made.sealed, object_id, spool)
        if self._made.rests:
            yield self._rest()

    def _make(self, object_id: bytes, write: Callable[[Buffer], None]) -> MadeSegment:
        maker = SegmentMaker(self._job, self._what, self._sources, self._shape, lambda: self._spend(0))
        return maker.make(
            archive_id=self._ids.archive_id, object_id=object_id, write=write, nullable=self.nullable
        )

    def _segment(self, sealed: SealedSegment, object_id: bytes, spool: Spool) -> Replacement:
        what = self._what
        path = build(segment_key(what.topic, what.date, self._ids.epoch, object_id))
        encoded = EncodedObject(
            spool.parts(), sealed.length, {int(SectionKind.SEGMENT_FOOTER): sealed.footer}
        )
        closed_by = None if what.closed_by == OPEN else what.closed_by
        places = zip(sealed.runs["queue_id"].tolist(), sealed.runs["generation"].tolist(), strict=True)
        targets = [
            Target(MessageQueue(what.topic, queue), generation, closed_by) for queue, generation in places
        ]
        return Replacement(
            DataObject(path, object_id, encoded, there=True), SEGMENT_LEVEL, sealed.runs, targets
        )

    def _rest(self) -> Replacement:
        rewritten = rewrite_rests(
            self.used, self._made.rests, self._sources, self._shape.rest, lambda: self._spend(0)
        )
        object_id, tables = self._ids.random_bytes(16), rewritten.tables
        encoded = encode_object(
            tables, object_id=object_id, archive_id=self._ids.archive_id, level=MERGED_LEVEL
        )
        self._spend(encoded.length)
        path = build(ObjectKey(Area.DATA, self._ids.epoch, object_id))
        data = DataObject(path, object_id, encoded, there=True)
        return Replacement(data, MERGED_LEVEL, tables.runs, rewritten.targets)

    @property
    def figures(self) -> Figures:
        """What was made, of how much."""
        sealed = self._made.sealed
        return {
            "sealed_runs": len(self.used.runs),
            "made_runs": 0 if sealed is None else len(sealed.runs),
            "messages": 0 if sealed is None else sealed.rows,
            "record_bytes": 0 if sealed is None else int(sealed.runs["bytes"].sum()),
            "verbatim_messages": 0 if sealed is None else sealed.verbatim,
            "read_objects": len(self.used.objects),
            "written_files": 0 if sealed is None else 1,
            "written_bytes": 0 if sealed is None else sealed.length,
            "left_to_other_days_bytes": sum(rest.flat_end - rest.flat_start for rest in self._made.rests),
        }
