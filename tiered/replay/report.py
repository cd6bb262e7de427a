"""What the books say, for ``/status`` and ``tiered replay status``. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tiered.replay.base import Books, Debt, DebtReason

MOST_ALERTS = 100


def summary(books: Books) -> dict[str, object]:
    """Counts, and every alert."""
    open_debts = [debt for debt in books.debts.values() if debt.open]
    totals = books.totals()
    alerts = [debt for debt in books.debts.values() if debt.reason is DebtReason.FIFO]
    return {
        "watched_queues": len(books.positions),
        "watched_groups": len({queue.group for queue in books.positions}),
        "open_debts": len(open_debts),
        "owed_messages": sum(debt.left for debt in open_debts),
        "sent": sum(t.sent for t in totals.values()),
        "filtered": sum(t.filtered for t in totals.values()),
        "holes": sum(t.holes for t in totals.values()),
        "refused": sum(t.refused for t in totals.values()),
        "fifo_skipped": [alert(debt) for debt in alerts[-MOST_ALERTS:]],
    }


def alert(debt: Debt) -> dict[str, object]:
    """A range that a group which wants order was skipped over."""
    queue = debt.queue
    return {
        "group": queue.group,
        "topic": queue.topic,
        "queue_id": queue.queue_id,
        "start": debt.start,
        "end": debt.end,
        "messages": debt.end - debt.start,
        "noticed_ms": debt.noticed_ms,
    }


def rows(debts: Iterable[Debt]) -> list[dict[str, object]]:
    """A row for each debt, with its state: ``open``, ``done`` or ``told`` (of a group that wants order)."""
    return [
        {
            "number": debt.number,
            "group": debt.queue.group,
            "topic": debt.queue.topic,
            "queue_id": debt.queue.queue_id,
            "start": debt.start,
            "end": debt.end,
            "state": "told" if debt.reason is DebtReason.FIFO else "open" if debt.open else "done",
            "left": debt.left,
            "sent": debt.sent,
            "filtered": debt.filtered,
            "holes": debt.holes,
            "hole_ranges": [list(hole) for hole in debt.hole_ranges],
            "refused": debt.refused,
            "reason": debt.reason.value,
            "noticed_ms": debt.noticed_ms,
        }
        for debt in debts
    ]
