"""Segments, level 2 of the archive: Parquet files of messages that any engine reads, and that give the records back.

Owns: the file (``writer``, ``reader``), where row groups are cut (``cutting``), the directory of runs (``directory``), the
sums that its footer carries (``footer``). Does not own: the columns (``codec.arrow``), which runs are sealed, where files
lie. Invariant: nothing is written that does not give the very records back; no byte is believed before a checksum of it was
compared, footer and row groups each as a whole. Needs pyarrow, which is an extra. Threads: a writer belongs to one; a segment
is a value for any of them.
"""

from __future__ import annotations

import tiered.codec.arrow  # noqa: F401 - first of all: it says what to install where pyarrow is missing
