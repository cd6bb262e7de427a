"""Which read nodes there are: each says so itself, gateways and people look.

Owns: what a node says of itself and what is seen of all of them, the port (``base``); the driver, leases in the bucket,
and when silence means gone (``bucket``); how settings open it (``open``). Does not own: who is asked for a read, and whether a
member that is there answers (``gateway.nodes``).
Invariant: no clock but the reader's own decides about life; what one node wrote, damaged or lying, concerns that node alone;
while a look fails nobody is declared gone.
Threads: none of its own. A driver is for one thread at a time, but ``close``, which ends a ``wait`` from another one.
"""
