"""A process that ends at a numbered crash point because its environment says so: for the fault tests only."""

from __future__ import annotations

import os
from collections.abc import Mapping

from tiered.crashpoint import install

CRASH_VARIABLE = "TIERED_CRASH_AT"
"""``NUMBER`` or ``NUMBER:TIMES``: the process ends, as ``kill -9`` would, when it is at that point (for the n-th time)."""


def install_crash(env: Mapping[str, str]) -> None:
    """End this process where its environment says so, if it does."""
    spec = env.get(CRASH_VARIABLE)
    if not spec:
        return
    number, _, times = spec.partition(":")
    wanted, left = int(number), [int(times or 1)]

    def hook(point: int) -> None:
        if point == wanted:
            left[0] -= 1
            if left[0] <= 0:
                os._exit(137)

    install(hook)
