"""A crafted broker with lite queues, and what each of them must hold: the messages put into it, by their offsets there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kit.pipeline import Crafted
from tests.kit.readstore import Cold, cold
from tiered.codec.record.message import Message

NAMES, OFFSETS = "INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"


class LiteBroker(Crafted):
    """Numbers lite queues on as it numbers queues; after a crash it goes on behind what it still has."""

    def __init__(self, store: Path, file_bytes: int = 1 << 20) -> None:
        super().__init__(store, file_bytes=file_bytes)
        self.numbered: dict[str, int] = {}

    def place(
        self, names: Sequence[str], queue_id: int = 0, more: Mapping[str, str] | None = None, **fields: object
    ) -> Message:
        """Send a message that is in these lite queues, too; ``more``: other properties."""
        properties: dict[str, str] = {"TAGS": f"T{len(self.sent) % 3}", **(more or {})}
        if names:
            offsets = [self.numbered.get(name, 0) for name in names]
            self.numbered |= {name: offset + 1 for name, offset in zip(names, offsets, strict=True)}
            properties |= {NAMES: ",".join(names), OFFSETS: ",".join(map(str, offsets))}
        return self.send(queue_id=queue_id, properties=properties, **fields)  # type: ignore[arg-type]

    def crash(self, offset: int) -> None:
        """Lose everything from ``offset`` on; all offsets go back with it."""
        super().crash(offset)
        self.numbered = {name: max(found) + 1 for name, found in self.placed().items()}

    def placed(self) -> dict[str, dict[int, bytes]]:
        """The records of each lite queue by offset."""
        found: dict[str, dict[int, bytes]] = {}
        for message, raw in self.sent:
            names, offsets = (message.properties.get(key, "") for key in (NAMES, OFFSETS))
            if names:
                for name, offset in zip(names.split(","), offsets.split(","), strict=True):
                    found.setdefault(name, {})[int(offset)] = raw
        return found


def broker_of(scene: Cold) -> LiteBroker:
    """The broker of a scene that ``lite_cold`` made."""
    assert isinstance(scene.broker, LiteBroker)
    return scene.broker


@contextmanager
def lite_cold(directory: Path) -> Iterator[tuple[Cold, LiteBroker]]:
    """An archive that keeps lite queues, and the broker that it is of."""
    with cold(directory, open_now=False, dispatch={"lite_queues": True}) as scene:
        broker = scene.broker = LiteBroker(scene.broker.store)
        yield scene, broker
