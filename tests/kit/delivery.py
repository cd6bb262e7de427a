"""What consumers were handed, compared with what producers were promised: nothing skipped, doubled, reordered or changed.

Both sides are lines of the Java client: a producer's name the queue and offset where the broker put each message, a consumer's
the queue and offset it was handed, in the order in which it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Line = Mapping[str, Any]
Place = tuple[str, int, int]
"""Topic, queue id, queue offset."""

SAME = ("keys", "tags", "unique_key", "msg_id", "offset_msg_id", "body_bytes", "body_crc", "body_sha256")
"""Fields that must be equal on both sides."""

FOR_THE_BROKER = "WAIT"
"""A property that tells the broker how to store the message; one of 4.9 does not keep it."""


def first_from(lines: Iterable[Line], time_ms: int) -> dict[int, int]:
    """Per queue id the first offset of what was stored at ``time_ms`` or later."""
    begin: dict[int, int] = {}
    for line in lines:
        if line["store_timestamp"] >= time_ms:
            queue, offset = line["queue_id"], line["queue_offset"]
            begin[queue] = min(offset, begin.get(queue, offset))
    return begin


@dataclass(frozen=True, slots=True)
class Delivery:
    """The comparison. ``foreign``: handed out and never promised; ``repeated``: more often than once."""

    expected: int
    received: int
    skipped: tuple[Place, ...]
    repeated: tuple[Place, ...]
    disordered: tuple[Place, ...]
    different: tuple[str, ...]
    foreign: tuple[Place, ...]

    @property
    def complete(self) -> bool:
        """Everything came, as it was sent; perhaps more than once, perhaps in another order."""
        return not (self.skipped or self.different or self.foreign)

    @property
    def exact(self) -> bool:
        """Everything came once, in order, as it was sent."""
        return self.complete and not self.repeated and not self.disordered

    def __str__(self) -> str:
        """Counts, and the first of each kind."""
        kinds = ("skipped", "repeated", "disordered", "different", "foreign")
        found = [f"{kind} {len(places)}: {places[:3]}" for kind in kinds if (places := getattr(self, kind))]
        return f"{self.received} of {self.expected} received; " + ("; ".join(found) or "all well")


def place(line: Line) -> Place:
    """Where a message lies."""
    return line["topic"], line["queue_id"], line["queue_offset"]


def compare(
    sent: Iterable[Line], received: Sequence[Line], *, begin: Mapping[int, int] | None = None
) -> Delivery:
    """Compare; ``begin``: per queue the first offset that was to come, where that is not the first of all."""
    first = begin or {}
    promised = {
        place(line): line
        for line in sent
        if line["kind"] in ("normal", "batch") and line["queue_offset"] >= first.get(line["queue_id"], 0)
    }
    places = [place(line) for line in received]
    counts = Counter(places)
    different = [why for line in received if (why := difference(promised.get(place(line)), line))]
    return Delivery(
        expected=len(promised),
        received=len(received),
        skipped=tuple(sorted(promised.keys() - counts.keys())),
        repeated=tuple(sorted(at for at, count in counts.items() if count > 1)),
        disordered=tuple(_disordered(places)),
        different=tuple(different),
        foreign=tuple(sorted(counts.keys() - promised.keys())),
    )


def difference(sent: Line | None, received: Line) -> str:
    """What of a message is not as it was sent; empty if nothing is. Client and broker add properties of their own."""
    if sent is None:
        return ""
    wrong = [name for name in SAME if sent.get(name) != received.get(name)]
    kept = received["properties"]
    own = {name: value for name, value in sent["properties"].items() if name != FOR_THE_BROKER}
    wrong += [f"property {name}" for name, value in own.items() if kept.get(name) != value]
    return f"{place(received)}: {', '.join(wrong)}" if wrong else ""


def _disordered(places: Sequence[Place]) -> Iterable[Place]:
    """Places that came for the first time after a later one of their queue."""
    seen: set[Place] = set()
    newest: dict[tuple[str, int], int] = {}
    for topic, queue, offset in places:
        if (topic, queue, offset) not in seen and offset < newest.get((topic, queue), -1):
            yield topic, queue, offset
        seen.add((topic, queue, offset))
        newest[topic, queue] = max(offset, newest.get((topic, queue), -1))
