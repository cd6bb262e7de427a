"""What a log of key-value messages means, by a plain loop that shares no code with the view; and histories held against it.

Who has the log knows the order in which all writes of a namespace took their turn. So a history can be held against it in one
pass, over all keys at once: each call must have its place in that order, between its call and its answer.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.kit.golden import SlowRecord
from tests.kit.kvhistory import DELETE, FAILED, PUT, History, Operation, ReadTogether, digest


@dataclass(frozen=True, slots=True)
class PlainEntry:
    """A key as the log left it."""

    version: int
    value: bytes
    stored_ms: int
    ends_ms: int | None

    @property
    def shown(self) -> tuple[int, str]:
        """As a history speaks of it."""
        return self.version, digest(self.value)


@dataclass(frozen=True, slots=True)
class PlainWrite:
    """One message, and what became of it. ``current``: the version in its way."""

    key: str
    kind: str
    value: str
    applied: bool
    current: int | None


@dataclass(slots=True)
class PlainLog:
    """Messages of one namespace's queue, applied one after the other. Keys are hexadecimal."""

    writes: dict[int, PlainWrite] = field(default_factory=dict)
    malformed: int = 0
    next: int = 0
    _changes: dict[str, list[tuple[int, PlainEntry | None]]] = field(default_factory=dict)

    @classmethod
    def of(cls, records: Iterable[SlowRecord], topic: str) -> PlainLog:
        """What the records of a broker's log come to."""
        made = cls()
        for record in records:
            if (record.topic, record.queue_id) == (topic, 0):
                assert record.queue_offset == made.next, "the queue has no gap"
                made.take(record)
        return made

    def take(self, record: SlowRecord) -> None:
        """Apply the next message."""
        version, self.next = record.queue_offset, record.queue_offset + 1
        told = {name.decode(): value.decode() for name, value in record.properties.items()}
        kind = {"PUT": PUT, "DELETE": DELETE}.get(told.get("kv_opType", ""))
        if kind is None or "key" not in told:
            self.malformed += 1
            return
        key = base64.b64decode(told["key"]).hex()
        value = b"" if "kv_empty" in told else record.body
        held = self.at(key, version)
        if held is not None and held.ends_ms is not None and held.ends_ms <= record.store_timestamp:
            held = None
        applied = _met(told, held)
        self.writes[version] = PlainWrite(
            key, kind, digest(value) if kind == PUT else "", applied,
            None if applied or held is None else held.version,
        )  # fmt: skip
        if applied:
            ends = record.store_timestamp + int(told["kv_ttlMs"]) if "kv_ttlMs" in told else None
            entry = PlainEntry(version, value, record.store_timestamp, ends) if kind == PUT else None
            self._changes.setdefault(key, []).append((version + 1, entry))

    def at(self, key: str, position: int) -> PlainEntry | None:
        """The entry that all messages below ``position`` leave."""
        changes = self._changes.get(key, [])
        row = bisect_right(changes, position, key=lambda change: change[0])
        return changes[row - 1][1] if row else None

    def last(self) -> dict[str, PlainEntry]:
        """All entries at the end."""
        ends = {key: changes[-1][1] for key, changes in self._changes.items()}
        return {key: entry for key, entry in ends.items() if entry is not None}

    def positions(self, keys: Iterable[str], first: int) -> list[int]:
        """``first``, and each position behind it at which one of the keys changes."""
        behind = {at for key in keys for at, _ in self._changes.get(key, []) if at > first}
        return [first, *sorted(behind)]


def _met(told: dict[str, str], held: PlainEntry | None) -> bool:
    wanted = told.get("kv_ifVersion")
    if wanted == "-1" and held is not None:
        return False
    if wanted not in (None, "-1") and (held is None or held.version != int(wanted or 0)):
        return False
    if (sha256 := told.get("kv_ifValue")) is not None:
        return held is not None and hashlib.sha256(held.value).digest() == base64.b64decode(sha256)
    return True


def against(log: PlainLog, history: History) -> list[str]:
    """What of a history cannot be, if this is the log; nothing if all of it can."""
    wrong = [said for each in history.operations if (said := _answer(log, each))]
    wrong += _places(log, history)
    known = {each.key for each in history.operations}
    puts = [write for write in log.writes.values() if write.kind == PUT and write.key in known]
    sent = Counter((write.key, write.value) for write in puts)
    asked = Counter((o.key, o.value) for o in history.operations if o.kind == PUT and o.outcome != FAILED)
    return wrong + [f"in the log more often than it was sent: {put}" for put in (sent - asked)]


def _answer(log: PlainLog, asked: Operation) -> str:
    """What is wrong with the answer to a write."""
    if not asked.answered or not asked.writes:
        return ""
    assert asked.version is not None
    told = PlainWrite(asked.key, asked.kind, asked.value, asked.applied, asked.current)
    is_so = log.writes.get(asked.version)
    return "" if told == is_so else f"answered {told} of version {asked.version}, in the log {is_so}"


def _places(log: PlainLog, history: History) -> list[str]:
    """Reads and writes that find no place between those before and those behind them. Each read has the first place that it can
    have: that leaves most to all others."""
    calls: list[tuple[int, int, ReadTogether]] = []
    grouped = {id(each) for group in history.together for each in group.reads}
    alone = [ReadTogether((each,)) for each in history.operations if id(each) not in grouped]
    for group in [*history.together, *alone]:
        first = group.reads[0]
        if not first.answered or first.shown_by is not None:
            continue
        assert first.returned is not None
        calls += [(first.call, 0, group), (first.returned, 1, group)]
    wrong, floor, places = [], 0, {}
    for _, returns, group in sorted(calls, key=lambda call: call[:2]):
        if returns:
            floor = max(floor, places.get(id(group), 0))
            continue
        place = _place(log, group, floor)
        if place is None:
            wrong.append(f"no place behind {floor} for {group}")
        else:
            places[id(group)] = place
    return wrong


def _place(log: PlainLog, group: ReadTogether, floor: int) -> int | None:
    """The first position that a call's answer fits, with everything before it that must be; of a write: the one behind it."""
    first = group.reads[0]
    if first.writes:
        assert first.version is not None
        return first.version + 1 if first.version >= floor else None
    candidates = log.positions((each.key for each in group.reads), floor)
    if group.applied is not None:
        candidates = [group.applied] if group.applied >= floor else []
    for position in candidates:
        if all(_shown(log, each.key, position) == each.found for each in group.reads):
            return position
    return None


def _shown(log: PlainLog, key: str, position: int) -> tuple[int, str] | None:
    held = log.at(key, position)
    return None if held is None else held.shown
