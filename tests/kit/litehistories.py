"""Random valid histories with lite queues, and a naive model of them: every alias by itself, no runs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.kit.histories import History, Record, open_epoch
from tiered.archive.rewrite.aliasplan import AliasChange, Sought, alias_change_edit, changes_from, settled
from tiered.archive.state.aliases import alias_runs
from tiered.archive.state.keys import ALIAS, LITE_QUEUE, queue_key, queue_of, split_run_key
from tiered.codec.format.aliases import LITE_QUEUES, Aliases
from tiered.codec.format.edits import Commit, EditBatch, EditKind, Rows
from tiered.model import MessageQueue

Alias = tuple[MessageQueue, int, int, int, int]
"""Queue, generation and offset of a record, its physical offset and store time."""


@dataclass
class LiteQueue:
    """``aliases``: by generation and offset; ``gone``: those that followed their records; ``lineages``: of each generation."""

    current: int = 0
    highest: int = 0
    maximum: int = 0
    lineages: dict[int, int] = field(default_factory=dict)
    aliases: dict[tuple[int, int], Alias] = field(default_factory=dict)
    gone: dict[tuple[int, int], Alias] = field(default_factory=dict)

    def of(self, generation: int) -> dict[int, Alias]:
        return {offset: a for (g, offset), a in self.aliases.items() if g == generation}


class LiteHistory(History):
    """A log in which some records are in lite queues, too."""

    def __init__(self, chance: random.Random, *, lites: str = "abc", **sizes: int) -> None:
        """``lites``: names of lite queues, a character each."""
        self.lites = lites
        self.lite: dict[str, LiteQueue] = {}
        self.planned: list[AliasChange] = []
        super().__init__(chance, **sizes)

    def _claim(self, *, new_lineage: bool) -> EditBatch:
        super()._claim(new_lineage=new_lineage)
        features = Rows([[LITE_QUEUES]])
        return open_epoch(self.epoch, self.writer, self.lineage, required_features=features)

    def step(self) -> Commit:
        """As ever, or aliases are aged."""
        edits = self.age() if self.chance.random() < 0.2 else None
        return super().step() if edits is None else self.add(edits)

    def flush(self) -> list[EditBatch]:
        """As ever, and of some records where else they are."""
        edits = super().flush()
        found = sorted(self._appended(edits), key=lambda place: place[2].physical)
        edits.insert(len(edits) - 1, self.aliased(found).edit())
        return edits

    def _appended(self, edits: list[EditBatch]) -> list[tuple[MessageQueue, int, Record]]:
        rows = [b.row(i) for b in edits if b.kind is EditKind.APPEND_RUN for i in range(len(b))]
        return [
            (MessageQueue(row["topic"], row["queue_id"]), row["generation"], record)
            for number, row in enumerate(rows)
            for record in dict.fromkeys(self.contents[len(self.commits), number].values())
        ]

    def aliased(self, records: list[tuple[MessageQueue, int, Record]]) -> Aliases:
        """Places in lite queues for some of the records, ascending by physical offset: put into the model, and as an edit."""
        made: dict[str, dict[tuple[int, int], Alias]] = {}
        for mq, generation, record in records:
            for name in self.chance.sample(self.lites, self.chance.choice([0, 0, 1, 2])):
                queue = self.lite.setdefault(f"%LMQ%{name}", LiteQueue())
                if queue.lineages.get(queue.current) != self.lineage or self.chance.random() < 0.05:
                    queue.current = queue.highest = queue.highest + 1
                    queue.lineages[queue.current] = self.lineage
                    queue.maximum = self.chance.choice([0, 0, 50])
                elif self.chance.random() < 0.1:
                    queue.maximum += self.chance.randint(1, 4)
                alias = (mq, generation, record.offset, record.physical, record.time)
                queue.aliases[queue.current, queue.maximum] = alias
                made.setdefault(f"%LMQ%{name}", {})[queue.current, queue.maximum] = alias
                queue.maximum += 1
        return pack(made)

    def rewind(self) -> list[EditBatch] | None:
        """As ever; aliases of what is lost go."""
        edits = super().rewind()
        if edits is None:
            return None
        position = int(edits[0].ints("physical_offset")[0])
        for queue in self.lite.values():
            reached = False
            for aliases in (queue.aliases, queue.gone):
                for (generation, offset), alias in list(aliases.items()):
                    if queue.lineages[generation] == self.lineage and alias[3] >= position:
                        del aliases[generation, offset]
                        reached |= generation == queue.current
            if reached:
                left = [g for g, _ in queue.aliases if queue.lineages[g] == self.lineage]
                queue.current = max(left, default=0)
                queue.maximum = max(queue.of(queue.current), default=-1) + 1
        return edits

    def age(self) -> list[EditBatch] | None:
        """What the fold's own plan says, or said some commits ago, or some of it; and joins of any offsets, which may change
        nothing."""
        planned, self.planned = self.planned, changes_from(self.state, Sought(), b"", 1 << 20)[0]
        changes = settled(self.state, planned if self.chance.random() < 0.5 else self.planned)
        for name in self.lite:
            start = self.chance.randint(0, 60)
            end = start + self.chance.randint(0, 60)
            queue = queue_key(MessageQueue(name, 0))
            changes.append(AliasChange(queue, self.chance.randint(0, 3), start=start, end=end, joined=2))
        changes = [change for change in changes if self.chance.random() < 0.8]
        for change in changes:
            lite = self.lite[queue_of(change.queue).topic]
            for (generation, offset), alias in list(lite.aliases.items()):
                if generation == change.generation and offset < change.first_offset:
                    assert self.is_gone(alias), "only what retention took"
                    lite.gone[generation, offset] = lite.aliases.pop((generation, offset))
        return [alias_change_edit(changes)] if changes else None

    def is_gone(self, alias: Alias) -> bool:
        """Whether retention took the record of an alias."""
        return alias[2] < self.model.queues[alias[0]].generations[alias[1]].minimum

    def folded_lite(self) -> dict[str, dict[tuple[int, int], Alias]]:
        """What the fold says of every lite queue, all its generations."""
        found: dict[str, dict[tuple[int, int], Alias]] = {}
        for key, _ in self.store.iterate(LITE_QUEUE):
            mq = queue_of(key[1:])
            numbers = {split_run_key(k)[1] for k, _ in self.store.iterate(ALIAS + key[1:])}
            runs = [(g, run) for g in numbers for run in alias_runs(self.store, mq, g)]
            found[mq.topic] = {
                (g, run.first_offset + i): (*run.target(int(row["target"])), *map(int, list(row)[1:]))
                for g, run in runs
                for i, row in enumerate(run.rows)
            }
        return found


def pack(made: dict[str, dict[tuple[int, int], Alias]]) -> Aliases:
    """Aliases by name, generation and offset as an edit has them, one run for each stretch."""
    names = list(made)
    rows = [(n, g, o, alias) for n, name in enumerate(names) for (g, o), alias in made[name].items()]
    targets = list(dict.fromkeys((a[0], a[1]) for *_, a in rows))
    runs: list[list[int]] = []
    for n, g, o, _ in rows:
        if runs and runs[-1][:2] == [n, g] and runs[-1][2] + runs[-1][3] == o:
            runs[-1][3] += 1
        else:
            runs.append([n, g, o, 1])
    return Aliases(
        names,
        [mq.topic for mq, _ in targets],
        [mq.queue_id for mq, _ in targets],
        [generation for _, generation in targets],
        columns(("queue", "generation", "first_offset", "rows"), runs),
        columns(
            ("target", "offset", "physical_offset", "store_time"),
            [[targets.index((a[0], a[1])), *a[2:]] for *_, a in rows],
        ),
    )


def columns(names: tuple[str, ...], rows: list[list[int]]) -> dict[str, Any]:
    """Rows as columns by name."""
    table = np.array(rows, np.int64).reshape(-1, len(names))
    return {name: np.ascontiguousarray(table[:, i]) for i, name in enumerate(names)}
