"""Ordered maps of bytes on the local disk: the cached fold of the archive, and indexes that redo can make again.

Owns: the ports (``base``), their drivers (``memory``, ``jsonfile``, ``rocksdb``, ``rocksredo``), the doors that pick one
(``open``), and looks into what another process has open (``peek``). Does not own: what the keys and values mean
(``archive``, and whatever fills an index).

One invariant: a batch and its ``applied`` position are there together or not at all, and never without the batches before
it. Losing a store loses nothing.

Threads: none of its own (RocksDB keeps its own pool). One writer; any number of reading threads.
"""
