"""Read nodes as the gateway sees them.

Owns: who is there for it, who is left alone and why (``fleet``, by ``phi`` and ``slow``), which of the others reads a queue
(``placement``, within ``bounded`` load), how one is asked (``connection``), what its word is worth and what becomes of a read
when none answers (``reads``). Does not own: who has announced himself (``membership``), the question and the answer as bytes
(``codec.remoting``).
Invariant: that something is not there is never a node's word; without any node the archive is read here.
Threads: the event loop; what is shown may be asked from any.
"""
