"""Tables of other engines over the sealed files of an archive: Iceberg, through ``pyiceberg``. No data is copied.

Owns: which tables are asked for (``orders``, kept in the bucket), which sealed files a fold shows (``shown``, pure), names of
tables (``names``), where engines find the files (``place``), opening a catalog (``catalog``;
``rest`` and ``glue``: so that none is waited for for long), one table brought to what the
fold shows (``iceberg``), the task of all tables (``keeping``), and how far each is behind (``progress``).
Does not own: sealing, retention, deletion (``archive.rewrite``): nothing in here writes to the archive but orders.

Invariant: a table is a view of the log. What it should hold is a pure function of a fold; what it holds is read from its newest
snapshot; the difference is one commit of the catalog, which fails if anybody was faster. So a crash anywhere, or a lost table,
is repaired by the next round, and no file is ever in a table twice. A table never goes back to an older commit of the archive.

Threads: one at a time runs the task; any reads how far tables are. ``pyiceberg`` is imported when a table is asked for, and not
before.
"""
