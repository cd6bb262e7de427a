"""Leases in the archive's bucket: small create-only objects, numbered for each node (FORMAT.md, "Leases").

A renewal is a new number; then the owner removes the older one. Idle cost: ``RENEWALS`` times in ``lease_ms`` a node puts an
object, lists its own and deletes one; whoever looks lists all, and gets each object that is new.

Who looks judges by its own monotonic clock, from numbers that do or do not change, when silence means gone. Time counts only
between two looks that both succeeded, and of each such gap no more than ``most_gap_seconds``: while the bucket does not answer
nodes cannot renew either, and who was asleep has seen nobody being silent.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from tiered.archive.keys import LEASE_PREFIX, ArchiveKeys, LeaseKey, build, parse
from tiered.clock import Clock
from tiered.codec.summedline import decode_line, encode_line
from tiered.errors import Conflict, Corrupt, NotFound, TieredError
from tiered.membership.base import (
    MOST_CARD_BYTES,
    MOST_MEMBERS,
    Card,
    Member,
    Members,
    damaged,
    gone_after,
)
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own, tidy
from tiered.version import FORMAT_VERSION

DEFAULT_SECONDS = 30.0
"""How long a lease holds that cannot be read."""
_ROUNDS = 2
_FIRST_DIGITS = 10
_MOST_OLD = 64
"""Older leases of one node that are kept in mind."""


def encode_lease(card: Card, number: int, now_ms: int) -> bytes:
    """The object's bytes. ``now_ms``, the node's clock, is for people."""
    return encode_line({"format": FORMAT_VERSION, "number": number, "written_ms": now_ms, **card.fields()})


def decode_lease(data: bytes, key: str, node: str, number: int) -> Card:
    """``Corrupt`` unless it is a whole lease of this node under its own number."""
    try:
        fields = decode_line(data)
    except ValueError as error:
        raise damaged(key, str(error)[:200]) from None
    if fields.get("number") != number:
        raise damaged(key, f"lease number {fields.get('number')!r}"[:100])
    return Card.parse(fields, name=node, where=key)


@dataclass(slots=True)
class _Known:
    """What was read of a node's newest lease."""

    number: int
    card: Card | None
    error: TieredError | None = None


@dataclass(slots=True)
class _Sighting:
    number: int
    unrenewed: float = 0.0


class Sightings:
    """Of one registry by one process. For one thread."""

    def __init__(self, most_gap_seconds: float) -> None:
        self._most_gap = most_gap_seconds
        self._seen: dict[str, _Sighting] = {}
        self._looked_at: float | None = None

    def look(self, numbers: Mapping[str, int], now: float) -> None:
        """A look at ``now`` (monotonic) found these numbers of these nodes; others are forgotten."""
        gap = 0.0 if self._looked_at is None else min(max(now - self._looked_at, 0.0), self._most_gap)
        self._looked_at = now
        before = self._seen
        self._seen = {}
        for name, number in numbers.items():
            known = before.get(name)
            if known is None or known.number != number:
                known = _Sighting(number)
            else:
                known.unrenewed += gap
            self._seen[name] = known

    def failed(self) -> None:
        """A look failed: what passes until the next one counts for nobody."""
        self._looked_at = None

    def unrenewed(self, name: str) -> float:
        """Seconds for which this node's number has been the same; 0 for one that was not seen."""
        known = self._seen.get(name)
        return 0.0 if known is None else known.unrenewed


class BucketMembership:
    """Leases of one archive's nodes. ``look_seconds``: how often ``members`` is called, or ``announce`` again."""

    def __init__(self, provider: Provider, keys: ArchiveKeys, clock: Clock, look_seconds: float) -> None:
        self._provider = provider
        self._keys = keys
        self._clock = clock
        self._seen = Sightings(2 * look_seconds)
        self._rivals = Sightings(2 * look_seconds)
        self._known: dict[str, _Known] = {}
        self._newest = -1  # that a name of this process was announced with

    def announce(self, card: Card, *, anew: bool = True) -> BucketLease:
        prefix = self._keys.key(_folder(card.name))
        numbers = numbers_below(self._provider, self._keys, prefix).get(card.name, [])
        newest = self._newest if self._newest >= 0 else first_number(card) - 1
        if numbers:
            newest = numbers[-1]
            self._check_free(card, newest, anew=anew)
        lease = BucketLease(self._provider, self._keys, self._clock, card, newest)
        lease.renew(card)
        self._newest = newest + 1
        return lease

    def members(self) -> Members:
        try:
            ages: dict[str, float] = {}
            numbers = numbers_below(self._provider, self._keys, self._keys.key(LEASE_PREFIX), ages)
            self._seen.look({name: found[-1] for name, found in numbers.items()}, self._clock.monotonic())
            self._known = {name: self._look(name, found[-1]) for name, found in numbers.items()}
        except TieredError:
            self._seen.failed()
            raise
        there, troubles, silent = [], {}, {}
        for name, known in self._known.items():
            unrenewed = self._seen.unrenewed(name)
            if known.card is None and isinstance(known.error, NotFound):
                continue
            if known.card is None:
                troubles[name] = str(known.error)
            elif unrenewed >= gone_after(known.card):
                silent[name] = unrenewed
            else:
                there.append(Member(known.card, known.number, unrenewed, ages.get(name)))
        if len(numbers) >= MOST_MEMBERS:
            troubles["…"] = (
                f"more than {MOST_MEMBERS} nodes have leases: delete those below {LEASE_PREFIX} of nodes that are gone"
            )
        return Members(tuple(there), troubles, silent)

    def wait(self, seconds: float, stop: threading.Event) -> None:
        self._clock.wait(seconds, stop)

    def close(self) -> None:
        self._provider.close()

    def _check_free(self, card: Card, newest: int, *, anew: bool) -> None:
        """``Conflict`` while the name is another process's, as far as is known."""
        found = self._look(card.name, newest)
        other = found.card
        if other is not None and (other.process == card.process or (anew and other.address == card.address)):
            return
        self._rivals.look({card.name: newest}, self._clock.monotonic())
        holds = DEFAULT_SECONDS if other is None else gone_after(other)
        silent = self._rivals.unrenewed(card.name)
        if silent < holds:
            raise held(card.name, "unknown" if other is None else other.address, silent, holds)

    def _look(self, name: str, number: int) -> _Known:
        known = self._known.get(name)
        if known is not None and known.number == number:
            return known
        key = self._keys.lease(name, number)
        try:
            data = bytes(self._provider.get(key, 0, MOST_CARD_BYTES).data)
            return _Known(number, decode_lease(data, key, name, number))
        except Corrupt as error:
            return _Known(number, None, error)
        except NotFound as error:  # renewed since it was listed: the next look has the new number
            return _Known(number, None if known is None else known.card, error)


