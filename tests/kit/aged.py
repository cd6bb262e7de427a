"""Archives at every stage of ageing, of the same messages: what reads an archive must not notice which of them it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import count
from pathlib import Path
from typing import Any

from tests.kit.archiveedits import Edits
from tests.kit.encryption import encrypting
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.merging import merge_all, spread
from tests.kit.readstore import Cold, cold
from tests.kit.sealing import HOUR_MS, MIDNIGHT_MS, after_midnight, seal_all
from tiered.codec.record.message import Message
from tiered.provider.posix import PosixProvider
from tiered.provider.resolve import create_root
from tiered.settings import ONE_DAY_MS

TRIMMED_OFFSET = 5
"""Where ``ORDERS`` begins at the stage of that name."""


class Stage(Enum):
    """``FRESH``: level 0. ``MERGED``: level 1. ``SEALED``: level 2, two days. ``MIXED``: the first day sealed, of the second
    some merged and some fresh. ``TRIMMED``: the same, and ``ORDERS`` begins inside a sealed run. ``ENCRYPTED``: some merged,
    some fresh, all encrypted."""

    FRESH = "fresh"
    MERGED = "merged"
    SEALED = "sealed"
    MIXED = "mixed"
    TRIMMED = "trimmed"
    ENCRYPTED = "encrypted"


EVERY_STAGE = (Stage.FRESH, Stage.MERGED, Stage.SEALED, Stage.MIXED)
"""Of an archive from which nothing was trimmed."""

BAND_BYTES = 1500
"""Row groups of sealed files then have several bands."""

READABLE = (*EVERY_STAGE, Stage.ENCRYPTED)
"""The same, and one that is encrypted: for who reads through a provider that decrypts."""


@contextmanager
def aged_cold(directory: Path, stage: Stage, **options: Any) -> Iterator[Cold]:
    """``readstore.cold`` whose archive ages as it grows: whatever is archived is merged or sealed at once, or, ``MIXED``, one
    flush is sealed, the next merged, the next left as it is; ``ENCRYPTED``, every other one is merged."""
    flushes = count()
    if stage is Stage.ENCRYPTED:
        options["over"] = encrypting

    def ageing(made: Cold) -> None:
        number = next(flushes)
        turns = {Stage.SEALED: 0, Stage.MERGED: 1, Stage.MIXED: number % 3, Stage.ENCRYPTED: 1 + number % 2}
        turn = turns.get(stage, 2)
        if turn == 0:
            made.clock.set_wall(max(made.clock.now_ms(), made.broker.time_ms + 2 * ONE_DAY_MS))
            seal_all(made.daemon, band_bytes=BAND_BYTES)
        elif turn == 1:
            merge_all(made.daemon)

    with cold(directory, **options) as made:
        made.ageing = ageing
        yield made


def age(made: Scene, stage: Stage, *, seed: int = 1) -> None:
    """Archive messages of two days in several queues (tags, keys, inner batches, half messages), and let them age. The messages
    are the same for every stage; ``made.broker.sent`` has them all."""
    for number in range(8):  # three flushes before midnight, the rest behind it
        made.broker.time_ms = MIDNIGHT_MS + (number - 3) * HOUR_MS // 2
        if number == 6 and stage is not Stage.FRESH:
            merge_all(made.daemon)
        spread(made, 1, seed=seed + number)
    if stage is Stage.FRESH:
        return
    if stage in (Stage.MERGED, Stage.SEALED):
        merge_all(made.daemon)
    if stage is Stage.SEALED:
        after_midnight(made, days=2)
        seal_all(made.daemon, band_bytes=BAND_BYTES)
    if stage in (Stage.MIXED, Stage.TRIMMED):
        after_midnight(made)
        seal_all(made.daemon)
    if stage is Stage.TRIMMED:
        Edits(made).trim(ORDERS, TRIMMED_OFFSET)


def aged_directory(
    directory: Path, stage: Stage, *, seed: int = 1
) -> tuple[str, list[tuple[Message, bytes]]]:
    """``age``, as an archive in a directory: its URL, and every message that was sent, with its record."""
    with scene(directory / "made") as made:
        age(made, stage, seed=seed)
        return saved(made, directory / "archive"), list(made.broker.sent)


def saved(made: Scene, directory: Path) -> str:
    """A copy of every object of an archive in a directory; its URL."""
    provider = PosixProvider(str(directory), made.clock)
    create_root(provider)
    for stored in made.provider.list(""):
        provider.put(stored.key, [made.provider.get(stored.key).data])
    provider.close()
    return f"file://{directory}"
