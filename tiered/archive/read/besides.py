"""What lies beside the log and its objects and has a checksum of its own: standing orders; what has to agree inside the fold:
maps of sinks; and what a fold still needs."""

from __future__ import annotations

from collections.abc import Iterator

from tiered.archive.keys import Area, BackfillKey, CommitKey, HoldKey, ObjectKey, SinkKey, TableKey, parse
from tiered.archive.read.view import View
from tiered.archive.standing import BACKFILL, ORDER_KINDS, OrderKind, check_order
from tiered.archive.state.keys import SINK_MAP, queue_of
from tiered.archive.state.sinkmaps import unpack_map
from tiered.archive.state.sinks import sink_queues, sinks
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.errors import Corrupt, NotFound, Refused

Looked = tuple[str, Corrupt | NotFound | Refused | None]
"""A key and what is wrong with it, if anything is."""


def damaged_orders(archive: View) -> Iterator[Looked]:
    """Each legal hold and each order for a table or a sink, dropped ones too: its key, and what is wrong. While a hold cannot
    be read nothing is trimmed, so that it is damage although no byte of a message is."""
    for kind in ORDER_KINDS:
        for key, order_id in sorted(_orders(archive, kind).items()):
            found: Corrupt | NotFound | Refused | None = None
            try:
                if order_id is None:
                    raise kind.unreadable(key, f"a {kind.what.split()[-1]}'s key", "another")
                check_order(archive.log.provider, archive.keys, archive.identity.archive_id, kind, order_id)
            except NotFound as error:
                found = (
                    None if kind is BACKFILL else error
                )  # the writer deletes those that are of no more use
            except (Corrupt, Refused) as error:
                found = error
            yield key, found


def damaged_maps(archive: View) -> Iterator[Looked]:
    """The map of each queue of a sink, which ends where the sink is: which it is, and what is wrong. No message is missing; a
    group's offsets would be translated wrongly, or not at all."""
    view = archive.state.view
    for known in sinks(view):
        reached = dict(sink_queues(view, known.sink_id))
        head = SINK_MAP + known.sink_id
        for key, value in view.iterate(head):
            queue = queue_of(key[len(head) :])
            name, found = f"map of sink {known.name}, {queue}", None
            try:
                end = unpack_map(value).end
                at = reached.get(queue)
                if at is None or at.next != end:
                    expected = "a position of the sink" if at is None else at.next
                    raise Corrupt(
                        "a sink's map does not end where the sink is", key=name, expected=expected, found=end
                    )
            except Corrupt as error:
                found = error
            yield name, found


def _orders(archive: View, kind: OrderKind) -> dict[str, bytes | None]:
    """Keys of orders, also of those of which only the dropping is left; no id for a name that is none."""
    keys, found = archive.keys, dict[str, bytes | None]()
    for stored in archive.log.provider.list(keys.key(kind.prefix)):
        made = parse(str(keys.path(stored.key)))
        if isinstance(made, HoldKey | TableKey | SinkKey | BackfillKey):
            found[keys.key(kind.order_path(made.order_id))] = made.order_id
        else:
            found[stored.key] = None
    return found


def is_needed(item: ObjectState) -> bool:
    """Whether runs lie in an object, live or closed, so that its bytes must be there."""
    return item.references > 0 and item.retired_by is None


def needs_path(fold: ArchiveState, path: str) -> bool:
    """Whether this fold still needs what lies under a path."""
    made = parse(path)
    if isinstance(made, CommitKey):
        head = fold.head()
        seqs = fold.inline_needed(made.seq, made.seq + 1)
        return head is not None and (made.seq >= head.floor or next(seqs, None) is not None)
    if isinstance(made, ObjectKey) and made.area in (Area.DATA, Area.SEGMENT):
        item = fold.object_at(path)
        return item is not None and is_needed(item)
    return not fold.is_retired(path)
