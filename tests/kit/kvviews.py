"""Views of one log, their clients and all that goes wrong, in one thread, by a seed: what really applies, answers and waits is
the program's, what lies around it is simulated.

A view is killed and begins with what its store had flushed, or with nothing; a store fails and is opened again; a message is
long under way, is lost, or is there and its answer lost; clients ask again what they were not answered. Strangers write beside
them: keys that expire, messages that are no writes, other queues and topics.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from tests.kit.golden import parse_record
from tests.kit.kvhistory import ANSWERED, FAILED, History, Operation, ReadTogether
from tests.kit.kvlog import PREFIX, KeyValueLog
from tests.kit.kvplain import PlainLog
from tests.kit.kvworkload import DELETE, GET_MANY, PAGE, PUT, Asked, Chooser, operation, read, wrote
from tiered.clock import ManualClock
from tiered.errors import NotFound, Unavailable
from tiered.feed.base import FeedBatch, FeedPosition
from tiered.keyvalue import Entry, Freshness, WriteOutcome
from tiered.metadata.memory import MemoryRedoStore
from tiered.model import PhysicalOffset
from tiered.view.progress import ViewProgress
from tiered.view.redo import KeyValueRedo
from tiered.view.view import KeyValueView, ViewPace

NAMESPACE = "counters"
KEYS = (b"a", b"b\x00", b"c")
PACE = ViewPace(poll_seconds=0.01, settle_seconds=0.001, flush_seconds=0.4, latest_seconds=0.0)
MOST_MESSAGES = (1, 2, 5, 50)
"""Of a batch."""

Content = tuple[dict[bytes, bytes], bytes | None]


class ForgetfulStore(MemoryRedoStore):
    """A store that a crash, or an error, takes back to behind any of its batches that were not flushed."""

    def __init__(self, chance: random.Random, content: Content = ({}, None)) -> None:
        super().__init__()
        self._chance = chance
        self._batches: list[Content] = [content]
        self.failing = False
        """Whether the next batch, or flush, fails."""
        self._take(content)

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        ranges: Iterable[tuple[bytes, bytes]] = (),
        applied: bytes | None = None,
    ) -> None:
        """See ``RedoStore``."""
        self._fail()
        super().put_many(puts, deletes, ranges=ranges, applied=applied)
        self._batches.append(self.content())

    def flush(self) -> None:
        """See ``RedoStore``."""
        self._fail()
        del self._batches[:-1]

    def reopen(self) -> None:
        """See ``RedoStore``."""
        self._take(self.crashed())

    def content(self) -> Content:
        """All of it."""
        return dict(self.iterate(b"")), self.applied()

    def crashed(self) -> Content:
        """What a crash now leaves."""
        return self._chance.choice(self._batches)

    def _take(self, content: Content) -> None:
        self._batches = [content]
        self.clear()
        super().put_many(content[0].items(), applied=content[1])

    def _fail(self) -> None:
        failing, self.failing = self.failing, False
        if failing:
            raise Unavailable("the disk is full")


class SimulatedFeed:
    """The log as a view is given it: a few messages at a time."""

    waiting: str | None = None

    def __init__(self, log: KeyValueLog, chance: random.Random, position: FeedPosition) -> None:
        self._log = log
        self._chance = chance
        self._at = log.ends.index(int(position.physical or 0))

    def looked_seconds(self) -> float:
        """See ``MessageFeed``: each poll looks."""
        return 0.0

    def poll(self) -> FeedBatch | None:
        """See ``MessageFeed``."""
        first, end = self._at, len(self._log.records)
        if first == end:
            return None
        self._at = min(end, first + self._chance.choice(MOST_MESSAGES))
        return self._log.batch(first, self._at)

    def end(self) -> PhysicalOffset:
        """See ``MessageFeed``."""
        return PhysicalOffset(self._log.ends[-1])


class SimulatedView:
    """One view of the log, and its lives."""

    def __init__(self, name: str, log: KeyValueLog, clock: ManualClock, chance: random.Random) -> None:
        self.name = name
        self._log, self._clock, self._chance = log, clock, chance
        self.lives = 0
        self.begin(({}, None))

    @property
    def shown_by(self) -> str:
        """This life of it."""
        return f"{self.name}, life {self.lives}"

    def begin(self, content: Content) -> None:
        """Begin with what a store has."""
        self.lives += 1
        self.store = ForgetfulStore(self._chance, content)
        redo = KeyValueRedo(self.store, PREFIX, 1 << 20)
        physical = redo.position.physical
        self.progress = ViewProgress(
            self._clock, redo.states, int(physical or 0), usable=physical is not None
        )
        self.view = KeyValueView(
            self.store, redo, lambda at: SimulatedFeed(self._log, self._chance, at), self.progress, PACE, self._clock
        )  # fmt: skip

    def step(self) -> bool:
        """A step of the view's service; whether anything came. A store that fails is opened again by the next one."""
        before = self.progress.physical
        try:
            self.view.step()
        except Unavailable:
            return True
        return self.progress.physical != before

    def crash(self) -> None:
        """kill -9, and the next life."""
        self.begin(self.store.crashed())

    def settle(self) -> Content:
        """All of the log; what is in the store then."""
        while self.step() or self.progress.physical < self._log.ends[-1]:
            pass
        return self.store.content()


