"""One task of sealing, on an executor: the files of a topic's day, and a proposal for each."""

from __future__ import annotations

import os
from dataclasses import dataclass

from tiered.archive.keys import ArchiveKeys
from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.propose import PlannedOn, Proposed, Proposer
from tiered.archive.rewrite.seal import SealOptions
from tiered.archive.rewrite.sealplan import TopicDay
from tiered_spark.snapshot import ArchivePlace, shared_provider


@dataclass(frozen=True, slots=True)
class SealTask:
    """What one task seals: runs of a topic's day, as a fold has them."""

    place: ArchivePlace
    epoch: int
    commit: int
    commit_id: bytes
    day: TopicDay
    job: Job
    options: SealOptions


def propose(task: SealTask) -> Proposed:
    """Make the files and leave their proposals."""
    place = task.place
    on = PlannedOn(place.archive_id, task.epoch, task.commit, task.commit_id)
    keys = ArchiveKeys(place.cluster, place.broker)
    made = Proposer(shared_provider(place.url), keys, on, task.options, os.urandom).propose(
        task.day, task.job
    )
    return Proposed(made.figures, made.troubles)
