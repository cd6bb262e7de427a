"""Topics that come and go: a thousand a second for ten minutes, and what of them is left (``tests/kit/churn.py``).

Sixty rounds of ten seconds of that rate; between two rounds the told clock goes on a day. Once as much goes as comes, nothing
may grow: the second half is compared with itself, by the median slope over its rounds.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.bench.run import Row
from tests.kit.churn import Churn, Left, slope
from tiered.settings import MIB

ROUNDS = 60
SIZES = ("resident", "fold_bytes", "stored_bytes", "note_bytes", "open_files", "keys", "series", "files")


def churning(work: Path, queues: int) -> list[Row]:
    """What there is after half of the rounds and after all, and what a topic of the second half added to it."""
    churn, topics = Churn(work, file_bytes=16 * MIB), queues // ROUNDS
    begun, seen = time.process_time(), list[Left]()
    for number in range(ROUNDS):
        seen.append(churn.round(number, topics))
    spent = time.process_time() - begun
    churn.close()
    half = seen[ROUNDS // 2 :]
    rows = [
        Row(f"churning: {what}", f"{now:,}", f"{then:,}", f"{rate:+.2f} a topic", "")
        for what in SIZES
        for then, now, rate in [
            (
                getattr(half[0], what),
                getattr(half[-1], what),
                slope([getattr(left, what) for left in half]) / topics,
            )
        ]
    ]
    pairs = (sum(left.pairs.values()) for left in (half[-1], half[0]))
    return [
        *rows,
        Row("churning: pairs of the fold", *(f"{count:,}" for count in pairs), "", ""),
        Row("churning: CPU of all", f"{1e6 * spent / queues:.0f} µs a topic", "", "", ""),
    ]
