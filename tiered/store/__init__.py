"""The read facade that gateway, HTTP pages and command line share: an archive, with RocketMQ's own answers.

Owns: what a read is answered (status, next begin offset, bounds), time and key look-ups, and when an archive's reader looks for
new commits: only when somebody asks for what is not there. Does not own: the archive opened for reading (``archive/read``),
how bytes are fetched and kept (``fetch``), how objects look (``archive``, ``codec``), who gets the broker's answer and who
this one (``gateway``).

Port: ``base``, the border between compute and storage.

Invariant: an offset is called too small, or beyond the end, only after a look at the log not older than ``fetch.follow_ms``;
while the object store cannot be asked, such a read is ``Unavailable``, and what was archived before stays readable.

Threads: any thread may call a ``MessageStore``. It has two bounded pools, made in ``MessageStore.open`` and closed by the stack
given there: ``follow`` (one thread: looks at the log) and ``fetch`` (``fetch.threads``: requests).
"""

from tiered.store.messages import MessageStore

__all__ = ["MessageStore"]
