"""Which sinks there are: standing orders of the bucket, the same for every host that may work on the archive.

An order is never changed: a change is another order of the same sink with the next revision, and the one before is dropped.
What was read once is not read again, so a look costs one listing.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from tiered.archive.keys import ArchiveKeys
from tiered.archive.standing import SINK, Order, drop_order, list_orders, put_order, read_order
from tiered.errors import Conflict, Corrupt, NotFound, Unavailable, did_you_mean
from tiered.provider.base import Provider
from tiered.sink.kinds import SinkPlace
from tiered.sink.order import SinkOrder

MAX_SINKS = 64
"""Of an archive: each has a thread and buffers of its own in the daemon."""


@dataclass(frozen=True, slots=True)
class SinkRewind:
    """An operator's wish that a sink begin again: at the first messages stored at or after ``time_ms``, or (``None``) at the
    archive's beginning. ``revision``: of the order that it came with; progress of an earlier one was made before it.
    """

    revision: int
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SinkBackfill:
    """That a Spark job gives a sink its history, as of revision ``asked``, and the sink waits for it. ``done``: the revision
    with which the job had given it; the sink takes it up, unless its progress is of that revision or a later one."""

    backfill_id: bytes
    asked: int
    done: int | None = None


@dataclass(frozen=True, slots=True)
class StoredSink:
    """A sink as it is ordered now. ``sink_id``: the same for all its orders; a sink of the same name that was made later has
    another. ``made_ms``: when it was added, ``created_ms``: when this revision was, by clocks of the hosts that did."""

    sink_id: bytes
    order: SinkOrder
    revision: int = 1
    paused: bool = False
    rewind: SinkRewind | None = None
    backfill: SinkBackfill | None = None
    made_ms: int = 0
    created_ms: int = 0

    @property
    def name(self) -> str:
        """Its name."""
        return self.order.name

    def place(
        self, archive_id: bytes, cluster: str, broker: str, epoch: int = 0, *, anew: bool = False
    ) -> SinkPlace:
        """How its destination is to be opened. ``epoch``: 0 where nothing is written."""
        return SinkPlace(archive_id, cluster, broker, epoch, self.name, anew, sink_id=self.sink_id)

    @property
    def under_way(self) -> SinkBackfill | None:
        """The backfill that others are giving it just now."""
        return None if self.backfill is None or self.backfill.done is not None else self.backfill

    @property
    def given(self) -> int:
        """The revision with which a backfill was given that is the last thing asked for, or 0."""
        return 0 if self.backfill is None or self.backfill.done is None else self.backfill.done

    @property
    def holds_retention(self) -> bool:
        """Whether retention waits for it: it is required, or others are giving it its history just now."""
        return self.order.required or self.under_way is not None

    @property
    def anew(self) -> int:
        """The revision that its progress must be of at least: that of the last rewind, or 0."""
        return 0 if self.rewind is None else self.rewind.revision


class SinkBook:
    """The orders of one archive's sinks. Not for two threads at a time. Errors: ``Unavailable``; ``Corrupt`` for an order that
    cannot be read."""

    def __init__(self, provider: Provider, keys: ArchiveKeys, archive_id: bytes) -> None:
        self._provider = provider
        self._keys = keys
        self._archive_id = archive_id
        self._read: dict[bytes, Order] = {}
        self._in_force: dict[bytes, list[bytes]] = {}

    def sinks(self) -> list[StoredSink]:
        """Every sink that is not removed, by name; of two with one name the one that was made first."""
        orders = self._orders()
        found: dict[bytes, StoredSink] = {}
        ids: dict[bytes, list[bytes]] = {}
        for order in sorted(orders, key=lambda o: (o.fields["revision"], o.fields["created_ms"], o.order_id)):
            stored = _stored(order)
            found[stored.sink_id] = stored
            ids.setdefault(stored.sink_id, []).append(order.order_id)
        self._in_force = ids
        named: dict[str, StoredSink] = {}
        for stored in found.values():
            other = named.get(stored.name)
            if other is None or (stored.made_ms, stored.sink_id) < (other.made_ms, other.sink_id):
                named[stored.name] = stored
        return sorted(named.values(), key=lambda stored: stored.name)

    def sink(self, name: str) -> StoredSink:
        """One of them. ``NotFound`` with the names that there are."""
        sinks = self.sinks()
        found = next((stored for stored in sinks if stored.name == name), None)
        if found is None:
            names = [stored.name for stored in sinks]
            hint = did_you_mean(name, names, "sinks: ") if names else "tiered sink add makes one"
            raise NotFound("there is no such sink", found=name, hint=hint)
        return found

    def add(self, order: SinkOrder, now_ms: int, random_bytes: Callable[[int], bytes]) -> StoredSink:
        """Put the first order of a sink. ``Conflict`` if there is one of this name, or too many."""
        self.refuse_taken(order.name)
        sink_id = random_bytes(16)
        made = StoredSink(sink_id, order, made_ms=now_ms, created_ms=now_ms)
        self._put(sink_id, made)
        if self.sink(order.name).sink_id != sink_id:  # somebody else's came first at the same moment
            drop_order(self._provider, self._keys, SINK, sink_id)
            raise Conflict("a sink of this name was made at the same moment", found=order.name)
        return made

    def refuse_taken(self, name: str) -> None:
        """``Conflict`` if no sink of this name can be added."""
        sinks = self.sinks()
        if any(stored.name == name for stored in sinks):
            raise Conflict(
                "there is a sink of this name already", found=name,
                hint="tiered sink list shows it; give another name, or tiered sink remove it first",
            )  # fmt: skip
        if len(sinks) >= MAX_SINKS:
            raise Conflict(
                "an archive has no more sinks than this", found=len(sinks), expected=f"≤ {MAX_SINKS}"
            )

    def change(
        self,
        name: str,
        now_ms: int,
        random_bytes: Callable[[int], bytes],
        *,
        order: SinkOrder | None = None,
        paused: bool | None = None,
        rewind_ms: int | None = None,
        rewind: bool = False,
        backfill_id: bytes | None = None,
        backfilled: bytes | None = None,
        unfilled: bytes | None = None,
    ) -> StoredSink:
        """Put the next order of a sink with what is given, the rest as it is. A rewind ends a backfill. ``backfill_id``: one
        begins; ``backfilled``: that one has been given; ``unfilled``: there is to be none after all, and nothing was given.
        ``Conflict`` if these two are not the one in force. ``NotFound``."""
        old = self.sink(name)
        revision = old.revision + 1
        made = replace(
            old,
            order=order or old.order,
            revision=revision,
            paused=old.paused if paused is None else paused,
            rewind=SinkRewind(revision, rewind_ms) if rewind else old.rewind,
            backfill=None if rewind else _backfill(old, revision, backfill_id, backfilled, unfilled),
            created_ms=now_ms,
        )
        before = self._in_force[old.sink_id]
        self._put(random_bytes(16), made)
        for order_id in before:
            drop_order(self._provider, self._keys, SINK, order_id)
        return made

    def remove(self, name: str) -> StoredSink:
        """Drop all orders of a sink. ``NotFound``."""
        old = self.sink(name)
        for order_id in self._in_force[old.sink_id]:
            drop_order(self._provider, self._keys, SINK, order_id)
        return old

    def _orders(self) -> list[Order]:
        """Those that are not dropped."""
        listed = list_orders(self._provider, self._keys, SINK)
        for order_id in self._read.keys() - listed.keys():  # nothing deletes an order
            self._require_gone(self._keys.key(SINK.order_path(order_id)))
        there = [order_id for order_id, dropped in listed.items() if not dropped]
        self._read = {
            order_id: self._read.get(order_id)
            or read_order(self._provider, self._keys, self._archive_id, SINK, order_id)
            for order_id in there
        }
        return list(self._read.values())

    def _require_gone(self, key: str) -> None:
        """``Unavailable`` for an order that is there and was not listed: the listing is not to be believed."""
        with suppress(NotFound):
            self._provider.head(key)
            raise Unavailable("the store does not list a sink's order that is there", key=key)

    def _put(self, order_id: bytes, made: StoredSink) -> None:
        fields: dict[str, Any] = {
            **asdict(made.order),
            "sink_id": made.sink_id.hex(),
            "revision": made.revision,
            "paused": made.paused,
            "rewind": None if made.rewind is None else asdict(made.rewind),
            "backfill": None if made.backfill is None else {
                **asdict(made.backfill), "backfill_id": made.backfill.backfill_id.hex(),
            },
            "made_ms": made.made_ms,
            "created_ms": made.created_ms,
        }  # fmt: skip
        put_order(self._provider, self._keys, self._archive_id, SINK, order_id, fields)


def _backfill(
    old: StoredSink,
    revision: int,
    backfill_id: bytes | None,
    backfilled: bytes | None,
    unfilled: bytes | None,
) -> SinkBackfill | None:
    if backfill_id is not None:
        return SinkBackfill(backfill_id, revision)
    named = backfilled or unfilled
    if named is None:
        return old.backfill
    if old.backfill is None or old.backfill.backfill_id != named:
        raise Conflict(
            "this backfill of the sink was ended meanwhile", found=old.name,
            hint="by tiered sink rewind-to, or another backfill; tiered sink list shows the order in force",
        )  # fmt: skip
    return None if unfilled is not None else replace(old.backfill, done=revision)


def _stored(order: Order) -> StoredSink:
    fields = order.fields
    try:
        plain = {name: fields[name] for name in ("name", "kind", "options", "required", "from_start")}
        plain["in_order"] = fields.get("in_order", False)  # orders of earlier programs have none
        wanted = SinkOrder(topics=tuple(fields["topics"]), exclude=tuple(fields["exclude"]), **plain)
        rewind = None if fields["rewind"] is None else SinkRewind(**fields["rewind"])
        sink_id = bytes.fromhex(fields["sink_id"])
        times = {name: fields[name] for name in ("made_ms", "created_ms")}
        told = fields.get("backfill")  # orders of earlier programs have none
        backfill = (
            None
            if told is None
            else SinkBackfill(bytes.fromhex(told["backfill_id"]), told["asked"], told["done"])
        )
        return StoredSink(sink_id, wanted, fields["revision"], fields["paused"], rewind, backfill, **times)
    except (KeyError, TypeError, ValueError) as error:
        raise Corrupt(
            "a sink's order makes no sense", found=order.order_id.hex(), reason=str(error)
        ) from error
