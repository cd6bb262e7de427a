"""Checkpoints: a fold saved in the bucket, so that opening does not replay the whole log (``CHECKPOINT.md``).

Shards go first, the manifest last, all create-only. A checkpoint *is* one only if its manifest and every
shard verify; others count as absent, whatever their key says.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, takewhile

from tiered.archive.ahead import read_each
from tiered.archive.checkpoint.format import (
    MAX_MANIFEST_BYTES,
    SHARD_BYTES,
    Manifest,
    Pair,
    Shard,
    ShardPairs,
    cut,
    decode_manifest,
    describe,
    digest,
    encode_body,
    encode_manifest,
    encode_shard,
    open_shard,
)
from tiered.archive.keys import ArchiveKeys
from tiered.archive.state.keys import FOLD_PREFIXES, HEAD
from tiered.archive.state.values import Head, unpack_head
from tiered.archive.state.view import ArchiveState
from tiered.errors import Conflict, Corrupt, NotFound
from tiered.metadata.base import MetadataStore, MetadataView
from tiered.provider.base import Provider, Stored

_LOAD_PAIRS = 50_000
"""Pairs per batch into the metadata store."""

SHARDS_AHEAD = 4
"""Shards read at once: what bounds memory while all are read."""

PAGE_KEYS = 1000
"""Keys of one listing."""

__all__ = [
    "Manifest", "Shard", "checkpoint_keys", "checkpoint_number", "load_checkpoint", "load_newest", "load_oldest",
    "newest_checkpoint", "newest_number",
    "read_checkpoint", "read_manifest", "write_checkpoint",
]  # fmt: skip


def fold_pairs(view: MetadataView) -> Iterator[Pair]:
    """Every pair of the fold, ascending; what lies beside the fold (dispatch offsets) left out."""
    for prefix in FOLD_PREFIXES:
        yield from view.iterate(prefix)


def write_checkpoint(
    provider: Provider,
    keys: ArchiveKeys,
    view: MetadataView,
    previous: Manifest | None,
    new_shard_key: Callable[[], str],
    *,
    pairs: Iterable[Pair] | None = None,
    shard_bytes: int = SHARD_BYTES,
    before_manifest: Callable[[], None] = lambda: None,
) -> Manifest:
    """Save the fold that ``view`` (a snapshot) holds and return its manifest.

    ``pairs``: all of them (``fold_pairs``) from somebody who looks at them on their way; what that raises leaves shards
    behind that no manifest names.

    ``new_shard_key`` makes the provider's key of a fresh shard. Shards that ``previous`` has already are
    named again and not written. ``before_manifest`` is called when all shards are up. A checkpoint of the
    same commit that verifies is taken as it is (``Conflict`` if one is there that does not).
    """
    head = ArchiveState(view).head()
    if head is None:
        raise Corrupt("an empty fold cannot be saved", expected="a head", found="none")
    known = {} if previous is None else {s.digest: s for s in previous.shards}
    shards: list[Shard] = []
    for piece in cut(fold_pairs(view) if pairs is None else pairs, shard_bytes):
        body = encode_body(piece)
        kept = known.get(digest(body))
        if kept is not None and kept.raw_bytes == len(body):
            shards.append(kept)
            continue
        data = encode_shard(body, len(piece))
        key = new_shard_key()
        path = keys.path(key)
        if path is None:
            raise ValueError(f"{key} lies outside the archive")
        provider.put(key, [data], create_only=True)
        shards.append(describe(path, piece, body, data))
    before_manifest()
    manifest = Manifest(
        keys.checkpoint(head.seq), head.archive_id, head.seq, head.commit_id, head.epoch, tuple(shards)
    )
    try:
        provider.put(manifest.key, [encode_manifest(manifest)], create_only=True)
    except Conflict:
        return _existing(provider, manifest, head)
    return manifest


def _existing(provider: Provider, ours: Manifest, head: Head) -> Manifest:
    """The checkpoint that somebody (perhaps we, whose answer was lost) put under our key, if it is of the
    same fold."""
    found = read_manifest(provider, ours.key)
    same = (found.archive_id, found.seq, found.commit_id) == (head.archive_id, head.seq, head.commit_id)
    if not same:
        raise Conflict(
            "a checkpoint of another history has this number",
            hint="run `tiered verify`; another writer may have taken the archive over",
            key=ours.key,
            expected=head.commit_id.hex(),
            found=found.commit_id.hex(),
        )
    for _ in read_checkpoint(provider, found):
        pass
    return found


def read_manifest(provider: Provider, key: str) -> Manifest:
    """A manifest; ``Corrupt`` if it is absent or damaged."""
    try:
        fetched = provider.get(key, 0, MAX_MANIFEST_BYTES + 1)
    except NotFound as e:
        raise Corrupt(
            "a checkpoint manifest is not there", key=key, expected="a manifest", found="nothing"
        ) from e
    if len(fetched.data) > MAX_MANIFEST_BYTES:
        raise Corrupt("a checkpoint manifest is too long", key=key, expected=MAX_MANIFEST_BYTES, found="more")
    return manifest_of(bytes(fetched.data), key)


def manifest_of(data: bytes, key: str) -> Manifest:
    """The manifest in the bytes under ``key``. See ``decode_manifest``; ``Corrupt`` too if it is that of another key."""
    manifest = decode_manifest(data, key)
    if not key.endswith(f"checkpoint/{manifest.seq:020d}"):
        raise Corrupt("a checkpoint is stored under another's key", key=key, expected=manifest.seq, found=key)
    return manifest


def read_checkpoint(provider: Provider, manifest: Manifest) -> Iterator[list[Pair]]:
    """The fold's pairs, ascending, a shard at a time. ``Corrupt`` at the first thing that does not verify, a
    missing shard and a head that is not the manifest's included."""
    check_order(manifest)
    head_seen = False
    for shard_pairs in read_each(
        lambda shard: read_shard(provider, manifest, shard), list(manifest.shards), SHARDS_AHEAD
    ):
        pairs = shard_pairs.pairs()
        head_seen = head_seen or check_head(manifest, pairs)
        yield pairs
    if not head_seen:
        raise Corrupt("a checkpoint holds no head", key=manifest.key, expected=manifest.seq, found="none")


