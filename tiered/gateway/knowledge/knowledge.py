"""``Knowledge``: what the judge of pulls and the answers to them know together."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.gateway.knowledge.archive import PullArchive
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.caughtup import Coverage
from tiered.gateway.knowledge.clients import Clients
from tiered.gateway.knowledge.minimums import Minimums
from tiered.gateway.knowledge.rights import Rights
from tiered.gateway.knowledge.unchecked import Unchecked


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The archive and how it is asked; who reads, and may; where the broker's queues begin, and what it still has; what was
    said of answers that pass unchecked."""

    archive: PullArchive
    asking: Asking
    clients: Clients
    rights: Rights
    minimums: Minimums
    coverage: Coverage
    unchecked: Unchecked
