"""Which answers to pulls are held: those that would lose messages, and those that may hide a loss.

Decided on the answer's header and the first bytes of its body, for every pull that passes, so it is cheap: the archive is
not asked here, only what is known of it is looked at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from tiered.clock import Clock
from tiered.codec.record.layout import offsets_of
from tiered.codec.remoting.codes import (
    PULL_LOOKED,
    PullRequest,
    PullStatus,
    RequestCode,
    ResponseCode,
    number_field,
    text_field,
)
from tiered.codec.remoting.frame import Bytes, Command
from tiered.errors import TieredError
from tiered.filter.storagelevels import StorageLevel
from tiered.gateway.knowledge.knowledge import Knowledge
from tiered.gateway.ports import NEED_BODY, PASS, PEEK_BYTES, Reason, Verdict
from tiered.gateway.pull.filters import Filters
from tiered.gateway.pull.gaps import lacks
from tiered.model import MessageQueue

PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})

# Before Python 3.12 a member by its class is a call: not for each pull.
_SUCCESS = ResponseCode.SUCCESS
_DISABLE, _NOT_IN_MEM, _FORCE = StorageLevel.DISABLE, StorageLevel.NOT_IN_MEM, StorageLevel.FORCE

NEAR_MINIMUM = 1 << 24
"""A pull that begins this close above the broker's minimum may have lost messages to a deletion under way: a commitlog file of
1 GiB has fewer, since a record takes 91 bytes at least. What a reader that takes all has lost is seen anywhere."""

CLOSE_TO_MINIMUM = 1 << 20
"""Within this no other measure is taken. Beyond it the answer's header is looked at first, then where in the log it lies."""

MEMORY_RATIO = 0.4
"""Share of memory that RocketMQ takes for its page cache (``accessMessageInMemoryMaxRatio``)."""

FOLLOW_SECONDS = 1.0
"""The log is looked at this often beside the traffic, while somebody reads what may be newer than what is known of it."""


class Why(Reason):
    """Why the archive is asked."""

    SKIP = "skip"  # passed on, the answer would lose messages
    GAP = "gap"  # records are missing before, between or behind those in it, though the reader wants all
    DOUBT = "doubt"  # it looks as if the filter left some out, but a deletion under way looks the same
    TAIL = "tail"  # the same of what is not archived yet, as far as is known; so a deletion is unlikely
    PREFER = "prefer"  # the topic's storage level puts the archive first


HELD = {why: Verdict(why) for why in Why}
"""The verdict on an answer to a pull that the archive is asked about."""


