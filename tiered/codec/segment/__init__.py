"""Segments, level 2 of the archive: Parquet files of messages that any engine reads, and that give the records back.

Owns: the file (``writer``, ``reader``), where row groups and their bands are cut (``cutting``), the directory of runs
(``directory``), pages as files of their own (``pages``, ``thrift``), the sums that its footer carries (``footer``). Does not
own: the columns (``codec.arrow``), which runs are sealed, where files lie. Invariant: nothing is written that does not give
the very records back; no byte is believed before a checksum of it was compared, the footer's and those of row groups as a
whole, or of single pages. Needs pyarrow, which is an extra. Threads: a writer belongs to one, and may be given another that
writes row groups; a segment is a value for any of them.
"""

from __future__ import annotations

import tiered.codec.arrow  # noqa: F401 - first of all: it says what to install where pyarrow is missing
