"""The store of a view as of one position, in the bucket: export, list, import, and deletion of old ones.

Pieces go first, the manifest last, all create-only: without its manifest a snapshot is none. Import looks at every checksum
before anything of it can be seen, and sets the position in the same step as the entries: cut short, the store is empty.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing

from tiered.archive.ahead import read_each
from tiered.archive.keys import KEYVALUE_PREFIX, MAX_PIECES, ArchiveKeys, KeyValueKey, parse
from tiered.codec.checksum import crc32c
from tiered.codec.format.keyvalue import (
    MAX_RAW_BYTES,
    MAX_SNAPSHOT_MANIFEST_BYTES,
    KeyValueSnapshot,
    SnapshotPiece,
    decode_snapshot,
    encode_piece,
    encode_snapshot,
    open_piece,
)
from tiered.codec.format.pairs import Columns
from tiered.errors import Corrupt, Invalid, NotFound, Refused
from tiered.metadata.base import MetadataView, RedoStore
from tiered.metadata.prefix import prefix_end
from tiered.provider.base import Provider
from tiered.view.layout import (
    ENTRY_PREFIX,
    LAYOUT_VERSION,
    NAMESPACE_PREFIX,
    entries_prefix,
    namespace_key,
    split_entry_key,
    split_namespace_key,
)

PIECE_BYTES = 8 * 1024 * 1024
"""Raw bytes at which a piece ends; the last entry of one may go beyond."""
_AHEAD = 3
"""Pieces read at once: what bounds an import's memory."""
UNFINISHED_MS = 86_400_000
"""Pieces without a manifest are an export under way for that long."""

_OTHER = "name the right bucket, cluster, broker and namespace, or let the view be made from the log"


def write_snapshot(
    provider: Provider,
    keys: ArchiveKeys,
    view: MetadataView,
    *,
    namespace: str | None,
    now_ms: int,
    snapshot_id: bytes,
    piece_bytes: int = PIECE_BYTES,
) -> KeyValueSnapshot:
    """Export what ``view`` (a frozen one) holds, or one ``namespace`` of it. ``Refused`` if there is nothing of it; what an
    error leaves behind is no snapshot, and ``delete_snapshots`` removes it later. Memory: some pieces."""
    applied = view.applied()
    if applied is None or (namespace is not None and view.get_many([namespace_key(namespace)]) == [None]):
        raise Refused(
            "there is nothing to make a snapshot of",
            hint="wait until the view has applied something, and name a namespace that it has",
            namespace=namespace or "all",
        )
    pieces: list[SnapshotPiece] = []
    entries: Counter[str] = Counter()
    for columns in _cut(_pairs(view, namespace), piece_bytes):
        if len(pieces) == MAX_PIECES:
            raise Refused(
                "a snapshot has too many pieces", hint="make one of each namespace", expected=MAX_PIECES
            )
        _count(columns[0], entries)
        data, piece = encode_piece(columns, snapshot_id, len(pieces))
        provider.put(keys.keyvalue(now_ms, snapshot_id, len(pieces)), [data], create_only=True)
        pieces.append(piece)
    made = KeyValueSnapshot(
        snapshot_id,
        keys.cluster,
        keys.broker,
        now_ms,
        namespace,
        LAYOUT_VERSION,
        applied,
        dict(entries),
        tuple(pieces),
    )
    manifest = encode_snapshot(made)
    provider.put(keys.keyvalue(now_ms, snapshot_id), [manifest], create_only=True)
    return made


def list_snapshots(
    provider: Provider,
    keys: ArchiveKeys,
    *,
    skipped: Callable[[Corrupt | Refused], None] = lambda error: None,
) -> list[KeyValueSnapshot]:
    """All that have a manifest, newest first. ``skipped`` hears of manifests that are damaged, or of a newer program."""
    found: list[KeyValueSnapshot] = []
    for made in _keys(provider, keys):
        if made.piece is None:
            try:
                found.append(_manifest(provider, keys, made))
            except (Corrupt, Refused) as error:
                skipped(error)
    return found[::-1]


def load_snapshot(
    provider: Provider,
    keys: ArchiveKeys,
    store: RedoStore,
    snapshot: KeyValueSnapshot,
    *,
    namespace: str | None,
) -> None:
    """Fill an empty ``store`` with a snapshot that ``list_snapshots`` gave. ``namespace``: what the view is of; ``None``: all.

    ``Refused`` if the store is not empty, or the snapshot another's; ``Corrupt`` if anything of it does not verify. The store
    is empty after any error, and after a crash it is empty or whole."""
    _check_fits(keys, snapshot, namespace)
    if store.applied() is not None or next(store.iterate(b""), None) is not None:
        raise Refused(
            "a snapshot goes into an empty store only",
            hint="stop the view and delete kv.state_directory, or go on with what it holds",
        )
    with closing(_batches(provider, keys, snapshot)) as batches:
        store.load(batches, applied=snapshot.applied)


def delete_snapshots(provider: Provider, keys: ArchiveKeys, *, keep: int, now_ms: int) -> list[bytes]:
    """Delete all but the ``keep`` newest whose manifests are sound, and exports that were not finished within a day; the ids of
    what went. A manifest goes before its pieces. ``Invalid`` if none were to be kept."""
    if keep < 1:
        raise Invalid("at least one snapshot must be kept", expected="1 or more", found=keep)
    parts: dict[tuple[int, bytes], list[KeyValueKey]] = {}
    for made in _keys(provider, keys):
        parts.setdefault((made.created_ms, made.snapshot_id), []).append(made)
    kept = [(found.created_ms, found.snapshot_id) for found in list_snapshots(provider, keys)][:keep]
    gone: list[bytes] = []
    for name, made_of in sorted(parts.items()):
        whole = made_of[-1].piece is None
        old = len(kept) == keep and name < kept[-1]
        if old or (not whole and name[0] + UNFINISHED_MS < now_ms):
            ordered = [keys.keyvalue(*name, made.piece) for made in made_of[::-1]]
            if whole:
                provider.delete(ordered.pop(0))
            _delete(provider, ordered)
            gone.append(name[1])
    return gone


