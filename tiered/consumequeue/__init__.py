"""The consume-queue index: of each message of a queue its place and size in the broker's log, tags code and store time.

Owns: the layout of keys and values (``layout``), the writer of columns of many messages (``writer``), look-ups by queue offset
and by store time (``lookup``). Does not own: the ordered map below (``metadata``, a store without a log), where the columns
come from (``write/indexing.py``), and what is in the archive: the index is a copy, and may be deleted.

Invariant: what its ``IndexedRange`` names is in the index whole, for every queue, unless it was forgotten for its age or is of
a generation that ended; after a crash it is as it was behind one batch, whose range says from where it is made again.

Threads: none of its own. One writer; any number of reading threads.
"""
