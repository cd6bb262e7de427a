"""How a daemon and its archive find each other.

Owns three rooms and their order (``open``): ``compare`` (what broker and archive share, by the walk of ``lineage``),
``claim`` (the next epoch, once no other writer is at work) and ``rewind`` (the edit that closes what the broker lost). Does not
own the log protocol (``archive.log``), the broker's files (``source``) or archiving itself (``write``).
Invariant: nothing is archived on a comparison that is older than the epoch or the broker's present run.
Threads: none; the daemon opens in its main thread and compares again in the dispatcher's, with nothing in flight.
"""
