"""The ledger of replay: what it says it has, it has; a torn end is cut off, other damage is not overlooked."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tiered.clock import ManualClock
from tiered.crashpoint import ReplayPoint, install
from tiered.errors import Corrupt, Unavailable
from tiered.replay import ledger as ledger_module
from tiered.replay.base import DebtReason, DebtTotals, GroupPosition, GroupQueue, NewDebt
from tiered.replay.ledger import LEDGER_FILE, SWAP_FILE, Ledger, Settled, read_books, replay, snapshot
from tiered.replay.ledgerfile import MAGIC, encode, scan_ledger

Q0, Q1 = GroupQueue("G", "T", 0), GroupQueue("G", "T", 1)


def opened(path: Path) -> Ledger:
    ledger = Ledger(path, ManualClock())
    ledger.open()
    return ledger


def test_what_was_entered_is_there_after_a_restart(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    [debt] = ledger.look({Q0: GroupPosition(10, 90, 90)}, [NewDebt(Q0, 10, 90)])
    ledger.look({Q1: GroupPosition(5, 5, 0)})
    ledger.settle(Settled(debt.number, 40, sent=25, filtered=3, refused=1, holes=((20, 21),)))
    before = ledger.books()
    ledger.close()
    again = opened(tmp_path)
    assert again.books() == before == read_books(tmp_path)
    assert again.position(Q0) == GroupPosition(10, 90, 90)
    [debt] = again.debts()
    assert (debt.start, debt.end, debt.drained, debt.left) == (10, 90, 40, 50)
    assert (debt.sent, debt.filtered, debt.refused, debt.holes, debt.hole_ranges) == (
        25,
        3,
        1,
        1,
        ((20, 21),),
    )


def test_a_range_that_follows_on_an_open_one_makes_it_longer(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    [first] = ledger.look({}, [NewDebt(Q0, 10, 90)])
    [grown] = ledger.look({}, [NewDebt(Q0, 90, 100)])
    assert (grown.number, grown.start, grown.end) == (first.number, 10, 100)
    ledger.settle(Settled(first.number, 100, sent=90))
    [other] = ledger.look({}, [NewDebt(Q0, 100, 110)])
    assert other.number != first.number
    [asked] = ledger.look({}, [NewDebt(Q0, 110, 120, DebtReason.ASKED)], request="r1")
    assert asked.number != other.number, "why it is owed is kept apart"
    assert ledger.was_asked("r1")


def test_ranges_of_ordered_groups_are_kept_and_never_open(tmp_path: Path) -> None:
    ledger = opened(tmp_path)
    ledger.look({}, [NewDebt(Q0, 10, 90, DebtReason.FIFO)])
    ledger.look({}, [NewDebt(Q0, 90, 95, DebtReason.FIFO)])
    assert ledger.debts() == []
    [told] = ledger.books().debts.values()
    assert (told.start, told.end) == (10, 95)


def test_each_record_is_synced_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = opened(tmp_path)
    synced: list[int] = []
    real = os.fdatasync

    def note(descriptor: int) -> None:
        synced.append(len((tmp_path / LEDGER_FILE).read_bytes()))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", note)
    ledger.look({Q0: GroupPosition(1, 1, 0)}, [NewDebt(Q0, 0, 1)])
    assert synced == [len((tmp_path / LEDGER_FILE).read_bytes())]


def test_a_disk_that_refuses_leaves_the_books_as_they_were(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = opened(tmp_path)
    ledger.look({Q0: GroupPosition(1, 1, 0)})
    before = ledger.books()

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(Unavailable, match="No space left") as caught:
            ledger.look({}, [NewDebt(Q0, 0, 1)])
    assert caught.value.hint
    assert ledger.books() == before
    ledger.look({}, [NewDebt(Q0, 0, 1)])
    assert len(opened(tmp_path).debts()) == 1


def test_a_sync_that_fails_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the record is on disk is unknown: what the file says then is what counts, in memory too."""
    ledger = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", lambda _: (_ for _ in ()).throw(OSError(errno.EIO, "I/O error")))
        with pytest.raises(Unavailable):
            ledger.look({}, [NewDebt(Q0, 0, 5)])
    ledger.look({Q1: GroupPosition(1, 1, 1)})
    assert ledger.books() == opened(tmp_path).books()


@pytest.mark.parametrize("kept", [0, 3, 8, 20])
def test_a_torn_first_record_is_no_damage(tmp_path: Path, kept: int) -> None:
    opened(tmp_path).look({}, [NewDebt(Q0, 0, 5)])
    path = tmp_path / LEDGER_FILE
    path.write_bytes(path.read_bytes()[:kept])
    ledger = opened(tmp_path)
    assert ledger.debts() == []
    ledger.look({}, [NewDebt(Q0, 0, 5)])
    assert len(opened(tmp_path).debts()) == 1


