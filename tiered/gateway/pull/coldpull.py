"""``ColdPull``: one pull that the archive is asked about, and the answers that can be made of it.

A client that hears 21 (``PULL_OFFSET_MOVED``) throws away what it has pulled and not consumed yet, and goes on at the offset
named: Java's and Go's push consumers drop the queue. One that hears 20 (``PULL_RETRY_IMMEDIATELY``) keeps what it holds and
pulls on from there. So the gateway says 20 whenever it leads a reader forward; 21 comes from the broker alone:

====================================  ======  ===================================================================
the broker's or the archive's reason  answer  because
====================================  ======  ===================================================================
a hole that nobody has                20      what lies before it was handed out, and may wait in the client
trimmed: the archive begins later     20      the same
a lite queue: either of both          20      the same
the broker's 21, ``OFFSET_TOO_SMALL``
· the archive has the messages        0       nothing is skipped
· nobody has them (``ahead_only``)    20      as for a hole
· it is not known who has them        2       *try again*: no offset is named
the broker's 21, ``OFFSET_RESET``     21      an operator's order: what the client holds is to be dropped
the broker's 21, beyond the end       21      the queue was cut or begun anew: with 20 the client's position would stay
                                              beyond the end, and skip what comes there
any other broker's, level DISABLE     as is   the archive is not asked about them
====================================  ======  ===================================================================
"""

from __future__ import annotations

from msgspec import Struct, structs

from tiered.codec.remoting.codes import PullBounds, PullRequest, PullStatus, ResponseCode, number_field
from tiered.codec.remoting.frame import Bytes, Command
from tiered.filter.base import RowFilter
from tiered.gateway.knowledge.clients import Subscription
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.pull.gaps import before, places
from tiered.gateway.pull.verdict import Why
from tiered.gateway.reply import changed
from tiered.model import MessageQueue, QueueOffset


class ColdPull(Struct, frozen=True):
    """A pull, the broker's ``answer`` to it, and ``why`` that answer is held. Offsets are queue offsets.

    ``bounds``: the broker's, of its answer or newer ones; ``wanted``: the filter, ``None`` takes all, made of the
    ``subscription``; ``asked``: where the client's pull began, for ``pull`` may have been moved on behind a hole.
    """

    why: Why
    pull: PullRequest
    bounds: PullBounds
    answer: Command
    connection: ConnectionInfo
    wanted: RowFilter | None
    asked: int
    subscription: Subscription | None = None

    @property
    def queue(self) -> MessageQueue:
        """The queue that is read."""
        return MessageQueue(self.pull.topic, self.pull.queue_id)

    @property
    def ahead(self) -> Bytes:
        """The broker's own records ahead of a pull that was moved on."""
        moved = self.pull.offset > self.asked and self.answer.code == ResponseCode.SUCCESS
        return before(self.answer.body, self.pull.offset) if moved else b""

    @property
    def lost_from(self) -> int:
        """Behind the broker's last record ahead of a pull that was moved on over a hole."""
        return max(places(self.ahead), default=self.asked - 1) + 1

    def at(self, offset: QueueOffset) -> ColdPull:
        """The same pull, moved on."""
        return structs.replace(self, pull=structs.replace(self.pull, offset=int(offset)))

    def moved(self, following: int, remark: str) -> Command:
        """The client is told to go on at ``following``, and keeps what it holds."""
        low = min(following, self.bounds.min_offset) if self.bounds.min_offset >= 0 else following
        numbers = {"nextBeginOffset": following, "minOffset": low, "maxOffset": self.bounds.max_offset}
        return changed(self.answer, ResponseCode.PULL_RETRY_IMMEDIATELY, remark, numbers)

    def hole(self, end: int) -> Command:
        """The client is led over a hole up to ``end``."""
        return self.moved(
            end,
            f"{PullStatus.OFFSET_TOO_SMALL.value}: {self.queue} has lost its offsets {self.pull.offset} to {end - 1}",
        )

    def cut(self, ahead: Bytes) -> Command:
        """The broker's own records that lie ``ahead``, and no more."""
        numbers = {"nextBeginOffset": self.pull.offset}
        return changed(self.answer, self.answer.code, self.answer.remark, numbers, ahead)

    def found(self, body: Bytes, following: int, archive_begin: int) -> Command:
        """Records of the archive, or without any how far the filter took none."""
        bounds = self.bounds
        low = min(archive_begin, bounds.min_offset) if bounds.min_offset >= 0 else archive_begin
        numbers = {"nextBeginOffset": following, "minOffset": low, "maxOffset": bounds.max_offset}
        if len(body):
            return changed(self.answer, ResponseCode.SUCCESS, PullStatus.FOUND.value, numbers, body)
        remark = PullStatus.NO_MATCHED_MESSAGE.value
        return changed(self.answer, ResponseCode.PULL_RETRY_IMMEDIATELY, remark, numbers)


def ahead_only(answer: Command, offset: int) -> Command | None:
    """The broker's ``answer`` to a pull at ``offset`` that nobody has any more, so that the client keeps what it holds;
    ``None``: as it came. Where it leads nowhere 20 would have the client ask without a pause."""
    if answer.code != ResponseCode.PULL_OFFSET_MOVED or answer.remark != PullStatus.OFFSET_TOO_SMALL.value:
        return None
    if number_field(answer.ext, "nextBeginOffset") <= offset:
        return None
    return changed(answer, ResponseCode.PULL_RETRY_IMMEDIATELY, answer.remark, {})
