"""The way out: records of a queue from the archive, ahead of the reader, within one budget of memory.

Owns: which bytes are fetched when, the cache, read-ahead windows, filters, what groups will want next, whose turn it is
and what a tenant may have (``fair``, ``allowance``). Does not own: what a
pull is answered (``store``), how objects look (``archive``, ``codec``), threads (pools are passed in).

Invariant: bytes in flight and in the memory cache together never pass ``fetch.budget_bytes`` (one block larger than that is
loaded alone; of a segment, one band with what it takes to decode it), and no byte is served or kept before its checksum
was found right.

Threads: any thread may call a ``Fetcher``. Requests run in the pool it was given; the work on what came is done by the
caller that waits for it or, for ``read_async``, by that pool.
"""
