"""The reference model: a dict of lists. *Every record the source ever confirmed is readable exactly once, in order,
byte-identical, or lies in a recorded gap.*

``Oracle`` looks at a broker's commitlog with plain ``struct`` (no code of the product) and remembers what it saw: what the
broker deletes stays in the model, what it loses and writes anew is replaced, as a rewind must. ``compare`` reads a whole
archive in process and counts what is lost, doubled, reordered, changed or made up.
"""

from __future__ import annotations

import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.flatfile import FlatMessageFile, RunReader, Stretch
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.archive.state.view import ArchiveState
from tiered.clock import SystemClock
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.settings import MIB, Encryption, Store

BLANK = 0xCBD43194
OFF_QUEUE = ("!off-queue", 0)
TRANSACTION_BITS, PREPARED, ROLLBACK = 0xC, 0x4, 0xC

Queue = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Record:
    """One record of the log, verbatim. Offsets are the broker's own, read from the record."""

    queue_offset: int
    physical_offset: int
    data: bytes


def parse(data: bytes, at: int) -> tuple[Queue, Record]:
    """The record of ``data`` at ``at``, and its queue; prepared and rollback records belong to the off-queue."""
    size = struct.unpack_from(">i", data, at)[0]
    queue_id, _, queue_offset, physical, flag = struct.unpack_from(">iiqqi", data, at + 12)
    body_at = at + 84 + (12 if flag & 0x10 else 0) + (12 if flag & 0x20 else 0)
    topic_at = body_at + 4 + struct.unpack_from(">i", data, body_at)[0]
    version = struct.unpack_from(">I", data, at + 4)[0]
    width = 1 if version == 0xDAA320A7 else 2
    length = int.from_bytes(data[topic_at : topic_at + width], "big")
    topic = data[topic_at + width : topic_at + width + length].decode()
    queue = OFF_QUEUE if flag & TRANSACTION_BITS in (PREPARED, ROLLBACK) else (topic, queue_id)
    return queue, Record(queue_offset, physical, data[at : at + size])


def store_time_ms(record: Record) -> int:
    """When the broker stored a record."""
    flag = struct.unpack_from(">i", record.data, 36)[0]
    time_ms: int = struct.unpack_from(">q", record.data, 56 + (12 if flag & 0x10 else 0))[0]
    return time_ms


def scan_log(commitlog: Path, first: int = 0) -> Iterator[tuple[Queue, Record]]:
    """Every record of a commitlog directory in log order, from the record start ``first`` on; a plain loop."""
    for path in sorted(commitlog.iterdir()):
        if int(path.name) + path.stat().st_size <= first:
            continue
        data, at = path.read_bytes(), max(0, first - int(path.name))
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if size <= 0 or magic == BLANK or at + size > len(data):
                break
            yield parse(data, at)
            at += size


def read_store(store: Path) -> dict[Queue, list[bytes]]:
    """Every record of a store by queue, in log order."""
    queues: dict[Queue, list[bytes]] = defaultdict(list)
    for queue, record in scan_log(store / "commitlog"):
        queues[queue].append(record.data)
    return dict(queues)


@dataclass(slots=True)
class Oracle:
    """What one broker's log holds and held. ``lineage`` counts reinstalled brokers under one archive."""

    store: Path
    lineage: int = 1
    records: dict[int, tuple[Queue, Record]] = field(default_factory=dict)

    def look(self, end: int | None = None) -> Oracle:
        """Take in the files as they are: all from the broker's first own byte on is replaced, what it deleted stays.

        ``end``: where the broker's log ends, when old bytes of a former life may lie behind it.
        """
        files = sorted((self.store / "commitlog").iterdir())
        if not files:
            return self
        first = int(files[0].name)
        self.records = {at: item for at, item in self.records.items() if at < first}
        for queue, record in scan_log(self.store / "commitlog"):
            if end is None or record.physical_offset < end:
                self.records[record.physical_offset] = queue, record
        return self

    def extend(self, begin: int, end: int) -> Oracle:
        """Take in only what was appended between two ends of the log: for stores that are written in many steps."""
        for queue, record in scan_log(self.store / "commitlog", begin):
            if record.physical_offset < end:
                self.records[record.physical_offset] = queue, record
        return self

    def queues(self, excluded: Collection[str] = ()) -> dict[Queue, list[Record]]:
        """The model: a dict of lists, in log order."""
        queues: dict[Queue, list[Record]] = defaultdict(list)
        for at in sorted(self.records):
            queue, record = self.records[at]
            if queue[0] not in excluded:
                queues[queue].append(record)
        return dict(queues)


