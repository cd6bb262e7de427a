"""Two gateways on one machine: the second says which of its addresses is taken, by that address' own setting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from tiered.clock import SystemClock
from tiered.daemon.config import load
from tiered.daemon.gateway import GatewayProcess
from tiered.daemon.notify import Notifier
from tiered.errors import Invalid
from tiered.gateway.ports import Answering
from tiered.gateway.transport.fronts import BROKER, Front, Lobby
from tiered.gateway.transport.limits import ByteBudget, Seats, Sparse, Traffic
from tiered.gateway.transport.side import Shared
from tiered.gateway.transport.upstream import Upstream
from tiered.metrics import Metrics
from tiered.settings import Gateway


@pytest.fixture
def taken() -> Iterator[str]:
    """An address where somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield "{}:{}".format(*listener.getsockname())


def started(directory: Path, **gateway: str) -> None:
    """Open and serve, which ends by an error: something must stand in the way."""
    own = {
        "namesrv_upstream": "127.0.0.1:1",
        "namesrv_listen": "127.0.0.1:0",
        "web_listen": "127.0.0.1:0",
        "broker_listen_ports": "0",
    }
    sets = {"archive.url": f"file://{directory}/archive", "state.directory": str(directory / "state")}
    sets |= {f"gateway.{name}": value for name, value in (own | gateway).items()}
    process = GatewayProcess(load(None, {}, sets).settings, SystemClock(), Metrics(), Notifier(None))
    with ExitStack() as stack:
        process.open(stack)
        asyncio.run(process.serve())


@pytest.mark.parametrize("name", ["web_listen", "http_listen", "namesrv_listen"])
def test_a_taken_address_is_named_by_its_own_setting(tmp_path: Path, taken: str, name: str) -> None:
    with pytest.raises(Invalid) as caught:
        started(tmp_path, **{name: taken})
    assert caught.value.fields["key"] == f"gateway.{name}"
    assert taken in str(caught.value)
    assert f"gateway.{name}" in caught.value.hint
    assert " web.port" not in str(caught.value)


def test_an_address_of_another_machine_is_named_too(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        started(tmp_path, web_listen="203.0.113.7:1")
    assert caught.value.fields["key"] == "gateway.web_listen"


class Untold(asyncio.Transport):
    """As uvloop's transports are whose making was cancelled: closed, and nobody hears of it."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class NeverMade(Upstream):
    """Its connections are there, and their making is still under way when the gateway stops."""

    def __init__(self) -> None:
        super().__init__([], None)
        self.asked = asyncio.Event()

    async def connect(self, factory: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        factory().connection_made(Untold())
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError


class NoAnswers:
    """Nothing is looked at."""

    codes = own = notices = frozenset[int]()

    def closed(self, connection: Any) -> None:
        pass


def test_a_front_ends_though_a_connection_that_was_being_made_never_says_that_it_is_gone() -> None:
    async def run() -> None:
        metrics, clock, upstream = Metrics(), SystemClock(), NeverMade()
        shared = Shared(Gateway(), clock, metrics, Traffic(), ByteBudget(1 << 20), Sparse())
        answers = cast(Answering, NoAnswers())
        front = Front(Lobby(shared, Seats(4), None), BROKER, "10.0.0.1:1", upstream, answers)
        front.listen("127.0.0.1", 0)
        with socket.create_connection(("127.0.0.1", front.port)):
            async with asyncio.timeout(10):
                await upstream.asked.wait()
            (session,) = front.sessions
            async with asyncio.timeout(10):
                await front.close()
            assert session.upstream.open
            assert not session.gone.is_set()

    asyncio.run(run())
