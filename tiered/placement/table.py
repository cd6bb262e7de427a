"""The table in the bucket: which node each busy queue has (FORMAT.md, "Placement"). Queues are named by a hash: it tells no
topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

from tiered.archive.keys import PLACEMENT_PREFIX, ArchiveKeys, PlacementKey, parse
from tiered.codec.checksum import xxh3_64
from tiered.codec.summedline import decode_line, encode_line
from tiered.errors import Conflict, Corrupt, NotFound
from tiered.model import MessageQueue
from tiered.placement.history import MOST_QUEUES
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own
from tiered.version import FORMAT_VERSION

MOST_BYTES = 1 << 20
MOST_NODES = 4096
KEPT = 3
"""Tables that stay, the newest ones: whoever reads one finds it for a while."""


@dataclass(frozen=True, slots=True)
class PlacementTable:
    """``homes``: digest of a queue to its node. ``loads``: predicted bytes an hour when it was made. ``made_ms`` is the
    writer's clock, for people."""

    nodes: tuple[str, ...]
    homes: Mapping[int, str]
    loads: Mapping[int, int]
    made_ms: int


def queue_digest(queue: MessageQueue) -> int:
    """What stands for a queue in a table."""
    return xxh3_64(b"%d/%s" % (queue.queue_id, queue.topic.encode("utf-8", "surrogatepass")))


def with_quiet_homes(
    homes: Mapping[int, str], before: Mapping[int, str], nodes: Collection[str]
) -> dict[int, str]:
    """``homes``, and those of ``before`` on nodes that are there: a queue that is quiet for now keeps its place. At most
    ``MOST_QUEUES``, new ones first."""
    quiet = (
        (digest, node) for digest, node in sorted(before.items()) if digest not in homes and node in nodes
    )
    return dict(islice(chain(homes.items(), quiet), MOST_QUEUES))


def encode_table(table: PlacementTable, number: int) -> bytes:
    """The object's bytes."""
    order = {name: at for at, name in enumerate(table.nodes)}
    rows = [
        [f"{digest:016x}", order[table.homes[digest]], table.loads.get(digest, 0)]
        for digest in sorted(table.homes)
    ]
    return encode_line(
        {
            "format": FORMAT_VERSION,
            "number": number,
            "made_ms": table.made_ms,
            "nodes": list(table.nodes),
            "queues": rows,
        }
    )


def decode_table(data: bytes, key: str, number: int) -> PlacementTable:
    """``Corrupt`` unless it is a whole table of this number."""
    try:
        fields = decode_line(data)
        if fields["number"] != number or fields["format"] != FORMAT_VERSION:
            raise ValueError(f"number {fields['number']!r}, format {fields['format']!r}"[:100])
        return _parsed(fields)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise Corrupt(
            "a placement table is damaged", key=key, found=repr(error)[:200],
            hint="delete it, and run tiered placement --publish; gateways place by hashing, or by the table that they had",
        ) from None  # fmt: skip


def _parsed(fields: Mapping[str, Any]) -> PlacementTable:
    nodes, rows = fields["nodes"], fields["queues"]
    if not all(isinstance(name, str) and name for name in nodes) or len(nodes) > MOST_NODES:
        raise ValueError("its nodes are not names")
    if len(rows) > MOST_QUEUES:
        raise ValueError(f"{len(rows)} queues")
    homes: dict[int, str] = {}
    loads: dict[int, int] = {}
    for digest, at, load in rows:
        if not (isinstance(at, int) and isinstance(load, int)) or at < 0 or load < 0:
            raise ValueError(f"a queue's row is {[digest, at, load]!r}"[:100])
        named = int(digest, 16)
        homes[named], loads[named] = nodes[at], load
    return PlacementTable(tuple(nodes), homes, loads, int(fields["made_ms"]))


def table_numbers(provider: Provider, keys: ArchiveKeys) -> list[int]:
    """Numbers of the tables that are there, ascending."""
    paths = (keys.path(stored.key) for stored in provider.list(keys.key(PLACEMENT_PREFIX)))
    found = (None if path is None else parse(path) for path in paths)
    return sorted(made.number for made in found if isinstance(made, PlacementKey))


def newest_table(provider: Provider, keys: ArchiveKeys, known: int = -1) -> tuple[int, PlacementTable | None]:
    """The newest table's number, -1 without one, and the table if that number is not ``known``."""
    numbers = table_numbers(provider, keys)
    if not numbers or numbers[-1] == known:
        return (numbers[-1] if numbers else -1), None
    key = keys.placement(numbers[-1])
    try:
        data = bytes(provider.get(key, 0, MOST_BYTES).data)
    except NotFound:  # removed between the two
        return -1, None
    return numbers[-1], decode_table(data, key, numbers[-1])


def publish_table(provider: Provider, keys: ArchiveKeys, table: PlacementTable, before: int) -> int:
    """Put the table behind number ``before``, and remove old ones; its number. ``Conflict`` where somebody else did so."""
    number = before + 1
    try:
        put_own(provider, keys.placement(number), [encode_table(table, number)])
    except Conflict:
        raise Conflict(
            "another placement table was published meanwhile",
            number=number, hint="let one host publish tables; run tiered placement again to see that one",
        ) from None  # fmt: skip
    old: Sequence[int] = table_numbers(provider, keys)[:-KEPT]
    for each in old:
        provider.delete(keys.placement(each))
    return number
