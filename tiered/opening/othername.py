"""Whether a broker's log is archived beside here under another name: asked before a new archive is made, and by ``doctor``.

With a name mistyped or changed, and nothing left in the state directory, everything would be archived a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.find import list_archives
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.state.scope import Scope
from tiered.errors import Denied, Invalid, TieredError
from tiered.model import Progress
from tiered.provider.base import Provider
from tiered.settings import MIB
from tiered.source.base import Copies
from tiered.source.marks import MarkVerdict, check_mark

log = logging.getLogger("tiered.opening")

MOST_LISTED = 1024
"""Archives beside the new one that are listed, a request each."""
MOST_OPENED = 64
"""Of these, opened and compared: some five requests each. Those with the new one's cluster or broker name come first."""
MOST_FILES = 4
"""Files of a log whose marks are compared, the newest ones."""
MOST_BYTES = 256 * MIB
"""A mark over more is not compared: it would be read from the broker's disk for each archive there is."""


def check_other_names(source: Copies, provider: Provider, keys: ArchiveKeys) -> None:
    """``Invalid`` if another archive of this store holds this very log. What cannot be looked at is passed over, with a line
    in the log; ``Unavailable`` while the store is away."""
    try:
        found = list_archives(provider, MOST_LISTED)
    except Denied as error:  # rights on this archive's own keys alone
        log.warning("archives beside this one cannot be listed", extra={"error": str(error)})
        return
    mine = (keys.cluster, keys.broker)
    others = sorted(
        (names for names in found if names != mine),
        key=lambda names: not any(name in mine for name in names),
    )
    for cluster, broker in others[:MOST_OPENED]:
        if _is_of_log(source, provider, ArchiveKeys(cluster, broker)):
            raise Invalid(
                "this broker's log is archived here under another name: under this one everything would be archived again",
                key="source.broker",
                archive=provider.url,
                expected=f"{cluster}/{broker}",
                found=f"{keys.cluster}/{keys.broker}",
                hint=f"set source.cluster to {cluster} and source.broker to {broker}; a second archive on purpose has an"
                " archive.url of its own",
            )


def is_same_log(source: Copies, marks: Iterable[Progress]) -> bool:
    """Whether one of an archive's ``marks`` (newest first) is of the broker's own bytes. Of each file the mark over the fewest
    bytes is looked at: it is proof enough, and cheap where the log is another one."""
    return any(check_mark(source, mark) is MarkVerdict.MATCH for mark in islice(_short(marks), MOST_FILES))


def _short(marks: Iterable[Progress]) -> Iterator[Progress]:
    for _, of_file in groupby(marks, key=lambda mark: mark.crc_from):
        covering = [mark for mark in of_file if 0 < mark.physical_offset - mark.crc_from <= MOST_BYTES]
        if covering:
            yield covering[-1]


def _is_of_log(source: Copies, provider: Provider, keys: ArchiveKeys) -> bool:
    reader = ArchiveReader(provider, keys, PartialStore(Scope({})), table_cache_bytes=0)
    try:
        view = reader.at()
        return view.head is not None and is_same_log(source, view.state.marks(view.head.lineage))
    except TieredError as error:
        other = f"{keys.cluster}/{keys.broker}"
        log.warning("an archive beside this one cannot be compared", extra={"of": other, "error": str(error)})
        return False
    finally:
        reader.close()
