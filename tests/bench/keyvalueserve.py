"""The key-value view as its clients meet it: gets over HTTP, puts to a real broker beside the broker's own sends."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.bench.keyvalue import BATCH, NAMESPACE, pair
from tests.bench.keyvalueclient import WARMING
from tests.bench.run import Row, expect
from tests.kit import cache
from tests.kit.broker import Broker, NameServer
from tests.kit.brokerlog import BrokerLog
from tests.kit.kvproc import ViewProcess
from tiered.broker.client import Dial, RemotingClient
from tiered.broker.send import NEW_MESSAGE, Sending, properties_text
from tiered.clock import SystemClock
from tiered.daemon.keyvalue import STAMP, open_view
from tiered.feed.base import FeedPosition
from tiered.keyvalue import ALWAYS, KeyValues
from tiered.metadata.open import open_redo
from tiered.metrics import Metrics
from tiered.model import PhysicalOffset
from tiered.settings import MIB, Settings
from tiered.view.layout import namespace_key
from tiered.view.operation import PUT, properties_of
from tiered.view.putting import GROUP
from tiered.view.redo import NamespaceState

CLIENTS = 16
WRITERS = 4
VALUE = bytes(range(100))
PAUSE_SECONDS = 0.005
CACHE_BYTES = 256 * MIB


class _Nowhere:
    """A store that no broker writes any more."""

    def __init__(self, store_dir: Path) -> None:
        self.store_dir = store_dir
        self.address = "127.0.0.1:1"


def http_gets(work: Path, keys: int, count: int) -> list[Row]:
    """``count`` gets by each of the clients, from a view in a process of its own."""
    view = ViewProcess(work, _Nowhere(_quiet_log(work)), "view", anew=True)
    _filled(view.state, keys)
    view.start()
    try:
        rows = []
        for pause in (0.02, 0.0):
            bare, _ = _asked(view.address, keys, count, pause, "/v1/kv")
            taken, rate = _asked(view.address, keys, count, pause)
            how = f"with pauses of {pause * 1000:.0f} ms" if pause else "without pause"
            rows.append(
                Row(
                    f"get over HTTP among {keys:,} keys, {CLIENTS} clients {how}: p50 / p99 / p99.9",
                    f"{_told(taken)} ms, {rate:,.0f}/s",
                    f"{_told(bare)} ms, a page that needs no store",
                    f"{_late(taken) / _late(bare):.2f} of p99",
                    "p99 ≤ 3 ms" if pause else "report",
                )
            )
        return rows
    finally:
        view.end()


def _quiet_log(work: Path) -> Path:
    log = BrokerLog(work / "store")
    log.append(b"of another topic")
    return log.store


def _filled(state: Path, keys: int) -> None:
    """A view's store with so many keys of a namespace, as redo would have left it."""
    state.mkdir(parents=True)
    store = open_redo("rocksdb", state, CACHE_BYTES, stamp=STAMP, map_bytes=1, read_one_by_one=True)

    def batches() -> Iterator[list[tuple[bytes, bytes]]]:
        for low in range(0, keys, BATCH):
            yield [pair(number) for number in range(low, min(keys, low + BATCH))]
        yield [(namespace_key(NAMESPACE), NamespaceState(keys).encode())]

    store.load(batches(), applied=FeedPosition(PhysicalOffset(0)).encode())
    store.close()


def _asked(address: str, keys: int, count: int, pause: float, page: str = "") -> tuple[list[float], float]:
    """Seconds of each answer, and answers a second."""
    command = [sys.executable, "-m", "tests.bench.keyvalueclient", address]
    command += [*map(str, (keys, CLIENTS, count, pause)), *([page] if page else [])]
    found = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    expect(len(found["taken"]), CLIENTS * count, "answers came")
    return found["taken"], CLIENTS * (count + WARMING) / found["seconds"]


def _late(taken: list[float]) -> float:
    return float(np.percentile(taken, 99))


def _told(taken: list[float]) -> str:
    return " / ".join(f"{value * 1000:.2f}" for value in np.percentile(taken, (50, 99, 99.9)))


