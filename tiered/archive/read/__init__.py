"""An archive opened for reading.

Owns: which archives there are (``find``), opening one and following it (``reader``), what is known of it at one commit
(``view``), the arithmetic from runs to blocks to the places of records (``runs``), objects and their cached tables
(``objects``, ``tables``), segments that look like any object (``segments``: needs pyarrow, and is imported where one is met),
whether their bytes are what was written (``content``, ``agreement``; ``held``, ``coming``), and what stands on these: flat
files, look-ups by key and physical offset, compaction by key, verification. Does not own: when somebody looks for new
commits (``store/follower``), which blocks stay in memory (``fetch``), bytes (``codec``).

Invariant: a ``View`` never changes, however far its reader goes on, and damaged bytes are never handed out as sound.

Threads: none of its own but those of ``coming``, which wait for the store. Views and objects are for any thread; one thread
at a time moves a reader.
"""
