"""What no walk over an archive would miss, or could begin without, put again from another copy of it: its identity and the data
keys of an encrypted one, without which whoever opens it or lists the bucket is refused; and orders, which nothing names."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Container
from contextlib import suppress
from functools import cache, partial
from itertools import islice

from tiered.archive.checkpoint.format import Manifest, Shard, open_shard
from tiered.archive.checkpoint.store import newest_checkpoint
from tiered.archive.encryption.datakeys import WrappedKey, read_wrapped_key, wrapped_paths
from tiered.archive.keykinds import OrderKey
from tiered.archive.keys import ArchiveKeys, parse
from tiered.archive.log.identity import kept_identity
from tiered.archive.log.reader import LogReader
from tiered.archive.read.find import find_identity
from tiered.archive.standing import BACKFILL, ORDER_KINDS, check_order
from tiered.archive.state.values import Head
from tiered.codec.format.commit import COMMIT_FOOTER_BYTES, decode_commit_footer
from tiered.errors import Corrupt, NotFound, Refused
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own

LASTING_KINDS = tuple(kind for kind in ORDER_KINDS if kind is not BACKFILL)
"""Orders that are never deleted; parts of a backfill are, when they are of no more use."""
COMPARED_COMMITS = 100
"""Commits that are compared with the copy's, until one is the same."""


def put_opening(provider: Provider, keys: ArchiveKeys, copy: Provider, *, apply: bool = True) -> list[str]:
    """Put again what is lost or damaged of this; the keys, which without ``apply`` would be put. ``Refused`` if the copy is of
    another archive, ``NotFound`` or ``Corrupt`` if it has no identity, or, where it is lost here, nothing shows whose it is."""
    theirs = find_identity(copy, keys)
    put = []
    try:
        mine = kept_identity(provider, keys)
        damaged = mine is None
    except Corrupt:
        mine, damaged = None, True
    if damaged:
        _check_same(provider, keys, copy)
        put.append(keys.identity)
        if apply:
            put_over(provider, keys.identity, bytes(copy.get(keys.identity).data))
    elif mine is not None and mine.archive_id != theirs.archive_id:
        raise Refused(
            "this is not a copy of this archive", hint="name a copy that was made of the archive's own keys",
            url=copy.url, expected=mine.archive_id.hex(), found=theirs.archive_id.hex(),
        )  # fmt: skip
    sound = {
        found.key_id
        for paths in wrapped_paths(provider, keys.root).values()
        for found in _sound(provider, keys, paths, theirs.archive_id)
    }
    put += _put_keys(provider, keys, copy, theirs.archive_id, sound, apply=apply)
    return put + _put_orders(provider, keys, copy, theirs.archive_id, apply=apply)


def put_checkpoint(provider: Provider, keys: ArchiveKeys, copy: Provider, *, apply: bool = True) -> list[str]:
    """Where the first commits are gone and no checkpoint is whole, put again the newest of the copy that is, with its shards:
    nobody opens the archive without. Keys as of ``put_opening``; both providers decrypt."""
    if _has_first_commit(provider, keys) or newest_checkpoint(provider, keys) is not None:
        return []
    manifest = newest_checkpoint(copy, keys)
    if manifest is None:
        return []
    _check_history(LogReader(provider, keys, find_identity(copy, keys)), manifest)
    lost = [keys.key(shard.path) for shard in manifest.shards if not _is_whole(provider, keys, shard)]
    put = [*lost, manifest.key]  # which comes last, as ever
    for key in put if apply else ():
        put_over(provider, key, bytes(copy.get(key).data))
    return put


def _has_first_commit(provider: Provider, keys: ArchiveKeys) -> bool:
    first = next(iter(provider.list(keys.commit_prefix, limit=1)), None)
    return first is not None and first.key == keys.commit(0)


def _check_history(reader: LogReader, manifest: Manifest) -> None:
    """``Refused`` unless a checkpoint is of this archive, and of the commit with its number here, where that can be read."""
    expected = manifest.commit_id
    with suppress(Corrupt):
        found = reader.read(manifest.seq)
        expected = expected if found is None else found.commit.commit_id
    if (manifest.archive_id, manifest.commit_id) != (reader.identity.archive_id, expected):
        raise Refused(
            "the copy's newest checkpoint is of another history", hint="name a copy of this archive as it was",
            key=manifest.key, expected=expected.hex(), found=manifest.commit_id.hex(),
        )  # fmt: skip


def _is_whole(provider: Provider, keys: ArchiveKeys, shard: Shard) -> bool:
    key = keys.key(shard.path)
    try:
        open_shard(bytes(provider.get(key).data), shard, key)
    except (Corrupt, NotFound):
        return False
    return True


