"""A read node: reads one archive for gateways. Stateless: it has no broker and nothing on disk but a cache, and may be killed.

Owns: who is answered what (``answers``; of the key-value view ``keyvalues``), the listening socket and its connections
(``server``). Does not own: reads of the archive and their cache (``store``), the view and its redo (``view``), the question and
the answer as bytes (``codec.remoting.nodepull``), which node reads which queue (``gateway.nodes``).
Invariant: of messages a node gives some, or says up to where a filter takes none; that one is not there it never says, for
who asks knows more than it does. What it gives is of the archive that was asked for, at the commit asked for or later.
Threads: one event loop; the store's pools.
"""
