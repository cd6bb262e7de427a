"""A linearizable map, its clients and their history, all simulated by a seed; and faults that such a map must not have.

Nothing here has threads or a clock: calls, effects and answers are events in an order that chance draws. A write may lose its
answer, its effect may come long afterwards, or never. A fault is planted at a quiet moment, and looked at: what is planted
can be seen by whoever reads the history, so a checker that misses it is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from tests.kit.kvhistory import ANSWERED, DELETE, FAILED, GET, PUT, UNKNOWN, History, Operation, digest

KEYS = ("a", "b", "c")


@dataclass(slots=True)
class Held:
    """What the map has of a key."""

    version: int
    value: str


class SimulatedMap:
    """The map itself: one after the other."""

    def __init__(self) -> None:
        self.held: dict[str, Held] = {}
        self.next_version = 0

    def holds(self, asked: Operation) -> bool:
        """Whether a write's condition does."""
        held = self.held.get(asked.key)
        return not (
            (asked.if_absent and held is not None)
            or (asked.if_version is not None and (held is None or held.version != asked.if_version))
            or (asked.if_value != "" and (held is None or held.value != asked.if_value))
        )

    def take(self, asked: Operation) -> None:
        """Do it, and write the answer into it."""
        held = self.held.get(asked.key)
        if asked.kind == GET:
            asked.found = None if held is None else (held.version, held.value)
            return
        asked.version = self.next_version
        self.next_version += 1
        asked.applied = self.holds(asked)
        if not asked.applied:
            asked.current = None if held is None else held.version
        elif asked.kind == PUT:
            self.held[asked.key] = Held(asked.version, asked.value)
        else:
            self.held.pop(asked.key, None)


class Simulation:
    """Clients of a map. ``lost``: how many answers of a hundred are lost."""

    def __init__(self, seed: int, *, clients: int = 5, lost: int = 8, keys: tuple[str, ...] = KEYS) -> None:
        self.chance = random.Random(seed)
        self.map = SimulatedMap()
        self.history = History()
        self.clients, self.lost, self.keys = clients, lost, keys
        self._now = 0
        self._idle = list(range(clients))
        self._called: list[Operation] = []
        self._done: list[Operation] = []
        self._pending: list[Operation] = []
        self._puts = 0

    def run(self, operations: int) -> Simulation:
        """So many calls, their effects and answers in any order."""
        for _ in range(operations):
            while not self._idle or ((self._called or self._done) and self.chance.random() < 0.6):
                self._step()
            client = self._idle.pop(self.chance.randrange(len(self._idle)))
            self._called.append(self.call(self.draw(client)))
        return self

    def quiet(self) -> Simulation:
        """Everybody is answered who will be, and nothing without an answer takes effect any more."""
        while self._called or self._done:
            self._step()
        self._pending.clear()
        return self

    def draw(self, client: int) -> Operation:
        """A call that makes sense more often than not."""
        key = self.chance.choice(self.keys)
        held = self.map.held.get(key)
        kind = self.chance.choices((GET, PUT, DELETE), (4, 5, 2))[0]
        drawn = Operation(client, key, kind, 0)
        if kind == PUT:
            self._puts += 1
            drawn.value = digest(f"{client}:{self._puts}".encode())
        if kind != GET:
            known = held is not None and self.chance.random() < 0.8
            version = (
                held.version
                if held is not None and known
                else self.chance.randrange(self.map.next_version + 1)
            )
            value = held.value if held is not None and known else digest(b"nobody's")
            condition = self.chance.choice(
                ("", "", "version", "version", "value", "absent" if kind == PUT else "")
            )
            drawn.if_absent = condition == "absent"
            drawn.if_version = version if condition == "version" else None
            drawn.if_value = value if condition == "value" else ""
        return drawn

    def call(self, asked: Operation) -> Operation:
        """Note that it is called now."""
        self._now += 1
        asked.call = self._now
        self.history.add(asked)
        return asked

    def answer(self, asked: Operation) -> Operation:
        """Note that it is answered now."""
        self._now += 1
        asked.returned, asked.outcome = self._now, ANSWERED
        return asked

    def alone(self, asked: Operation, take: Callable[[Operation], None] | None = None) -> Operation:
        """One call while nobody else does anything."""
        self.call(asked)
        (take or self.map.take)(asked)
        return self.answer(asked)

    def _step(self) -> None:
        """One effect, or one answer."""
        if self._pending and self.chance.random() < 0.1:
            self._without_answer(self._pending.pop(self.chance.randrange(len(self._pending))))
        if self._done and (not self._called or self.chance.random() < 0.5):
            asked = self._done.pop(self.chance.randrange(len(self._done)))
            self._idle.append(self.answer(asked).client)
            return
        asked = self._called.pop(self.chance.randrange(len(self._called)))
        if self.chance.randrange(100) >= self.lost:
            self.map.take(asked)
            self._done.append(asked)
            return
        self._idle.append(asked.client)
        asked.outcome = UNKNOWN
        if asked.kind != GET and (what := self.chance.randrange(4)):
            if what == 1:
                asked.outcome = FAILED
            elif what == 2:
                self._without_answer(asked)
            else:
                self._pending.append(asked)

    def _without_answer(self, asked: Operation) -> None:
        """Its effect alone."""
        self.map.take(asked)
        asked.version, asked.applied, asked.current = None, False, None


