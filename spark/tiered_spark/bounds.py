"""Bounds of single queues, as Kafka's source has them: ``{"Orders": {"0": 120, "1": -2}, "broker-b/Orders": {"*": 7}}``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tiered.codec.types import Ints
from tiered.model import MessageQueue
from tiered_spark.optionvalues import MOST, moment, wrong
from tiered_spark.ranges import Range

EARLIEST, LATEST = -2, -1
MOST_ID = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Bound:
    """An offset or a time (ms) of a queue; ``queue_id`` ``None``: of all of the topic; ``broker`` "": of every broker."""

    broker: str
    topic: str
    queue_id: int | None
    value: int

    def of(self, broker: str, queue: MessageQueue) -> bool:
        """Whether it is meant for this queue."""
        return (
            self.broker in ("", broker)
            and self.topic == queue.topic
            and self.queue_id in (None, queue.queue_id)
        )


Bounds = tuple[Bound, ...]


def offsets(name: str, value: str) -> Bounds:
    """Queue offsets. ``earliest``, ``latest`` and their numbers bound nothing, if they do not contradict the option's name."""
    word, number = ("earliest", EARLIEST) if name.startswith("starting") else ("latest", LATEST)
    if value.strip().lower() == word:
        return ()

    def parse(found: object) -> int | None:
        if (
            isinstance(found, bool)
            or not isinstance(found, int)
            or found > MOST
            or (found < 0 and found != number)
        ):
            raise ValueError
        return None if found < 0 else found

    return _parsed(
        name,
        value,
        parse,
        f'{word}, or JSON such as {{"Orders": {{"0": 120, "1": {number}}}}}, {number}: {word}; offsets of at most {MOST}',
    )


def times(name: str, value: str) -> Bounds:
    """Times: ISO 8601 or ms since 1970."""

    def parse(found: object) -> int:
        if isinstance(found, bool) or not isinstance(found, int | str):
            raise ValueError
        return moment(name, str(found))

    return _parsed(
        name, value, parse, 'JSON such as {"Orders": {"0": "2026-01-01T00:00:00Z", "*": 1767225600000}}'
    )


def _parsed(name: str, value: str, parse: Callable[[object], int | None], expected: str) -> Bounds:
    found: dict[tuple[str, str, int | None], int | None] = {}
    try:
        for topic, queues in json.loads(value, object_pairs_hook=_each_once).items():
            broker, _, own = topic.rpartition("/")
            for queue_id, bound in queues.items():
                number = parse(bound)
                which = None if queue_id == "*" else int(queue_id)
                if not own or (which is not None and not 0 <= which <= MOST_ID):
                    raise ValueError
                if (broker, own, which) in found:  # "1" and "01"
                    raise ValueError
                found[broker, own, which] = number
    except (ValueError, AttributeError) as error:
        raise wrong(name, value, f"{expected}, queue ids of at most {MOST_ID}, each once") from error
    return tuple(Bound(*queue, number) for queue, number in found.items() if number is not None)


def _each_once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object of JSON. ``ValueError`` for a key that comes twice, of which one would be lost."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key comes twice")
    return made


def limits(
    broker: str,
    queues: Iterable[MessageQueue],
    lows: Sequence[Bounds],
    ends: Sequence[Bounds],
    whole: Sequence[Range],
) -> Ints:
    """Of each queue a column of (low, high) for each of ``whole``, both included; of several bounds the most special counts."""
    columns = []
    for queue in queues:
        column: list[int] = []
        for low, end, all_of in zip(lows, ends, whole, strict=True):
            first, last = _special(low, broker, queue), _special(end, broker, queue)
            some = all_of if first is None else all_of.cut(low=first)
            some = some if last is None else some.cut(high=last - 1)
            column += (some.low, some.high)
        columns.append(column)
    return np.array(columns, np.int64).reshape(len(columns), 2 * len(whole)).T


def _special(bounds: Bounds, broker: str, queue: MessageQueue) -> int | None:
    mine = [b for b in bounds if b.of(broker, queue)]
    return max(mine, key=lambda b: (b.queue_id is not None, b.broker != "")).value if mine else None
