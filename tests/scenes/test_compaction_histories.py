"""Archives that age at random while a reader asks for the newest message of each key."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.kit.archiveedits import Edits, rewind
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.keyed import folded, send_keyed
from tests.kit.merging import merge_all
from tests.kit.readstore import reader_follower
from tests.kit.sealing import after_midnight, seal_all
from tiered.errors import Unavailable
from tiered.store.compacted import CompactedMessages


class Life:
    """One archive."""

    def __init__(self, made: Scene, seed: int) -> None:
        self.made, self.chance = made, random.Random(seed)
        self.days = 0
        self.did: Counter[str] = Counter()

    def send(self) -> None:
        send_keyed(self.made, self.chance, self.chance.randint(1, 40), self.chance.choice([3, 30, 300]))

    def lose(self) -> None:
        plain = [m for m, _ in self.made.broker.sent[40:][-25:-1] if not m.sys_flag]
        if plain:
            rewind(self.made, self.chance.choice(plain))
            self.did["rewinds"] += 1

    def trim(self) -> None:
        found = self.made.state.queue(ORDERS)
        if found is not None and found.messages > 60:
            Edits(self.made).trim(ORDERS, self.chance.randint(found.min_offset, found.max_offset - 40))
            self.did["trims"] += 1

    def merge(self) -> None:
        merge_all(self.made.daemon)

    def seal(self) -> None:
        self.days += 1
        after_midnight(self.made, self.days)
        seal_all(self.made.daemon)
        self.did["seals"] += 1


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
