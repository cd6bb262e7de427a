"""What the workers of one gateway tell each other, where an answer to one client depends on what another one did.

A connection lives in one worker, the clients of a group in all. So what is learnt from one connection and used for others is a
note: a kind, a key and a value. Each kind has one owner (``Resets``, ``Clients``, ``Minimums``, ``Rights``, ``PopWatch``),
who tells and hears it. What only decides what a cache keeps (positions, who is alive) stays with the worker whose cache it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

Note = tuple[str, tuple[str | int, ...], Any]
"""Kind, key, and a value of JSON's types; ``None``: what was told under the key is over."""

RESET, STOOD, TOLD = "reset", "stood", "told"
GROUP, MINIMUM, GRANT, POP = "group", "minimum", "grant", "pop"


class Peers(Protocol):
    """The other workers. On the event loop only."""

    def tell(self, kind: str, key: tuple[str | int, ...], value: Any) -> None:
        """Let them know, soon; nobody waits for it."""
        ...

    async def spread(self, notes: Sequence[Note]) -> None:
        """Let them know, and return when every one of them does. ``Unavailable`` if that is not sure in time."""
        ...

    async def caught_up(self) -> None:
        """Return when all that they told before this call has been heard. ``Unavailable`` if that is not sure in time."""
        ...


class Alone:
    """A gateway of one process: there is nobody to tell."""

    def tell(self, kind: str, key: tuple[str | int, ...], value: Any) -> None:
        """Nothing."""

    async def spread(self, notes: Sequence[Note]) -> None:
        """Nothing."""

    async def caught_up(self) -> None:
        """Nothing."""


ALONE = Alone()