def puts(work: Path, count: int) -> list[Row]:
    """The same messages sent by the broker's own protocol and put into a view in this process, in turn; then, with that view
    gone, sent and put over HTTP into one of another process."""
    version, clock = cache.ROCKETMQ_5, SystemClock()
    with (
        NameServer(version, work / "namesrv") as server,
        Broker(version, work / "broker", server, mappedFileSizeCommitLog=1 << 26) as broker,
        ExitStack() as stack,
    ):
        broker.create_topic("KV_" + NAMESPACE, queues=1)
        send = _sending(stack, broker, clock)
        with _local(work / "local", broker, clock) as local:
            inside = _in_turn({"send": send, "put": lambda number: _put(local, number)}, count)
        view = ViewProcess(work, broker, "view", anew=True).start()
        stack.callback(view.end)
        over = view.values()
        outside = _in_turn({"send": send, "put": lambda number: _put(over, number)}, count)
        return [
            Row(
                f"put → answered, {where}, {WRITERS} writers: p50 / p99 / p99.9",
                f"{_told(taken['put'])} ms",
                f"{_told(taken['send'])} ms, the broker's own send",
                f"p50 + {_more(taken['put'], taken['send'], 50)}, p99 + {_more(taken['put'], taken['send'], 99)} ms",
                "p99 + ≤ 5 ms",
            )
            for taken, where in ((inside, "view in the process"), (outside, "over HTTP"))
        ]


def _in_turn(ways: dict[str, Callable[[int], None]], count: int) -> dict[str, list[float]]:
    """Seconds of each call of each way; the first of five turns warms up."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(5):
        for name, way in ways.items():
            found = _by_writers(way, count // 5, turn)
            taken[name] += found if turn else []
    return taken


def _more(taken: list[float], baseline: list[float], percent: float) -> str:
    return f"{(np.percentile(taken, percent) - np.percentile(baseline, percent)) * 1000:.2f}"


def _put(values: KeyValues, number: int) -> None:
    expect(values.put(NAMESPACE, b"%012d" % number, VALUE).applied, True, "put")


def _sending(stack: ExitStack, broker: Broker, clock: SystemClock) -> Callable[[int], None]:
    own = threading.local()

    def send(number: int) -> None:
        client: RemotingClient | None = getattr(own, "client", None)
        if client is None:
            client = own.client = RemotingClient(broker.address, clock, Dial())
            stack.callback(client.close)
        told = properties_of(PUT, b"%012d" % number, f"{time.time_ns():032X}", ALWAYS, None)
        text = properties_text(told, NEW_MESSAGE)
        sending = Sending("KV_" + NAMESPACE, 0, VALUE, text, GROUP, born_ms=clock.now_ms(), queues_if_new=1)
        [answer] = client.ask_all([sending.request()])
        expect(-1 if answer is None else answer.code, 0, "is the answer")

    return send


def _by_writers(way: Callable[[int], None], count: int, turn: int) -> list[float]:
    """Seconds of each call."""

    def writer(number: int) -> list[float]:
        taken = []
        for place in range(count // WRITERS):
            key = (turn * WRITERS + number) * count + place
            started = time.perf_counter()
            way(key)
            taken.append(time.perf_counter() - started)
            time.sleep(PAUSE_SECONDS)
        return taken

    with ThreadPoolExecutor(WRITERS) as pool:
        return [each for some in pool.map(writer, range(WRITERS)) for each in some]


@contextmanager
def _local(state: Path, broker: Broker, clock: SystemClock) -> Iterator[KeyValues]:
    """A view of this process, beside a broker."""
    state.mkdir()
    base = Settings()
    settings = replace(
        base,
        source=replace(base.source, store_dir=str(broker.store_dir)),
        kv=replace(base.kv, broker_address=broker.address),
    )
    with ExitStack() as stack:
        opened = open_view(stack, settings, clock, Metrics(), state, threading.Event())
        opened.redo.start()
        try:
            yield opened.view
        finally:
            opened.redo.stop(drain=True)
            opened.redo.join(30)
