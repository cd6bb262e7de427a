"""The way in: from the source's confirmed records to proven commits.

Owns the upload buffer (references into held files, never bodies), routing, cutting of blocks, group commit, drafts and what
becomes of them on top of the fold. Does not own the log and its line of commits (``archive.log``), the comparison with a broker
(``opening``), the format (``codec``) or the broker's files (``source``).
Invariant: a fact is durable or it is in one buffer; what is in a buffer can be read again from the hold.
Threads: the dispatcher's step runs in one; drafts are filled in a pool that is handed in, and settled by the line's.
"""
