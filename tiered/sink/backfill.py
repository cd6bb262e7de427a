"""A backfill that a Spark job makes of a sink, as it stands in the bucket: a plan, its parts, and which of them are done.

All are create-only orders beside the log (FORMAT.md, "Standing orders"), so whoever looks sees the same, and a job that ended
is run again with what is left. The sink is not moved by them: its own runner takes them up, all at once (``held``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from tiered.archive.keys import ArchiveKeys
from tiered.archive.standing import BACKFILL, check_order, list_orders, put_order, read_order
from tiered.archive.state.offsetmap import MAX_RUNS, OffsetMap
from tiered.errors import Conflict, Corrupt, Invalid, NotFound
from tiered.feed.base import Follow
from tiered.model import MessageQueue
from tiered.provider.base import Provider
from tiered.sink.keptmaps import map_of_text, map_text

MAX_PARTS = 4_096
"""Of a plan. Looking how far a backfill is lists all of them."""
MAX_PART_QUEUES = 32
"""Of a part, which is one small object: a topic's name may take 1.5 KiB of it in JSON."""
MAX_MAPS_BYTES = 8 * 1024
"""Of the maps of a part that is done, which lie in its object. Of many queues each has fewer runs: their ends stay exact."""


@dataclass(frozen=True, slots=True)
class QueueRange:
    """Queue offsets [``first``, ``end``) of a queue that are to be given. ``generation``: which life of it they are of."""

    queue: MessageQueue
    first: int
    end: int
    generation: int = 0


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """``parts`` parts, planned on the archive as of ``commit`` and ``lineage``, where the sink stood at progress of
    ``revision`` that had ``looked``. ``epoch``: of the writer that was. ``messages``: offsets in all ranges."""

    backfill_id: bytes
    plan_id: bytes
    sink_id: bytes
    parts: int
    messages: int
    commit: int
    revision: int
    looked: int
    lineage: int
    epoch: int
    created_ms: int

    def part(self, number: int) -> str:
        """``SinkPlace.part`` of a part."""
        return f"backfill.{self.plan_id.hex()[:12]}.{number}"


@dataclass(frozen=True, slots=True)
class BackfillDone:
    """A part is at the destination for good: ``reached`` of each of its queues. ``messages``: offsets from where its
    ranges begin up to there; ``lost``: those of them that the archive did not have any more, as far as the last attempt saw.
    ``dead_letters``, ``left_out``: as of ``Accepted``, of that attempt.
    ``maps``: where each queue's messages lie, from where its range begins, of destinations that have offsets."""

    number: int
    reached: Mapping[MessageQueue, Follow]
    messages: int = 0
    lost: int = 0
    dead_letters: int = 0
    left_out: int = 0
    maps: Mapping[MessageQueue, OffsetMap] = field(default_factory=dict)


