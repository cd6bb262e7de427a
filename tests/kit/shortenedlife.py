"""What random histories do to an archive beside what they are about: trims, queues that go, and newest messages that
the broker loses."""

from __future__ import annotations

import random

from tests.kit.archiveedits import Edits, rewind
from tests.kit.fetchscene import Scene
from tests.kit.merging import spread
from tiered.archive.state.forgotten import without_anything
from tiered.archive.state.keys import queue_key
from tiered.model import MessageQueue


def forget_queue(made: Scene, queue: MessageQueue) -> bool:
    """The queue goes with all that it has; ``False``: something keeps it, and all else of it has gone."""
    state, edits = made.state, Edits(made)
    for generation in list(state.generations(queue)):
        parts = state.closed_table(queue, generation.generation)["end"].tolist()
        ends = [generation.max_offset, *(() if generation.current else parts)]
        edits.trim(queue, max(ends), generation.generation)
    if not without_anything(state.view, [queue_key(queue)]):
        return False
    edits.forget(queue)
    return True


class ShortenedLife:
    """An archive with a first flush, and what makes it shorter."""

    def __init__(self, made: Scene, chance: random.Random) -> None:
        self.made, self.chance = made, chance
        self.forgotten = 0
        spread(made, 1, seed=chance.randrange(1 << 30))
        self.first = len(made.broker.sent)

    def trim(self) -> None:
        queue = self.chance.choice(list(self.made.state.queues()))
        if queue.generation is not None and queue.min_offset < queue.max_offset:
            Edits(self.made).trim(queue.queue, self.chance.randint(queue.min_offset, queue.max_offset))

    def forget(self) -> None:
        """A topic's queue goes with all that it has; now and then the broker makes it anew, and numbers from 0 again."""
        queue = self.chance.choice(list(self.made.state.queues())).queue
        if forget_queue(self.made, queue):
            self.forgotten += 1
            if self.chance.random() < 0.7:
                self.made.broker.following.pop((queue.topic, queue.queue_id), None)

    def lose(self) -> None:
        """The broker loses some of its newest messages, and restarts; the mark behind the first flush still shows who it is."""
        plain = [m for m, _ in self.made.broker.sent[self.first + 1 :][-25:-1] if not m.sys_flag]
        if plain:
            rewind(self.made, self.chance.choice(plain))
