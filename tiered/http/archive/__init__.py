"""The pages that show what is archived: topics, queues, messages, look-ups by key, as JSON and as a page for people.

Owns: the addresses (``table``), what they answer (``pages``, ``rows``), their description (``description``), who may read
them (``server``). Does not own: reading; a store is given. Invariant: a damaged record is never shown, and a failure in the
middle of an answer is said in it. Threads: ``server`` on its event loop, ``pages`` on any.
"""
