"""How large a record may be: the setting, or what the broker itself accepts, if that is more."""

from __future__ import annotations

from collections.abc import Callable

from tiered.clock import Clock
from tiered.errors import Invalid
from tiered.model import PhysicalOffset
from tiered.settings import KIB, MIB

LARGEST_RECORD_BYTES = 256 * MIB
"""What a broker may raise the limit to: a record is held in memory several times on its way."""
BESIDES_BODY_BYTES = 64 * KIB
"""Head, topic and properties of a record; the broker's ``maxMessageSize`` limits the body alone."""
ASK_SECONDS = 60.0

AskBroker = Callable[[], int | None]
"""The broker's ``maxMessageSize`` in bytes; ``None`` if it cannot be asked now."""


class RecordLimit:
    """``bytes``: the largest record that is archived. Asks the broker when a larger one is met, and only then."""

    def __init__(self, setting: int, ask_broker: AskBroker, clock: Clock) -> None:
        self.bytes = setting
        self._ask_broker = ask_broker
        self._clock = clock
        self._ask_at: float | None = None

    def allows(self, size: int) -> bool:
        """Whether a record of ``size`` bytes is archived, perhaps because the broker says that it accepts such."""
        now = self._clock.monotonic()
        asks = self._ask_at is None or now >= self._ask_at
        if self.bytes < size <= LARGEST_RECORD_BYTES and asks:
            self._ask_at = now + ASK_SECONDS
            accepted = self._ask_broker()
            if accepted is not None:
                self.bytes = max(self.bytes, min(accepted + BESIDES_BODY_BYTES, LARGEST_RECORD_BYTES))
        return size <= self.bytes

    def exceeded(self, position: PhysicalOffset, size: int, file: str) -> Invalid:
        """What an operator is told of a whole record above the limit."""
        hint = (
            f"set source.max_record_bytes to {size} or more, or replay.broker_address to the broker, which is asked for its"
            " maxMessageSize; the commitlog is held until then, within hold.max_bytes"
        )
        if size > LARGEST_RECORD_BYTES:
            hint = f"no setting allows more than {LARGEST_RECORD_BYTES} bytes: source.start begins behind it in a new archive"
        return Invalid(
            "a record is larger than source.max_record_bytes: archiving waits in front of it",
            hint=hint,
            key="source.max_record_bytes",
            value=self.bytes,
            found=size,
            file=file,
            position=position,
        )
