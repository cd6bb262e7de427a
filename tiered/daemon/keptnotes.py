"""What the workers of a gateway told each other and is still in force, for workers that are started later."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

MAX_KEPT_BYTES = 64 << 20
KEPT_NOTE_BYTES = 200
"""A note counts for this beside its text."""


class KeptNotes:
    """The notes in force, for workers that are started later; beyond ``most`` bytes those told longest ago go first."""

    def __init__(self, most: int = MAX_KEPT_BYTES) -> None:
        self._most = most
        self._bytes = 0
        self._notes: OrderedDict[str, tuple[Any, int]] = OrderedDict()

    def take(self, notes: Sequence[Any]) -> None:
        """Notes of a worker; one without a value ends what was told under its key."""
        for kind, key, value in notes:
            name = json.dumps([kind, key])
            old = self._notes.pop(name, None)
            self._bytes -= old[1] if old is not None else 0
            if value is not None:
                size = len(name) + len(json.dumps(value)) + KEPT_NOTE_BYTES
                self._notes[name] = (kind, key, value), size
                self._bytes += size
        while self._bytes > self._most:
            self._bytes -= self._notes.popitem(last=False)[1][1]

    def all(self) -> list[Any]:
        """Those told longest ago first."""
        return [note for note, _ in self._notes.values()]