@dataclass(slots=True)
class Waiting:
    """A call that is not answered yet. ``version``: of a write whose message the broker has said to have stored."""

    view: SimulatedView
    life: int
    chooser: Chooser
    asked: Asked
    noted: list[Operation]
    version: int | None = None
    held: ExitStack = field(default_factory=ExitStack)

    @property
    def writes(self) -> bool:
        """Whether it is a put or a deletion."""
        return self.asked.kind in (PUT, DELETE)


class SimulatedWorld:
    """One log, two views, and so many clients of each."""

    def __init__(self, seed: int, clients: int = 3) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(1_000_000)
        self.log = KeyValueLog()
        self.history = History()
        self.did: Counter[str] = Counter()
        self.wrong: list[str] = []
        """Answers that no history shows to be wrong."""
        self.views = [SimulatedView(name, self.log, self.clock, self.chance) for name in ("one", "two")]
        self._idle = [
            (view, Chooser(number * clients + of, self.chance, KEYS))
            for number, view in enumerate(self.views)
            for of in range(clients)
        ]
        self._waiting: list[Waiting] = []
        self._under_way: list[Waiting] = []
        self._now = 0

    def run(self, events: int) -> None:
        """So many events; then everybody is answered who will be, and each view reads everything once more."""
        self._stored(b"first", b"1")
        actions = {self._call: 80, self._arrive: 60, self._step: 50, self._answer: 90, self._stranger: 8}
        actions |= {self._give_up: 2, self._crash: 2, self._fail: 2, self._empty: 1}
        for _ in range(events):
            self.clock.advance(self.chance.choice((0.0, 0.001, 0.01)))
            self.log.now_ms = self.clock.now_ms()
            action = self.chance.choices(list(actions), list(actions.values()))[0]
            action()
        while self._under_way:
            self._arrive()
        for view in self.views:
            view.settle()
        for waiting in self._waiting[:]:
            self._answered(waiting)
        assert not self._waiting, "a call without an answer at the end"
        for view in self.views:
            for key in KEYS:
                self._read_at_last(view, key)

    def plain(self) -> PlainLog:
        """What the log means."""
        return PlainLog.of(map(parse_record, self.log.records), PREFIX + NAMESPACE)

    # ---- events

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _call(self) -> None:
        if not self._idle:
            return
        view, chooser = self._idle.pop(self.chance.randrange(len(self._idle)))
        asked = chooser.draw()
        noted = [operation(chooser.client, key, asked, self._tick(), view.shown_by) for key in asked.keys]
        for each in noted:
            each.call = noted[0].call
        self.history.add(*noted)
        waiting = Waiting(view, view.lives, chooser, asked, noted)
        if not waiting.writes:
            self._waiting.append(waiting)
        elif self.chance.random() < 0.04:
            self._end(waiting, FAILED)
        else:
            waiting.held.enter_context(view.progress.writing())
            self._under_way.append(waiting)

    def _arrive(self) -> None:
        """A message comes to the broker, or never does."""
        if not self._under_way:
            return
        waiting = self._under_way.pop(self.chance.randrange(len(self._under_way)))
        given_up = waiting.noted[0].returned is not None
        if self.chance.random() < 0.05:
            self.did["message lost"] += 1
            if not given_up:
                self._end(waiting, None)
            return
        unique_key = f"{waiting.noted[0].call:032X}"
        [key], asked = waiting.asked.keys, waiting.asked
        value = None if asked.kind == DELETE else asked.value
        version = self.log.write(NAMESPACE, key, value, asked.condition, unique_key=unique_key)
        if given_up:
            self.did["message long under way"] += 1
        elif self.chance.random() < 0.05:
            self.did["answer lost"] += 1
            self._end(waiting, None)
        else:
            waiting.version = version
            self._waiting.append(waiting)

    def _step(self) -> None:
        self.chance.choice(self.views).step()

    def _answer(self) -> None:
        if self._waiting:
            self._answered(self.chance.choice(self._waiting))

    def _stranger(self) -> None:
        """Somebody else writes."""
        match self.chance.randrange(5):
            case 0:
                self._stored(b"ends soon", b"x", ttl_ms=self.chance.choice((5, 50, 10_000)))
            case 1:
                self.log.message(PREFIX + NAMESPACE, b"x", {"kv_opType": "POST", "key": "YQ=="})
            case 2:
                self.log.message(PREFIX + NAMESPACE, b"x", {"kv_opType": "PUT", "key": "YQ=="}, queue_id=1)
            case 3:
                self.log.message("Orders", b"x", {"kv_opType": "PUT", "key": "YQ=="})
            case _:
                self.log.write("another", self.chance.choice(KEYS), b"theirs")

    def _give_up(self) -> None:
        """A client does not wait any longer; its message may be under way."""
        found = [each for each in (*self._waiting, *self._under_way) if each.noted[0].returned is None]
        if found:
            self.did["given up"] += 1
            self._end(self.chance.choice(found), None)

    def _crash(self) -> None:
        view = self.chance.choice(self.views)
        view.crash()
        self._cut_off(view, "view killed")

    def _empty(self) -> None:
        view = self.chance.choice(self.views)
        view.begin(({}, None))
        self._cut_off(view, "store emptied")

    def _fail(self) -> None:
        self.chance.choice(self.views).store.failing = True
        self.did["store failed"] += 1

    # ---- calls

    def _cut_off(self, view: SimulatedView, why: str) -> None:
        """Who waits for a view that was killed is told nothing; what they sent may come all the same."""
        self.did[why] += 1
        for waiting in [each for each in (*self._waiting, *self._under_way) if each.view is view]:
            if waiting.noted[0].returned is None:
                self._end(waiting, None)

    def _answered(self, waiting: Waiting) -> None:
        """Answer a call, if its view can."""
        view = waiting.view
        try:
            if waiting.writes:
                outcome = self._outcome(waiting)
                if outcome is None:
                    return
                wrote(waiting.noted[0], outcome, self._tick())
                waiting.chooser.learn(waiting.asked, outcome)
            else:
                self._read(waiting, view.view)
        except Unavailable:
            return
        except NotFound:
            self.wrong.append(f"there is a message, and the namespace is not known to {waiting.noted[0]}")
            return
        self.did[f"{waiting.asked.kind} answered"] += 1
        self._end(waiting, ANSWERED)

    def _outcome(self, waiting: Waiting) -> WriteOutcome | None:
        """As the view's writer asks for it."""
        version, progress = waiting.version, waiting.view.progress
        if version is None or not progress.wait_version(NAMESPACE, version, 0):
            return None
        found = progress.outcome(NAMESPACE, version, f"{waiting.noted[0].call:032X}".encode())
        if not isinstance(found, WriteOutcome):
            raise AssertionError(f"nobody knows what became of {waiting.noted[0]}: {found}")
        return found

    def _read(self, waiting: Waiting, view: KeyValueView) -> None:
        asked, applied = waiting.asked, None
        entries: list[Entry | None]
        if asked.kind == PAGE:
            page = view.page(NAMESPACE, b"", after=None, count=10, rule=asked.rule)
            held = {entry.key: entry for entry in page.entries}
            entries, applied = [held.get(key) for key in asked.keys], page.applied
        elif asked.kind == GET_MANY:
            entries = view.get_many(NAMESPACE, asked.keys, asked.rule)
        else:
            entries = [view.get(NAMESPACE, asked.keys[0], asked.rule)]
        at = self._tick()
        for key, entry, noted in zip(asked.keys, entries, waiting.noted, strict=True):
            read(noted, entry, at)
            if asked.rule.freshness is Freshness.LATEST:
                waiting.chooser.found(key, entry)
        if len(entries) > 1:
            self.history.add_together(ReadTogether(tuple(waiting.noted), applied))

    def _end(self, waiting: Waiting, outcome: str | None) -> None:
        """A call is over; ``None``: without an answer."""
        waiting.held.close()
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        if outcome is None:
            for noted in waiting.noted:
                noted.returned = self._tick()
            if waiting.writes:
                waiting.chooser.ask_again(waiting.asked)
        elif outcome == FAILED:
            waiting.noted[0].outcome = FAILED
        self._idle.append((waiting.view, waiting.chooser))

    def _read_at_last(self, view: SimulatedView, key: bytes) -> None:
        asked = Asked("get", (key,))
        noted = operation(99, key, asked, self._tick())
        self.history.add(noted)
        read(noted, view.view.get(NAMESPACE, key, asked.rule), self._tick())

    def _stored(self, key: bytes, value: bytes, ttl_ms: int | None = None) -> None:
        self.log.write(NAMESPACE, key, value, ttl_ms=ttl_ms, unique_key="STRANGER")
