"""The durable ledger: positions, debts and what is settled of them. One appended, synced record per fact, applied after it.

What the books say is what the file says: an append that fails leaves them as they were, and the file is read again before the
next. A ledger that has grown beyond four times what its facts need is written anew beside it and swapped in.

Kinds of records, and their fields. ``q``: group, topic, queue id.
1 LOOK: [[q, reported, covered, minimum] …], [debt …], request or nil. A debt: number, q, start, end, reason, noticed, drained,
sent, filtered, holes, refused, [[start, end] …], generation or nil.
2 SETTLED: number, drained, sent, filtered, refused, [[start, end] …], generation or nil.
3 BASE: next number, [request …], [[group, topic, debts, sent, filtered, holes, refused] …].
4 FORGOTTEN: [q …], positions that are not known any more.
Generations came later: a record without one means that it is not known.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiered import durable
from tiered.clock import Clock
from tiered.crashpoint import ReplayPoint, reach
from tiered.errors import Corrupt, Unavailable
from tiered.replay.base import Books, Debt, DebtReason, DebtTotals, GroupPosition, GroupQueue, NewDebt
from tiered.replay.ledgerfile import LedgerFile, scan_ledger, write_whole

LEDGER_FILE = "ledger"
SWAP_FILE = "ledger.new"
COMPACT_BYTES = 1024 * 1024
"""A ledger smaller than this is left alone."""
COMPACT_TIMES = 4
KEPT_DONE = 64
"""Debts that are done and still told of one by one after a compaction; older ones are in the totals."""
KEPT_ASKED = 1024
CHUNK = 500
"""Queues told of in one record."""

LOOK, SETTLED, BASE, FORGOTTEN = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Settled:
    """What became of the offsets of debt ``number`` up to ``drained``: counts are new ones, not sums. ``generation``: the
    archive's, of the queue they were read from; ``None``: as it was known."""

    number: int
    drained: int
    sent: int = 0
    filtered: int = 0
    refused: int = 0
    holes: tuple[tuple[int, int], ...] = ()
    generation: int | None = None


