"""Which consumers are sent to a read node themselves, where ``gateway.namesrv_routes`` is ``nodes``.

A Java client asks the replica that the last answer to a pull of the queue suggests (``suggestWhichBrokerId``), the master
where its route has none of that id. So an answer with records of the archive names the node that has the queue; routes have
told where that is. The node sends the consumer back with its next answer that is not messages, and once in
``gateway.cold_recheck_ms`` anyhow: that long, and no longer, the broker's last answer stands in, as it does for pulls that come
here (``recheck``).

Ids are odd, and the sixteenth bit of them is not set, so that a client that has lost one falls back to the master: it tries the
number above, which is nobody's, and then the first entry of a Java hash table, which is the master's while no other id shares
its bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tiered.codec.checksum import xxh3_64
from tiered.codec.remoting.codes import TAG, PullRequest, RequestCode, ResponseCode, is_logical, number_field
from tiered.codec.remoting.frame import JAVA, Command
from tiered.codec.remoting.nodebeat import MOST_HOLD_MS, MOST_RECHECK_MS, Vouch
from tiered.errors import TieredError
from tiered.gateway.knowledge.archive import PullArchive
from tiered.gateway.knowledge.rights import ACCESS_KEY
from tiered.gateway.nodes.fleet import NodeFleet
from tiered.gateway.ports import ConnectionInfo
from tiered.gateway.pull.filters import Filters
from tiered.gateway.pull.recheck import DEEP_ANSWERS
from tiered.gateway.pull.sent import Reader, SentConsumers, host_of
from tiered.gateway.pull.verdict import PULLS, Why
from tiered.model import MessageQueue
from tiered.settings import Gateway

NODES = "nodes"
"""``gateway.namesrv_routes``."""

MOST_NAMED = 64
"""Read nodes that a route names: every consumer keeps a connection to each, and sends it heartbeats."""

SYS_SUSPEND = 0x2
"""``sysFlag``: the client waits for messages, as consumers do that pull by themselves."""

HOLD_SECONDS = 5.0
"""How long a node that hears no more of it goes on to answer consumers; with slow beats, three of them."""


class Directing:
    """On the event loop; ``status`` is for any thread."""

    def __init__(
        self,
        fleet: NodeFleet,
        archive: PullArchive,
        filters: Filters,
        settings: Gateway,
        sent: SentConsumers,
    ) -> None:
        self._fleet = fleet
        self._archive = archive
        self._filters = filters
        self.sent = sent
        self._on = settings.namesrv_routes == NODES
        self._recheck_ms = min(settings.cold_recheck_ms, MOST_RECHECK_MS)
        self._hold_ms = int(min(max(1000 * HOLD_SECONDS, 3 * settings.node_beat_ms), MOST_HOLD_MS))
        self.problem: Callable[[], str | None] = lambda: "nobody has said that the broker asks for no rights"
        """Why nobody is sent to a node; ``None``: consumers may be."""
        if self._on:
            fleet.vouch = self._vouch

    def routes(self, client: str) -> Mapping[int, str]:
        """The nodes that routes for ``client``, host:port, are to name, address by id; none while nobody may be sent there."""
        if not self._on or self.problem() is not None:
            return {}
        host = host_of(client)
        self.sent.routed(host)
        return self._named_to(host)

    def came(self, request: Command, connection: ConnectionInfo) -> None:
        """A pull is here: its consumer, if it was sent away, is back."""
        if self._on and self.sent.knows(connection):
            try:
                pull = PullRequest.parse(request.ext)
            except TieredError:  # the broker says so
                return
            self.sent.came(connection, (pull.group, MessageQueue(pull.topic, pull.queue_id)), pull.offset)

    def direct(
        self, request: Command, answer: Command, made: Command | None, why: object, connection: ConnectionInfo
    ) -> Command | None:
        """``made``, what the client gets instead of the broker's ``answer``, which is held by ``why``; with a node in it that
        the client is to ask the next time, where that gives up nothing."""
        if not self._on:
            return made
        self.came(request, connection)  # those for whom the broker's last answer stands in were not seen yet
        if (
            made is None
            or made.code != ResponseCode.SUCCESS
            or why is not Why.SKIP
            or request.code not in PULLS
        ):
            return made
        try:
            pull = PullRequest.parse(request.ext)
            queue = MessageQueue(pull.topic, pull.queue_id)
            following = number_field(made.ext, "nextBeginOffset")
            rests = self.sent.rests(connection, (pull.group, queue))
            if not rests and self._may_go(request, pull, answer, queue, following):
                self._send(made, connection, (pull.group, queue), following)
        except TieredError:
            pass  # what makes no sense, or is not known, keeps the consumer here
        return made

    def status(self) -> Mapping[str, object]:
        """For ``/status``."""
        if not self._on:
            return {"routes": "gateway"}
        problem = self.problem()
        named = self._named() if problem is None else {}
        quiet = self.sent.quiet()
        if problem is None and quiet:
            problem, named = f"it has started: nobody is told of nodes for {quiet:.0f} s", {}
        return {"routes": NODES, "problem": problem, "named": named, "not_named": self.sent.unnamed()}

    # ---- inside

    def _may_go(
        self, request: Command, pull: PullRequest, answer: Command, queue: MessageQueue, following: int
    ) -> bool:
        """Whether a node would give this consumer what it gets here: cold, archived, far from what the broker has."""
        ext = request.ext
        if request.language != JAVA or ACCESS_KEY in ext or is_logical(ext) or self.problem() is not None:
            return False
        waits = pull.sys_flag & SYS_SUSPEND or request.code == RequestCode.LITE_PULL_MESSAGE
        told = pull.subscription is not None or self._filters.take_all(pull)
        if not (waits and told and pull.expression_type == TAG):
            return False
        deep = number_field(answer.ext, "minOffset") - DEEP_ANSWERS * max(1, pull.max_count)
        known = self._archive.known(queue)
        return following < deep and known is not None and following < known.max_offset

    def _send(self, made: Command, connection: ConnectionInfo, reader: Reader, following: int) -> None:
        named = self._named_to(host_of(connection.client)).values()
        places = self._fleet.addresses()
        self._fleet.count_sent(self.sent.counts())  # without this one, which is here
        node = self._fleet.choose(
            reader[1], {name for name, address in places.items() if address not in named}
        )
        if node is None or not self.sent.send(connection, reader, node.place.address, following):
            return
        self._fleet.count_sent(self.sent.counts())
        made.ext["suggestWhichBrokerId"] = str(broker_id(node.place.address))

    def _named(self) -> dict[int, str]:
        """Nodes that routes may name, by id: not two of one id, nor too many. The same for whoever sees the same nodes."""
        by_id: dict[int, str] = {}
        for address in sorted(self._fleet.open_to_clients()):
            by_id.setdefault(broker_id(address), address)
        return {number: by_id[number] for number in sorted(by_id)[:MOST_NAMED]}

    def _named_to(self, host: str) -> dict[int, str]:
        named = self._named().items()
        return {number: address for number, address in named if self.sent.may_name(host, address)}

    def _vouch(self, address: str, tick: str) -> Vouch | None:
        """With each beat. Those who are away are looked through, too."""
        self.sent.look()
        self._fleet.count_sent(self.sent.counts())
        if not tick or self.problem() is not None:
            return None
        try:
            place = self._archive.place()
        except TieredError:
            return None
        if place is None:
            return None
        return Vouch(
            place.archive_id, place.commit, broker_id(address), self._recheck_ms, self._hold_ms, tick
        )


def broker_id(address: str) -> int:
    """The id by which routes know the read node at ``address``: always the same, above every replica's, in 31 bits. Of the
    address, not of a name: what an old route says of an id is what a new one says."""
    return (xxh3_64(address.encode()) & 0x3FFE_FFFE) | 0x4000_0001
