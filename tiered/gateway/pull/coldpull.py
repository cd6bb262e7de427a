"""``ColdPull``: one pull that the archive is asked about, and the answers that can be made of it."""

from __future__ import annotations

from msgspec import Struct, structs

from tiered.codec.remoting.codes import PullBounds, PullRequest, PullStatus, ResponseCode
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
        """The client is told to go on at ``following``."""
        low = min(following, self.bounds.min_offset) if self.bounds.min_offset >= 0 else following
        numbers = {"nextBeginOffset": following, "minOffset": low, "maxOffset": self.bounds.max_offset}
        return changed(self.answer, ResponseCode.PULL_OFFSET_MOVED, remark, numbers)

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
