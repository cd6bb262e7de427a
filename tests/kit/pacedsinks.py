"""A kind of sink that another package brings: it takes messages at a pace that its order says, and keeps nothing.

``with_paced(directory)`` is an environment in which programs know it, by an entry point as an installed package has one.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from tiered.sink.base import Accepted, SafePoint, SinkBatch, SinkPosition
from tiered.sink.kinds import REGISTERED, SinkPlace
from tiered.sink.optionvalues import known_options, number_of
from tiered.sink.order import SinkOrder

KIND = "paced"


class PacedSink:
    """``per_second``: messages that it takes; 0: at once."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second

    def position(self) -> SinkPosition | None:
        return None

    def write(self, batch: SinkBatch) -> Accepted:
        if self._per_second:
            time.sleep(len(batch.rows) / self._per_second)
        return Accepted(len(batch.rows))

    def flush(self, position: SinkPosition) -> SafePoint:
        return SafePoint(position)

    def close(self) -> None: ...


class PacedKind:
    """Its one option: ``per_second``."""

    def check(self, order: SinkOrder) -> None:
        known_options(order, ("per_second",))
        self._per_second(order)

    def open(self, order: SinkOrder, place: SinkPlace) -> PacedSink:
        return PacedSink(self._per_second(order))

    @staticmethod
    def _per_second(order: SinkOrder) -> int:
        return number_of(order, "per_second", 0, least=0, most=1_000_000)


def with_paced(directory: Path) -> dict[str, str]:
    """Makes what an installation leaves behind, in ``directory``; what a program's environment needs for it."""
    installed = directory / "paced-1.dist-info"
    installed.mkdir(parents=True)
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: paced\nVersion: 1\n")
    place = f"{PacedKind.__module__}:{PacedKind.__name__}"
    (installed / "entry_points.txt").write_text(f"[{REGISTERED}]\n{KIND} = {place}\n")
    places = str(directory), str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, places))}
