"""The log of commits.

Owns the archive's identity, the log's reader, its one writer (``writer``: places, bytes and outcomes of single commits), the
line in which everything that changes the archive waits for its place (``line``, of ``flush``), what work in the background
may use of it (``maintenance``), and the writer's local files.
Does not own what a commit does to the state (``fold``) or what is in a flush (``write``, ``opening``).
Invariant: a commit's bytes are fixed before its first put; nothing is planned on a fold that lacks a commit of the bucket.
Threads: none of its own; one submits to the line, any may offer, one steps it, a pool that is handed in settles and uploads.
"""
