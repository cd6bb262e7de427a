"""Which queues of a fold the options may mean, by what their keys begin with: only these are walked over, and of a topic that
is named only its own part of a checkpoint is loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from tiered.archive.state.keys import U4, topic_key
from tiered.archive.state.scope import Scope
from tiered.codec.types import Bools, Ints
from tiered_spark.options import Options

MAX_IDS = 16
"""Of a topic's queues so many are looked up one by one; of more, all of the topic are walked over."""

T = TypeVar("T", str, bytes)

_ONE = re.compile(r"\[([^!])\]")
_OPEN = re.compile(r"[*?\[]")
_TOPIC_END = topic_key("")


@dataclass(frozen=True, slots=True)
class Choice:
    """Which queues are meant. ``prefixes``: what their keys begin with, ascending, none the beginning of another; ``shown``:
    whether a topic is; ``queue_ids`` ``None``: all of its queues."""

    prefixes: Sequence[bytes] = (b"",)
    shown: Callable[[str], bool] = lambda topic: True
    queue_ids: frozenset[int] | None = None

    def takes(self, ids: Ints) -> Bools:
        """Which queue ids are meant."""
        return np.full(len(ids), True) if self.queue_ids is None else np.isin(ids, list(self.queue_ids))


def scope_of(options: Options) -> Scope:
    """What a fold for these options is about: topics that are named, and those that begin as a pattern does."""
    found = [literal(pattern) for pattern in options.topics]
    beginnings = [name for name, whole in found if not whole]
    if "" in beginnings:
        return Scope()
    return Scope({name: None for name, whole in found if whole}, tuple(_outermost(beginnings)))


def key_prefixes(options: Options, queue_ids: Collection[int] | None = None) -> list[bytes]:
    """What the keys begin with of all queues that ``topics`` may mean, with one of ``queue_ids`` (``None``: any)."""
    found: list[bytes] = []
    ids = sorted(queue_ids) if queue_ids is not None and len(queue_ids) <= MAX_IDS else None
    for pattern in options.topics:
        name, whole = literal(pattern)
        head = topic_key(name)
        if not whole:
            found.append(head.removesuffix(_TOPIC_END))
        else:
            found += [head] if ids is None else [head + U4.pack(number) for number in ids]
    return _outermost(found)


def literal(pattern: str) -> tuple[str, bool]:
    """What every name begins with that matches a shell pattern, and whether that is the only one. ``[x]`` is an x."""
    made, at = "", 0
    while at < len(pattern):
        single = _ONE.match(pattern, at)
        if single is not None:
            made, at = made + single[1], single.end()
        elif _OPEN.match(pattern, at):
            return made, False
        else:
            made, at = made + pattern[at], at + 1
    return made, True


def _outermost(prefixes: Iterable[T]) -> list[T]:
    """Without those that begin with another."""
    made: list[T] = []
    for prefix in sorted(set(prefixes)):
        if not made or not prefix.startswith(made[-1]):
            made.append(prefix)
    return made