def _delete(provider: Provider, names: list[str]) -> None:
    most = max(1, provider.capabilities.delete_keys)
    for at in range(0, len(names), most):
        for error in provider.delete_many(names[at : at + most]).values():
            raise error


def _keys(provider: Provider, keys: ArchiveKeys) -> Iterator[KeyValueKey]:
    """Parts of snapshots, oldest first; of each its pieces, then its manifest."""
    for stored in provider.list(keys.key(KEYVALUE_PREFIX)):
        made = parse(str(keys.path(stored.key)))
        if isinstance(made, KeyValueKey):
            yield made


def _manifest(provider: Provider, keys: ArchiveKeys, made: KeyValueKey) -> KeyValueSnapshot:
    key = keys.keyvalue(made.created_ms, made.snapshot_id)
    data = bytes(provider.get(key, 0, MAX_SNAPSHOT_MANIFEST_BYTES + 1).data)
    found = decode_snapshot(data, key)
    if (found.created_ms, found.snapshot_id) != (made.created_ms, made.snapshot_id):
        raise Corrupt("a snapshot is stored under another's key", key=key, found=found.snapshot_id.hex())
    return found


def _check_fits(keys: ArchiveKeys, snapshot: KeyValueSnapshot, namespace: str | None) -> None:
    for what, expected, found in (
        ("cluster and broker", f"{keys.cluster}/{keys.broker}", f"{snapshot.cluster}/{snapshot.broker}"),
        ("namespace", namespace or "all", snapshot.namespace or "all"),
        ("layout of the store", LAYOUT_VERSION, snapshot.layout),
    ):
        if expected != found:
            raise Refused(f"the snapshot is of another {what}", hint=_OTHER, expected=expected, found=found)


def _pairs(view: MetadataView, namespace: str | None) -> Iterator[tuple[bytes, bytes]]:
    if namespace is None:
        yield from view.iterate(ENTRY_PREFIX)
        yield from view.iterate(NAMESPACE_PREFIX)
        return
    yield from view.iterate(entries_prefix(namespace))
    for state in view.get_many([namespace_key(namespace)]):
        if state is not None:
            yield namespace_key(namespace), state


def _cut(pairs: Iterable[tuple[bytes, bytes]], piece_bytes: int) -> Iterator[Columns]:
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for key, value in pairs:
        if size + len(key) + len(value) + 8 > MAX_RAW_BYTES:
            yield keys, values
            keys, values, size = [], [], 0
        keys.append(key)
        values.append(value)
        size += len(key) + len(value) + 8
        if size >= piece_bytes:
            yield keys, values
            keys, values, size = [], [], 0
    if keys:
        yield keys, values


def _count(keys: list[bytes], entries: Counter[str]) -> None:
    """Add the entries of each namespace among ``keys``, which ascend; ``Corrupt`` if a key is none of the layout's."""
    at = 0
    while at < len(keys) and keys[at][:1] == ENTRY_PREFIX:
        namespace, _ = split_entry_key(keys[at])
        end = prefix_end(entries_prefix(namespace))
        behind = len(keys) if end is None else bisect_left(keys, end, at)
        entries[namespace] += behind - at
        at = behind
    for key in keys[at:]:
        entries[split_namespace_key(key)] += 0


def _batches(
    provider: Provider, keys: ArchiveKeys, snapshot: KeyValueSnapshot
) -> Generator[list[tuple[bytes, bytes]]]:
    """Every pair, each piece verified before it is given; ``Corrupt`` also at the end, if pieces do not make up the whole."""
    entries: Counter[str] = Counter()
    last = b""
    read = read_each(
        lambda number: _piece(provider, keys, snapshot, number), range(len(snapshot.pieces)), _AHEAD
    )
    for number, (piece_keys, values) in enumerate(read):
        if piece_keys[0] <= last:
            key = keys.keyvalue(snapshot.created_ms, snapshot.snapshot_id, number)
            raise Corrupt(
                "pieces of a snapshot overlap", key=key, expected=f"> {last.hex()}", found=piece_keys[0].hex()
            )
        last = piece_keys[-1]
        _count(piece_keys, entries)
        yield list(zip(piece_keys, values, strict=True))
    if entries != snapshot.entries or set(entries) != set(snapshot.entries):
        raise Corrupt(
            "a snapshot does not hold what its manifest says",
            key=keys.keyvalue(snapshot.created_ms, snapshot.snapshot_id),
            expected=dict(snapshot.entries), found=dict(entries),
        )  # fmt: skip


def _piece(provider: Provider, keys: ArchiveKeys, snapshot: KeyValueSnapshot, number: int) -> Columns:
    key, told = keys.keyvalue(snapshot.created_ms, snapshot.snapshot_id, number), snapshot.pieces[number]
    try:
        data = bytes(provider.get(key, 0, told.stored_bytes + 1).data)
    except NotFound as error:
        raise Corrupt(
            "a piece of a snapshot is not there", key=key, expected="a piece", found="nothing"
        ) from error
    columns = open_piece(data, snapshot.snapshot_id, number, key)
    found = SnapshotPiece(len(columns[0]), told.raw_bytes, len(data), crc32c(data))
    if found != told:
        raise Corrupt(
            "a piece of a snapshot is not what its manifest says", key=key, expected=told, found=found
        )
    return columns
