"""A seeded mix of calls to a key-value view, by any object with the verbs of ``KeyValues``, written down as a history.

``Chooser`` draws what a client asks next, from what it was answered before. ``Recorded`` asks it, and notes call and answer: an
error whose field ``outcome`` is ``not done`` says that a write failed, any other leaves it unknown. ``Workload`` has threads
do so until it is told to end.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from tests.kit.kvhistory import (
    ANSWERED,
    DELETE,
    FAILED,
    GET,
    PUT,
    History,
    Operation,
    ReadTogether,
    digest,
    shortened,
)
from tests.kit.kvlog import digest as sha256
from tiered.errors import TieredError
from tiered.keyvalue import ALWAYS, Condition, Entry, Freshness, KeyValues, ReadRule, WriteOutcome
from tiered.view.putting import NOT_DONE

GET_MANY, PAGE = "get_many", "page"
LATEST, ANY = ReadRule(Freshness.LATEST), ReadRule(Freshness.ANY)
KINDS = {GET: 30, PUT: 40, DELETE: 12, GET_MANY: 4, PAGE: 3}
NOBODYS = b"nobody's value"


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks. ``keys``: one, or those of a ``get_many``; of a page all that it may show."""

    kind: str
    keys: tuple[bytes, ...]
    rule: ReadRule = LATEST
    value: bytes = b""
    condition: Condition = ALWAYS
    prefix: bytes = b""
    """Of a page."""


@dataclass(slots=True)
class Chooser:
    """What one client asks. ``any_percent``: how many of a hundred reads are by rule ANY."""

    client: int
    chance: random.Random
    keys: Sequence[bytes]
    any_percent: int = 25
    kinds: dict[str, int] = field(default_factory=lambda: dict(KINDS))
    prefix: bytes = b""
    """What ``keys``, and no others, begin with."""
    once: bytes = b""
    """What keys begin with that this client puts once and never again; empty: it does not."""
    seen: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    """Of each key the version and value that it had by the last answer that told."""
    _puts: int = 0
    _again: Asked | None = None

    def draw(self) -> Asked:
        """The next call; a write without an answer is asked again at times, word for word."""
        again, self._again = self._again, None
        if again is not None:
            return again
        kind = self.chance.choices(list(self.kinds), list(self.kinds.values()))[0]
        if kind == PAGE:
            return Asked(kind, tuple(sorted(self.keys)), self._rule(), prefix=self.prefix)
        if kind == GET_MANY:
            return Asked(
                kind, tuple(self.chance.sample(list(self.keys), min(3, len(self.keys)))), self._rule()
            )
        key = self.chance.choice(self.keys)
        if kind == GET:
            return Asked(kind, (key,), self._rule())
        condition = self._condition(key, creates=kind == PUT)
        if kind == DELETE:
            return Asked(kind, (key,), condition=condition)
        self._puts += 1
        value = b"%d/%d " % (self.client, self._puts)
        if self.once and self.chance.random() < 0.1:
            return Asked(kind, (self.once + b"%d" % self._puts,), value=value)
        empty = self._puts == 1 and self.client == 0
        return Asked(
            kind,
            (key,),
            value=b"" if empty else value * self.chance.choice((1, 1, 3, 40)),
            condition=condition,
        )

    def ask_again(self, asked: Asked) -> None:
        """Its outcome is unknown: perhaps the same once more."""
        if self.chance.random() < 0.5:
            self._again = asked

    def learn(self, asked: Asked, outcome: WriteOutcome) -> None:
        """A write was answered."""
        [key] = asked.keys
        if outcome.applied and asked.kind == PUT:
            self.seen[key] = (outcome.version, asked.value)
        elif outcome.applied or outcome.current is None:
            self.seen.pop(key, None)
        else:
            self.seen[key] = (outcome.current, self.seen.get(key, (0, NOBODYS))[1])

    def found(self, key: bytes, entry: Entry | None) -> None:
        """A read was answered."""
        if entry is None:
            self.seen.pop(key, None)
        else:
            self.seen[key] = (entry.version, entry.value)

    def _rule(self) -> ReadRule:
        return ANY if self.chance.randrange(100) < self.any_percent else LATEST

    def _condition(self, key: bytes, *, creates: bool) -> Condition:
        version, value = self.seen.get(key, (self.chance.randrange(50), NOBODYS))
        match self.chance.randrange(10):
            case 0 | 1 | 2 | 3:
                return Condition(version=version)
            case 4 | 5 if creates:
                return Condition(absent=True)
            case 6:
                return Condition(value_sha256=sha256(value))
            case 7:
                return Condition(version=version, value_sha256=sha256(value))
        return ALWAYS


def operation(client: int, key: bytes, asked: Asked, call: int, shown_by: str | None = None) -> Operation:
    """A call as it is written down."""
    kind = asked.kind if asked.kind in (PUT, DELETE) else GET
    condition = asked.condition
    return Operation(
        client, key.hex(), kind, call,
        value=digest(asked.value) if kind == PUT else "",
        if_absent=condition.absent, if_version=condition.version,
        if_value="" if condition.value_sha256 is None else shortened(condition.value_sha256),
        shown_by=shown_by if asked.rule.freshness is Freshness.ANY else None,
    )  # fmt: skip