def read_shard(provider: Provider, manifest: Manifest, shard: Shard) -> ShardPairs:
    """The pairs of one shard. ``Corrupt`` if it does not verify or is not there."""
    key = manifest.root + shard.path
    try:
        data = provider.get(key, 0, shard.stored_bytes + 1).data
    except NotFound as e:
        raise Corrupt(
            "a checkpoint's shard is not there", key=key, expected="a shard", found="nothing"
        ) from e
    return open_shard(bytes(data), shard, key)


def check_order(manifest: Manifest) -> None:
    """The shards follow each other; each is compared with its own bounds when it is read."""
    for before, shard in pairwise(manifest.shards):
        if shard.first_key <= before.last_key:
            raise Corrupt(
                "a checkpoint's shards overlap",
                key=manifest.root + shard.path, expected=f"> {before.last_key.hex()}", found=shard.first_key.hex(),
            )  # fmt: skip


def check_head(manifest: Manifest, pairs: Iterable[Pair]) -> bool:
    """Whether the head is among ``pairs``; ``Corrupt`` if it is another fold's."""
    value = next((v for k, v in pairs if k == HEAD), None)
    if value is None:
        return False
    head = unpack_head(value)
    found, expected = (
        (head.archive_id, head.seq, head.commit_id),
        (manifest.archive_id, manifest.seq, manifest.commit_id),
    )
    if found != expected:
        raise Corrupt(
            "a checkpoint holds another fold", key=manifest.key, expected=manifest.seq, found=head.seq
        )
    return True


def load_checkpoint(provider: Provider, manifest: Manifest, store: MetadataStore) -> Head:
    """Put a checkpoint into an empty metadata store. ``Corrupt`` if anything does not verify; the store is
    then cleared.

    The head goes in last, with ``applied``: a load cut short is never taken for a fold.
    """
    heads: list[Pair] = []
    try:
        store.load(_batches(read_checkpoint(provider, manifest), heads))
    except Corrupt:
        store.clear()
        raise
    head = unpack_head(heads[0][1])  # read_checkpoint checked that there is one
    store.put_many(heads, applied=head.position())
    return head


def _batches(shards: Iterable[list[Pair]], heads: list[Pair]) -> Iterator[list[Pair]]:
    """All pairs but the head, which goes into ``heads``."""
    batch: list[Pair] = []
    for pairs in shards:
        found = [pair for pair in pairs if pair[0] == HEAD]
        heads += found
        batch += [pair for pair in pairs if pair[0] != HEAD] if found else pairs
        if len(batch) >= _LOAD_PAIRS:
            yield batch
            batch = []
    yield batch


