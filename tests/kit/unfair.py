"""``python -m tests.kit.unfair gateway …`` is ``tiered gateway …`` whose cold reads take no turns: first come, first served.

For comparison alone: no setting of the program takes turns away.
"""

from __future__ import annotations

import sys

UNFAIR = (sys.executable, "-m", "tests.kit.unfair")


def take_no_turns() -> None:
    """Have whatever waits in this process wait in one line."""
    from tiered.fetch.fair import NOBODY, FairQueue, TenantGroup

    push = FairQueue.push

    def in_one_line(self: FairQueue[object], share: TenantGroup, cost: int, item: object) -> None:
        push(self, NOBODY, cost, item)

    FairQueue.push = in_one_line  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    from tiered.cli.main import main

    take_no_turns()
    sys.exit(main())
