"""The live log: followed topics of the commitlog beside this process, as far as it is confirmed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import numpy as np

from tiered.codec.checksum import crc32c
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.columns import decode_headers, verify_headers
from tiered.codec.record.frame import Frames, Stop
from tiered.codec.record.layout import SYS_COMMIT, SYS_TRANSACTION
from tiered.codec.types import Bools
from tiered.errors import Corrupt, NotFound
from tiered.feed.base import FeedBatch, FeedPosition, LogAnchor
from tiered.model import PhysicalOffset, Progress
from tiered.source.base import BrokerAnswers, BrokerMark, Chunk, Copies, Life, ReadStatus, Tail
from tiered.source.marks import MarkVerdict, check_mark

ANCHOR_BYTES = 4096
"""Before a place of which no record is known."""
MAX_RECORDS = 200_000
"""Most records taken at once: their headers have some 90 bytes each."""


class FollowedLog(Tail, Copies, Life, BrokerAnswers, Protocol):
    """The ports of a commitlog that is followed."""


class LogCut(Exception):
    """It is not the log that was followed: it ends before the position, or other bytes lie there. Its broker lost a tail, or is
    another one. Whoever follows begins anew."""


class LogGap(Exception):
    """Bytes of the log can never be read; ``following``: where it goes on."""

    def __init__(self, following: PhysicalOffset, reason: str) -> None:
        super().__init__(reason)
        self.following = following
        self.reason = reason


class LiveFeed:
    """Reads on from a position. ``wanted`` says whether a topic is followed."""

    def __init__(self, source: FollowedLog, wanted: Callable[[str], bool], batch_bytes: int) -> None:
        self._source = source
        self._wanted = wanted
        self._batch_bytes = batch_bytes
        self._mark: BrokerMark | None = None
        self._held_against: tuple[tuple[Progress, BrokerMark], bool] | None = None
        """What the archive's end was held against, and whether it is another one."""
        self._all_followed = False
        """Whether everything was, when it was read last: then the next is proven before anybody asks whose it is."""

    def has(self, position: PhysicalOffset) -> bool:
        """Whether the log still has what lies at a position, or ends there."""
        first = self._source.min_offset()
        return first is not None and first <= position

    def begins(self) -> PhysicalOffset | None:
        """The oldest byte of the log; ``None`` for an empty one."""
        return self._source.min_offset()

    def end(self) -> PhysicalOffset:
        """Where it ends now."""
        return self._source.max_offset()

    @property
    def waiting(self) -> str | None:
        """Why nothing is read although there is something."""
        found = self._source.waiting
        return None if found is None else found.reason

    def stored(self, place: PhysicalOffset) -> None:
        """See ``BrokerAnswers``."""
        self._source.stored(place)

    def check(self, position: FeedPosition) -> None:
        """``LogCut`` unless the log up to ``position`` is the one that was followed, as far as its last record tells. Asked
        before each batch, and costs two ``stat``s while the broker stays the same."""
        mark = self._source.broker_mark()
        if mark == self._mark or self._source.away is not None:
            return
        if position.anchor is not None:
            self._check_anchor(position.anchor)
        elif position.physical is not None and position.physical > self.end():
            raise LogCut(f"the log ends before {position.physical}, where it was followed to")
        self._mark = mark

    def parted(self, archived: Progress) -> str | None:
        """Why what is archived up to there is not of this log, as far as there are bytes to tell; ``None``: it is. Reads the
        file in which the archive ends, once for each run of the broker."""
        end, place = self.end(), archived.physical_offset
        if end < place:
            return f"the archive reaches to {place}, and the broker's log ends at {end}: its broker lost a tail, or is behind"
        asked = archived, self._source.broker_mark()
        if self._held_against is None or self._held_against[0] != asked:
            self._held_against = asked, check_mark(self._source, archived) is MarkVerdict.MISMATCH
        if self._held_against[1]:
            return f"the archive has other bytes before {place} than the broker's log: its broker lost a tail"
        return None

    def anchor(self, place: PhysicalOffset) -> LogAnchor | None:
        """By which the log is known again that was followed up to ``place``; ``None`` where it has no byte before."""
        begins = self._source.file_start(PhysicalOffset(place - 1)) if place > 0 else None
        if begins is None:
            return None
        start = max(begins, place - ANCHOR_BYTES)
        try:
            found = self._source.copy_local(PhysicalOffset(start), place)
        except NotFound:
            return None
        return LogAnchor(start, place - start, crc32c(found))

    def _check_anchor(self, anchor: LogAnchor) -> None:
        start = PhysicalOffset(anchor.start)
        try:
            found = self._source.copy_local(start, PhysicalOffset(anchor.start + anchor.size))
        except NotFound as error:
            first = self._source.min_offset()
            if first is None or first > start:
                return  # deleted: nobody can say any more
            raise LogCut(
                f"the log ends before {anchor.start + anchor.size}, where it was followed to"
            ) from error
        if crc32c(found) != anchor.crc32c:
            raise LogCut(f"the record at {anchor.start} is another one than when it was followed")

    def poll(self, position: FeedPosition) -> FeedBatch | None:
        """Messages of followed topics behind ``position``; ``None`` at the end. ``LogGap``, ``LogCut``, ``Corrupt``."""
        self.check(position)
        assert position.physical is not None
        chunk = self._source.read(position.physical, max_bytes=self._batch_bytes, max_records=MAX_RECORDS)
        if chunk.status is ReadStatus.IDLE:
            return None
        if chunk.status is ReadStatus.GAP:
            raise LogGap(chunk.next_offset, chunk.reason)
        if not len(chunk.starts):
            return FeedBatch(_NOTHING, replace(position, physical=chunk.next_offset))
        data = memoryview(self._source.copy(chunk.start, chunk.end))
        messages = self._followed(data, chunk)
        last = int(chunk.starts[-1])
        anchor = LogAnchor(chunk.start + last, int(chunk.sizes[-1]), crc32c(data[last:]))
        return FeedBatch(messages, FeedPosition(chunk.next_offset, anchor, position.lacks))

    def _followed(self, data: memoryview, chunk: Chunk) -> MessageBatch:
        """The followed messages among the records of a copy, each proven whole."""
        everything = Frames(chunk.starts, chunk.sizes, len(data), Stop.END)
        if self._all_followed:
            good, whole = verify_headers(data, everything, chunk.start)
            if len(good) == len(everything) and self._chosen(whole).all():
                return whole
        whole = decode_headers(data, everything)
        rows = self._chosen(whole)
        self._all_followed = bool(rows.all())
        if not rows.any():
            return _NOTHING
        frames = Frames(chunk.starts[rows], chunk.sizes[rows], len(data), Stop.END)
        good, messages = verify_headers(data, frames, chunk.start)
        if len(good) != len(frames):
            raise Corrupt(
                "a record of the broker's log is not what its checksum says", found=good.detail,
                hint="the broker repairs its log when it starts; what the archive has of it can be read with tiered read",
            )  # fmt: skip
        return messages

    def _chosen(self, whole: MessageBatch) -> Bools:
        """Which messages are of followed topics, and no half of a transaction."""
        topics = np.fromiter(map(self._wanted, whole.topics), bool, len(whole.topics))
        kind = whole.headers["sys_flag"] & SYS_TRANSACTION
        rows: Bools = topics[whole.headers["topic_index"]] & ((kind == 0) | (kind == SYS_COMMIT))
        return rows


_NO_FRAMES = Frames(np.empty(0, np.int64), np.empty(0, np.int64), 0, Stop.END)
_NOTHING = decode_headers(b"", _NO_FRAMES)
