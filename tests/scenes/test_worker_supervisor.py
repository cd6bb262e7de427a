"""The process that looks after a gateway's workers: one that stands still, one that ends again and again, and who says so."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.daemonproc import Pages
from tiered.backoff import Backoff
from tiered.clock import SystemClock
from tiered.daemon import gatewayworkers
from tiered.daemon.gatewayworkers import GatewayWorkers
from tiered.daemon.notify import Notifier
from tiered.daemon.portfile import GATEWAY_WEB_PORT_FILE
from tiered.settings import Settings

SILENT_SECONDS, REPORT_SECONDS = 1.5, 0.3
WORKER = """
import asyncio, socket, sys
from tiered.daemon.workerwire import Wire

async def main():
    pair = await asyncio.open_unix_connection(sock=socket.socket(fileno=int(sys.argv[1])))
    report = {"ready": True, "said": "fine", "metrics": "", "status": {}}
    wire = Wire(*pair, lambda message: report if message["op"] == "report" else None, "supervisor")
    taking = asyncio.create_task(wire.run())
    wire.send({"op": "serving"})
    while not taking.done():
        wire.send({"op": "beat"})
        await asyncio.sleep(0.1)

asyncio.run(main())
"""
"""A worker that serves nobody, and says what a worker says."""
OPENING = WORKER.replace('"ready": True, "said": "fine"', '"ready": False, "said": "opening"')
"""One that passes traffic and cannot read the archive yet."""


class Supervised:
    """Of two workers, the first with a program of its own (``first``)."""

    def __init__(self, directory: Path, first: str = WORKER) -> None:
        self.first = first
        whole = Settings()
        gateway = replace(
            whole.gateway,
            workers=2,
            web_listen="127.0.0.1:0",
            namesrv_listen="127.0.0.1:0",
        )
        self.workers = GatewayWorkers(
            replace(whole, gateway=gateway),
            lambda index, descriptor: [
                sys.executable,
                "-c",
                WORKER if index else self.first,
                str(descriptor),
            ],
            dict(os.environ),
            SystemClock(),
            Notifier.from_environment({}),
            SILENT_SECONDS,
        )
        self.directory = directory

    async def meanwhile(self, look: Callable[[], object], seconds: float = 20.0) -> None:
        """Until ``look`` is true; it is called beside the event loop, as the pages are."""
        async with asyncio.timeout(seconds):
            while not await asyncio.to_thread(look):
                await asyncio.sleep(0.02)

    def run(self, steps: Callable[[], Awaitable[None]]) -> None:
        """``steps`` beside the loop that looks after the workers."""

        async def both() -> None:
            served = asyncio.create_task(self.workers.serve(lambda: None))
            try:
                await steps()
            finally:
                self.workers.stopping("the test")
                await served

        with ExitStack() as stack:
            self.workers.open(stack, self.directory)
            asyncio.run(both())

    def pids(self) -> list[int | None]:
        return [None if w.process is None else w.process.pid for w in self.workers.workers]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gatewayworkers, "REPORT_SECONDS", REPORT_SECONDS)


def test_a_worker_that_stands_still_is_told_and_then_killed_and_made_anew(tmp_path: Path) -> None:
    made = Supervised(tmp_path)
    told: list[str] = []

    def told_silent() -> bool:
        told.append(made.workers._ready()[1])
        return "worker 1 does not answer" in told[-1]

    async def steps() -> None:
        await made.meanwhile(lambda: all(worker.serving for worker in made.workers.workers))
        await made.meanwhile(lambda: made.workers._ready() == (True, "worker 0: fine; worker 1: fine"))
        first, second = made.pids()
        assert second is not None
        os.kill(second, signal.SIGSTOP)
        await made.meanwhile(told_silent)
        await made.meanwhile(lambda: not made.workers._live()[0])
        assert made.pids() == [first, second], "not yet"
        await made.meanwhile(lambda: made.pids()[1] not in (None, second))
        await made.meanwhile(lambda: made.workers._ready() == (True, "worker 0: fine; worker 1: fine"))
        assert made.pids()[0] == first

    made.run(steps)


def test_a_worker_that_ends_again_and_again_is_told_and_started_less_and_less_often(tmp_path: Path) -> None:
    made = Supervised(tmp_path, first="raise SystemExit(7)")

    async def steps() -> None:
        await made.meanwhile(lambda: made.workers.workers[0].failures >= 3)
        ready, said = await asyncio.to_thread(made.workers._ready)
        assert ready, "the other one serves"
        assert "worker 0 is missing: exit code 7" in said
        page = (await asyncio.to_thread(made.workers._expose)).decode()
        assert 'tiered_gateway_workers{state="missing"} 1.0' in page
        waits = made.workers.workers[0].next_start - asyncio.get_running_loop().time()
        assert waits > 1.0, "the third pause is longer than the first two together"

    made.run(steps)


class Health(Pages):
    """The pages of the process that looks after the workers."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def port_file(self) -> Path:
        return self._directory / GATEWAY_WEB_PORT_FILE


def test_while_the_first_worker_is_away_the_pages_answer_and_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gatewayworkers, "BACKOFF", Backoff(3600.0, 3600.0))
    made, pages = Supervised(tmp_path), Health(tmp_path)

    async def steps() -> None:
        await made.meanwhile(lambda: pages.ask("/readyz") == (200, b"worker 0: fine; worker 1: fine\n"))
        first, second = made.pids()
        assert first is not None
        os.kill(first, signal.SIGKILL)
        await made.meanwhile(
            lambda: pages.ask("/readyz") == (200, b"worker 0 is missing: signal 9; worker 1: fine\n")
        )
        assert (await asyncio.to_thread(pages.ask, "/healthz"))[0] == 200
        for sample, wanted in (("missing", 1.0), ("there", 1.0)):
            assert (
                await asyncio.to_thread(lambda s=sample: pages.metric("tiered_gateway_workers", state=s))
                == wanted
            )
        assert await asyncio.to_thread(pages.metric, "tiered_gateway_worker_ends_total") == 1.0
        said = await asyncio.to_thread(pages.status)
        assert (said["ready"], said["missing"]) == (True, {"0": "signal 9"})
        assert said["workers"] == {"0": {"pid": None, "status": None}, "1": {"pid": second, "status": {}}}
        made.workers.workers[0].next_start = 0.0
        await made.meanwhile(lambda: pages.ask("/readyz") == (200, b"worker 0: fine; worker 1: fine\n"))
        assert made.pids()[0] not in (None, first)
        assert made.pids()[1] == second

    made.run(steps)


def test_a_worker_that_was_started_again_and_is_not_ready_sends_nobody_away_but_at_first_all_are_waited_for(
    tmp_path: Path,
) -> None:
    made = Supervised(tmp_path, first=OPENING)

    async def steps() -> None:
        await made.meanwhile(lambda: made.workers._ready() == (False, "worker 0: opening; worker 1: fine"))
        first = made.pids()[0]
        assert first is not None
        made.first = WORKER
        os.kill(first, signal.SIGKILL)
        await made.meanwhile(lambda: made.workers._ready() == (True, "worker 0: fine; worker 1: fine"))
        made.first = OPENING
        again = made.pids()[0]
        assert again is not None
        os.kill(again, signal.SIGKILL)
        await made.meanwhile(lambda: made.workers._ready() == (True, "worker 0: opening; worker 1: fine"))

    made.run(steps)