@dataclass(slots=True)
class Verdict:
    """Counts over all queues. ``in_gaps``: records that are missing and lie in a gap that the archive shows; ``trimmed``: that
    are missing from the front of their queue, and might go."""

    messages: int = 0
    readable: int = 0
    in_gaps: int = 0
    trimmed: int = 0
    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    changed: int = 0
    invented: int = 0
    details: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing lost, doubled, reordered, changed or made up."""
        return not (self.lost or self.doubled or self.reordered or self.changed or self.invented)

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {getattr(self, name)}" for name in self.__slots__ if name != "details")
        return "; ".join([counts, *self.details[:10]])


def opened(archive_url: str, store: Store | None = None, *, key_file: str = "") -> View:
    """An archive as a fresh reader sees it: nothing local, everything from the store. ``key_file``: of an encrypted one."""
    provider = open_provider(archive_url, store or Store(), SystemClock())
    return seen_by(encrypted(provider, Encryption(key_file=key_file)))


def seen_by(provider: Provider) -> View:
    """``opened`` for a provider that is there."""
    keys = ArchiveKeys("DefaultCluster", "broker-a")
    return ArchiveReader(provider, keys, MemoryStore(), table_cache_bytes=64 * MIB).at()


def records_of(stretches: Iterator[Stretch]) -> Iterator[tuple[int, bytes]]:
    """(queue offset by the archive's own reckoning, bytes) of each record."""
    for stretch in stretches:
        for i, offset in enumerate(stretch.queue_offsets.tolist()):
            yield offset, bytes(stretch.record(i))


def archived_queues(archive: View, lineage: int) -> dict[Queue, list[tuple[int, bytes]]]:
    """Everything readable of a lineage: of each queue its generations, oldest first. The current one as readers get it."""
    state, runs = archive.state, RunReader(archive.state, archive.objects)
    found: dict[Queue, list[tuple[int, bytes]]] = defaultdict(list)
    for queue in state.queues():
        mq = queue.queue
        for generation in state.generations(mq):
            if generation.lineage != lineage:
                continue
            if generation.generation == queue.generation:
                flat = FlatMessageFile(state, archive.objects, mq)
                found[mq.topic, mq.queue_id] += records_of(flat.read(flat.min_offset))
                continue
            for run in state.runs(mq, generation.generation):
                found[mq.topic, mq.queue_id] += records_of(runs.stretches(run, run.start, run.end))
    return {queue: records for queue, records in found.items() if records}


def closed_records(archive: View) -> dict[Queue, list[bytes]]:
    """Records of closed parts: what rewinds took from readers and nothing deleted."""
    runs = RunReader(archive.state, archive.objects)
    found: dict[Queue, list[bytes]] = defaultdict(list)
    for part in archive.state.closed_parts():
        found[part.queue.topic, part.queue.queue_id] += [
            data for _, data in records_of(runs.stretches(part, part.start, part.end))
        ]
    return dict(found)


MayGo = Callable[[Queue, Record], bool]
"""Whether retention was allowed to take a record."""


def compare(
    archive: str | View,
    *oracles: Oracle,
    excluded: Collection[str] = (),
    store: Store | None = None,
    may_go: MayGo = lambda queue, record: False,
) -> Verdict:
    """Compare an archive with the model of each lineage it holds."""
    read = opened(archive, store) if isinstance(archive, str) else archive
    verdict = Verdict()
    for oracle in oracles:
        wanted = oracle.queues(excluded)
        found = archived_queues(read, oracle.lineage)
        for queue in sorted(wanted.keys() | found.keys()):
            _compare_queue(
                verdict,
                read.state,
                oracle.lineage,
                queue,
                wanted.get(queue, []),
                found.get(queue, []),
                may_go,
            )
    return verdict


def _compare_queue(
    verdict: Verdict,
    state: ArchiveState,
    lineage: int,
    queue: Queue,
    wanted: list[Record],
    found: list[tuple[int, bytes]],
    may_go: MayGo,
) -> None:
    verdict.messages += len(wanted)
    verdict.readable += len(found)
    got = [parse(data, 0)[1] for _, data in found]
    by_place = {record.physical_offset: record for record in wanted}
    times = Counter(record.physical_offset for record in got)
    missing = [record for record in wanted if record.physical_offset not in times]
    first = min(times, default=None)
    kept = [r for r in missing if not may_go(queue, r) or (first is not None and r.physical_offset > first)]
    verdict.trimmed += len(missing) - len(kept)
    lost = [record for record in kept if not _in_gap(state, lineage, queue, record)]
    verdict.in_gaps += len(kept) - len(lost)
    verdict.lost += len(lost)
    verdict.doubled += sum(count - 1 for count in times.values())
    invented = [record for record in got if record.physical_offset not in by_place]
    verdict.invented += len(invented)
    changed = [
        record
        for record in got
        if record.physical_offset in by_place and record.data != by_place[record.physical_offset].data
    ]
    verdict.changed += len(changed)
    order = [record.physical_offset for record in got]
    misplaced = sum(later <= earlier for earlier, later in pairwise(order))
    if queue != OFF_QUEUE:
        misplaced += sum(
            offset != record.queue_offset for (offset, _), record in zip(found, got, strict=True)
        )
    verdict.reordered += misplaced
    for what, records in (("lost", lost), ("invented", invented), ("changed", changed)):
        if records:
            places = [r.physical_offset for r in records]
            verdict.details.append(f"{queue}: {len(places)} {what} between {min(places)} and {max(places)}")


def _in_gap(state: ArchiveState, lineage: int, queue: Queue, record: Record) -> bool:
    if any(g.start <= record.physical_offset < g.end for g in state.phys_gaps(lineage)):
        return True
    return any(g.start <= record.queue_offset < g.end for g in state.gaps(MessageQueue(*queue)))
