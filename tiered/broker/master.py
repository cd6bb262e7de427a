"""Who is the master of a broker name now, by the name servers' word."""

from __future__ import annotations

from collections.abc import Sequence

from tiered.broker.client import Dial, RemotingClient, Request
from tiered.clock import Clock
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.lenientjson import decode_json
from tiered.errors import Corrupt, Unavailable

_MASTER = "0"


class MasterFinder:
    """Asks the name servers in turn for the master of ``broker``. For one thread at a time."""

    def __init__(self, name_servers: Sequence[str], broker: str, clock: Clock, dial: Dial) -> None:
        self._broker = broker
        self._servers = [RemotingClient(address, clock, dial) for address in name_servers]

    def ask(self) -> str:
        """Its address. ``Unavailable`` if no name server answers, or none knows a master of that name: while brokers take turns
        at it nobody is the master for a while."""
        trouble = ""
        known = False
        for server in list(self._servers):
            server.begin([Request(RequestCode.GET_BROKER_CLUSTER_INFO, {"acceptStandardJsonOnly": True})])
            [answer] = server.end()
            if answer is None or answer.code != ResponseCode.SUCCESS:
                trouble = server.trouble or f"code {answer.code if answer else None}"
            else:
                found = master_in(bytes(answer.body), self._broker)
                if found is not None:
                    return found
                known = True
            self._servers.append(self._servers.pop(0))  # the next one begins from now on
        if known:
            raise Unavailable(
                "the name servers know no master of the broker", broker=self._broker,
                hint="start it, or set source.broker to its brokerName",
            )  # fmt: skip
        raise Unavailable(
            "no name server answers", found=trouble,
            hint="check that a name server runs at the addresses given, and can be reached from here",
        )  # fmt: skip

    def close(self) -> None:
        """Close all connections."""
        for server in self._servers:
            server.close()


def master_in(body: bytes, broker: str) -> str | None:
    """The master's address in a name server's table of brokers; ``None`` if it has none. ``Corrupt`` if it is no such table."""
    try:
        told = decode_json(body)["brokerAddrTable"].get(broker)
        found = None if told is None else told["brokerAddrs"].get(_MASTER)
    except (Corrupt, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(
            "a name server's answer is not a table of brokers", found=f"{type(error).__name__}: {error}"[:200],
            hint="check that the address given is that of a RocketMQ name server",
        ) from error  # fmt: skip
    return None if found is None else str(found)
