"""Answers that are the broker's own although the archive may know more: counted, and said when they begin and when they end."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum

from tiered.clock import Clock
from tiered.metrics import Metrics

log = logging.getLogger("tiered.gateway")


QUIET_SECONDS = 60.0
"""A state is over when answers were complete for so long: an archive that is slow now and then is said once."""


class Lacking(Enum):
    """What an answer lacks, for whoever reads the log."""

    TIMES = "store times that the broker no longer knows are left out: the archive did not say them in time"
    MANY_TIMES = (
        "only some of the store times that the broker no longer knows are filled in: there are too many"
    )
    DAMAGE = "what the archive has of it is damaged"
    OTHER_BROKER = "the archive is not this broker's"
    LARGE = "the broker's table is too large to be completed"
    ROOM = "more messages were found than one answer holds"
    KIND = "the archive does not answer queries page by page, or by another index than that of keys"
    DELETION = "whether a deletion left messages out is not known: the archive did not say in time, and the broker was calm"
    PLACE = "whether a deletion is near is not known: the broker does not say where its log begins, or the archive is not open"
    BEGIN = "whether the archive reaches up to the broker's queue is not known: the broker does not say where it begins"
    RIGHTS = "nothing shows that the client may read the lite queue"

    @property
    def lasts(self) -> bool:
        """Whether it is the same for every such answer, so that one with all in it ends nothing."""
        return self not in (Lacking.TIMES, Lacking.DAMAGE, Lacking.OTHER_BROKER, Lacking.DELETION)


@dataclass(slots=True)
class _Since:
    answers: int = 0
    last: float = 0.0


class Unchecked:
    """What was said of such answers. On the event loop only."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock
        self._open: dict[tuple[str, Lacking], _Since] = {}

    def count(self, what: str, lacking: Lacking) -> None:
        """One more answer to ``what`` lacks something."""
        self._metrics.cold_answers.labels(what, "unchecked").inc()
        known = self._open.setdefault((what, lacking), _Since())
        known.answers += 1
        known.last = self._clock.monotonic()
        if known.answers == 1:
            log.warning(
                "answers pass that may know less than the archive",
                extra={"what": what, "lacking": lacking.value},
            )

    def complete(self, what: str) -> None:
        """An answer to ``what`` had all that the archive knows."""
        for key in [key for key in self._open if key[0] == what and not key[1].lasts]:
            known = self._open[key]
            if self._clock.monotonic() - known.last >= QUIET_SECONDS:
                del self._open[key]
                log.info(
                    "answers are complete again",
                    extra={"what": what, "lacked": key[1].value, "answers": known.answers},
                )
