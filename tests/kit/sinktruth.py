"""What a destination must have of a broker's log that loses its tail now and then, and whether it has that.

The truth is the broker's own log, read before each loss: what the sender was told does not count, since a send without an
answer may be stored. A *life* of the log lasts until its tail is lost. Of each life a destination has, queue by queue,
everything below the loss, and perhaps the beginning of what was lost, which was archived before; then the next life goes on.
"""

from __future__ import annotations

import hashlib
import struct
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.kit.oracle import Oracle, Queue, Record

_KEY, _END = b"UNIQ_KEY\x01", b"\x02"


class Stored(NamedTuple):
    """A message of the log: its place, what is unique to it, its body's digest and length."""

    physical: int
    offset: int
    key: bytes
    digest: bytes
    size: int


class Had(NamedTuple):
    """A message at the destination. ``digest``: ``None`` of a dead letter, which has no body."""

    offset: int
    key: bytes
    digest: bytes | None


Life = Mapping[Queue, Sequence[Stored]]


@dataclass(slots=True)
class Judgement:
    """Counts over all queues. ``repeats``: that came once more where that is allowed; ``lost_by_broker``: that the destination
    has and the broker has no more; ``details``: some of what is wrong."""

    messages: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    changed: int = 0
    invented: int = 0
    repeats: int = 0
    lost_by_broker: int = 0
    details: list[str] = field(default_factory=list)

    @property
    def wrong(self) -> int:
        """What no waiting mends."""
        return self.doubled + self.reordered + self.changed + self.invented

    @property
    def good(self) -> bool:
        """Whether everything is there, once and in order."""
        return not self.wrong and not self.lost

    def __str__(self) -> str:
        counts = (
            f"lost {self.lost}, doubled {self.doubled}, reordered {self.reordered}, changed {self.changed}"
        )
        repeats = f", repeats {self.repeats}" if self.repeats else ""
        return f"{self.messages:,} messages: {counts}, invented {self.invented}{repeats}" + "".join(
            f"\n  {line}" for line in self.details[:10]
        )


class SinkTruth:
    """Of the topics given. Ends of lives are told before the broker's log is cut. ``once``: a message that comes again is
    wrong; else it is counted, and the first of each must be there in order."""

    def __init__(self, oracle: Oracle, topics: Iterable[str], *, once: bool = True) -> None:
        self.oracle = oracle
        self._once = once
        self.topics = frozenset(topics)
        self._lives: list[tuple[Life, int, int]] = []
        self._begin = 0
        self.ever: set[bytes] = set()
        """What is unique to each message that the log ever had."""

    def cut(self, at: int) -> None:
        """The oracle has looked at the log that now ends at ``at``, with what was lost still in it."""
        self._lives.append((self._now(), self._begin, at))
        self._begin = at

    def anew(self) -> None:
        """The destination was emptied, and is given again what the log has now."""
        self._lives, self._begin = [], 0

    def judge(self, had: Mapping[Queue, Sequence[Had]], large: int, *, dead: bool) -> Judgement:
        """Hold a destination against the log, as the oracle saw it last. ``dead``: of messages beyond ``large`` bytes, which
        are at another place, or of all others."""
        found = Judgement()
        lives = [*self._lives, (self._now(), self._begin, 1 << 62)]
        for queue in sorted({queue for life, _, _ in lives for queue in life} | set(had)):
            parts = _parts(lives, queue, large, dead=dead)
            mine = had.get(queue, ())
            _judge_queue(found, queue, parts, mine if self._once else _firsts(found, queue, parts, mine))
        return found

    def _now(self) -> Life:
        now = {
            queue: list(map(stored, records))
            for queue, records in self.oracle.queues().items()
            if queue[0] in self.topics
        }
        self.ever.update(m.key for messages in now.values() for m in messages)
        return now


def stored(record: Record) -> Stored:
    """A record of a log, IPv4 hosts."""
    data = record.data
    (length,) = struct.unpack_from(">i", data, 84)
    at = data.index(_KEY, 88 + length) + len(_KEY)
    end = data.find(_END, at)
    key = data[at:] if end < 0 else data[at:end]
    body = data[88 : 88 + length]
    return Stored(record.physical_offset, record.queue_offset, key, hashlib.sha256(body).digest(), length)


def _parts(
    lives: Sequence[tuple[Life, int, int]], queue: Queue, large: int, *, dead: bool
) -> list[tuple[list[Stored], int, int]]:
    """Of each life what can be at the destination, how much of it has to be, and how much the broker kept at that loss."""
    made, lowest = [], 1 << 62
    for life, begin, end in reversed(lives):
        lowest = min(lowest, end)
        mine = [m for m in life.get(queue, ()) if m.physical >= begin and (m.size > large) is dead]
        made.append((mine, sum(m.physical < lowest for m in mine), sum(m.physical < end for m in mine)))
    return made[::-1]


def _judge_queue(
    found: Judgement, queue: Queue, parts: Sequence[tuple[list[Stored], int, int]], had: Sequence[Had]
) -> None:
    at, known = 0, {m.key: m for mine, _, _ in parts for m in mine}
    keys = Counter(each.key for each in had)
    missing: list[Stored] = []
    for mine, needed, kept in parts:
        given = 0
        while given < len(mine) and at < len(had) and had[at].key == mine[given].key:
            at, given = at + 1, given + 1
        found.lost_by_broker += max(0, given - kept)
        missing += [m for m in mine[given:needed] if m.key not in keys]
    found.messages += len(had)
    found.lost += len(missing)
    doubled = sum(count - 1 for count in keys.values())
    found.doubled += doubled
    found.invented += sum(key not in known for key in keys)
    changed = [e for e in had if e.key in known and not _same(e, known[e.key])]
    found.changed += len(changed)
    if at < len(had) and not doubled and all(key in known for key in keys) and not missing:
        found.reordered += len(had) - at
    if doubled or changed or at < len(had) or missing:
        found.details.append(
            f"{queue}: {len(had)} there, the first {at} as they must be; missing {len(missing)}"
            f" from {[m.offset for m in missing[:3]]}, doubled {doubled}; then {[e.offset for e in had[at : at + 8]]}"
        )


def _firsts(
    found: Judgement, queue: Queue, parts: Sequence[tuple[list[Stored], int, int]], had: Sequence[Had]
) -> list[Had]:
    """The first of each message. What comes again is counted, and must be the same as before."""
    known = {m.key: m for mine, _, _ in parts for m in mine}
    firsts: dict[bytes, Had] = {}
    for each in had:
        if each.key not in firsts:
            firsts[each.key] = each
            continue
        found.repeats += 1
        if each.key in known and not _same(each, known[each.key]):
            found.changed += 1
            found.details.append(f"{queue}: offset {each.offset} comes again otherwise")
    return list(firsts.values())


def _same(had: Had, wanted: Stored) -> bool:
    return had.offset == wanted.offset and (had.digest is None or had.digest == wanted.digest)


def by_queue(found: Iterable[tuple[Queue, Had]]) -> dict[Queue, list[Had]]:
    """Messages of a destination, each queue in the order in which they lie there."""
    queues: defaultdict[Queue, list[Had]] = defaultdict(list)
    for queue, had in found:
        queues[queue].append(had)
    return dict(queues)
