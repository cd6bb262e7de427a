"""Sealing elsewhere, in one thread: proposals as another process leaves them, and the task that settles them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Scene
from tests.kit.merging import AtOnceTurn
from tests.kit.readstore import Cold
from tests.kit.sealing import seal_options
from tiered.archive.log.maintenance import Done, OwnKeys
from tiered.archive.rewrite.plan import Job
from tiered.archive.rewrite.proposals import Proposals
from tiered.archive.rewrite.propose import PlannedOn, Proposed, Proposer
from tiered.archive.rewrite.sealplan import TopicDay, disjoint_jobs


@dataclass
class Elsewhere:
    """Whatever is to be sealed now, planned on the archive as it is when this is made."""

    scene: Scene | Cold
    seed: int = 7
    segment_bytes: int = 64 << 20
    jobs: list[tuple[TopicDay, Job]] = field(default_factory=list)

    def __post_init__(self) -> None:
        state = self.scene.daemon.state
        head = state.head()
        assert head is not None
        self._on = PlannedOn(head.archive_id, head.epoch, head.seq, head.commit_id)
        self._options = seal_options(segment_bytes=self.segment_bytes)
        self.jobs = list(disjoint_jobs(state, self._options.bounds, self.scene.clock.now_ms()))

    def propose(self) -> Iterator[Proposed]:
        """Make the files and leave the proposals, job by job."""
        chance = random.Random(self.seed)
        for what, job in self.jobs:
            yield Proposer(self.scene.provider, KEYS, self._on, self._options, chance.randbytes).propose(
                what, job
            )


def proposals(scene: Scene | Cold, own_keys: OwnKeys | None = None) -> Proposals:
    """The task of the daemon that the scene has now."""
    return Proposals(scene.daemon.log, scene.clock, 600_000, own_keys or OwnKeys())


def settle_all(
    scene: Scene | Cold, task: Proposals | None = None, turn: AtOnceTurn | None = None
) -> dict[str, int]:
    """Turns until nothing is left; what they did, added up."""
    made, sums = task or proposals(scene), dict[str, int]()
    done: Done | None = None
    while done is None or done.more:
        done = made.run_once(turn or AtOnceTurn(scene.daemon))
        for name, value in done.figures.items():
            sums[name] = sums.get(name, 0) + int(value or 0)
    return sums


def waiting(scene: Scene | Cold) -> list[str]:
    """Keys of proposals in the bucket."""
    return [item.key for item in scene.provider.list(KEYS.key("proposal/"))]
