"""One HTTP server for health, metrics, the archive's pages and what comes.

Owns: connections and their bounds (``connection``, ``limits``), listening (``server``), what holds for every page (``app``),
refusals (``refusals``), the pages of health (``health``).
Does not own: what a page tells. Health is told by the process, messages by the store that the pages are given; nothing here
knows a daemon, a gateway or a pull.
Invariant: a client costs a bounded number of bytes, threads and seconds, and never anything but its own connection.
Threads: a server runs on the event loop that starts it; ``server.OwnLoop`` brings one for a thread of its own. What may block
runs in a pool.
"""
