"""Aliases compared with what the records themselves say of their places in lite queues (DESIGN.md, "Lite queues")."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.archive.read.keptaliases import KeptAliases
from tiered.archive.state.aliases import target_of, unpack_alias_run
from tiered.archive.state.keys import ALIAS, U8, queue_of, split_run_key
from tiered.archive.state.values import RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.record.columns import verify_headers
from tiered.codec.record.frame import scan
from tiered.codec.record.lite import LitePlaces, lite_places
from tiered.codec.record.properties import PropertyEntries
from tiered.codec.types import Buffer, Ints
from tiered.model import MessageQueue

_NAMES_ANY = re.compile(rb"INNER_MULTI_DISPATCH")
_MIXER = np.uint64(0x9E3779B97F4A7C15)
_NO = -1
_NONE = np.empty(0, np.int64)

Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class AliasFinding:
    """Something about a lite queue. ``damage``: it is wrong, and not only worth knowing."""

    what: str
    lite_queue: str
    detail: str
    damage: bool


class AliasCheck:
    """Hears all live records of an archive once, and says then what they and the aliases do not agree on.

    Memory: 25 bytes for each alias whose record is kept.
    """

    def __init__(self, state: ArchiveState) -> None:
        kept = KeptAliases(state)
        self._names: dict[str, int] = {}
        self._targets: dict[tuple[MessageQueue, int], int] = {}
        parts: list[tuple[Ints, ...]] = []
        for key, value in state.view.iterate(ALIAS):
            queue, _ = split_run_key(key)
            run = unpack_alias_run(U8.unpack_from(key, len(key) - 8)[0], value)
            there = np.flatnonzero(kept.of(run))
            name = self._names.setdefault(queue_of(queue).topic, len(self._names))
            targets = np.array(
                [self._targets.setdefault(target_of(t), len(self._targets)) for t in run.targets], np.int64
            )
            rows = run.rows[there]
            numbers = np.full(len(rows), name, np.int64)
            parts.append(
                (
                    numbers,
                    run.first_offset + there,
                    targets[rows["target"]],
                    rows["offset"],
                    rows["physical_offset"],
                )
            )
        names, offsets, *record = [np.concatenate(column) for column in zip(*parts, strict=True)] or [
            _NONE
        ] * 5
        said = _mixed(names, offsets, *record)
        order = np.argsort(said)
        self._said, self._name, self._offset = said[order], names[order].astype(np.int32), offsets[order]
        self._places = np.sort(_mixed(names, offsets))
        self._seen = np.zeros(len(order), np.bool_)
        self._wrong: list[AliasFinding] = []
        self._without: dict[str, int] = {}

    def __len__(self) -> int:
        """Aliases whose record is kept."""
        return len(self._said)

    def hear(self, runs: Sequence[RunState], data: Buffer) -> None:
        """Records back to back, of an object in which these runs lie; those that are not live count for nothing."""
        if not len(self) or _NAMES_ANY.search(data) is None:
            return
        _, batch = verify_headers(data, scan(data, base=None, max_record_bytes=len(data)), None)
        places = lite_places(batch, PropertyEntries.parse(batch))
        headers = batch.headers[places.row]
        target = np.full(len(places), _NO - 1, np.int64)
        for run in runs:
            if run.closed_by is None and run.queue.topic in batch.topics:
                mine = headers["topic_index"] == batch.topics.index(run.queue.topic)
                mine &= headers["queue_id"] == run.queue.queue_id
                for field, low, high in (
                    ("queue_offset", run.start, run.end), ("physical_offset", run.physical_start, run.physical_end)
                ):  # fmt: skip
                    mine &= (headers[field] >= low) & (headers[field] < high)
                target[mine] = self._targets.get((run.queue, run.generation), _NO)
        live = np.flatnonzero(target >= _NO)
        numbers = np.array([self._names.get(name, _NO) for name in places.queues], np.int64)
        name, offset = numbers[places.queue[live]], places.offset[live]
        said = _mixed(
            name, offset, target[live], headers["queue_offset"][live], headers["physical_offset"][live]
        )
        at, found = _found(self._said, said)
        self._seen[at[found]] = True
        _, taken = _found(self._places, _mixed(name, offset))
        self._tell(places, live[~found], taken[~found])

    def _tell(self, places: LitePlaces, rows: Ints, taken: npt.NDArray[np.bool_]) -> None:
        """Places of records that no alias says."""
        for row, other in zip(rows.tolist(), taken.tolist(), strict=True):
            name, offset = places.queues[places.queue[row]], int(places.offset[row])
            if other:
                what = "a message says that it is in a lite queue, where an alias names another one"
                self._wrong.append(AliasFinding(what, name, f"offset {offset}", True))
            else:
                self._without[name] = self._without.get(name, 0) + 1

    def findings(self) -> Iterator[AliasFinding]:
        """When everything was heard: what is wrong, and what is worth knowing."""
        yield from self._wrong
        names = list(self._names)
        missing = np.flatnonzero(~self._seen)
        for number in np.unique(self._name[missing]).tolist():
            mine = missing[self._name[missing] == number]
            yield AliasFinding(
                "aliases name messages that cannot be read, or that do not say that they are there", names[number],
                f"{len(mine)} aliases, the first at offset {int(self._offset[mine].min())}", True,
            )  # fmt: skip
        for name, count in sorted(self._without.items()):
            yield AliasFinding(
                "messages are in a lite queue, and no alias says so", name,
                f"{count} messages: archived before dispatch.lite_queues was set, or in a commit that was repaired from its"
                " objects; they are readable in their own queues", False,
            )  # fmt: skip


def _mixed(*columns: npt.NDArray[np.integer]) -> Words:
    """64 bits of each row: equal rows have equal ones, others hardly ever."""
    made = np.zeros(len(columns[0]), np.uint64)
    for column in columns:
        made = (made ^ column.astype(np.int64).view(np.uint64)) * _MIXER
        made ^= made >> np.uint64(29)
    return made


def _found(ascending: Words, sought: Words) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Where each of them is, and whether it is there at all."""
    at = np.minimum(np.searchsorted(ascending, sought), max(0, len(ascending) - 1))
    there: npt.NDArray[np.bool_] = ascending[at] == sought
    return at, there