class BackfillBook:
    """What the bucket has of an archive's backfills. Not for two threads at a time. Errors: ``Unavailable``; ``Corrupt`` for
    what is damaged, or is not what its key says."""

    def __init__(self, provider: Provider, keys: ArchiveKeys, archive_id: bytes) -> None:
        self._provider, self._keys, self._archive_id = provider, keys, archive_id
        self._done: dict[bytes, BackfillDone] = {}

    def plan(self, backfill_id: bytes) -> BackfillPlan | None:
        """The plan of a backfill, if it has been made."""
        order_id = _id(backfill_id, "plan")
        if order_id not in list_orders(self._provider, self._keys, BACKFILL):
            return None
        fields = self._read(order_id, "plan")
        try:
            ids = {name: bytes.fromhex(fields[name]) for name in ("backfill", "plan", "sink_id")}
            numbers = [fields[name] for name in _NUMBERS]
            if not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError(f"numbers {numbers}")
            if ids["backfill"] != backfill_id or fields["parts"] > MAX_PARTS:
                raise ValueError(f"{fields['parts']} parts of backfill {fields['backfill']}")
            return BackfillPlan(ids["backfill"], ids["plan"], ids["sink_id"], *numbers)
        except (KeyError, TypeError, ValueError) as error:
            raise _no_sense(order_id, error) from error

    def put_plan(self, plan: BackfillPlan, parts: Sequence[Sequence[QueueRange]]) -> BackfillPlan:
        """Put the parts, then the plan; the plan in force, which is another's if that was first."""
        for number, ranges in enumerate(parts):
            rows = [[r.queue.topic, r.queue.queue_id, r.first, r.end, r.generation] for r in ranges]
            told = {"number": number, "ranges": rows}
            self._put(_id(plan.plan_id, f"part {number}"), "part", plan, plan.created_ms, told)
        told = {name: getattr(plan, name) for name in _NUMBERS if name != "created_ms"}
        try:
            self._put(_id(plan.backfill_id, "plan"), "plan", plan, plan.created_ms, told)
        except Conflict:
            other = self.plan(plan.backfill_id)
            assert other is not None  # it was there, and nothing deletes it
            return other
        return plan

    def ranges(self, plan: BackfillPlan, number: int) -> tuple[QueueRange, ...]:
        """What a part is to give."""
        order_id = _id(plan.plan_id, f"part {number}")
        fields = self._read(order_id, "part", plan, number)
        try:
            made = tuple(
                QueueRange(MessageQueue(str(topic), int(queue_id)), int(first), int(end), int(generation))
                for topic, queue_id, first, end, generation in fields["ranges"]
            )
            if not made or any(not 0 <= r.first < r.end for r in made):
                raise ValueError("a range is empty")
            return made
        except (KeyError, TypeError, ValueError) as error:
            raise _no_sense(order_id, error) from error

    def put_done(self, plan: BackfillPlan, done: BackfillDone, now_ms: int) -> None:
        """Say that a part is done. Another attempt may have said so before: then it reached the same, or ``Conflict``."""
        maps = _map_texts(done.maps)
        rows = [
            [q.topic, q.queue_id, f.next, f.physical, maps.get(q)] for q, f in sorted(done.reached.items())
        ]
        told = {
            "number": done.number,
            "reached": rows,
            "messages": done.messages,
            "lost": done.lost,
            "dead_letters": done.dead_letters,
            "left_out": done.left_out,
        }
        order_id = _id(plan.plan_id, f"done {done.number}")
        try:
            self._put(order_id, "done", plan, now_ms, told)
        except Conflict:
            if self._read_done(plan, done.number, order_id).reached != done.reached:
                raise

    def done(self, plan: BackfillPlan) -> dict[int, BackfillDone]:
        """Parts that are done, by number. What was read once is not read again."""
        there = list_orders(self._provider, self._keys, BACKFILL)
        found = {}
        for number in range(plan.parts):
            order_id = _id(plan.plan_id, f"done {number}")
            if order_id in there:
                if order_id not in self._done:
                    self._done[order_id] = self._read_done(plan, number, order_id)
                found[number] = self._done[order_id]
        return found

    def begin_job(self, plan: BackfillPlan, job_id: bytes, now_ms: int) -> int:
        """Number a job that gives this plan's parts, from 1 on; the one of the highest number gives them alone.
        ``job_id``: random."""
        there = list_orders(self._provider, self._keys, BACKFILL)
        number = 1
        while True:
            order_id = _id(plan.plan_id, f"job {number}")
            if order_id not in there:
                with suppress(Conflict):  # another began at this very moment
                    self._put(order_id, "job", plan, now_ms, {"number": number, "job_id": job_id.hex()})
                    return number
            number += 1

    def check_job(self, plan: BackfillPlan, number: int) -> None:
        """``Conflict`` where a later job gives this plan's parts: two would take the destination from each other for good."""
        try:
            check_order(
                self._provider, self._keys, self._archive_id, BACKFILL, _id(plan.plan_id, f"job {number + 1}")
            )
        except NotFound:
            return
        raise Conflict(
            "a later job gives this backfill's parts, and this one ends",
            found=f"job {number + 1} or a later one",
            expected=f"job {number} alone",
            hint="let one job run; parts that were done stay done",
        )

    def sweep(self, kept: Callable[[bytes, bytes], bool]) -> int:
        """Delete what lies here of backfills of which ``kept`` (of a sink's and a backfill's id) is false: nobody asks for it
        any more. How many objects. What cannot be read stays, for ``verify`` to show."""
        gone = 0
        for order_id in list_orders(self._provider, self._keys, BACKFILL):
            try:
                fields = read_order(self._provider, self._keys, self._archive_id, BACKFILL, order_id).fields
                ids = bytes.fromhex(fields["sink_id"]), bytes.fromhex(fields["backfill"])
            except (Corrupt, KeyError, TypeError, ValueError):
                continue
            if not kept(*ids):
                self._provider.delete(self._keys.key(BACKFILL.order_path(order_id)))
                self._done.pop(order_id, None)
                gone += 1
        return gone

    def _read_done(self, plan: BackfillPlan, number: int, order_id: bytes) -> BackfillDone:
        fields = self._read(order_id, "done", plan, number)
        try:
            reached, maps = {}, {}
            for topic, queue_id, following, at, told in fields["reached"]:
                queue = MessageQueue(str(topic), int(queue_id))
                reached[queue] = Follow(int(following), None if at is None else int(at))
                if told is not None:
                    maps[queue] = map_of_text(told)
            counts = {name: int(fields[name]) for name in _COUNTS}
            return BackfillDone(number, reached, maps=maps, **counts)
        except (KeyError, TypeError, ValueError) as error:
            raise _no_sense(order_id, error) from error

    def _put(
        self, order_id: bytes, what: str, plan: BackfillPlan, now_ms: int, told: Mapping[str, Any]
    ) -> None:
        fields = {
            "what": what, "backfill": plan.backfill_id.hex(), "plan": plan.plan_id.hex(),
            "sink_id": plan.sink_id.hex(), "created_ms": now_ms, **told,
        }  # fmt: skip
        put_order(self._provider, self._keys, self._archive_id, BACKFILL, order_id, fields)

    def _read(
        self, order_id: bytes, what: str, plan: BackfillPlan | None = None, number: int | None = None
    ) -> Mapping[str, Any]:
        fields = read_order(self._provider, self._keys, self._archive_id, BACKFILL, order_id).fields
        found = [fields.get(name) for name in ("what", "backfill", "plan", "sink_id", "number")]
        if plan is not None:
            wanted = [what, plan.backfill_id.hex(), plan.plan_id.hex(), plan.sink_id.hex(), number]
        else:
            wanted = [what, *found[1:]]
        if found != wanted:
            raise _no_sense(order_id, f"expected {wanted}, found {found}")
        return fields


