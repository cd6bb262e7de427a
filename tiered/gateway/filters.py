"""Which messages a pull wants: its own expression if it carries one, else what its group's heartbeats said."""

from __future__ import annotations

from cachetools import LRUCache

from tiered.codec.protocol import SYS_CLASS_FILTER, TAG, PullRequest
from tiered.errors import Refused, Unavailable
from tiered.fetch.base import RowFilter
from tiered.fetch.filter import row_filter
from tiered.gateway.observe import Clients, Subscription

MAX_FILTERS = 4096


class Filters:
    """Filters of pulls, compiled once per expression."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._compiled: LRUCache[tuple[str, str], RowFilter | None] = LRUCache(MAX_FILTERS)

    def of(self, pull: PullRequest) -> RowFilter | None:
        """The filter; ``None``: every message.

        An unknown subscription by tag gets every message: clients compare tags themselves. ``Invalid`` for an expression that
        RocketMQ refuses, ``Refused`` for filter classes, ``Unavailable`` for SQL that no heartbeat has told yet.
        """
        wanted = self._subscription(pull)
        if pull.sys_flag & SYS_CLASS_FILTER or (wanted is not None and wanted.class_filter):
            raise Refused(
                "filter classes cannot be run on archived messages",
                hint="subscribe by tag or SQL92, or set the topic's storage level to DISABLE",
            )
        if wanted is None:
            if pull.expression_type != TAG:
                raise Unavailable(
                    "the expression of this subscription is not known yet",
                    hint="the client's next heartbeat tells it",
                )
            return None
        key = wanted.expression_type, wanted.expression
        if key not in self._compiled:
            self._compiled[key] = row_filter(wanted.expression, wanted.expression_type)
        return self._compiled[key]

    def take_all(self, pull: PullRequest) -> bool:
        """Whether the reader is known to want every message."""
        wanted = self._subscription(pull)
        return wanted is not None and wanted.expression_type == TAG and wanted.expression in ("", "*")

    def _subscription(self, pull: PullRequest) -> Subscription | None:
        if pull.subscription is not None:
            return Subscription(pull.subscription, pull.expression_type, 0)
        return self._clients.subscription(pull.group, pull.topic)
