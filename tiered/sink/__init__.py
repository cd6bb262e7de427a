"""Replication of the log: messages of chosen topics given to a destination, in the order of their queues, none left out.

Owns: the port that a destination implements (``base``), what an operator orders (``order``), kinds of destinations by name
(``kinds``). Does not own: where messages come from (``feed``), how the position of
a sink becomes part of the archive (``archive``), clients of destinations, which a driver imports when it is opened.
Invariant: a destination is past a message only when it has it for good, and nothing is released that the safepoint of a
required sink has not passed.
Threads: one for each sink.
"""
