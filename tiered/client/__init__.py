"""A client of the key-value view over HTTP, for programs: typed, blocking (``sync``) and for asyncio (``aio``).

Owns: requests and what their answers mean. Does not own: what holds for keys and versions (``keyvalue``). Needs nothing of the
server's rooms. Threads: a client may be used by many.
"""