class Ledger:
    """Safe from any thread. ``open`` first."""

    def __init__(self, directory: Path, clock: Clock) -> None:
        self._directory = directory
        self._file = LedgerFile(directory / LEDGER_FILE)
        self._clock = clock
        self._lock = threading.Lock()
        self._books = Books()
        self._compacted_bytes = 0

    def open(self) -> None:
        """Make or read the file. ``Corrupt`` if it is damaged, ``Unavailable`` if the disk refuses."""
        with self._lock:
            self._open()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    # ---- questions

    def position(self, queue: GroupQueue) -> GroupPosition | None:
        """What was seen last of a group in a queue."""
        with self._lock:
            return self._books.positions.get(queue)

    def debts(self) -> list[Debt]:
        """Open ones, oldest first."""
        with self._lock:
            return [debt for debt in self._books.debts.values() if debt.open]

    def was_asked(self, request: str) -> bool:
        """Whether an operator's request is in the ledger."""
        with self._lock:
            return request in self._books.asked

    def books(self) -> Books:
        """A copy of everything."""
        with self._lock:
            books = self._books
            return Books(
                dict(books.positions),
                dict(books.debts),
                dict(books.done),
                list(books.asked),
                books.next_number,
            )

    # ---- facts

    def look(
        self,
        positions: Mapping[GroupQueue, GroupPosition],
        wanted: Sequence[NewDebt] = (),
        *,
        request: str | None = None,
    ) -> list[Debt]:
        """Enter positions and what is newly owed, a queue's both in one record; the debts made or grown.

        ``request``: the operator's request that wanted it, entered with the last of it.
        """
        with self._lock:
            self._ready()
            queues = sorted({*positions, *(w.queue for w in wanted)})
            made: list[Debt] = []
            if wanted:
                reach(ReplayPoint.BEFORE_DEBT)
            for first in range(0, len(queues), CHUNK):
                chunk = set(queues[first : first + CHUNK])
                last = first + CHUNK >= len(queues)
                debts = self._number([w for w in wanted if w.queue in chunk])
                fields = [
                    [
                        [*_key(q), p.reported, p.covered, p.minimum]
                        for q, p in positions.items()
                        if q in chunk
                    ],
                    [_debt_fields(debt) for debt in debts],
                    request if last else None,
                ]
                self._append(LOOK, fields)
                made += debts
            if made:
                reach(ReplayPoint.AFTER_DEBT)
            return made

    def settle(self, settled: Settled) -> Debt:
        """Enter what became of a part of a debt; the debt after it."""
        with self._lock:
            self._ready()
            fields = [
                settled.number, settled.drained, settled.sent, settled.filtered, settled.refused,
                [list(hole) for hole in settled.holes], settled.generation,
            ]  # fmt: skip
            self._append(SETTLED, fields)
            return self._books.debts[settled.number]

    def forget(self, queues: Iterable[GroupQueue]) -> None:
        """Positions in these queues are not known any more; what is owed stays owed."""
        with self._lock:
            self._ready()
            for part in _chunks([_key(queue) for queue in sorted(queues)]):
                self._append(FORGOTTEN, part)

    def hold(self, number: int) -> Debt:
        """The rest of an open debt is not to be sent: its group wants order. What was sent stays; the rest is told."""
        with self._lock:
            self._ready()
            debt = self._books.debts[number]
            if debt.drained == debt.start:
                held = [replace(debt, reason=DebtReason.FIFO)]
            else:
                rest = Debt(
                    self._books.next_number,
                    debt.queue,
                    debt.drained,
                    debt.end,
                    DebtReason.FIFO,
                    debt.noticed_ms,
                    debt.drained,
                )
                held = [rest, replace(debt, end=debt.drained)]
            self._append(LOOK, [[], [_debt_fields(one) for one in held], None])
            return held[0]

    # ---- inside

    def _open(self) -> None:
        try:
            records = self._file.open()
        except OSError as error:
            raise _disk(self._directory, error) from error
        self._books = replay(records, str(self._directory / LEDGER_FILE))
        self._compacted_bytes = 0

    def _ready(self) -> None:
        if not self._file.usable:
            self._open()
        if self._file.size > max(COMPACT_BYTES, COMPACT_TIMES * self._compacted_bytes):
            self._compact()

    def _append(self, kind: int, fields: list[Any]) -> None:
        try:
            self._file.append(kind, fields)
        except OSError as error:
            raise _disk(self._directory, error) from error
        apply(self._books, kind, fields)

    def _number(self, wanted: Iterable[NewDebt]) -> list[Debt]:
        """Debts for them: new ones, or the newest of the same queue and reason, grown, where the range follows on it."""
        debts: list[Debt] = []
        number = self._books.next_number
        for one in wanted:
            grown = next((d for d in self._books.debts.values() if _follows(one, d)), None)
            if grown is not None:
                debts.append(replace(grown, end=one.end))
                continue
            now = self._clock.now_ms()
            debts.append(Debt(number, one.queue, one.start, one.end, one.reason, now, drained=one.start))
            number += 1
        return debts

    def _compact(self) -> None:
        """Write the books anew and swap the file."""
        swap = self._directory / SWAP_FILE
        try:
            write_whole(swap, snapshot(self._books))
            reach(ReplayPoint.BEFORE_SWAP)
            os.replace(swap, self._directory / LEDGER_FILE)
            durable.sync(self._directory)
        except OSError as error:
            self._file.close()
            raise _disk(self._directory, error) from error
        reach(ReplayPoint.AFTER_SWAP)
        self._open()
        self._compacted_bytes = self._file.size


def read_books(directory: Path) -> Books | None:
    """The books as the file has them now, for a reader beside the daemon; ``None`` without one. A torn end is left alone."""
    path = directory / LEDGER_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _disk(directory, error) from error
    return replay(scan_ledger(data, str(path)).records, str(path))


def replay(records: Iterable[tuple[int, list[Any]]], path: str) -> Books:
    """The books that these records make. ``Corrupt`` if one makes no sense."""
    books = Books()
    for number, (kind, fields) in enumerate(records, 1):
        try:
            apply(books, kind, fields)
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise Corrupt(
                "a record of the replay ledger is malformed", path=path, record=number, found=str(error)[:100],
                hint="it was written by another version, or by something else; move the file away",
            ) from error  # fmt: skip
    return books


def apply(books: Books, kind: int, fields: list[Any]) -> None:
    """Enter one record's facts."""
    _KINDS[kind](books, fields)


