"""Objects that a view names and that are not there: whether to look again, or to say what it means (DESIGN.md, "Readers of an
older view")."""

from __future__ import annotations

from collections.abc import Callable

from tiered.errors import NotFound, TieredError, Unavailable

LOOKS = 2
"""Looks at the log after which an object that is still named counts as lost; one that was under way may have ended early."""

MOST_LOOKS = 16
"""Looks of one answer, where each leads to another object that is gone: then a slow reader is told so."""


class GoneObjects:
    """Those that one answer has met. Not thread-safe."""

    def __init__(self, lost: Callable[[NotFound], TieredError]) -> None:
        """``lost``: what it means that the newest view names an object that is not there."""
        self._lost = lost
        self._met: dict[str, int] = {}

    @property
    def any(self) -> bool:
        """Whether one was met."""
        return bool(self._met)

    def met(self, gone: NotFound) -> None:
        """Returns where another look may help. Raises what ``lost`` says if as many as should were of no help for this very
        object, and ``Unavailable`` where each look leads to another one that is gone."""
        key = str(gone.fields.get("key", ""))
        self._met[key] = self._met.get(key, 0) + 1
        if self._met[key] > LOOKS:
            raise self._lost(gone) from gone
        if sum(self._met.values()) > MOST_LOOKS:
            raise Unavailable(
                "objects of the archive are deleted faster than they are read",
                hint="ask again; gc.grace_ms is how long a reader has",
                key=key,
                looks=MOST_LOOKS,
            ) from gone
