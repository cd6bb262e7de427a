"""What stands for a commit whose own key is damaged or gone: the objects that ``tiered repair`` puts (FORMAT.md, "Repair")."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tiered.errors import Corrupt

if TYPE_CHECKING:
    from tiered.archive.log.again import ReadCommit
    from tiered.archive.log.reader import LogReader


def stand_in(reader: LogReader, seq: int) -> ReadCommit | None:
    """What ``tiered repair`` put beside a damaged or lost commit: of several the one that the next commit names."""
    found: list[ReadCommit] = []
    for stored in reader.provider.list(reader.keys.repair_prefix(seq)):
        with contextlib.suppress(Corrupt):  # counts as absent
            made = reader.read_at(stored.key, seq)
            if made is not None and stored.key == reader.keys.repair(seq, made.commit.commit_id):
                found.append(made)
    if len(found) > 1:
        after = reader.read(seq + 1)
        found = [f for f in found if after is None or f.commit.commit_id == after.commit.previous_id]
    return found[0] if found else None
