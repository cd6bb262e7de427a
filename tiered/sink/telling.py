"""What a sink says in the log: that it stands still or goes on, what it lacks, which queues begin anew."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from tiered.model import MessageQueue
from tiered.sink.choosing import LostRange
from tiered.sink.progress import SinkPhase

log = logging.getLogger("tiered.sink")

_SOME = 5
"""Ranges and queues that are named."""


def tell_phase(sink: str, phase: SinkPhase, why: str | None) -> None:
    """It entered a phase."""
    said = {"sink": sink, "phase": phase.value, **({} if why is None else {"why": why})}
    if phase is SinkPhase.STOPPED:
        log.error("a sink has stopped", extra=said)
    elif phase in (SinkPhase.AWAY, SinkPhase.WAITING):
        log.warning("a sink stands still", extra=said)
    else:
        log.info("a sink goes on", extra=said)


def tell_lost(sink: str, kind: str, lost: Sequence[LostRange]) -> None:
    """It was never given messages (``missing``), or had them and the broker lost them (``source``)."""
    text = "a sink lacks messages" if kind == "missing" else "the broker lost messages that a sink has had"
    shown = [f"{gone.queue} {gone.first} to {gone.end - 1}: {gone.why}" for gone in lost[:_SOME]]
    log.error(text, extra={"sink": sink, "messages": sum(gone.messages for gone in lost), "ranges": shown})


def tell_anew(sink: str, queues: Sequence[MessageQueue]) -> None:
    """Queues begin again at their first message."""
    log.warning(
        "queues begin anew: their topics were deleted and made again",
        extra={"sink": sink, "queues": len(queues), "some": [str(queue) for queue in queues[:_SOME]]},
    )
