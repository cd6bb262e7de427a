"""Two key-value views beside a slave whose master is killed, while clients of both go on: the slave becomes the master.

The views find the new master by the name server. They stay beside it through the switch, and then move, with their stores, to
the log of who is the slave now: beside a master they would show what no slave has yet, and the next switch may lose.
"""

from __future__ import annotations

import time
from pathlib import Path

from tests.kit.broker import Broker
from tests.kit.brokerpair import BrokerPair
from tests.kit.kvsoak import KvCampaign

SWITCHED = "master switched"
STAY_SECONDS = 1.0


class SwitchCampaign(KvCampaign):
    """A campaign whose broker is ``pair``. ``switched_ns``: when each switch was over, by the clock of the history."""

    def __init__(self, work: Path, pair: BrokerPair, seed: int) -> None:
        self.pair = pair
        found = {"kv.namesrv": pair.master.name_server.address, "source.broker": pair.master.name}
        super().__init__(work, pair.slave, seed, **found)
        self.switched_ns: list[int] = []
        self._actions[SWITCHED] = (1, self.switch)

    @property
    def broker(self) -> Broker:
        """Who is the master now."""
        return self.pair.master

    @broker.setter
    def broker(self, given: Broker) -> None:
        """Known by the pair."""

    def _begin(self) -> None:
        super()._begin()
        self.pair.create_topic("KV_" + self.namespace, queues=1)

    def kill_broker(self) -> None:
        """kill -9 of the master, and start: the slave follows it again some seconds later."""
        super().kill_broker()
        self.pair.wait_in_sync()

    def switch(self) -> None:
        """kill -9 of the master; its slave is the master from then on, and it comes back as the slave."""
        self.pair.fail()
        self.rest(self.chance.random() * 0.5)
        self.pair.promote()
        self.pair.rejoin()
        self.switched_ns.append(time.monotonic_ns())
        self.rest(STAY_SECONDS)
        for view in self.views:
            view.kill()
            view.beside(self.pair.slave)
            view.start()
