"""The ledger of replay under any history, any torn end, any flipped bit."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tiered.clock import ManualClock
from tiered.errors import Corrupt
from tiered.replay.base import Books, DebtReason, GroupPosition, GroupQueue, NewDebt
from tiered.replay.ledger import LEDGER_FILE, Ledger, Settled, read_books, replay, snapshot

QUEUES = st.builds(
    GroupQueue, st.sampled_from(["G", "H", "gröup"]), st.sampled_from(["T", "%RETRY%G_T"]), st.integers(0, 2)
)
OFFSETS = st.integers(0, 1 << 62)
POSITIONS = st.builds(GroupPosition, OFFSETS, OFFSETS, OFFSETS)
WANTED = st.builds(
    lambda q, start, length, reason: NewDebt(q, start, start + length, reason),
    QUEUES, OFFSETS, st.integers(1, 100), st.sampled_from(DebtReason),
)  # fmt: skip
LOOKS = st.tuples(
    st.dictionaries(QUEUES, POSITIONS, max_size=4),
    st.lists(WANTED, max_size=3),
    st.none() | st.text(max_size=5),
)
STEPS = st.lists(st.one_of(LOOKS, st.integers(0, 1 << 30)), min_size=1, max_size=12)


def play(ledger: Ledger, step: Any) -> None:
    """A look, or a part of some open debt settled."""
    if not isinstance(step, int):
        positions, wanted, request = step
        ledger.look(positions, wanted, request=request)
        return
    debts = ledger.debts()
    if debts:
        debt = debts[step % len(debts)]
        done = step % debt.left + 1
        ledger.settle(Settled(debt.number, debt.drained + done, sent=done))


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 1 << 30), st.binary(max_size=40))
def test_a_torn_end_takes_at_most_the_last_record(steps: list[Any], cut: int, rubbish: bytes) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        ledger = Ledger(path, ManualClock())
        ledger.open()
        history, ends = [ledger.books()], [(path / LEDGER_FILE).stat().st_size]
        for step in steps:
            play(ledger, step)
            history.append(ledger.books())
            ends.append((path / LEDGER_FILE).stat().st_size)
        ledger.close()
        data = (path / LEDGER_FILE).read_bytes()
        room = ends[-1] - ends[-2]
        torn = data[: ends[-1] - cut % (room + 1)]
        (path / LEDGER_FILE).write_bytes(torn + (rubbish if len(torn) < len(data) else b""))
        again = Ledger(path, ManualClock())
        again.open()
        assert again.books() == (history[-1] if len(torn) == len(data) else history[-2])
        again.look({GroupQueue("G", "T", 9): GroupPosition(1, 2, 3)})
        again.close()
        assert read_books(path) == again.books()


@settings(max_examples=60, deadline=None)
@given(STEPS, st.integers(0, 1 << 30), st.integers(0, 7))
def test_a_flipped_bit_is_told_or_took_only_the_end(steps: list[Any], place: int, bit: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        ledger = Ledger(path, ManualClock())
        ledger.open()
        history, size = [ledger.books()], 0
        for step in steps:
            play(ledger, step)
            if size != (size := (path / LEDGER_FILE).stat().st_size):
                history.append(ledger.books())
        ledger.close()
        data = bytearray((path / LEDGER_FILE).read_bytes())
        data[place % len(data)] ^= 1 << bit
        (path / LEDGER_FILE).write_bytes(data)
        before = (path / LEDGER_FILE).read_bytes()
        try:
            found = read_books(path)
        except Corrupt:
            assert (path / LEDGER_FILE).read_bytes() == before
            return
        assert found in (*history[-2:-1], Books())


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_a_snapshot_makes_the_same_books(steps: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as name:
        ledger = Ledger(Path(name), ManualClock())
        ledger.open()
        for step in steps:
            play(ledger, step)
        books = ledger.books()
        ledger.close()
        assert replay(snapshot(books), "x") == books
