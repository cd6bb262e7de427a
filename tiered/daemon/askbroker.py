"""One question to the broker itself, for the source: what it accepts."""

from __future__ import annotations

import logging
from functools import partial

from tiered.clock import Clock
from tiered.errors import TieredError
from tiered.replay.broker import broker_of
from tiered.settings import Replay
from tiered.source.limit import AskBroker

log = logging.getLogger("tiered.daemon")

MOST_SECONDS = 1.0
"""Reading waits for the answer: the broker is on this machine, or it is not asked for long."""


def ask_broker(replay: Replay, clock: Clock) -> AskBroker:
    """The question for the ``maxMessageSize`` of the broker at ``replay.broker_address``."""
    return partial(_max_message_bytes, replay, clock)


def _max_message_bytes(replay: Replay, clock: Clock) -> int | None:
    broker = broker_of(replay, clock, most_seconds=MOST_SECONDS)
    try:
        accepted = broker.max_message_bytes()
    except TieredError as error:
        log.warning("the broker could not be asked for its maxMessageSize", extra={"error": str(error)})
        return None
    finally:
        broker.client.close()
    log.info("the broker was asked for its maxMessageSize", extra={"bytes": accepted})
    return accepted
