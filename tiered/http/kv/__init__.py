"""The key-value view over HTTP: values, pages by prefix, conditional writes.

Owns: the addresses (``table``), what they answer (``pages``), conditions in header fields (``conditions``), failures as
``application/problem+json`` (``problems``), their description (``description``), the server (``server``). Does not own: what
a write means; a ``KeyValues`` is given. Invariant: a write that is answered with 2xx took effect, and one of which that is not
known says so. Threads: ``server`` on its event loop, ``pages`` on any.
"""
