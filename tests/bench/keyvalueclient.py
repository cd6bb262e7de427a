"""Clients of a key-value view, a process of their own: ``python -m tests.bench.keyvalueclient ADDRESS KEYS CLIENTS COUNT PAUSE
[PATH]`` asks over HTTP for keys at random, or for one page, and prints the seconds of each answer as JSON.

PAUSE is the mean of pauses that chance draws, in seconds."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from typing import cast

import uvloop

WARMING = 200
NAMESPACE = "bench"


class Asking(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._seen = bytearray()
        self._answered: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Connected."""
        self._transport = cast("asyncio.Transport", transport)

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        """Send; the answer is its status line and what follows."""
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answered

    def data_received(self, data: bytes) -> None:
        """Whole once the body is there."""
        self._seen += data
        end = self._seen.find(b"\r\n\r\n")
        if end < 0:
            return
        at = self._seen.lower().index(b"content-length:") + 15
        length = int(self._seen[at : self._seen.index(b"\r\n", at)])
        if len(self._seen) >= end + 4 + length and self._answered is not None:
            self._answered.set_result(bytes(self._seen))
            self._seen.clear()


async def client(address: str, number: int, keys: int, count: int, pause: float, page: str) -> list[float]:
    """Seconds of each answer, the first ones left out."""
    host, _, port = address.partition(":")
    draw, taken = random.Random(number), []
    _, asking = await asyncio.get_running_loop().create_connection(Asking, host, int(port))
    for turn in range(WARMING + count):
        path = page or f"/v1/kv/{NAMESPACE}/{draw.randrange(keys):012d}"
        request = f"GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n".encode()
        started = time.perf_counter()
        answer = await asking.ask(request)
        if turn >= WARMING:
            taken.append(time.perf_counter() - started)
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(answer[:300].decode())
        if pause:
            await asyncio.sleep(pause * draw.uniform(0.5, 1.5))  # all alike they would come all at once
    return taken


async def main(address: str, keys: int, clients: int, count: int, pause: float, page: str) -> None:
    """All of them at once."""
    started = time.perf_counter()
    found = await asyncio.gather(*(client(address, n, keys, count, pause, page) for n in range(clients)))
    seconds = time.perf_counter() - started
    print(json.dumps({"taken": [each for some in found for each in some], "seconds": seconds}))


if __name__ == "__main__":
    given = sys.argv[1:]
    uvloop.run(
        main(
            given[0],
            int(given[1]),
            int(given[2]),
            int(given[3]),
            float(given[4]),
            given[5] if given[5:] else "",
        )
    )
