"""Questions to the broker itself: what it accepts, for the source, and what it is called, before an archive is made."""

from __future__ import annotations

import logging
import os
from functools import partial

from tiered.clock import Clock
from tiered.errors import Invalid, TieredError
from tiered.replay.broker import broker_of
from tiered.settings import Replay, Settings
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


def check_told_names(settings: Settings, clock: Clock) -> None:
    """``Invalid`` where the broker at ``replay.broker_address`` has its store in ``source.store_dir`` and goes by another name.
    One that does not answer, or has its store elsewhere, says nothing of this one."""
    source, broker = settings.source, broker_of(settings.replay, clock, most_seconds=MOST_SECONDS)
    try:
        told = broker.config()
    except TieredError as error:
        log.debug("the broker was not asked for its name", extra={"error": str(error)})
        return
    finally:
        broker.client.close()
    place, names = told.get("storePathRootDir", ""), (told.get("brokerClusterName"), told.get("brokerName"))
    if not (place and source.store_dir and os.path.realpath(place) == os.path.realpath(source.store_dir)):
        return
    if None not in names and names != (source.cluster, source.broker):
        raise Invalid(
            "the broker of this store goes by another name: under this one everything would be archived again",
            key="source.broker",
            broker=settings.replay.broker_address,
            expected=f"{names[0]}/{names[1]}",
            found=f"{source.cluster}/{source.broker}",
            hint=f"set source.cluster to {names[0]} and source.broker to {names[1]}; if another broker answers at"
            " replay.broker_address, correct that",
        )
