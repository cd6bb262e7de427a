"""Records ↔ Arrow columns.

Owns: a message's columns made of records (``columns``, and ``arrays`` that they are made with), records put together again from
such columns (``assemble``), and the proof that both are the same bytes (``proof``). Does not own: how columns are stored
(``codec.segment``), which columns a reader asks for. Invariant: arrays only, nothing runs once per record; records come back
byte for byte or travel beside their columns. Needs pyarrow, which is an extra. Threads: values and functions, for any of them.
"""

from __future__ import annotations

from tiered.errors import not_installed

try:
    import pyarrow as _pyarrow
except ModuleNotFoundError as error:
    raise not_installed("a sealed day, or a table of messages,", "pyarrow", "parquet") from error


def share_allocator() -> None:
    """Have Arrow take memory from where the process takes all of its own, instead of from an allocator beside that.

    Row groups are decoded by many threads in turn, and Arrow's own allocator keeps what each freed: with sixteen readers
    510 MiB against 190, at half as much CPU again. For the whole process, and harmless at any time.
    """
    _pyarrow.set_memory_pool(_pyarrow.system_memory_pool())
