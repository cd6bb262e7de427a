"""Where readers stand, as their pulls and offset commits tell. On the event loop only."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping

from tiered.clock import Clock
from tiered.codec.remoting.codes import PullRequest, QueueRequest, number_field
from tiered.fetch.base import ReaderId
from tiered.gateway.knowledge.clients import Clients
from tiered.gateway.ports import ConnectionInfo

MAX_POSITIONS = 262_144
"""Connections and queues of which is known when their position was told last."""

EVERY_SECONDS = 1.0


class Positions:
    """Where readers stand, from pulls and offset commits; told to ``tell`` (the cache keeps what somebody will reach)."""

    def __init__(
        self, clients: Clients, clock: Clock, tell: Callable[[ReaderId, str, int, int], None]
    ) -> None:
        self._clients = clients
        self._clock = clock
        self._tell = tell
        self._told: OrderedDict[tuple[int, str | None, str | None], float] = (
            OrderedDict()
        )  # longest ago first

    def pull(self, fields: Mapping[str, str], connection: ConnectionInfo) -> None:
        """A pull reads from its queue offset on. One a second per connection and queue is enough."""
        key = connection.number, fields.get("topic"), fields.get("queueId")
        now = self._clock.monotonic()
        if now - self._told.get(key, -EVERY_SECONDS) < EVERY_SECONDS:
            return
        self._told[key] = now
        self._told.move_to_end(key)
        if len(self._told) > MAX_POSITIONS:
            self._told.popitem(last=False)
        pull = PullRequest.parse(fields)
        if pull.offset >= 0 and pull.queue_id >= 0:
            reader = self._clients.reader(connection, pull.group, pull.proxied_client)
            self._tell(reader, pull.topic, pull.queue_id, pull.offset)

    def commit(self, fields: Mapping[str, str]) -> None:
        """A group has consumed up to an offset. Broadcasting clients keep theirs to themselves."""
        queue = QueueRequest.parse(fields)
        offset = number_field(fields, "commitOffset")
        if queue.group and offset >= 0 and queue.queue_id >= 0:
            self._tell(ReaderId(queue.group), queue.topic, queue.queue_id, offset)
