"""Every kind of consumer that the published Java clients have, as the tests of cold reads use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.kit import cache


@dataclass(frozen=True, slots=True)
class Kind:
    """A consumer: command and options of the client, and its version. ``timed``: it starts at a time."""

    name: str
    version: str
    command: str
    options: Mapping[str, Any] = field(default_factory=dict)
    timed: bool = False

    def __str__(self) -> str:
        """``push-orderly-4.9.7``."""
        return f"{self.name}-{self.version}"


_COMMANDS: Mapping[str, tuple[str, Mapping[str, Any], bool]] = {
    "push": ("push", {}, False),
    "push-orderly": ("push", {"mode": "orderly"}, False),
    "push-broadcast": ("push", {"model": "broadcasting"}, False),
    "push-timestamp": ("push", {"from": "timestamp"}, True),
    "lite-begin": ("lite", {"start": "begin"}, False),
    "lite-offset": ("lite", {"start": "0"}, False),
    "lite-timestamp": ("lite", {"start": "timestamp"}, True),
    "pull": ("pull", {"start": "0"}, False),
    "pull-timestamp": ("pull", {"start": "timestamp"}, True),
}

KINDS: tuple[Kind, ...] = tuple(
    Kind(name, version, command, options, timed)
    for version in (cache.ROCKETMQ_5, cache.ROCKETMQ_4)
    for name, (command, options, timed) in _COMMANDS.items()
)
