"""Whether the broker's answer to a pull is enough, beside what the archive has of the same offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tiered.codec.remoting.codes import ResponseCode
from tiered.errors import TieredError, Unavailable
from tiered.gateway.knowledge.archive import KnownArchive
from tiered.gateway.knowledge.caughtup import FAR_BYTES, Coverage
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.pull.coldpull import ColdPull
from tiered.gateway.pull.gaps import agree, places
from tiered.gateway.pull.verdict import Why
from tiered.model import MessageQueue


@dataclass(frozen=True, slots=True)
class ArchivedPlaces:
    """What the archive has for a pull: ``places`` (see there) of its records, and up to where it was looked through."""

    places: Mapping[int, int]
    following: int


async def is_enough(cold: ColdPull, archived: ArchivedPlaces, coverage: Coverage) -> bool:
    """Whether the broker's answer is to pass; else the archive's is to be served.

    ``Unavailable`` if the archived records are of a queue that no longer exists, and the broker's own may not be complete.
    """
    why, next_offset = cold.why, cold.bounds.next_offset
    here = places(cold.answer.body) if cold.answer.code == ResponseCode.SUCCESS else {}
    same = agree(archived.places, here)
    if why is Why.PREFER:
        return not same
    lacking = [place for at, place in archived.places.items() if at < next_offset and at not in here]
    if same and not lacking:
        return archived.following >= next_offset
    first = min(lacking if same else archived.places.values())
    if why is Why.DOUBT and await coverage.has(cold.connection, first):
        return True  # so it has all that lies behind, and what came into a newer queue does
    if not same:
        raise Unavailable(
            "the archive's messages are not those of the broker's queue: its offsets may have begun anew",
            found=min(archived.places),
        )
    return False


async def in_reach(
    archive: KnownArchive, coverage: Coverage, connection: ConnectionInfo, queue: MessageQueue, offset: int
) -> bool | None:
    """Whether the message at ``offset`` lies so close to the start of the broker's log that a deletion under way may reach it.

    Deletion goes by bytes: what is known of the archive says where in the log the offset lies, at least. ``None``: the
    broker or the archive does not say.
    """
    begin = await coverage.log_begin(connection)
    try:
        place = None if begin is None else archive.physical_floor(queue, offset)
    except TieredError:
        return None
    if begin is None or place is None:
        return None
    return place - begin < FAR_BYTES
