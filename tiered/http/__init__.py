"""One HTTP server for health, metrics, the archive's pages and what comes.

Owns: connections and their bounds (``connection``, ``heads``, ``lingering``, ``limits``), listening (``server``), what holds
for every page (``app``), bodies (``bodies``), addresses and parameters declared once (``routes``), refusals (``refusals``), who
may come (``guarded``), the pages of health (``health``), of the archive (``archive``; their HTML, style and script:
``templates``) and of the key-value view (``kv``).
Does not own: what a page tells. Health is told by the process, messages by the store that the pages are given; nothing
here knows a daemon, a gateway or a pull.
Invariant: a client costs a bounded number of bytes, threads and seconds, and never anything but its own connection.
Threads: a server runs on the event loop that starts it: the gateway's, or, for health, ``server.OwnLoop`` in the service
``web``. What may block runs on other threads, at most ``HttpLimits.at_once``.

The library was chosen by what it adds to a daemon's imports (54 MiB, no asyncio; Python 3.11):

    asyncio alone                          13 ms of CPU    2.0 MiB
    uvicorn 0.54 with h11, Starlette 1.10  55 ms           5.0 MiB
    the same with httptools                50 ms           5.0 MiB
    aiohttp 3.14                          140 ms          11.0 MiB

So it is uvicorn and Starlette: a third of the time and half of the memory. h11 and not httptools, because it shows what it has
received of a head that is not complete: the bounds of heads rest on that. An idle daemon whose pages were read has 103 MiB
where it had 100 with the server of Python's own library. uvicorn's bounds (``limit_concurrency``, ``timeout_keep_alive``) are
not enough for a port that strangers reach: it waits for ever for the rest of a first head and for a client that does not read,
accepts any number of silent connections, and drops what a client that has closed its sending side still waits for.
``connection`` adds these.
"""
