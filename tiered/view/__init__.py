"""The key-value view of the log: messages with ``kv_opType`` and ``key``, applied in their order to an ordered map.

Owns: a write as a message (``operation``), messages read as writes (``writes``), entries in a store (``layout``), what a write
does to them (``redo``), reads (``view``), writers and who waits for them (``putting``, ``progress``), snapshots
(``snapshot``). Does not own: where messages come from (``feed``), how a store keeps them (``metadata``), doors (``http``,
``cli``), the broker's protocol (``broker``).
Invariant: the store is a function of a prefix of the log, and whoever was answered for a write lies in that prefix.
Threads: one applies; any may read or write.
"""
