"""What an archive holds, told by any reader of it, in a form in which two readers can be compared."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

Queue = tuple[str, int]
"""Topic and queue id."""


def digest(body: bytes) -> str:
    """SHA-256, as every engine has it."""
    return hashlib.sha256(body).hexdigest()


@dataclass(frozen=True, slots=True)
class Contents:
    """Of each queue: first offset, messages, and a digest over offsets and bodies in their order."""

    queues: Mapping[Queue, tuple[int, int, str]]

    @classmethod
    def of(cls, rows: Iterable[tuple[str, int, int, str]]) -> Contents:
        """Of (topic, queue id, queue offset, ``digest`` of the body), in any order. A repeated message changes the digest."""
        found: dict[Queue, list[tuple[int, str]]] = {}
        for topic, queue_id, offset, body in rows:
            found.setdefault((topic, queue_id), []).append((offset, body))
        made = {}
        for queue, messages in found.items():
            messages.sort()
            joined = "".join(f"{offset}:{body};" for offset, body in messages)
            made[queue] = messages[0][0], len(messages), digest(joined.encode())
        return cls(made)

    @property
    def messages(self) -> int:
        """All of them."""
        return sum(count for _, count, _ in self.queues.values())


def by_duckdb(directory: Path) -> Contents:
    """All Parquet files of an archive in a directory, with nothing but DuckDB."""
    files = f"{directory}/*/*/segment/*/*/*.parquet"
    query = (
        "select topic, queue_id, queue_offset, sha256(body) from read_parquet(?, hive_partitioning = false)"
    )
    return Contents.of(duckdb.execute(query, [files]).fetchall())
