"""Placement by predicted load: how much each queue will be read and written, and which read node has it.

Owns: loads of queues from the archive's own history, their forecast, what a node counts of its reads, the assignment of busy
queues to nodes, its form in the bucket. Does not own: who is there (``membership``), whom a gateway asks (``gateway/nodes``),
hashing of all other queues.

Invariant: an assignment depends on its arguments alone, so all who have the same table and the same nodes compute the same
place; without a table, or for a queue that is not in it, the place is that of hashing. A table never decides what is read,
only where it is looked for first.

Threads: values and functions; none of its own. The one writer of tables is whoever runs ``tiered placement --publish``.
"""
