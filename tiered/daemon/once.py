"""Where ``--once`` ends: at the broker's present end, or at damage that must not pass for one."""

from __future__ import annotations

import logging

from tiered.clock import Clock
from tiered.errors import Corrupt
from tiered.model import PhysicalOffset
from tiered.source.base import CommitLogSource

log = logging.getLogger("tiered.daemon")

TORN_SECONDS = 2.0
"""How long bytes that are no record may lie at the end before they are judged: a broker writes one within milliseconds."""


class PresentEnd:
    """Judges what lies behind the last archived record.

    Zeros are an end. So are bytes of a former life of the broker: after an unclean stop it writes on without erasing them, and
    nobody can tell them from damage; they are named in a warning. A file that is cut inside a record, and a log without a
    single record, are no state that a broker leaves: ``Corrupt``.
    """

    def __init__(self, source: CommitLogSource, clock: Clock) -> None:
        self._source = source
        self._clock = clock
        self._seen: tuple[PhysicalOffset, str] | None = None
        self._since = 0.0

    def reached(self, position: PhysicalOffset, reason: str) -> bool:
        """Whether ``position`` is the end; false: look again soon. ``reason`` is why nothing can be read there."""
        if not reason.startswith("unreadable"):
            return True
        now = self._clock.monotonic()
        if self._seen != (position, reason):
            self._seen, self._since = (position, reason), now
        if now - self._since < TORN_SECONDS:
            return False
        found = reason.partition(": ")[2] or reason
        if position == self._source.min_offset() or "bytes are left" in reason:
            raise Corrupt(
                "the commitlog ends in damage; everything before it is archived",
                hint="check source.store_dir and the file's length, or start the broker on it: it repairs its log",
                position=position,
                expected="a whole record, or nothing",
                found=found,
            )
        log.warning(
            "bytes that are no record lie behind the commitlog's end: taken for leftovers of an unclean stop of the broker",
            extra={"position": position, "found": found},
        )
        return True
