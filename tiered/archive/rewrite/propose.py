"""Sealing elsewhere: the files of a topic's day, made with the code of the daemon's task, and a proposal for each (DESIGN.md,
"Proposals"). Needs pyarrow, which is an extra."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiered.archive.keys import ArchiveKeys
from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.proposal import Proposal, ProposedObject, put_proposal
from tiered.archive.rewrite.seal import TABLE_BYTES, SealOptions
from tiered.archive.rewrite.sealedday import NewObjects, SealedDay
from tiered.archive.rewrite.sealplan import TopicDay
from tiered.archive.rewrite.sources import Sources, UnevenCut
from tiered.archive.rewrite.spool import Spool
from tiered.crashpoint import ProposalPoint, reach
from tiered.errors import Corrupt, NotFound, Refused
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own


@dataclass(frozen=True, slots=True)
class PlannedOn:
    """The view of an archive that jobs were planned on: its epoch in force, and its last commit."""

    archive_id: bytes
    epoch: int
    commit: int
    commit_id: bytes


@dataclass(frozen=True, slots=True)
class Proposed:
    """What became of a job: sums, and what could not be sealed, and why."""

    figures: dict[str, int]
    troubles: tuple[str, ...]


class Proposer:
    """Makes files and leaves proposals. Of one thread; ``options`` say how large files are and where they are put together."""

    def __init__(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        on: PlannedOn,
        options: SealOptions,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._provider, self._keys, self._on = provider, keys, on
        self._options, self._random_bytes = options, random_bytes

    def propose(self, what: TopicDay, job: Job) -> Proposed:
        """All files of a job, a proposal for each. What cannot be read or proven is left out, and said."""
        figures: Counter[str] = Counter()
        troubles: list[str] = []
        left: Job | None = job
        while left is not None:
            try:
                used = self._one(what, left, figures)
            except UnevenCut as uneven:
                left = left.without(uneven.runs)
                continue
            except (Corrupt, NotFound) as error:
                damaged = left.object_of(error, self._keys)
                if damaged is None:
                    raise
                troubles.append(f"an object cannot be sealed: {error}")
                of = (left.runs["commit_seq"] == damaged.ref.commit_seq) & (
                    left.runs["object"] == damaged.ref.index
                )
                left = left.without(np.flatnonzero(of))
                continue
            except Refused as error:
                troubles.append(f"{what.topic} of {what.date} cannot be sealed: {error}")
                break
            left = left.part(used, len(left.runs)) if used < len(left.runs) else None
        return Proposed(dict(figures), tuple(troubles))

    def _one(self, what: TopicDay, job: Job, figures: Counter[str]) -> int:
        """One file and its proposal; how many runs of the job it takes."""
        on, free = self._on, lambda byte_count: None
        sources = Sources(self._provider, self._keys, on.archive_id, free, table_bytes=TABLE_BYTES)
        ids = NewObjects(on.archive_id, on.epoch, self._random_bytes)
        day = SealedDay(what, job, sources, self._options.shape(), ids, free)
        objects = []
        with Spool(self._options.directory) as spool:
            for item in day.objects(spool):
                put_own(self._provider, self._keys.key(item.data.path), item.data.encoded.parts)
                objects.append(ProposedObject.of(item))
        if objects:
            reach(ProposalPoint.BEFORE_PROPOSAL)
            used = day.used
            made = Proposal(on.archive_id, on.commit, on.commit_id, used.keys, used.values, tuple(objects))
            put_proposal(self._provider, self._keys, on.epoch, self._random_bytes(16), made)
            reach(ProposalPoint.AFTER_PROPOSAL)
            figures.update({name: value for name, value in day.figures.items() if isinstance(value, int)})
            figures["proposals"] += 1
        return len(day.used.runs)
