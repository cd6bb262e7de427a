"""The one broker that replay works with: how it is reached, and what it has to be."""

from __future__ import annotations

from tiered.broker.client import Dial, RemotingClient
from tiered.broker.questions import Broker, BrokerFacts
from tiered.clock import Clock
from tiered.codec.remoting.signing import Credentials
from tiered.errors import Refused
from tiered.settings import Replay

V5_0_0 = 413
"""Release number of 5.0.0: the first with POP as it is here."""


def broker_of(settings: Replay, clock: Clock, *, most_seconds: float | None = None) -> Broker:
    """The broker at ``replay.broker_address``, asked with the keys of ``replay``; close its ``client`` in the end.

    ``most_seconds``: to connect and for each answer, where ``replay.timeout_ms`` is longer.
    """
    seconds = settings.timeout_ms / 1000
    keys = Credentials(settings.access_key, settings.secret_key) if settings.access_key else None
    dial = Dial(min(seconds, most_seconds or seconds), credentials=keys, section="replay")
    return Broker(RemotingClient(settings.broker_address, clock, dial))


def check_suitable(facts: BrokerFacts, cluster: str, broker: str) -> None:
    """``Refused`` with the reason if nothing can be replayed through this broker."""
    said = {"broker": facts.name, "version": facts.version_name}
    if (facts.cluster, facts.name) != (cluster, broker):
        raise Refused(
            "the broker at replay.broker_address is another one",
            expected=f"{cluster}/{broker}",
            found=f"{facts.cluster}/{facts.name}",
            hint="set replay.broker_address to this broker's address, or source.cluster and source.broker to its names",
        )
    if facts.version < V5_0_0:
        raise Refused(
            "this broker is older than 5.0 and lacks the POP requests that replay needs", **said, expected="5.0 or newer",
            hint="set replay.enabled = false; consumers of a 4.x broker read old offsets through `tiered gateway`",
        )  # fmt: skip
    if facts.slave:
        raise Refused(
            "this broker is a slave and takes no messages", **said,
            hint="set replay.broker_address to the master of this broker's name",
        )  # fmt: skip
    if not facts.reads_v1_retries:
        raise Refused(
            "this broker reads only the newer retry topics, which no client may write to", **said,
            hint="set the broker's retrieveMessageFromPopRetryTopicV1=true",
        )  # fmt: skip
