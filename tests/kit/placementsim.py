"""Days of loads, recorded and made up, and what becomes of nodes under each way to place queues.

A step is an hour; each series is seeded. In each step the placer sees what was, places, and is judged by what then comes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.kit.assemble import assemble, memory
from tests.kit.pipeline import Crafted
from tiered.clock import ManualClock
from tiered.gateway.nodes.placement import ranked
from tiered.model import MessageQueue
from tiered.placement.assign import assign, imbalance
from tiered.placement.forecast import Forecaster
from tiered.placement.history import HOUR_MS, LoadHistory, Loads, load_history
from tiered.placement.readloads import FORGOTTEN, STEPS_AN_HOUR, node_loads

HOURS = 24
DAYS = 10
WARM_STEPS = 3 * HOURS
"""Steps that are not judged: nobody knows anything yet."""


@dataclass(frozen=True, slots=True)
class Balance:
    """Fullest node over the mean, by hour: its mean and its 95th percentile; ``moved``: load that changed its node, of all."""

    mean: float
    high: float
    moved: float
    floor: float = 1.0
    """What no way can be below on average: the largest queue alone is more than a node's part."""


def zipf_days(queues: int, seed: int, *, diurnal: float = 0.0, noise: float = 0.3) -> Loads:
    """Loads by Zipf's law; ``diurnal``: how far each swings over the day, at an hour of its own; ``noise``: of each hour."""
    drawn = np.random.default_rng(seed)
    size = 1e9 / np.arange(1, queues + 1) ** 0.9
    drawn.shuffle(size)
    steps = np.arange(DAYS * HOURS)
    peak = drawn.integers(0, HOURS, queues)[:, None]
    wave = 1 + diurnal * np.cos(2 * np.pi * (steps[None, :] - peak) / HOURS)
    return np.asarray(size[:, None] * wave * drawn.lognormal(0.0, noise, (queues, len(steps))))


def flash_crowds(queues: int, seed: int) -> Loads:
    """Beside days as above: every ten hours some queue has fifty times its load, for six hours, up and down."""
    loads = zipf_days(queues, seed, diurnal=0.5)
    drawn = np.random.default_rng(seed + 1)
    for begin in range(5, loads.shape[1] - 6, 10):
        loads[drawn.integers(queues), begin : begin + 6] *= np.array([10, 30, 50, 50, 25, 8])
    return loads


def new_topics(queues: int, seed: int) -> Loads:
    """Beside days as above: half of the queues begin one after the other, and grow over a day to their size."""
    loads = zipf_days(queues, seed, diurnal=0.6)
    drawn = np.random.default_rng(seed + 2)
    for queue in range(0, queues, 2):
        begin = int(drawn.integers(HOURS, loads.shape[1]))
        grown = np.clip((np.arange(loads.shape[1]) - begin + 1) / HOURS, 0, 1)
        loads[queue] *= grown
    return loads


def batch_jobs(queues: int, seed: int) -> Loads:
    """Half of the queues are written to for two hours a day, always the same ones, and quiet else."""
    loads = zipf_days(queues, seed, diurnal=0.3)
    drawn = np.random.default_rng(seed + 3)
    for queue in range(0, queues, 2):
        at = int(drawn.integers(HOURS))
        on = ((np.arange(loads.shape[1]) - at) % HOURS) < 2
        loads[queue] *= np.where(on, 12.0, 0.02)
    return loads


