"""Bytes and their meaning: RocketMQ's records and frames, and the archive's own objects and commits.

Owns: every layout the program reads or writes: a record and the consume queue's units (``record``), the archive's objects and
commits (``format``), frames, codes and texts between clients and brokers (``remoting``); sums (``checksum``); the shapes of
buffers and columns (``types``).

Does not own: where bytes come from or go to. No file, socket, clock, setting, log or chance is touched here.

Invariant: a decoder is a pure function; whatever bytes it is given it returns a value or raises ``Corrupt``,
never reads outside its buffer and never allocates by a length it has not checked against that buffer.

Threads: none of its own; everything may be called from any thread, and works on whole buffers so that the C
libraries can let go of the interpreter lock.
"""
