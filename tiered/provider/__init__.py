"""Where objects live: one port (``base.py``), four drivers, and wrappers of the same port.

Owns: storing, fetching, listing and deleting whole objects; mapping every foreign error to one of ours; the start-up
probe that tries to refute what a store promises; resolving an unknown outcome of an object that is ours alone.
Does not own: what a key or its bytes mean (``archive/``), which writer may write, when to give up on a commit.
Invariant: a successful create-only ``put`` means that the key did not exist, now holds exactly these bytes, durably, and
that nobody else was told the same. A driver that cannot promise this says so in its capabilities.
Threads: none of its own, except the probe's short-lived race; every provider may be shared by any number of threads.
"""