def backlogs(queues: int, seed: int) -> tuple[Loads, Loads]:
    """What is written, day and night, and what is read cold: little everywhere, and every other hour some group begins that is
    far behind in a topic, and reads it for 3 to 24 hours."""
    written = zipf_days(queues, seed, diurnal=0.6)
    read = 0.02 * written
    drawn = np.random.default_rng(seed + 4)
    for _ in range(written.shape[1] // 2):
        topic, hours = 8 * int(drawn.integers(queues // 8)), int(drawn.integers(3, 24))
        begin = int(drawn.integers(written.shape[1] - 12))
        uneven = drawn.lognormal(0.0, 0.3, (8, 1))
        read[topic : topic + 8, begin : begin + hours] += drawn.lognormal(np.log(3e7), 1.0) * uneven
    return written, read


def recorded(directory: Path, queues: int = 24) -> LoadHistory:
    """What the archive's own history says: a broker's log of ten short days (hours of 24), archived by the real writer."""
    loads = zipf_days(queues, 11, diurnal=0.7, noise=0.2)
    loads = np.maximum(0, np.round(loads / loads.sum() * 9_000)).astype(int)
    clock = ManualClock()
    broker = Crafted(directory / "store", file_bytes=1 << 22)
    daemon = assemble(broker.store, memory(clock), clock, dispatch={"block_bytes": 4096, "inline_bytes": 0})
    begin = broker.time_ms = broker.time_ms - broker.time_ms % HOUR_MS + HOUR_MS
    try:
        for step in range(loads.shape[1]):
            broker.time_ms = begin + step * HOUR_MS
            for queue in range(queues):
                for _ in range(int(loads[queue, step])):
                    broker.time_ms += 1
                    broker.send(queue_id=queue, body=b"x" * 200)
            daemon.settle(2.0)
        end = begin + loads.shape[1] * HOUR_MS
        return load_history(daemon.state.runs_all(), end, steps=loads.shape[1])
    finally:
        daemon.close()


def named(queues: int) -> tuple[MessageQueue, ...]:
    """Queues of some topics."""
    return tuple(MessageQueue(f"Topic{number // 8:03}", number % 8) for number in range(queues))


def nodes_of(count: int) -> list[str]:
    """Addresses of read nodes."""
    return [f"10.0.0.{number}:10930" for number in range(1, count + 1)]


def by_hash(names: tuple[MessageQueue, ...], nodes: list[str]) -> dict[MessageQueue, str]:
    """Where hashing puts each queue."""
    return {name: ranked(name, nodes)[0] for name in names}


def run(
    loads: Loads,
    nodes: list[str],
    how: str,
    names: tuple[MessageQueue, ...] = (),
    read: Loads | None = None,
) -> Balance:
    """``how``: ``hash``; ``now``, placed by what each queue had in the hour before; ``forecast``. ``read``: what
    nodes bear, if that is not ``loads``, which are then what is written; nodes tell it, but with ``untold``."""
    names = names or named(len(loads))
    borne = loads if read is None else read
    averages = np.zeros(len(loads))
    hashed = by_hash(names, nodes)
    placed = dict(hashed)
    forecaster = Forecaster(len(names)) if how in ("forecast", "untold") else None
    found, floors, moved, total = list[float](), list[float](), 0.0, 0.0
    ever = np.zeros(len(names), bool)
    for step in range(loads.shape[1] - 1):
        said, coming = borne[:, step], borne[:, step + 1]
        averages += (1 - FORGOTTEN**STEPS_AN_HOUR) * (said - averages)
        if forecaster is not None:
            said = forecaster.see(loads[:, step]).loads
        chosen = placed
        if how != "hash":
            known = {name: float(load) for name, load in zip(names, said, strict=True) if load > 0}
            if how == "forecast" and read is not None:
                known = node_loads(known, dict(zip(names, averages.tolist(), strict=True)))
            before = {name: placed[name] for name, was in zip(names, ever, strict=True) if was}
            chosen = placed | assign(known, dict.fromkeys(nodes, 1), before, ranked)
        ever |= borne[:, step] > 0
        after = dict(zip(names, coming.tolist(), strict=True))
        if step >= WARM_STEPS:
            found.append(imbalance(after, chosen, dict.fromkeys(nodes, 1)))
            moved += sum(load for name, load in after.items() if chosen[name] != placed[name])
            whole = float(coming.sum())
            total += whole
            floors.append(max(1.0, float(coming.max()) * len(nodes) / whole) if whole else 1.0)
        placed = chosen
    return Balance(
        float(np.mean(found)),
        float(np.percentile(found, 95)),
        moved / total,
        float(np.mean(floors)),
    )


DAYS_OF: Mapping[str, Callable[[int], Loads]] = {
    "even days by Zipf": lambda seed: zipf_days(400, seed),
    "day and night": lambda seed: zipf_days(400, seed, diurnal=0.9),
    "jobs of two hours": lambda seed: batch_jobs(400, seed),
    "flash crowds": lambda seed: flash_crowds(400, seed),
    "new topics": lambda seed: new_topics(400, seed),
}
NODES = 8


def rows(directory: Path, hours: int | None = None, seed: int = 5) -> list[tuple[str, dict[str, Balance]]]:
    """Each kind of days, or so many hours of each, under each way; the recorded ones last."""
    days = [(what, made(seed), ()) for what, made in DAYS_OF.items()]
    history = recorded(directory)
    found = []
    for what, whole, names in (*days, ("recorded: an archive's own history", history.loads, history.queues)):
        loads = whole[:, :hours]
        nodes = nodes_of(NODES if len(loads) > 100 else 4)
        ways = {
            "hash": run(loads, nodes, "hash", names=names),
            "now": run(loads, nodes, "now", names=names),
            "forecast": run(loads, nodes, "forecast", names=names),
        }
        found.append((what, ways))
    return found
