"""Pulls: the broker's answer judged, compared with the archive, replaced.

Owns: why an answer to a pull is held (``verdict``), the pull that the archive is asked about and the answers made of it
(``coldpull``, ``cold``; of lite queues ``litequeues``), whether the broker's answer is enough after all (``compare``), filters
as groups subscribe them.
Does not own: connections, which requests are watched (``transport``), what is known of brokers and clients (``knowledge``).
Invariant: an answer that would lose messages is replaced or made a *try again*, never passed on because something failed.
Threads: the event loop only; reads are futures of the store's pools.
"""
