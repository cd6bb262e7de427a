"""Replication of the log: messages of chosen topics given to a destination, in the order of their queues, none left out.

Owns: the port that a destination implements (``base``). Does not own: where messages come from (``feed``), how a sink's position
becomes part of the archive (``archive``), clients of destinations, which are extras that a driver imports where it is opened.
Invariant: a destination is past a message only when it has it for good, and nothing is released that a required sink's safepoint
has not passed.
Threads: one for each sink.
"""