def put_lost_keys(
    provider: Provider, keys: ArchiveKeys, copy: Provider, archive_id: bytes, epochs: Container[int]
) -> int:
    """Put again the data keys of these epochs, as the copy has them; how many. What the copy has of them is encrypted: an
    epoch that was plain, or ended before its key was made, has none there either."""
    return len(_put_keys(provider, keys, copy, archive_id, (), epochs=epochs))


def epochs_without_key(provider: Provider, keys: ArchiveKeys, newest: int) -> set[int]:
    """Epochs up to the newest of which no data key is there: plain ones, too."""
    return set(range(1, newest + 1)) - set(wrapped_paths(provider, keys.root))


def check_keys(reader: LogReader, head: Head | None) -> None:
    """``Refused`` where commits of an epoch are encrypted and its data key is gone: the listing of commits would not tell."""
    if head is None or reader.provider.capabilities.encryptor is None:
        return
    lacking = epochs_without_key(reader.provider, reader.keys, head.epoch)
    epoch_of = cache(partial(_epoch_of, reader, head))
    for epoch in sorted(lacking):  # epochs ascend with the commits: the last one of it is looked at
        bisect_right(range(head.floor, head.seq + 1), epoch, key=epoch_of)


def _epoch_of(reader: LogReader, head: Head, seq: int) -> int:
    """The epoch of a commit, or of the next one that can be read."""
    for at in range(seq, head.seq + 1):
        with suppress(Corrupt, NotFound):
            key = reader.keys.commit(at)
            return decode_commit_footer(reader.provider.get(key, -COMMIT_FOOTER_BYTES).data, key=key).epoch
    return head.epoch


def put_over(provider: Provider, key: str, data: bytes) -> None:
    """Put the bytes that lay under a key, where nothing or damaged ones do. Readers tell the two apart: one is
    refused by its own checksum."""
    try:
        provider.head(key)
    except NotFound:
        put_own(provider, key, [data])
        return
    provider.put(key, [data], create_only=False)


def _put_keys(
    provider: Provider,
    keys: ArchiveKeys,
    copy: Provider,
    archive_id: bytes,
    sound: Container[bytes],
    *,
    epochs: Container[int] | None = None,
    apply: bool = True,
) -> list[str]:
    """Of data keys that are not ``sound`` here (by id) every wrapping of the copy."""
    put = []
    for epoch, paths in wrapped_paths(copy, keys.root).items():
        if epochs is not None and epoch not in epochs:
            continue
        for found in _sound(copy, keys, paths, archive_id):
            if found.key_id not in sound and not _sound(provider, keys, [found.path], archive_id):
                key = keys.key(found.path)
                put.append(key)
                if apply:
                    put_over(provider, key, bytes(copy.get(key).data))
    return put


def _put_orders(
    provider: Provider, keys: ArchiveKeys, copy: Provider, archive_id: bytes, *, apply: bool
) -> list[str]:
    """Orders that the copy has and this archive has not, and that some were dropped: none is ever deleted."""
    put = []
    for kind in LASTING_KINDS:
        prefix = keys.key(kind.prefix)
        here = {stored.key for stored in provider.list(prefix)}
        for key in [stored.key for stored in copy.list(prefix) if stored.key not in here]:
            made = parse(str(keys.path(key)))
            with suppress(Corrupt, NotFound):
                if not isinstance(made, OrderKey):
                    continue
                if not made.dropped:
                    check_order(copy, keys, archive_id, kind, made.order_id)
                put.append(key)
                if apply:
                    put_own(provider, key, [bytes(copy.get(key).data)])
    return put


def _sound(provider: Provider, keys: ArchiveKeys, paths: list[str], archive_id: bytes) -> list[WrappedKey]:
    """The wrappings below these paths that are whole and of this archive."""
    found = []
    for path in paths:
        try:
            found.append(read_wrapped_key(provider, path, keys.key(path)))
        except (Corrupt, NotFound):
            continue
    return [each for each in found if each.archive_id == archive_id]


def _check_same(provider: Provider, keys: ArchiveKeys, copy: Provider) -> None:
    """``Refused`` unless a commit is the same here and in the copy, byte for byte: its ids are random."""
    for stored in islice(provider.list(keys.commit_prefix), COMPARED_COMMITS):
        try:
            if copy.head(stored.key).length == stored.length and (
                copy.get(stored.key).data == provider.get(stored.key).data
            ):
                return
        except (NotFound, Corrupt, Refused):
            continue
    raise Refused(
        "archive.json is lost, and nothing shows that this is a copy of the archive",
        hint="name a copy that has one of its commits", key=keys.identity, url=copy.url,
        expected="a commit that is the same in both",
    )  # fmt: skip
