"""How much is sent to a group's retry queue ahead of the group: one ``SendWindow`` for each such queue."""

from __future__ import annotations

from collections import deque

SHORT_TIMES = 2
"""The broker may tell a queue's end late; one that it tells too short this often in a row was deleted and made anew."""
FIRST_GUESS_BYTES = 1024
"""What a message is taken to have before one was sent."""


class SendWindow:
    """Messages are counted by the queue's own offsets, bytes by what was sent from here; of others the mean is taken.

    With nothing ahead of the group there is always room for one message, however large. Not for several threads.
    """

    def __init__(self, most_messages: int, most_bytes: int) -> None:
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._sent: deque[tuple[int, int]] = deque()
        self._sent_bytes = 0
        self._end = 0
        self._short = 0
        self._count = 0
        self._total = 0
        self._group_offset = -1
        self.still = 0
        """How often in a row there was no room and the group had not moved."""
        self.messages = 0
        """Messages that may be sent now."""
        self.bytes = 0
        """Bytes that may be sent now."""

    @property
    def open(self) -> bool:
        """Whether anything may be sent now."""
        return self.messages > 0 and self.bytes > 0

    def stored(self, offset: int, size: int) -> None:
        """The broker stored a message of ``size`` bytes at ``offset`` of the retry queue."""
        self._sent.append((offset, size))
        self._sent_bytes += size
        self._count += 1
        self._total += size
        self._end = max(self._end, offset + 1)
        self.messages -= 1
        self.bytes -= size

    def measure(self, queue_end: int, group_offset: int) -> None:
        """Make room anew, given the queue's end and where the group stands in it, both by the broker's word."""
        self._short = self._short + 1 if queue_end < self._end else 0
        if self._short == SHORT_TIMES:
            self._anew(queue_end)
        self._sent = deque(sorted(self._sent))
        while self._sent and self._sent[0][0] < group_offset:
            self._sent_bytes -= self._sent.popleft()[1]
        ahead = max(0, max(queue_end, self._end) - group_offset)
        mean = self._total // self._count if self._count else FIRST_GUESS_BYTES
        unknown = max(0, ahead - len(self._sent)) * mean
        self.messages = max(0, self._most_messages - ahead)
        self.bytes = max(0, self._most_bytes - self._sent_bytes - unknown)
        self.still = self.still + 1 if not self.open and group_offset == self._group_offset else 0
        self._group_offset = group_offset

    def _anew(self, queue_end: int) -> None:
        """The queue is another one: nothing that was sent to the old one lies in it."""
        self._sent.clear()
        self._sent_bytes = self._short = 0
        self._end = queue_end