def check_joins(
    plan: BackfillPlan,
    parts: Mapping[int, Iterable[QueueRange]],
    done: Mapping[int, BackfillDone],
    sink_id: bytes,
    had: Mapping[MessageQueue, Follow],
) -> dict[MessageQueue, Follow]:
    """Where a sink that ``had`` so much goes on when everything of a plan is done. ``Invalid`` unless every range begins where
    the sink is, each queue is in one part, and each part reached what its ranges allow."""  # fmt: skip
    if plan.sink_id != sink_id:
        raise _does_not_join("it is of another sink", expected=sink_id.hex(), found=plan.sink_id.hex())
    reached: dict[MessageQueue, Follow] = {}
    for number in range(plan.parts):
        if number not in done or number not in parts:
            raise _does_not_join("a part is not done", part=number)
        ranges = {each.queue: each for each in parts[number]}
        if ranges.keys() != done[number].reached.keys():
            raise _does_not_join("a part has other queues than were planned", part=number)
        for queue, each in ranges.items():
            follow = done[number].reached[queue]
            if queue in reached:
                raise _does_not_join("a queue is in two parts", part=number, queue=str(queue))
            if had.get(queue, Follow()).next != each.first:
                raise _does_not_join(
                    "a part does not begin where the sink is", queue=str(queue), part=number,
                    expected=had.get(queue, Follow()).next, found=each.first,
                )  # fmt: skip
            if not each.first <= follow.next <= each.end:
                raise _does_not_join(
                    "a part did not end in its range", queue=str(queue), part=number,
                    expected=f"{each.first} to {each.end}", found=follow.next,
                )  # fmt: skip
            reached[queue] = follow
    return reached


def _does_not_join(why: str, **fields: object) -> Invalid:
    return Invalid(
        f"the backfill cannot be taken up: {why}", **fields,
        hint="tiered sink rewind-to ends it and gives everything from a time on; of what the backfill gave, some comes twice",
    )  # fmt: skip


_COUNTS = ("messages", "lost", "dead_letters", "left_out")
_NUMBERS = ("parts", "messages", "commit", "revision", "looked", "lineage", "epoch", "created_ms")


def _map_texts(maps: Mapping[MessageQueue, OffsetMap]) -> dict[MessageQueue, str]:
    """As they go into a part's object: each with as many runs as let all fit."""
    runs = MAX_RUNS
    while True:
        texts = {queue: map_text(told.coarser(runs)) for queue, told in maps.items()}
        if runs <= _FEW_RUNS or sum(map(len, texts.values())) <= MAX_MAPS_BYTES:
            return texts
        runs //= 2


_FEW_RUNS = 4
"""``OffsetMap.coarser`` needs some to keep."""


def _id(whose: bytes, what: str) -> bytes:
    """Known before the object is there: so that each is put once, whoever tries."""
    return hashlib.sha256(whose + what.encode()).digest()[:16]


def _no_sense(order_id: bytes, why: object) -> Corrupt:
    return Corrupt("a part of a backfill makes no sense", found=order_id.hex(), reason=str(why))
