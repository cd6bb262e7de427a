"""The destination *iceberg*: messages appended to one table of a catalog.

Owns: the table and its snapshots (``sink``), options (``kind``). Does not own: opening catalogs and what their errors mean
(``table.catalog``), columns (``codec.arrow``); tables over the archive's own sealed files, which hold no copy, are ``table``'s.
Invariant: the position stands in the summary of the snapshot that brings the messages, so each is there exactly once; a
snapshot whose parent is not the one that this opening knows is refused by the catalog.
Threads: the sink's one. Needs the extra ``iceberg``.
"""