def machine_memory_bytes() -> int:
    """Memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class PullJudge:
    """Whether an answer to a pull is simply passed on, and why not. On the event loop only."""

    def __init__(self, knowledge: Knowledge, filters: Filters, clock: Clock, memory_bytes: int) -> None:
        self._archive = knowledge.archive
        self._asking = knowledge.asking
        self._minimums = knowledge.minimums
        self._coverage = knowledge.coverage
        self._filters = filters
        self._clock = clock
        self._memory_bytes = memory_bytes
        self._log_end = 0
        self._followed = -2 * FOLLOW_SECONDS

    def learn(self, request: Mapping[str, str], answer: Command, first: Bytes) -> None:
        """Take from an answer of the archived broker what it says of its queue and its log; ``BadRequest`` if senseless.

        ``first``: the first bytes of its body.
        """
        low = answer.ext.get("minOffset")
        if low is None or answer.code not in PULL_LOOKED or "offsetDelta" in answer.ext:
            return
        self._minimums.hear(request.get("topic", ""), request.get("queueId", ""), low)
        offsets = offsets_of(first) if answer.code == _SUCCESS else None
        if offsets is not None:
            queue_offset, place = offsets
            self._log_end = max(self._log_end, place)
            if self._coverage.waits:
                self._coverage.served(queue_of_pull(request), queue_offset, place)

    def judge(self, request: Mapping[str, str], answer: Command, body: Bytes, *, whole: bool) -> Verdict:
        """See ``Answering.judge``; what is held has its ``Why``. ``BadRequest`` if fields make no sense."""
        if answer.code not in PULL_LOOKED or "offsetDelta" in answer.ext:
            return PASS
        offset = number_field(request, "queueOffset")
        level = self._archive.storage_level(text_field(request, "topic"))
        if level is _DISABLE:
            return PASS
        if answer.code == _SUCCESS:
            return self._found(request, answer, offset, level, body, whole)
        return _held(self._why_nothing(request, answer, offset, level))

    def _why_nothing(
        self, request: Mapping[str, str], answer: Command, offset: int, level: StorageLevel
    ) -> Why | None:
        """The broker has given no records."""
        if answer.remark == PullStatus.OFFSET_TOO_SMALL.value or (
            answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
            and answer.remark == PullStatus.MESSAGE_WAS_REMOVING.value
        ):
            return Why.SKIP
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            return None
        following = number_field(answer.ext, "nextBeginOffset")
        if answer.code == ResponseCode.PULL_NOT_FOUND:
            jumped = answer.remark == PullStatus.OFFSET_FOUND_NULL.value and following > offset
            return Why.SKIP if jumped else None
        return self._why_gap(request, answer, offset, following) or self._forced(request, offset, level)

    def forced(self, request: Mapping[str, str]) -> Why | None:
        """``PREFER`` if the topic's level still asks for the archive once nothing is missing."""
        level = self._archive.storage_level(text_field(request, "topic"))
        return self._forced(request, number_field(request, "queueOffset"), level)

    def _found(
        self,
        request: Mapping[str, str],
        answer: Command,
        offset: int,
        level: StorageLevel,
        body: Bytes,
        whole: bool,
    ) -> Verdict:
        """The broker has given records."""
        found = offsets_of(body)
        if found is None:
            return _held(self._forced(request, offset, level))
        first, place = found
        if first > offset:
            why = self._why_gap(request, answer, offset, first)
            return _held(why or self._forced(request, offset, level))
        lacking = self._lacking(request, answer, offset, body, whole)
        if lacking is not PASS:
            return lacking
        if level is _NOT_IN_MEM:
            behind = self._log_end - place
            if behind > self._memory_bytes * MEMORY_RATIO:
                return _held(self._preferred(request, offset))
        return _held(self._preferred(request, offset)) if level is _FORCE else PASS

    def _lacking(
        self, request: Mapping[str, str], answer: Command, offset: int, body: Bytes, whole: bool
    ) -> Verdict:
        """Whether records are missing behind the first one; ``NEED_BODY`` if the first bytes do not rule it out.

        A broker reads the records of an answer one by one. When the file they lie in is deleted meanwhile it leaves out
        the rest of that file, goes on in the next one, and counts what it left out as read (``getMessage`` of its store:
        ``nextPhyFileStartOffset``). For readers with a filter that looks like filtering.
        """
        following = number_field(answer.ext, "nextBeginOffset")
        if following <= offset + 1:
            return PASS
        above = offset - number_field(answer.ext, "minOffset")
        if above >= NEAR_MINIMUM:
            return PASS
        if above >= CLOSE_TO_MINIMUM and following - offset <= number_field(request, "maxMsgNums", 32):
            return PASS  # a broker that leaves out the rest of a file fills the answer from the next one
        if not whole:
            return NEED_BODY
        if len(body) <= PEEK_BYTES:
            return HELD[Why.DOUBT]  # no record is so short
        return _held(self._why_missing(request, offset) if lacks(body, offset, following) else None)

    def _why_gap(self, request: Mapping[str, str], answer: Command, offset: int, end: int) -> Why | None:
        """[``offset``, ``end``) is not in the answer: filtered, or deleted while it was read (the broker says neither)."""
        if end <= offset:
            return None
        if answer.code == _SUCCESS and self._filters.take_all(PullRequest.parse(request)):
            return Why.GAP
        if not self._is_near(answer, offset, NEAR_MINIMUM):
            return None
        return self._why_doubt(queue_of_pull(request), offset)

    def is_close(self, request: Mapping[str, str], answer: Command) -> bool:
        """Whether a pull begins so close above the broker's minimum that no other measure is needed. ``BadRequest``."""
        return self._is_near(answer, number_field(request, "queueOffset"), CLOSE_TO_MINIMUM)

    def _is_near(self, answer: Command, offset: int, distance: int) -> bool:
        return offset < number_field(answer.ext, "minOffset") + distance

    def _why_missing(self, request: Mapping[str, str], offset: int) -> Why | None:
        """An answer with records does not have all from ``offset`` on."""
        if self._filters.take_all(PullRequest.parse(request)):
            return Why.GAP  # sure, so what is known of the archive, perhaps long ago, does not count
        return self._why_doubt(queue_of_pull(request), offset)

    def _why_doubt(self, queue: MessageQueue, offset: int) -> Why | None:
        """Nothing of a queue that is not archived: nobody has what its broker deletes."""
        try:
            known = self._archive.known(queue)
        except TieredError:
            return Why.DOUBT
        if known is None:
            self._follow_aside()
            return None
        return Why.DOUBT if offset < known.max_offset else Why.TAIL

    def _follow_aside(self) -> None:
        """Have the log looked at beside the traffic, if it is time."""
        now = self._clock.monotonic()
        if now - self._followed >= FOLLOW_SECONDS:
            self._followed = now
            self._asking.aside(self._archive.follow)

    def _forced(self, request: Mapping[str, str], offset: int, level: StorageLevel) -> Why | None:
        return self._preferred(request, offset) if level is _FORCE else None

    def _preferred(self, request: Mapping[str, str], offset: int) -> Why | None:
        """The archive first, if it is known to have the message; what is new is looked for beside the traffic."""
        if self._may_have(queue_of_pull(request), offset):
            return Why.PREFER
        self._follow_aside()
        return None

    def _may_have(self, queue: MessageQueue, offset: int) -> bool:
        """Whether the archive, as far as it is known now, reaches beyond ``offset``; true if nothing is known."""
        try:
            known = self._archive.known(queue)
        except TieredError:
            return True
        return known is not None and offset < known.max_offset


def _held(why: Why | None) -> Verdict:
    return PASS if why is None else HELD[why]


def queue_of_pull(request: Mapping[str, str]) -> MessageQueue:
    """The queue that a pull is about. ``BadRequest`` if its fields make no sense."""
    return MessageQueue(text_field(request, "topic"), number_field(request, "queueId", 32))
