"""Where messages go that a destination refuses for good, if its order says so: objects that are never changed."""

from __future__ import annotations

from collections.abc import Iterator

from tiered.clock import SystemClock
from tiered.errors import Conflict, Invalid
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.settings import Store
from tiered.sink.order import SinkOrder
from tiered.text.references import resolve


class DeadLetters:
    """Below ``NAME/dead-letters/`` of a store. Errors are the store's: a message that cannot be put there either is not left
    behind. ``buried``: how many messages went there."""

    def __init__(self, provider: Provider, sink: str) -> None:
        self._provider = provider
        self._sink = sink
        self.buried = 0

    def bury(self, name: str, lines: bytes, messages: int) -> None:
        """Put so many messages, lines of JSON, under a name that says which they are: given again, they are there once."""
        key = f"{self._sink}/dead-letters/{name}.ndjson"
        try:
            self._provider.put(key, [lines])
        except Conflict:
            if bytes(self._provider.get(key).data) != lines:
                raise
        self.buried += messages

    def all(self) -> Iterator[bytes]:
        """The lines of each name that is there."""
        for stored in self._provider.list(f"{self._sink}/dead-letters/"):
            yield bytes(self._provider.get(stored.key).data)

    def close(self) -> None:
        """Close the store."""
        self._provider.close()


def dead_letters_of(order: SinkOrder, *, make: bool = False) -> DeadLetters | None:
    """Those of the option ``dead_letters``, a location; ``None`` without it. ``make``: also its directory. ``Invalid``."""
    location = order.options.get("dead_letters")
    if location is None:
        return None
    try:
        provider = open_provider(resolve(location), Store(), SystemClock())
    except Invalid as error:
        said = error.message.replace("archive.url", "options.dead_letters")
        raise Invalid(said, hint=error.hint, **error.fields) from error
    if make and provider.capabilities.root is not None:
        provider.capabilities.root.create_root()
    return DeadLetters(provider, order.name)
