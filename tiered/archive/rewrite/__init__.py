"""What changes an archive without adding a message.

Owns: what retention takes (``policy``, ``retain``). Does not own: what an edit does to the state (``fold``), in which order
commits become real (``log``), when all of this runs (``daemon``).

Invariant: a plan is a pure function of a fold, so a dry run and a run are the same; nothing in here decides that a broker lost
its tail.

Threads: none.
"""
