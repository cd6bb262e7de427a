"""Names of tables: topics may have characters that catalogs and engines do not take."""

from __future__ import annotations

import re

from tiered.codec.checksum import xxh3_64

_PLAIN = re.compile(r"[A-Za-z0-9_]{1,100}")
_OTHER = re.compile(r"[^A-Za-z0-9_]")
_KEPT = 80


def table_name(topic: str) -> str:
    """The table of a topic: its name, where that is of letters, digits and ``_`` and not long; else as much of it as may be,
    with ``_`` for the rest, and eight digits of the name's hash, so that two topics do not share one."""
    return topic if _PLAIN.fullmatch(topic) else hashed_name(topic)


def hashed_name(topic: str) -> str:
    """The table of a topic that does not get ``table_name``: a catalog that keeps names in lower case has given that to a topic
    whose name differs by nothing else, or the topic is called as the table of another (``a_b_390c9ebb`` as that of ``a.b``)."""
    return f"{_OTHER.sub('_', topic)[:_KEPT]}_{xxh3_64(topic.encode()) >> 32:08x}"
