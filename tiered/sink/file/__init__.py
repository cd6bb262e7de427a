"""The destination *file*: messages in files that are never changed, and numbered manifests that say which files count.

Owns: the manifests (``manifest``), what is in a file (``formats``), the sink (``sink``) and its options (``kind``). Does not
own: the store, which is opened like an archive's (``provider``).
Invariant: a file counts when a manifest names it, and the position of that manifest is behind its messages: both appear in one
create-only put, so that each message is there exactly once and a half-written file is nobody's.
Threads: the sink's one.

Below the location: ``NAME/manifests/N.json`` and ``NAME/data/N-EPOCH-WRITER-PART.jsonl``, ``N`` the number of the manifest with
20 digits. A reader takes the manifests in their order, and of each its ``files``.
"""
