"""Stands between RocketMQ's clients and servers: passes everything through, answers for the archive what the broker cannot.

Owns: the name-server front and the broker fronts (one listener per broker address), sessions, and what is answered from the
archive. A broker's answer is judged once, by its first bytes, and a second time only where these do not tell (``Verdict``).

Does not own: the archive. It is a plain reader of it, through the store facade; a gateway that fails cuts no archiving, an
archiver that fails cuts no gateway.

Invariant: bytes that the gateway does not answer for reach the other side unchanged and in order; and an answer that the
archive should replace is never passed on because the archive failed: the client is told to retry (fail closed).

Threads: one event loop carries every connection; answers wait for futures of the store's pools.
"""
