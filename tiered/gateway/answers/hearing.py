"""Notes of the gateway's other workers, each to whom it is for. See ``tiered.gateway.knowledge.peers``."""

from __future__ import annotations

from typing import Any

from tiered.gateway.answers.resets import Resets
from tiered.gateway.knowledge import peers
from tiered.gateway.knowledge.clients import Clients, Subscription
from tiered.gateway.knowledge.minimums import Minimums
from tiered.gateway.knowledge.popwatch import PopWatch
from tiered.gateway.knowledge.rights import Rights


class Hearing:
    """Takes notes in. On the event loop only. What is heard is told to nobody again."""

    def __init__(
        self,
        resets: Resets,
        clients: Clients,
        minimums: Minimums,
        rights: Rights,
        pop: PopWatch,
    ) -> None:
        self._resets = resets
        self._clients = clients
        self._minimums = minimums
        self._rights = rights
        self._pop = pop

    def __call__(self, kind: str, key: tuple[Any, ...], value: Any) -> None:
        """One note. Of a kind that is not known here nothing is made: workers are of one version."""
        match kind:
            case peers.RESET:
                self._resets.hear_target((key[0], key[1], key[2]), value)
            case peers.STOOD:
                self._resets.hear_stood((key[0], key[1], key[2]), value)
            case peers.TOLD:
                self._resets.hear_told(key[0], key[1], key[2], value)
            case peers.GROUP:
                broadcast, said = value
                self._clients.told(key[0], broadcast, {topic: Subscription(*told) for topic, *told in said})
            case peers.MINIMUM:
                self._minimums.told(key[0], key[1], value)
            case peers.GRANT:
                self._rights.told(key[0], key[1], value)
            case peers.POP:
                self._pop.told(key[0], key[1], key[2], value)
