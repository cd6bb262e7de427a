"""Two gateways on one machine: the second says which of its addresses is taken, by that address' own setting."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tiered.clock import SystemClock
from tiered.daemon.config import load
from tiered.daemon.gateway import GatewayProcess
from tiered.daemon.notify import Notifier
from tiered.errors import Invalid
from tiered.metrics import Metrics


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