def correct(seed: int) -> History:
    """A history of a map without a fault; every tenth has as many lost answers as others."""
    many = seed % 10 == 0
    return Simulation(seed, clients=3 + seed % 6, lost=50 if many else 8).run(30 if many else 80).history


def _settled(world: Simulation, key: str, value: bytes) -> Operation:
    return world.alone(Operation(0, key, PUT, 0, value=digest(value)))


def _read(world: Simulation, key: str) -> Operation:
    return world.alone(Operation(1, key, GET, 0))


def stale_read(world: Simulation, key: str) -> None:
    """A read is answered from before a write that was answered."""
    old = _settled(world, key, b"old")
    _settled(world, key, b"new")

    def from_before(asked: Operation) -> None:
        asked.found = (old.version or 0, old.value)

    world.alone(Operation(1, key, GET, 0), from_before)


def lost_put(world: Simulation, key: str) -> None:
    """A put is answered, and has no effect."""
    before = world.map.held.get(key)
    _settled(world, key, b"lost")
    if before is None:
        del world.map.held[key]
    else:
        world.map.held[key] = before
    _read(world, key)


def applied_twice(world: Simulation, key: str) -> None:
    """A put takes effect once more, behind another."""
    first = _settled(world, key, b"twice")
    _settled(world, key, b"between")
    world.map.held[key] = Held(world.map.next_version, first.value)
    world.map.next_version += 1
    _read(world, key)


def applied_twice_unanswered(world: Simulation, key: str) -> None:
    """The same of a put without an answer."""
    asked = world.call(Operation(0, key, PUT, 0, value=digest(b"unanswered")))
    for _ in range(2):
        world.map.held[key] = Held(world.map.next_version, asked.value)
        world.map.next_version += 1
        _read(world, key)
        _settled(world, key, b"behind it")


def two_winners(world: Simulation, key: str) -> None:
    """Two writes that ask for the same version both take effect."""
    version = _settled(world, key, b"both").version
    for winner in range(2):
        asked = Operation(winner, key, PUT, 0, value=digest(b"winner %d" % winner), if_version=version)

        def win(asked: Operation) -> None:
            asked.if_version, wanted = None, asked.if_version
            world.map.take(asked)
            asked.if_version = wanted

        world.alone(asked, win)


def two_creators(world: Simulation, key: str) -> None:
    """Two writes that ask for absence both take effect."""
    world.alone(Operation(0, key, DELETE, 0))
    for winner in range(2):
        asked = Operation(winner, key, PUT, 0, value=digest(b"creator %d" % winner), if_absent=True)
        world.map.held.pop(key, None)
        world.alone(asked)


def resurrected(world: Simulation, key: str) -> None:
    """What was deleted is there again."""
    _settled(world, key, b"deleted")
    held = world.map.held[key]
    world.alone(Operation(0, key, DELETE, 0))
    world.map.held[key] = held
    _read(world, key)


def wrong_current(world: Simulation, key: str) -> None:
    """A write that fails is told an older version than what stood there."""
    older = _settled(world, key, b"older").version
    newer = _settled(world, key, b"newer").version

    def tell(asked: Operation) -> None:
        world.map.take(asked)
        asked.current = older

    world.alone(Operation(1, key, PUT, 0, value=digest(b"x"), if_version=(newer or 0) + 1), tell)


def failed_in_vain(world: Simulation, key: str) -> None:
    """A write fails though its condition held."""
    version = _settled(world, key, b"held").version

    def decline(asked: Operation) -> None:
        asked.version, asked.applied, asked.current = world.map.next_version, False, version
        world.map.next_version += 1

    world.alone(Operation(1, key, PUT, 0, value=digest(b"x"), if_version=version), decline)


def version_of_another(world: Simulation, key: str) -> None:
    """A read is told another version than the write was."""
    _settled(world, key, b"mine")
    world.map.held[key].version += 1
    _read(world, key)


def version_again(world: Simulation, key: str) -> None:
    """A version is given to a second write."""
    _settled(world, key, b"first of two")
    world.map.next_version -= 1
    _settled(world, key, b"second of two")


def failed_and_yet(world: Simulation, key: str) -> None:
    """A write that failed for certain took effect."""
    asked = world.call(Operation(0, key, PUT, 0, value=digest(b"failed")))
    world.map.take(asked)
    asked.outcome, asked.version, asked.applied = FAILED, None, False
    _read(world, key)


FAULTS: tuple[Callable[[Simulation, str], None], ...] = (
    stale_read,
    lost_put,
    applied_twice,
    applied_twice_unanswered,
    two_winners,
    two_creators,
    resurrected,
    wrong_current,
    failed_in_vain,
    version_of_another,
    version_again,
    failed_and_yet,
)


def faulty(fault: Callable[[Simulation, str], None], seed: int) -> tuple[History, str]:
    """A history with a fault in the middle, and the key that has it."""
    world = Simulation(seed).run(40).quiet()
    key = world.chance.choice(KEYS)
    fault(world, key)
    return world.run(40).history, key
