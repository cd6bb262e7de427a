"""Uploads in parts that a writer began and did not live to complete: found in the store by key and id, and given up.

What was sent of them is no object: nobody reads it, no commit can name it, and it costs what it takes until it is given up.
"""

from __future__ import annotations

from tiered.archive.keys import ArchiveKeys, Area, ObjectKey, parse
from tiered.archive.log.maintenance import OwnKeys
from tiered.provider.base import Provider, UnfinishedUpload


def give_up_abandoned(provider: Provider, keys: ArchiveKeys, epoch: int, own_keys: OwnKeys) -> int:
    """Have the store drop what nobody will complete any more (DESIGN.md, "Retire and delete", D9); how many that were.

    ``epoch``: the one in force, of this process. Nothing where uploads do not outlive their writers.
    """
    uploads, found = provider.capabilities.uploads, abandoned(provider, keys, epoch, own_keys)
    for upload in found:
        assert uploads is not None  # which listed it
        uploads.give_up(upload)
    return len(found)


def abandoned(provider: Provider, keys: ArchiveKeys, epoch: int, own_keys: OwnKeys) -> list[UnfinishedUpload]:
    """What ``give_up_abandoned`` would give up."""
    uploads = provider.capabilities.uploads
    if uploads is None:
        return []
    return [
        upload
        for area in (Area.DATA, Area.SEGMENT)
        for upload in uploads.unfinished(keys.prefix(area))
        if _abandoned(str(keys.path(upload.key)), epoch, own_keys)
    ]


def _abandoned(path: str, epoch: int, own_keys: OwnKeys) -> bool:
    """Whether it is of a writer that was superseded, or this process gave its key up."""
    made = parse(path)
    return isinstance(made, ObjectKey) and (made.epoch < epoch or own_keys.gave_up(path))
