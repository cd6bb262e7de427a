"""Which messages a pull wants: its own expression if it carries one, else what its group's heartbeats said.

An expression of the longest kind that is allowed takes 0.4 s to compile and a few megabytes to keep, and clients choose it. So
whatever may take milliseconds is compiled in the pool, one at a time and once for all that ask meanwhile; what is kept is
bounded by its characters; and an expression that is refused is kept as such.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from cachetools import LRUCache

from tiered.codec.remoting.codes import SYS_CLASS_FILTER, TAG, PullRequest
from tiered.errors import BadRequest, Unavailable
from tiered.filter.base import RowFilter
from tiered.filter.tags import row_filter
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.clients import MAX_EXPRESSION, Clients, Subscription

SQL = "SQL92"

MAX_KEPT_CHARACTERS = 256 * 1024
"""Of all expressions kept together. A compiled one is up to 200 bytes a character: 50 MB at most."""

ROOM_CHARACTERS = 64
"""Counted for every expression beside its own characters, so that their number is bounded too."""

AT_ONCE_CHARACTERS = 1024
"""Longest expression by tag that is compiled where it is asked for: 2 ms. SQL never is, its first one makes the parser too."""

MAX_COMING = 64
"""Expressions that wait to be compiled."""

_Key = tuple[str, str]
"""Type and text of an expression."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What became of an expression: a filter (``None``: every message) or the error that clients hear."""

    characters: int
    row_filter: RowFilter | None = None
    refused: BadRequest | None = None

    def take(self) -> RowFilter | None:
        """The filter, or a fresh error: one that is raised again and again would gather tracebacks."""
        if self.refused is not None:
            raise BadRequest(self.refused.message, hint=self.refused.hint, **self.refused.fields)
        return self.row_filter


class Filters:
    """Filters of pulls, compiled once per expression. On the event loop only."""

    def __init__(self, clients: Clients, asking: Asking) -> None:
        self._clients = clients
        self._asking = asking
        self._compiled: LRUCache[_Key, _Kept] = LRUCache(MAX_KEPT_CHARACTERS, lambda kept: kept.characters)
        self._coming: dict[_Key, asyncio.Task[_Kept]] = {}
        self._turn = asyncio.Lock()

    async def of(self, pull: PullRequest) -> RowFilter | None:
        """The filter; ``None``: every message.

        An unknown subscription by tag gets every message: clients compare tags themselves. ``BadRequest`` for an expression
        that RocketMQ refuses or that is too long, and for filter classes; ``Unavailable`` for SQL that no heartbeat has
        told yet, and while too many expressions wait to be compiled.
        """
        wanted = self.subscription(pull)
        if pull.sys_flag & SYS_CLASS_FILTER or (wanted is not None and wanted.class_filter):
            raise BadRequest(
                "filter classes cannot be run on archived messages",
                hint="subscribe by tag or SQL92, or set the topic's storage level to DISABLE",
            )
        if wanted is None:
            if pull.expression_type != TAG:
                raise Unavailable(
                    "the expression of this subscription is not known yet",
                    hint="the client's next heartbeat brings it",
                )
            return None
        key = wanted.expression_type, wanted.expression
        kept = self._compiled.get(key)
        return (kept or await self._made(key)).take()

    def is_unfiltered(self, pull: PullRequest) -> bool:
        """Whether ``of`` is known to be no filter."""
        if pull.sys_flag & SYS_CLASS_FILTER or pull.expression_type != TAG:
            return False
        wanted = self.subscription(pull)
        return wanted is None or (not wanted.class_filter and _is_everything(wanted))

    def take_all(self, pull: PullRequest) -> bool:
        """Whether the reader is known to want every message."""
        wanted = self.subscription(pull)
        return wanted is not None and _is_everything(wanted)

    async def _made(self, key: _Key) -> _Kept:
        kind, expression = key
        if len(expression) > MAX_EXPRESSION:
            raise BadRequest(
                "the filter expression is too long for archived messages",
                found=f"more than {MAX_EXPRESSION} characters",
                expected=f"at most {MAX_EXPRESSION}",
                hint="filter by a property that says in one word what the long list means",
            )
        if kind not in (TAG, SQL) or (kind == TAG and len(expression) <= AT_ONCE_CHARACTERS):
            kept = _compile(key)
            if kind in (TAG, SQL):  # any other is a refusal of no cost, and may be of any length
                self._compiled[key] = kept
            return kept
        task = self._coming.get(key)
        if task is None:
            if len(self._coming) >= MAX_COMING:
                raise Unavailable("too many new filter expressions at once", hint="the client will ask again")
            task = self._coming[key] = asyncio.get_running_loop().create_task(self._compile_aside(key))
            task.add_done_callback(lambda done: self._came(key, done))
        return await asyncio.shield(task)  # who no longer waits leaves the work to those who will ask again

    async def _compile_aside(self, key: _Key) -> _Kept:
        async with self._turn:
            return await self._asking.finish(lambda: _compile(key))

    def _came(self, key: _Key, task: asyncio.Task[_Kept]) -> None:
        del self._coming[key]
        if not task.cancelled() and task.exception() is None:
            self._compiled[key] = task.result()

    def subscription(self, pull: PullRequest) -> Subscription | None:
        """What a pull wants, in its own words or by its group's heartbeats; ``None``: not known."""
        if pull.subscription is not None:
            return Subscription(pull.subscription, pull.expression_type, 0)
        return self._clients.subscription(pull.group, pull.topic)


def _is_everything(wanted: Subscription) -> bool:
    return wanted.expression_type == TAG and wanted.expression in ("", "*")


def _compile(key: _Key) -> _Kept:
    kind, expression = key
    characters = len(expression) + ROOM_CHARACTERS
    try:
        return _Kept(characters, row_filter(expression, kind))
    except BadRequest as error:
        return _Kept(characters, refused=BadRequest(error.message, hint=error.hint, **error.fields))
