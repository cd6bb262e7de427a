"""Whether a broker asks for rights, by what it says of its own configuration.

A read node judges nobody, so consumers may be sent there only where the broker judges nobody either. What is not known is taken
for a broker that asks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable

from tiered.broker.questions import properties
from tiered.codec.remoting.codes import RequestCode, ResponseCode
from tiered.codec.remoting.frame import Command
from tiered.errors import TieredError
from tiered.gateway.knowledge.questions import ASK_SECONDS, Ask
from tiered.gateway.ports import ConnectionInfo, clipped

log = logging.getLogger("tiered.gateway")

LOOK_SECONDS = 5.0
"""Between two looks: a broker is started again to ask for rights."""

SWITCHES = ("aclEnable", "authenticationEnabled", "authorizationEnabled")
"""Settings of brokers of 4.x and 5.x (the first), and of 5.3 and newer, that make them ask for rights."""


class OpenBroker:
    """``problem``: why nobody may be sent past the broker, ``None``: it lets everybody read. On the event loop; ``problem`` may
    be read from any thread."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.problem: str | None = "the broker was not asked yet whether it asks for rights"

    async def watch(self, brokers: Callable[[], Iterable[ConnectionInfo]]) -> None:
        """Look for ever at all addresses of the archived broker."""
        while True:
            await self.look([connection.broker_address for connection in brokers()])
            await asyncio.sleep(LOOK_SECONDS if self.problem is None else LOOK_SECONDS / 5)

    async def look(self, addresses: Collection[str]) -> None:
        """Ask each of ``addresses`` once; said in the log when it changes."""
        found = "no address of the archived broker is known" if not addresses else None
        for address in addresses:
            found = found or await self._why_closed(address)
        if found != self.problem:
            if found is None:
                log.info("the broker asks nobody for rights: routes may name read nodes")
            else:
                log.warning("routes name no read nodes: %s", found)
        self.problem = found

    async def _why_closed(self, address: str) -> str | None:
        try:
            answer = await self._ask(address, Command(RequestCode.GET_BROKER_CONFIG), ASK_SECONDS)
        except (TieredError, KeyError) as error:
            return f"the broker does not say whether it asks for rights: {error}"
        if answer.code != ResponseCode.SUCCESS:
            said = clipped(answer.remark or "")
            return f"the broker refuses to say whether it asks for rights (code {answer.code}): {said}"
        return why_closed(bytes(answer.body))


def why_closed(configuration: bytes) -> str | None:
    """Why a broker with this ``configuration``, lines of key=value, is not open to all; ``None``: it is."""
    said = {key: value for key, value in properties(configuration).items() if key in SWITCHES}
    on = sorted(key for key, value in said.items() if value.lower() != "false")
    if on:
        return f"the broker asks for rights ({', '.join(on)}), and a read node judges nobody's"
    return (
        None if said else "the broker does not say whether it asks for rights: it knows none of its settings"
    )
