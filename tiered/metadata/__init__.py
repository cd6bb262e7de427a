"""What is known about what was stored: an ordered map of bytes in which the fold of the archive is cached.

Owns: the port (``base``), its drivers (``memory``, ``jsonfile``, ``rocksdb``) and the door that picks one
(``open``). Does not own: what the keys and values mean (``archive``).

One invariant: a batch and its ``applied`` position are there together or not at all. Losing a store loses
nothing.

Threads: none of its own (RocksDB keeps its own pool). One writer; any number of reading threads.
"""