def test_damage_before_the_last_record_is_told(tmp_path: Path) -> None:
    """A torn end is short and has nothing behind it; whatever else does not read is damage, and debts may be in it."""
    records = [encode(number, 1, [[], [], f"r{number}"]) for number in (1, 2, 3)]
    assert [fields[2] for _, fields in scan_ledger(MAGIC + b"".join(records), "l").records] == [
        "r1",
        "r2",
        "r3",
    ]
    flipped = bytearray(records[1])
    flipped[-1] ^= 1
    with pytest.raises(Corrupt, match="is damaged"):
        scan_ledger(MAGIC + records[0] + flipped + records[2], "l")
    with pytest.raises(Corrupt, match="lacks a record"):
        scan_ledger(MAGIC + records[0] + records[2], "l")
    assert len(scan_ledger(MAGIC + records[0] + flipped, "l").records) == 1, "an end that tore"


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / LEDGER_FILE).write_bytes(b"something else altogether")
    with pytest.raises(Corrupt, match="not a replay ledger") as caught:
        opened(tmp_path)
    assert "move the file away" in (caught.value.hint or "")
    assert (tmp_path / LEDGER_FILE).read_bytes() == b"something else altogether"


def test_a_long_ledger_is_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "COMPACT_BYTES", 4096)
    monkeypatch.setattr(ledger_module, "KEPT_DONE", 2)
    ledger = opened(tmp_path)
    sizes = []
    for number in range(300):
        [debt] = ledger.look(
            {Q0: GroupPosition(number, number, 0)}, [NewDebt(Q0, 2 * number, 2 * number + 1)]
        )
        ledger.settle(Settled(debt.number, 2 * number + 1, sent=1))
        ledger.look({}, [NewDebt(Q1, 5, 6)], request=f"r{number}") if number == 7 else None
        sizes.append((tmp_path / LEDGER_FILE).stat().st_size)
    assert max(sizes) < 6000
    assert not (tmp_path / SWAP_FILE).exists()
    again = opened(tmp_path)
    assert again.books() == ledger.books()
    assert again.books().totals() == {("G", "T"): DebtTotals(debts=301, sent=300)}
    assert again.position(Q0) == GroupPosition(299, 299, 0)
    assert again.was_asked("r7")
    assert [d.queue for d in again.debts()] == [Q1]
    assert len(again.books().debts) < 100


class Crash(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize(
    "point", [p for p in ReplayPoint if p < ReplayPoint.AFTER_REQUEST and p not in (103, 104)]
)
def test_a_crash_at_every_point_loses_no_debt_that_was_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: ReplayPoint
) -> None:
    monkeypatch.setattr(ledger_module, "COMPACT_BYTES", 512)
    ledger = opened(tmp_path)
    told = 0

    def hook(reached: object) -> None:
        if reached is point and told > 3:
            raise Crash

    install(hook)
    try:
        with pytest.raises(Crash):
            for number in range(1000):
                ledger.look({}, [NewDebt(Q0, 2 * number, 2 * number + 1)])
                told = number + 1
    finally:
        install(None)
    after = opened(tmp_path)
    assert [d.start // 2 for d in after.debts()][:told] == list(range(told))
    assert len(after.debts()) - told in ((1,) if point is ReplayPoint.AFTER_DEBT else (0,))


def test_more_queues_than_one_record_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "CHUNK", 10)
    ledger = opened(tmp_path)
    queues = [GroupQueue("G", "T", n) for n in range(35)]
    debts = ledger.look(
        {q: GroupPosition(1, 2, 2) for q in queues}, [NewDebt(q, 1, 2) for q in queues], request="r"
    )
    assert sorted(d.number for d in debts) == list(range(1, 36))
    again = opened(tmp_path)
    assert again.books() == ledger.books()
    assert again.was_asked("r")
    assert len(again.debts()) == 35


def test_no_ledger_is_no_books(tmp_path: Path) -> None:
    assert read_books(tmp_path) is None


def test_a_ledger_of_the_first_form_opens(tmp_path: Path) -> None:
    """Before generations were kept: a debt and what is settled of it had a field less."""
    debt = [1, "G", "T", 0, 10, 90, "skipped", 5, 10, 0, 0, 0, 0, []]
    records: list[tuple[int, list[Any]]] = [
        (3, [1, ["r"], [["G", "U", 1, 7, 0, 0, 0]]]),
        (1, [[["G", "T", 0, 10, 90, 90], ["G", "T", 1, 3, 3, 0]], [debt], None]),
        (2, [1, 40, 29, 0, 0, [[20, 21]]]),
    ]
    data = MAGIC + b"".join(encode(n, kind, fields) for n, (kind, fields) in enumerate(records, 1))
    (tmp_path / LEDGER_FILE).write_bytes(data)
    ledger = opened(tmp_path)
    [kept] = ledger.debts()
    assert (kept.drained, kept.sent, kept.hole_ranges, kept.generation) == (40, 29, ((20, 21),), None)
    assert ledger.position(Q1) == GroupPosition(3, 3, 0)
    assert ledger.was_asked("r")
    ledger.settle(Settled(1, 50, sent=10, generation=3))
    ledger.forget([Q1])
    assert ledger.debts()[0].generation == 3
    assert ledger.position(Q1) is None
    assert opened(tmp_path).books() == ledger.books()
    assert replay(snapshot(ledger.books()), "x") == ledger.books()
