"""What a way of keeping an archive costs a month: arithmetic only.

The archive is in its steady state: every day as much comes as retention takes away. ``Load`` says what a day is made of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.settings import MIB
from tiered.text.prices import Price
from tiered_spark.groups import GROUP_BYTES

DAYS_A_MONTH = 365 / 12

FRESH_DAYS = 1.0
"""How long objects stay after they were merged: the archive's grace."""

COMMIT_DAYS = 7.0
"""How long commits stay after their data was merged: the archive's commit retention."""

PART_BYTES = 64 * MIB
"""Larger objects go up in parts of this size, each a request, with one to begin and one to end."""

Lengths = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Load:
    """A day's archiving. Bytes: ``raw`` of records, ``blocks`` as stored, ``tables`` of the objects around them. ``puts``:
    requests that write; ``gets``: requests of one reading of it all as it was written. ``data`` and ``commits``: lengths of
    objects, of which ``data_a_day`` and ``commits_a_day`` times their number are written a day. ``standing``: bytes of
    checkpoints, which do not grow by the day."""

    raw: float
    blocks: float
    tables: float
    puts: float
    gets: float
    data: Lengths
    data_a_day: float
    commits: Lengths
    commits_a_day: float
    standing: float = 0.0

    def data_billed(self, minimum: float, scale: float = 1.0) -> float:
        """Bytes of a day's objects, none charged as less than ``minimum``, if all were ``scale`` times as long."""
        return float(np.maximum(self.data * scale, minimum).sum()) * self.data_a_day

    def commits_billed(self, minimum: float, scale: float = 1.0) -> float:
        """The same of commits."""
        return float(np.maximum(self.commits * scale, minimum).sum()) * self.commits_a_day

    def scale(self, factor: float) -> float:
        """How much longer objects are when blocks are ``factor`` times as long."""
        whole = self.data_billed(0) + self.commits_billed(0)
        return 1.0 + self.blocks * (factor - 1) / whole if whole else 1.0


@dataclass(frozen=True, slots=True)
class Scenario:
    """A choice: days kept, size of merged objects (``None``: as they were written), codec, and how much longer its blocks are
    than those of now."""

    days: float
    merge_bytes: int | None = None
    codec: str = "now"
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Cost:
    """A month of it: bytes in the bucket, requests, and what they cost by kind."""

    stored: float
    puts: float
    gets: float
    storage_cost: float
    put_cost: float
    get_cost: float
    retrieval_cost: float
    egress_cost: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.storage_cost + self.put_cost + self.get_cost + self.retrieval_cost + self.egress_cost


def month(load: Load, scenario: Scenario, price: Price, *, reads: float, leaves: bool) -> Cost:
    """``reads``: how often a month all records are read; ``leaves``: whether what is read leaves the region."""
    least, days = price.minimum_object_bytes, max(scenario.days, price.minimum_days)
    blocks = load.blocks * scenario.factor
    puts, gets = load.puts * DAYS_A_MONTH, reads * load.gets * scenario.days
    read = reads * blocks * scenario.days
    retrieved = read
    scale = load.scale(scenario.factor)
    if scenario.merge_bytes is None:
        stored = (load.data_billed(0, scale) + load.commits_billed(0, scale)) * scenario.days + load.standing
        billed = (load.data_billed(least, scale) + load.commits_billed(least, scale)) * days + load.standing
    else:
        size = scenario.merge_bytes
        merged = (blocks + load.tables) / size  # objects a day
        fresh, logged = min(scenario.days, FRESH_DAYS), min(scenario.days, COMMIT_DAYS)
        stored = (
            merged * size * scenario.days
            + load.data_billed(0) * fresh
            + load.commits_billed(0) * logged
            + load.standing
        )
        billed = (
            merged * max(size, least) * days + load.data_billed(least) * max(fresh, price.minimum_days)
            + load.commits_billed(least) * max(logged, price.minimum_days) + load.standing
        )  # fmt: skip
        puts += merged * (1 if size <= PART_BYTES else math.ceil(size / PART_BYTES) + 2) * DAYS_A_MONTH
        each = 1 + math.ceil(load.raw / merged / GROUP_BYTES) if merged else 0
        gets = reads * merged * each * scenario.days + load.gets * DAYS_A_MONTH
        retrieved += load.blocks * DAYS_A_MONTH
    gb = price.bytes_per_gb
    return Cost(
        stored, puts, gets, billed / gb * price.storage_gb_month, puts / 1000 * price.put_per_1000,
        gets / 1000 * price.get_per_1000, retrieved / gb * price.retrieval_gb, read / gb * price.egress_gb if leaves else 0.0,
    )  # fmt: skip


def assumptions(scenarios: Sequence[Scenario], *, reads: float, leaves: bool) -> list[str]:
    """What the figures take for granted, one sentence each."""
    found = [
        f"Steady state: as much comes every day as retention takes away. A month has {DAYS_A_MONTH:.2f} days.",
        f"All records are read {reads:g} times a month: one request for each object's block table, and one for every "
        f"{GROUP_BYTES // MIB} MiB of records; requests to open the archive are left out.",
        "What is read leaves the store's region."
        if leaves
        else "What is read stays in the store's region; nothing for egress.",
        "Deleting is free. Free tiers, discounts by volume, taxes and moves between classes are left out.",
        "Nothing is kept longer than retention says; what a store charges for at least, in time and size, is charged.",
    ]
    if any(s.merge_bytes is not None for s in scenarios):
        found.append(
            f"Merged: every byte is read and written once more; objects stay {FRESH_DAYS:g} day and commits "
            f"{COMMIT_DAYS:g} days after that; larger objects go up in parts of {PART_BYTES // MIB} MiB."
        )
    if any(s.codec != "now" for s in scenarios):
        found.append(
            "Other codecs: blocks shrink or grow as those of the sample did; tables stay as they are."
        )
    return found