def load_newest(
    provider: Provider,
    keys: ArchiveKeys,
    store: MetadataStore,
    *,
    below: int | None = None,
    listed: Callable[[int], None] = lambda date_ms: None,
) -> Head | None:
    """Put the newest checkpoint that verifies, at or under commit ``below``, into an empty store; ``None`` if there is none.

    ``listed`` hears the store's time of the listing that says which there are, if any are.
    """
    for key in checkpoint_keys(provider, keys, below, listed=listed):
        with contextlib.suppress(Corrupt):  # counts as absent
            return load_checkpoint(provider, read_manifest(provider, key), store)
    return None


def load_oldest(provider: Provider, keys: ArchiveKeys, store: MetadataStore) -> Head | None:
    """Put the oldest checkpoint that verifies into an empty store; ``None`` if there is none."""
    for key in reversed(list(checkpoint_keys(provider, keys))):
        with contextlib.suppress(Corrupt):
            return load_checkpoint(provider, read_manifest(provider, key), store)
    return None


def newest_checkpoint(
    provider: Provider,
    keys: ArchiveKeys,
    *,
    below: int | None = None,
    skipped: Callable[[Corrupt], None] = lambda e: None,
) -> Manifest | None:
    """The newest checkpoint whose manifest and shards verify (every shard is read), at or under commit
    ``below``.

    ``skipped`` is told of each newer one that does not. ``Unavailable`` means that nothing can be said.
    """
    for key in checkpoint_keys(provider, keys, below):
        try:
            manifest = read_manifest(provider, key)
            for _ in read_checkpoint(provider, manifest):
                pass
        except Corrupt as e:
            skipped(e)
            continue
        return manifest
    return None


def checkpoint_keys(
    provider: Provider,
    keys: ArchiveKeys,
    below: int | None = None,
    *,
    listed: Callable[[int], None] = lambda date_ms: None,
) -> Iterator[str]:
    """Keys of checkpoints at or under commit ``below``, newest first; the newest are found without listing all others.

    ``listed`` hears the store's time of the first listing, if it names any.
    """
    end = None if below is None else keys.checkpoint(below)
    first = list(provider.list(keys.checkpoint_prefix, limit=PAGE_KEYS))
    if first:
        listed(first[0].date_ms)
    page = _named(first)
    if len(page) < PAGE_KEYS or (end is not None and page[-1] > end):
        yield from (key for key in reversed(page) if end is None or key <= end)
        return
    start = _before_last_page(provider, keys, page, end)
    tail = _named(provider.list(keys.checkpoint_prefix, start_after=start))
    yield from (key for key in reversed(tail) if end is None or key <= end)
    rest = takewhile(lambda s: s.key <= start, provider.list(keys.checkpoint_prefix))
    yield from reversed(_named(rest))


def _before_last_page(provider: Provider, keys: ArchiveKeys, page: list[str], end: str | None) -> str:
    """A key that about a page of checkpoints up to ``end`` lie above; ``page`` is the first one.

    There is one for every so many commits: listing them all would take a second for each hundred thousand. So the end is looked
    for in doubling steps, then by halves.
    """

    def above(seq: int) -> int | None:
        key = keys.checkpoint(seq)
        found = next(iter(_named(provider.list(keys.checkpoint_prefix, start_after=key, limit=2))), None)
        return None if found is None or (end is not None and found > end) else checkpoint_number(found)

    first, low = checkpoint_number(page[0]), checkpoint_number(page[-1])
    span = step = max(1, low - first)
    while (found := above(low + step)) is not None:
        low, step = found, step * 2
    high = low + step  # nothing above it
    while high - low > span:
        middle = (low + high) // 2
        found = above(middle)
        low, high = (low, middle) if found is None else (found, high)
    return keys.checkpoint(low - 1)


def _named(listed: Iterable[Stored]) -> list[str]:
    """Those keys that a checkpoint can have; what else lies there is nobody's."""
    return [s.key for s in listed if s.key[-20:].isdecimal() and s.key[-21] == "/"]


def newest_number(provider: Provider, keys: ArchiveKeys) -> int:
    """The commit that the newest checkpoint names, usable or not; −1 without one."""
    newest = next(checkpoint_keys(provider, keys), None)
    return -1 if newest is None else checkpoint_number(newest)


def checkpoint_number(key: str) -> int:
    """The commit that a checkpoint's key names."""
    return int(key[-20:])