class BucketLease:
    """See ``Lease``. Numbers of a name that went on are removed, and can be put again: so each renewal looks, too, whether
    somebody is ahead of it."""

    def __init__(self, provider: Provider, keys: ArchiveKeys, clock: Clock, card: Card, newest: int) -> None:
        """``newest``: the highest number that is there, -1: none."""
        self._provider = provider
        self._keys = keys
        self._clock = clock
        self._card = card
        self._number = newest
        self._holds = False
        self._over = False

    def renew(self, card: Card) -> None:
        if self._over:
            raise lost(card.name)
        self._card = card
        while not self._put(
            card
        ):  # a number that was put before, unheard, and perhaps with another state in it
            pass
        numbers = self._numbers()
        if numbers and numbers[-1] > self._number:
            self._lose()
        self._delete(number for number in numbers if number < self._number)

    def leave(self) -> None:
        if not self._over:
            self._over = True
            self._delete(number for number in self._numbers() if number <= self._number)
            tidy(self._provider, self._keys.key(_folder(self._card.name)))

    def _put(self, card: Card) -> bool:
        """Whether the next number is this card, and not what this process put there before."""
        number = self._number + 1
        key = self._keys.lease(card.name, number)
        data = encode_lease(card, number, self._clock.now_ms())
        try:
            put_own(self._provider, key, [data], rounds=_ROUNDS)
        except Conflict:
            if not self._is_own(key, number):
                self._lose()
            self._number, self._holds = number, True
            return False
        self._number, self._holds = number, True
        return True

    def _lose(self) -> NoReturn:
        self._over = True
        if self._holds:  # below that of the one who has the name now
            self._delete([self._number])
        raise lost(self._card.name)

    def _is_own(self, key: str, number: int) -> bool:
        try:
            data = bytes(self._provider.get(key, 0, MOST_CARD_BYTES).data)
            return decode_lease(data, key, self._card.name, number).process == self._card.process
        except (Corrupt, NotFound):
            return False

    def _numbers(self) -> list[int]:
        folder = self._keys.key(_folder(self._card.name))
        return numbers_below(self._provider, self._keys, folder).get(self._card.name, [])

    def _delete(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self._provider.delete(self._keys.lease(self._card.name, number))


def held(name: str, address: str, silent: float, holds: float) -> Conflict:
    """The error for a name that another process has."""
    return Conflict(
        "another process has this read node's name",
        hint=f"set serve.name to another one; it is taken over if it is not renewed for {holds:g} s",
        name=name,
        address=address,
        unrenewed_seconds=round(silent, 1),
    )


def lost(name: str) -> Conflict:
    """The error for a name that another process took."""
    return Conflict(
        "the name of this read node went to another process",
        hint="give each read node a serve.name of its own",
        name=name,
    )


def numbers_below(
    provider: Provider, keys: ArchiveKeys, prefix: str, ages: dict[str, float] | None = None
) -> dict[str, list[int]]:
    """Numbers of leases by node, ascending: of ``MOST_MEMBERS`` nodes, of each the newest ``_MOST_OLD``. ``ages`` gets seconds
    since the newest was put, by the store's clock."""
    found: dict[str, list[int]] = {}
    for stored in provider.list(prefix):
        made = parse(str(keys.path(stored.key)))
        if isinstance(made, LeaseKey) and (made.node in found or len(found) < MOST_MEMBERS):
            of = found.setdefault(made.node, [])
            of.append(made.number)
            del of[:-_MOST_OLD]
            if ages is not None:
                ages[made.node] = (stored.date_ms - stored.last_modified_ms) / 1000
    return found


def first_number(card: Card) -> int:
    """Where a process begins to count where there is no number: elsewhere at each start, so that nobody who saw a number of an
    earlier life takes a new lease for it."""
    return int(card.process[:_FIRST_DIGITS], 16)


def _folder(name: str) -> str:
    return build(LeaseKey(name, 0)).rpartition("/")[0] + "/"
