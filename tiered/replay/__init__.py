"""Cold messages for POP consumers: a broker silently skips what it deleted; here that is noticed, owed and made good.

Owns: the watch over positions and queue minimums (``watch``), the rule that makes a debt of them (``rule``), the durable ledger
of debts (``ledger``), the drain that sends archived messages to a group's POP retry topic (``drain``), the remoting client for
all that (``client``), requests of operators (``inbox``).
Does not own: reading the archive (``store``), what clients do with the messages (broker and clients), the process it runs in.
Invariant: a message below a queue's minimum that a watched group had not been handed at the last look is in the ledger before
anything else is done about it, and leaves it only when the broker has acknowledged it, a filter of the group refused it, or
the archive can never have it; then it is counted and named.
Threads: ``replay-watch`` and ``replay-drain``, a ``Service`` and a connection each; the ledger is what they share, under its
lock. A failure of either does not stop the daemon: archiving goes on whatever happens here.
"""