def wrote(noted: Operation, outcome: WriteOutcome, at: int) -> None:
    """The answer to a write."""
    noted.applied, noted.version, noted.current = outcome.applied, outcome.version, outcome.current
    noted.returned, noted.outcome = at, ANSWERED


def read(noted: Operation, entry: Entry | None, at: int) -> None:
    """The answer to a read."""
    noted.found = None if entry is None else (entry.version, digest(entry.value))
    noted.returned, noted.outcome = at, ANSWERED


class Recorded:
    """One client's calls, written down. ``view``: which one answers now; another name each time it begins with another store,
    for what is shown by ANY may go back then."""

    def __init__(
        self,
        values: KeyValues,
        namespace: str,
        chooser: Chooser,
        history: History,
        view: Callable[[], str],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.values = values
        self.namespace = namespace
        self.chooser = chooser
        self.history = history
        self.errors: Counter[str] = Counter()
        self._view = view
        self._now = clock_ns

    def ask(self, asked: Asked) -> bool:
        """Make a call, and note it; whether it was answered."""
        shown_by = self._view()
        noted = [operation(self.chooser.client, key, asked, self._now(), shown_by) for key in asked.keys]
        self.history.add(*noted)
        try:
            if asked.kind in (PUT, DELETE):
                outcome = self._write(asked)
                wrote(noted[0], outcome, self._now())
                self.chooser.learn(asked, outcome)
            else:
                self._read(asked, noted)
        except (TieredError, OSError) as error:
            said = getattr(error, "fields", {}).get("outcome")
            if said == NOT_DONE or asked.kind not in (PUT, DELETE):
                noted[0].outcome = FAILED
            else:
                self.chooser.ask_again(asked)
            self.errors[f"{type(error).__name__}: {getattr(error, 'message', error)}"] += 1
            return False
        if self._view() != shown_by:
            for each in noted:
                each.shown_by = None if each.shown_by is None else f"{shown_by} or another, call {each.call}"
        return True

    def _write(self, asked: Asked) -> WriteOutcome:
        [key] = asked.keys
        if asked.kind == PUT:
            return self.values.put(self.namespace, key, asked.value, condition=asked.condition)
        return self.values.delete(self.namespace, key, condition=asked.condition)

    def _read(self, asked: Asked, noted: list[Operation]) -> None:
        applied = None
        if asked.kind == PAGE:
            count = len(asked.keys) + 5
            page = self.values.page(self.namespace, asked.prefix, after=None, count=count, rule=asked.rule)
            held = {entry.key: entry for entry in page.entries}
            if page.after is not None or not held.keys() <= set(asked.keys):
                raise AssertionError(
                    f"a page of keys that nobody wrote: {sorted(held)}, after {page.after!r}"
                )
            entries, applied = [held.get(key) for key in asked.keys], page.applied
        elif asked.kind == GET_MANY:
            entries = self.values.get_many(self.namespace, asked.keys, asked.rule)
        else:
            entries = [self.values.get(self.namespace, asked.keys[0], asked.rule)]
        at = self._now()
        for key, entry, each in zip(asked.keys, entries, noted, strict=True):
            if entry is not None and entry.key != key:
                raise AssertionError(f"asked for {key!r}, answered of {entry.key!r}")
            read(each, entry, at)
            if asked.rule.freshness is Freshness.LATEST:
                self.chooser.found(key, entry)
        if len(noted) > 1:
            self.history.add_together(ReadTogether(tuple(noted), applied))


class Workload:
    """Threads, a client each, that ask until ``end``. ``pause``: seconds between two calls of one."""

    def __init__(self, clients: Sequence[Recorded], pause: float = 0.0) -> None:
        self._ended = threading.Event()
        self._pause = pause
        self.clients = clients
        self.broken: list[str] = []
        self._asking = [threading.Lock() for _ in clients]
        told = zip(clients, self._asking, strict=True)
        self._threads = [threading.Thread(target=self._run, args=each, daemon=True) for each in told]

    def start(self) -> Workload:
        """Begin."""
        for thread in self._threads:
            thread.start()
        return self

    def end(self, seconds: float = 60.0) -> None:
        """Have them end, and wait. ``AssertionError`` for a client that broke or does not end."""
        self._ended.set()
        for thread in self._threads:
            thread.join(seconds)
        assert not self.broken, self.broken[0]
        assert not any(thread.is_alive() for thread in self._threads), "a client's call does not end"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Nobody asks meanwhile; what was asked is answered by then, or given up."""
        with ExitStack() as stack:
            for lock in self._asking:
                stack.enter_context(lock)
            yield

    def _run(self, client: Recorded, asking: threading.Lock) -> None:
        try:
            while not self._ended.is_set():
                with asking:
                    answered = client.ask(client.chooser.draw())
                self._ended.wait(self._pause if answered else max(self._pause, 0.05))
        except Exception as error:
            self.broken.append(f"client {client.chooser.client}: {type(error).__name__}: {error}")
