"""The way in: from the source's confirmed records to proven commits.

Owns the upload buffer (references into held files, never bodies), routing, cutting of blocks, group commit, the pipeline of
prepared flushes, and the comparison of a restarted broker with its archive. Does not own the log protocol (``archive.log``),
the format (``codec``) or the broker's files (``source``).
Invariant: a fact is durable or it is in one buffer; what is in a buffer can be read again from the hold.
Threads: the dispatcher's step runs in one; the committer in another; pools for compression and uploads are handed in.
"""
