"""Uploads in parts that a writer began and did not live to complete: found in the store by key and id, and given up.

What was sent of them is no object: nobody reads it, no commit can name it, and it costs what it takes until it is given up.
"""

from __future__ import annotations

from tiered.archive.keys import ArchiveKeys, Area, ObjectKey, parse
from tiered.archive.log.maintenance import OwnKeys
from tiered.provider.base import Provider


def give_up_abandoned(provider: Provider, keys: ArchiveKeys, epoch: int, own_keys: OwnKeys) -> int:
    """Have the store drop what nobody will complete any more (DESIGN.md, "Retire and delete", D9); how many that were.

    ``epoch``: the one in force, of this process. Nothing where uploads do not outlive their writers.
    """
    uploads = provider.capabilities.uploads
    if uploads is None:
        return 0
    found = [
        upload
        for area in (Area.DATA, Area.SEGMENT)
        for upload in uploads.unfinished(keys.prefix(area))
        if _abandoned(str(keys.path(upload.key)), epoch, own_keys)
    ]
    for upload in found:
        uploads.give_up(upload)
    return len(found)


def _abandoned(path: str, epoch: int, own_keys: OwnKeys) -> bool:
    """Whether it is of a writer that was superseded, or this process gave its key up."""
    made = parse(path)
    return isinstance(made, ObjectKey) and (made.epoch < epoch or path in own_keys.given_up())
