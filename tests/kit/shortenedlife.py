"""What random histories do to an archive beside what they are about: trims, and newest messages that the broker loses."""

from __future__ import annotations

import random

from tests.kit.archiveedits import Edits, rewind
from tests.kit.fetchscene import Scene
from tests.kit.merging import spread


class ShortenedLife:
    """An archive with a first flush, and what makes it shorter."""

    def __init__(self, made: Scene, chance: random.Random) -> None:
        self.made, self.chance = made, chance
        spread(made, 1, seed=chance.randrange(1 << 30))
        self.first = len(made.broker.sent)

    def trim(self) -> None:
        queue = self.chance.choice(list(self.made.state.queues()))
        if queue.generation is not None and queue.min_offset < queue.max_offset:
            Edits(self.made).trim(queue.queue, self.chance.randint(queue.min_offset, queue.max_offset))

    def lose(self) -> None:
        """The broker loses some of its newest messages, and restarts; the mark behind the first flush still shows who it is."""
        plain = [m for m, _ in self.made.broker.sent[self.first + 1 :][-25:-1] if not m.sys_flag]
        if plain:
            rewind(self.made, self.chance.choice(plain))
