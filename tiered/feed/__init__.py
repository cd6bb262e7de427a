"""Messages of some topics in the order of their queues: from the archive, then from the live log, joined at an exact place.

Owns: where a follower of the log stands (``base``), what it is given next (``live``: the commitlog beside it, ``archived``:
what the broker no longer has), the seam between the two (``joined``), the archive alone (``remote``). Does not own: what is
done with messages, or where the position is kept: whoever follows stores it together with what it did.
Invariant: no queue offset is left out without an error, and none is given twice but after a restart from an older position.
Threads: none; a feed is for one.
"""
