"""The gateway's own calls to a broker that asks for rights."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tiered.codec.remoting.frame import Command
from tiered.codec.remoting.signing import Credentials, signature
from tiered.daemon.gateway import GatewayProcess

KEYS = Credentials("who", "secret")


@pytest.mark.parametrize("keys", [None, KEYS], ids=["nobody's", "signed"])
def test_they_are_signed_and_otherwise_as_they_were(keys: Credentials | None) -> None:
    asked: list[tuple[str, Command, float]] = []

    async def ask(address: str, request: Command, seconds: float) -> Command:
        asked.append((address, request, seconds))
        return Command(0)

    process = SimpleNamespace(_keys=keys, _app=SimpleNamespace(brokers=SimpleNamespace(ask=ask)))
    request = Command(30, 7, ext={"topic": "T", "queueId": "3"}, body=b"b", version=513)
    answer = asyncio.run(GatewayProcess._ask(cast(Any, process), "b:1", request, 2.0))
    assert answer == Command(0)
    more = {} if keys is None else signature(KEYS, request.ext, b"b")
    assert (len(more) == 2) is (keys is not None)
    assert asked == [("b:1", Command(30, 7, ext={**request.ext, **more}, body=b"b", version=513), 2.0)]
    assert request.ext == {"topic": "T", "queueId": "3"}
