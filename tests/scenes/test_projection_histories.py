"""Archives aged at random: what a projection and the messages behind it say is what a fold over all messages says."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.archiveedits import Edits, rewind, start_again
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all
from tests.kit.projecting import folded, projected, projecting, send_keyed, stored_projections, view_of
from tests.kit.readstore import reader_follower
from tests.kit.sealing import after_midnight, seal_all
from tests.kit.shortenedlife import forget_queue
from tiered.archive.read.projection import newest_projection
from tiered.errors import Unavailable
from tiered.store.compacted import CompactedMessages


class Life:
    """One archive; the task goes on beside everything else, a turn at a time."""

    def __init__(self, made: Scene, seed: int, *, forgets: bool = False) -> None:
        self.made, self.chance, self.forgets = made, random.Random(seed), forgets
        self.task = projecting(made)
        self.days = 0
        self.did: Counter[str] = Counter()

    def send(self) -> None:
        send_keyed(self.made, self.chance, self.chance.randint(1, 40), self.chance.choice([3, 30, 300]))

    def lose(self) -> None:
        plain = [m for m, _ in self.made.broker.sent[40:][-25:-1] if not m.sys_flag]
        if plain:
            rewind(self.made, self.chance.choice(plain))
            self._begin_again()
            self.did["rewinds"] += 1

    def restart(self) -> None:
        start_again(self.made)
        self._begin_again()

    def _begin_again(self) -> None:
        if self.task._build is not None:
            self.task._build.close()
        self.task = projecting(self.made)

    def trim(self) -> None:
        found = self.made.state.queue(ORDERS)
        if found is not None and found.messages > 60:
            Edits(self.made).trim(ORDERS, self.chance.randint(found.min_offset, found.max_offset - 40))
            self.did["trims"] += 1

    def forget(self) -> None:
        """The topic goes with all that it has; mostly it comes back, numbered from 0 as a topic that was made anew."""
        if self.made.state.queue(ORDERS) is None:
            return
        self._write_past_what_was_lost()
        assert forget_queue(self.made, ORDERS)
        self.did["forgotten"] += 1
        assert newest_projection(view_of(self.made), ORDERS) is None, "what is left of it in the bucket"
        if self.chance.random() < 0.7:
            self.made.broker.following.pop((ORDERS.topic, ORDERS.queue_id), None)
        self.send()
        assert newest_projection(view_of(self.made), ORDERS) is None, (
            "those of its former life are not believed"
        )

    def _write_past_what_was_lost(self) -> None:
        """A trim goes up to a generation's end at most: what the broker lost above the current one's would keep the queue."""
        found = self.made.state.queue(ORDERS)
        while found is not None and found.generation is not None:
            lost = self.made.state.closed_table(ORDERS, found.generation)["end"]
            if found.max_offset >= lost.max(initial=0):
                return
            self.send()
            self.did["written on"] += 1
            found = self.made.state.queue(ORDERS)

    def merge(self) -> None:
        merge_all(self.made.daemon)

    def seal(self) -> None:
        self.days += 1
        after_midnight(self.made, self.days)
        seal_all(self.made.daemon)
        self.did["seals"] += 1

    def project(self) -> None:
        for _ in range(self.chance.choice([1, 3, 100])):
            done = self.task.run_once(AtOnceTurn(self.made.daemon))
            assert done.trouble is None
            self.did.update({what: n for what, n in done.figures.items() if isinstance(n, int)})

    def step(self) -> None:
        steps = [self.send, self.send, self.send, self.lose, self.restart, self.trim, self.merge, self.seal]
        steps += [self.forget] * self.forgets
        self.chance.choice([*steps, *[self.project] * 4])()
        expected = folded(self.made)
        assert projected(self.made) == expected
        holds = newest_projection(view_of(self.made), ORDERS)
        self.did["held"] += holds is not None


@pytest.mark.depends_only_on_imports
@pytest.mark.history
@pytest.mark.parametrize("seed", range(6))
def test_a_projection_and_what_came_since_are_the_newest_message_of_each_key(
    tmp_path: Path, seed: int
) -> None:
    with scene(tmp_path, inline_bytes=(0, 1 << 20)[seed % 2]) as made:
        life = Life(made, seed)
        life.send()
        for _ in range(45):
            life.step()
        assert life.did["projections"] > 1, life.did
        assert life.did["held"] > 10, life.did
        assert stored_projections(made)


@pytest.mark.depends_only_on_imports
@pytest.mark.history
@pytest.mark.parametrize("seed", range(4))
def test_of_a_topic_that_was_forgotten_and_came_back_no_former_projection_is_believed(
    tmp_path: Path, seed: int
) -> None:
    with scene(tmp_path, inline_bytes=(0, 1 << 20)[seed % 2], forgets=True) as made:
        life = Life(made, seed, forgets=True)
        life.send()
        for _ in range(30):
            life.step()
        life.project()
        life.forget()
        life.step()
        assert life.did["projections"] > 1, life.did
        assert life.did["forgotten"] >= 1, life.did
        assert life.did["held"] > 3, life.did


class Beside:
    """A reader of an archive that ages at some of its requests: merged, sealed, trimmed or cut by the broker, and what is not
    needed any more deleted at once. What it may answer is noted before and after each."""

    def __init__(self, life: Life) -> None:
        self.life, self.made, self.chance = life, life.made, life.chance
        self.follower = reader_follower(self.made.provider, self.made.clock, self.made.metrics)
        self.follower.open()
        self.may_be = [folded(self.made)]
        self.aged, self.looked, self.lost = 0, False, False
        self.made.provider.gate = self.gate

    def gate(self, key: str, start: int, length: int) -> None:
        if self.chance.random() < 0.75 or self.aged == 4:
            return
        self.made.provider.gate = lambda *_: None
        life, edits = self.life, Edits(self.made)
        rewinds = life.did["rewinds"]
        self.chance.choice([life.merge, life.seal, life.trim, life.trim, life.send, life.lose, life.lose])()
        self.lost |= life.did["rewinds"] > rewinds
        edits.retire()
        edits.delete()
        self.may_be.append(folded(self.made))
        self.aged += 1
        self.made.provider.gate = self.gate

    def read(self) -> str:
        """One read, and how it ended."""
        found = CompactedMessages(self.follower, ORDERS, memory_bytes=4096)
        got: list[tuple[int, bytes]] = []
        before = self.follower.reader.view
        try:
            for item in found.records():
                got.append(item)
        except Unavailable:  # it lost its end
            assert self.lost
            return "cut"
        finally:
            self.made.provider.gate = lambda *_: None
        self.looked = self.follower.reader.view is not before
        queue = self.made.state.queue(ORDERS)
        first = 0 if queue is None else queue.min_offset
        for whole in self.may_be:
            gone = [item for item in whole if item not in got]
            if [item for item in whole if item in got] == got and len(gone) <= found.went:
                assert all(offset < first for offset, _ in gone), "only what was trimmed may be left out"
                return "trimmed" if gone else "whole"
        raise AssertionError("an answer that was never right")


@pytest.mark.depends_only_on_imports
@pytest.mark.history
@pytest.mark.parametrize("seed", range(4))
def test_a_reader_looks_again_where_what_its_view_names_was_deleted(tmp_path: Path, seed: int) -> None:
    outcomes: Counter[str] = Counter()
    with scene(tmp_path, inline_bytes=0) as made:
        life = Life(made, seed)
        for _ in range(12):
            for _ in range(4):
                life.send()
            beside = Beside(life)
            outcomes[beside.read()] += 1
            outcomes["looked"] += beside.looked
    assert outcomes["looked"] > 2, outcomes
    assert outcomes["whole"] > 4, outcomes
