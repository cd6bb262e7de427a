"""What the gateway knows: clients, positions, minimums, rights, the archive, and what brokers were asked.

Owns: bounded tables of what passing frames tell, the ports to the archive (``archive``) and the store that is opened late
(``opening``), what the judge of pulls and the answers to them share (``knowledge``), questions to brokers, whether broker and
archive are of one life (``samebroker``), and whether the archive has caught up with what a broker deleted (``caughtup``). Does
not own: what is answered because of it (``pull``, ``answers``).
Invariant: nothing is learnt from a request that the broker has not accepted.
Threads: the event loop only; what blocks runs in the pool given.
"""
