"""Data keys that are gone from an encrypted archive, put again from another copy of it: without them whoever lists the bucket
is refused, so that no walk would find out what else is to be mended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from tiered.archive.encryption.datakeys import decode_wrapped_key, wrapped_paths
from tiered.archive.log.reader import LogReader
from tiered.errors import Corrupt
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own


def put_lost_keys(reader: LogReader, copy: Callable[[], Provider], newest_epoch: int) -> int:
    """Put again the data keys of epochs that have none, as the copy has them; how many.

    What lies between epochs that have one is encrypted. One that ended before its key was made is none that a copy has.
    """
    here = set(wrapped_paths(reader.provider, reader.keys.root))
    lost = set(range(min(here) + 1, newest_epoch)) - here if here else set()
    if not lost:
        return 0
    opened, count = copy(), 0
    for epoch, found in wrapped_paths(opened, reader.keys.root).items():
        for path in found if epoch in lost else ():
            key = reader.keys.key(path)
            data = bytes(opened.get(key).data)
            with contextlib.suppress(Corrupt):
                if decode_wrapped_key(data, path, key).archive_id == reader.identity.archive_id:
                    put_own(reader.provider, key, [data])
                    count += 1
    return count
