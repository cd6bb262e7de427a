"""Where messages come from: the commitlog of a running broker, read beside it.

Owns: finding the broker's files (``open``, ``layout``, ``files``), keeping them alive by hard links (``hold``, ``catalog``),
deciding which bytes may be trusted (``local``, with ``chain``, ``tail``, ``life``, ``search``), the first position of a new
archive (``start``), the broker's list of its topics (``topics``), and a writer of stores for demos and tests
(``generator``). Does not own: where the archive stands, what a broker restart means for it, and copies once handed out.

Invariant: a record is handed out only if it is complete, lies where it says it lies and is confirmed by what follows it or by
an unchanged second look; bytes are given up only as a ``GAP`` that names its reason.

Threads: ``read`` and ``max_offset`` belong to one thread; everything else may be called from any. No thread of its own.
"""
