"""Replication of the log: messages of chosen topics given to a destination, in the order of their queues, none left out.

Owns: the port that a destination implements (``base``), what an operator orders (``order``, ``book``), kinds of destinations by
name (``kinds``), what runs one (``running``) and where it goes on (``choosing``, ``reconciling``), its progress on its way into
the archive (``ledger``). Does not own: where messages come from (``feed``), what the fold keeps of sinks (``archive``), clients
of destinations, which a driver imports when it is opened.
Invariant: a destination is past a message only when it has it for good, and nothing is released that the safepoint of a
required sink has not passed.
Threads: one for each sink.
"""
