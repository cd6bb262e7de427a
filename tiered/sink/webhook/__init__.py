"""The destination *http*: batches of messages, posted to one URL, signed.

Owns: what a request says (``signing``, ``requests``), what an answer means and what becomes of messages that are refused
(``sink``), options (``kind``). Does not own: the messages' JSON (``sink.fields``).
Invariant: a message is behind the sink when an answer of the 200s came for a request that it was in, or it lies among the dead
letters. It may come again: at least once, a repeated request with the same key.
Threads: the sink's one.
"""
