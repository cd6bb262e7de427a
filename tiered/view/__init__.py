"""The key-value view of the log: messages with ``kv_opType`` and ``key``, applied in their order to an ordered map.

Owns: a write as a message (``operation``), entries in a store (``layout``), what a message does to them (``redo``), reads of
them (``reading``), writes and who waits for them (``putting``), the log's end that a read waits for (``ends``), snapshots
(``snapshot``). Does not own: where messages come from (``feed``), how a store keeps them (``metadata``), doors
(``http``, ``cli``), the broker's protocol (``broker``).
Invariant: the store is a function of a prefix of the log, and whoever was answered for a write lies in that prefix.
Threads: one applies; any may read or write.
"""
