"""Whose turn it is, where several wait: start-time fair queueing by tenant, and in each tenant by consumer group.

Goyal, Vin and Cheng, "Start-time fair queuing" (1996). What waits has a *start* on a clock that counts cost instead of seconds:
where its line's last piece of work ended, or now if that is earlier. The earliest start is served, and its line's next one
starts behind it by its cost. So lines that always have something waiting get the same cost, and one that comes with a single
piece waits for at most one piece of each other line, however many those have.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Generic, TypeVar

T = TypeVar("T")

REQUEST_COST = 1024 * 1024
"""Cost of a request beside its bytes: about what a connection to a store brings in the time that its answer needs to begin."""

MOST_REMEMBERED = 4096
"""Lines without anything waiting whose last end is still known; of one that is forgotten the next piece starts now."""


MOST_TENANTS_REMEMBERED = 256
"""The same for tenants whose groups are known; more may be while more wait."""


@dataclass(frozen=True, slots=True)
class TenantGroup:
    """For whom work is done: a tenant, and a consumer group of it."""

    tenant: str
    group: str


NOBODY = TenantGroup("", "")
"""Work that no reader asked for."""


class FairQueue(Generic[T]):
    """Not thread-safe: whoever owns it has a lock. Each share's own pieces keep their order."""

    def __init__(self) -> None:
        self._tenants = _Turns()
        self._groups: dict[str, _Turns] = {}
        self._waiting: dict[TenantGroup, deque[tuple[int, T]]] = {}
        self._count = 0

    def push(self, share: TenantGroup, cost: int, item: T) -> None:
        """One more piece waits; ``cost`` in bytes."""
        groups = self._groups.setdefault(share.tenant, _Turns())
        if not groups:
            self._tenants.enter(share.tenant)
        line = self._waiting.get(share)
        if line is None:
            line = self._waiting[share] = deque()
            groups.enter(share.group)
        line.append((cost, item))
        self._count += 1

    def first(self) -> T:
        """Whose turn it is; there must be one."""
        return self._waiting[self._turn()][0][1]

    def pop(self) -> T:
        """``first``, served."""
        share = self._turn()
        line, groups = self._waiting[share], self._groups[share.tenant]
        cost, item = line.popleft()
        groups.serve(cost, again=bool(line))
        self._tenants.serve(cost, again=bool(groups))
        if not line:
            del self._waiting[share]
        self._count -= 1
        if len(self._groups) > MOST_TENANTS_REMEMBERED:
            self._groups = {name: turns for name, turns in self._groups.items() if turns}
        return item

    def drain(self) -> list[T]:
        """Everything that waits, which no longer does."""
        return [self.pop() for _ in range(self._count)]

    def __len__(self) -> int:
        return self._count

    def _turn(self) -> TenantGroup:
        tenant = self._tenants.first()
        return TenantGroup(tenant, self._groups[tenant].first())


class _Turns:
    """One level of lines. ``_now``: the start of what was served last."""

    def __init__(self) -> None:
        self._now = 0
        self._ends: dict[str, int] = {}
        self._starts: list[tuple[int, int, str]] = []
        self._entered = 0

    def enter(self, name: str) -> None:
        """A line has something waiting again."""
        self._put(max(self._now, self._ends.pop(name, 0)), name)

    def first(self) -> str:
        return self._starts[0][2]

    def serve(self, cost: int, *, again: bool) -> None:
        """The first line had its turn; ``again``: more of it waits."""
        self._now, _, name = heappop(self._starts)
        end = self._now + cost
        if again:
            self._put(end, name)
            return
        self._ends[name] = end
        if len(self._ends) > MOST_REMEMBERED:
            self._ends = {line: at for line, at in self._ends.items() if at > self._now}
        if len(self._ends) > MOST_REMEMBERED:
            del self._ends[next(iter(self._ends))]

    def __bool__(self) -> bool:
        return bool(self._starts)

    def _put(self, start: int, name: str) -> None:
        self._entered += 1
        heappush(self._starts, (start, self._entered, name))
