"""How many consumers keep connections to a read node, all together and from one address.

A client whose connection is closed asks again and again: only an answer sends it away. So one too many is not refused: it is
answered for a moment that it goes back, and then hung up on.
"""

from __future__ import annotations

from collections import Counter

TURNED_SECONDS = 1.0
"""How long one too many is answered before it is hung up on."""

IDLE_SECONDS = 120.0
"""RocketMQ's clients send a heartbeat every 30 s; a connection of one that is silent for so long is dead."""


class Crowd:
    """Places for consumers' connections. On the event loop only."""

    def __init__(self, most: int, most_per_host: int) -> None:
        self._most = most
        self._most_per_host = most_per_host
        self._hosts: Counter[str] = Counter()
        self.taken = 0

    def admit(self, host: str) -> str | None:
        """A place for one more of ``host``; why not, if there is none."""
        if self.taken >= self._most:
            return f"serve.max_clients is {self._most}"
        if self._hosts[host] >= self._most_per_host:
            return f"serve.max_clients_per_host is {self._most_per_host}"
        self.taken += 1
        self._hosts[host] += 1
        return None

    def leave(self, host: str) -> None:
        """Who had a place is gone."""
        self.taken -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