def snapshot(books: Books) -> list[tuple[int, list[Any]]]:
    """Records that make the same books, debts long done as totals only."""
    finished = [d.number for d in books.debts.values() if d.left <= 0]
    dropped = set(finished[: max(0, len(finished) - KEPT_DONE)])
    done = dict(books.done)
    for number in sorted(dropped):
        debt = books.debts[number]
        key = (debt.queue.group, debt.queue.topic)
        done[key] = done.get(key, DebtTotals()).plus(debt)
    kept = [_debt_fields(d) for d in books.debts.values() if d.number not in dropped]
    totals = [[*key, t.debts, t.sent, t.filtered, t.holes, t.refused] for key, t in done.items()]
    places = [[*_key(q), p.reported, p.covered, p.minimum] for q, p in books.positions.items()]
    records: list[tuple[int, list[Any]]] = [(BASE, [books.next_number, books.asked[-KEPT_ASKED:], []])]
    records += [(BASE, [books.next_number, [], part]) for part in _chunks(totals)]
    records += [(LOOK, [part, [], None]) for part in _chunks(places)]
    records += [(LOOK, [[], part, None]) for part in _chunks(kept)]
    return records


def _look(books: Books, fields: list[Any]) -> None:
    positions, debts, request = fields
    for group, topic, queue_id, reported, covered, minimum in positions:
        books.positions[GroupQueue(group, topic, queue_id)] = GroupPosition(reported, covered, minimum)
    for told in debts:
        debt = _debt(told)
        books.debts[debt.number] = debt
        books.next_number = max(books.next_number, debt.number + 1)
    if request is not None:
        books.asked.append(str(request))


def _settled(books: Books, fields: list[Any]) -> None:
    number, drained, sent, filtered, refused, holes, *later = fields
    debt = books.debts[number]
    for start, end in holes:
        debt = debt.with_hole(int(start), int(end))
    generation = _number_or_none(later) or debt.generation
    books.debts[number] = replace(
        debt, drained=int(drained), sent=debt.sent + int(sent), filtered=debt.filtered + int(filtered),
        refused=debt.refused + int(refused), generation=generation,
    )  # fmt: skip


def _base(books: Books, fields: list[Any]) -> None:
    books.next_number = max(books.next_number, int(fields[0]))
    books.asked += [str(request) for request in fields[1]]
    for group, topic, *counts in fields[2]:
        books.done[str(group), str(topic)] = DebtTotals(*map(int, counts))


def _forgotten(books: Books, fields: list[Any]) -> None:
    for group, topic, queue_id in fields:
        books.positions.pop(GroupQueue(group, topic, queue_id), None)


_KINDS: Mapping[int, Callable[[Books, list[Any]], None]] = {
    LOOK: _look, SETTLED: _settled, BASE: _base, FORGOTTEN: _forgotten,
}  # fmt: skip


def _follows(wanted: NewDebt, debt: Debt) -> bool:
    same = debt.queue == wanted.queue and debt.reason is wanted.reason and debt.end == wanted.start
    return same and (debt.open or debt.reason is DebtReason.FIFO)


def _key(queue: GroupQueue) -> list[Any]:
    return [queue.group, queue.topic, queue.queue_id]


def _debt_fields(debt: Debt) -> list[Any]:
    counts = [debt.drained, debt.sent, debt.filtered, debt.holes, debt.refused]
    ranges = [list(hole) for hole in debt.hole_ranges]
    return [
        debt.number, *_key(debt.queue), debt.start, debt.end, debt.reason.value, debt.noticed_ms,
        *counts, ranges, debt.generation,
    ]  # fmt: skip


def _debt(told: list[Any]) -> Debt:
    number, group, topic, queue_id, start, end, reason, noticed, *counts = told[:13]
    ranges, *later = told[13:]
    drained, sent, filtered, holes, refused = counts
    return Debt(
        number, GroupQueue(group, topic, queue_id), start, end, DebtReason(reason), noticed, drained, sent, filtered, holes,
        refused, tuple((int(a), int(b)) for a, b in ranges), _number_or_none(later),
    )  # fmt: skip


def _number_or_none(later: list[Any]) -> int | None:
    """The last field of a record; one of the first form has none."""
    return int(later[0]) if later and later[0] is not None else None


def _chunks(items: list[Any], size: int = CHUNK) -> list[list[Any]]:
    return [items[first : first + size] for first in range(0, len(items), size)]


def _disk(directory: Path, error: OSError) -> Unavailable:
    return Unavailable(
        "the replay ledger cannot be written",
        path=str(directory),
        found=error.strerror or str(error),
        hint="make room on the disk of state.directory, or let the daemon's user write there",
    )
