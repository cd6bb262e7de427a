"""Messages applied to the store in their order: the one place where it is decided whether a conditional write takes effect.

A decision looks at nothing but the log: at the entry that all writes before it left, and at the store time of the write itself.
So whoever comes to a message, whenever, decides alike.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import cast

import numpy as np

from tiered.codec.record.batch import MessageBatch
from tiered.codec.types import Bools
from tiered.errors import BadRequest, Corrupt
from tiered.feed.base import FeedBatch, FeedPosition, Follow, Passed
from tiered.feed.ends import queue_ends
from tiered.keyvalue import Condition, Entry, check_namespace
from tiered.metadata.base import RedoStore
from tiered.model import MessageQueue
from tiered.view.layout import (
    NAMESPACE_PREFIX,
    entries_prefix,
    entry_of,
    namespace_key,
    split_namespace_key,
)
from tiered.view.writes import FEW, Writes, few_messages, many_messages

log = logging.getLogger("tiered.view")

QUEUE_ID = 0
"""The one queue of a namespace's topic."""
Rejections = dict[int, int | None]
"""Versions of writes without effect → the version that their entry had; ``None``: there was none."""


@dataclass(frozen=True, slots=True)
class NamespaceState:
    """What is known of a namespace. ``next``: the version that comes next. ``physical``: where the message before it lies in
    the broker's log, ``stored_ms``: when that was stored. ``broken``: why nothing of it is applied or served any more."""

    next: int = 0
    physical: int | None = None
    broken: str | None = None
    stored_ms: int | None = None

    def encode(self) -> bytes:
        """As it is stored."""
        told = {
            "next": self.next,
            "physical": self.physical,
            "broken": self.broken,
            "stored_ms": self.stored_ms,
        }
        return json.dumps(told).encode()

    @classmethod
    def decode(cls, stored: bytes) -> NamespaceState:
        """What ``encode`` made; what a later version added is left out. ``Corrupt``."""
        try:
            told = json.loads(stored)
            physical, broken = told.get("physical"), told.get("broken")
            stored_ms = told.get("stored_ms")
            return cls(
                int(told["next"]),
                None if physical is None else int(physical),
                broken,
                None if stored_ms is None else int(stored_ms),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(
                "what is stored of a namespace cannot be read", found=ascii(stored[:80]),
                hint="delete the directory of the view's store: it is made again",
            ) from error  # fmt: skip


@dataclass(slots=True)
class Applied:
    """What became of one batch. ``ids``: of each message of a namespace, by version, if they were asked for; then ``judged``,
    too: versions of the writes that were decided. ``rejections``: those of them without effect."""

    position: FeedPosition
    messages: int = 0
    malformed: int = 0
    off_queue: int = 0
    rejections: dict[str, Rejections] = field(default_factory=dict)
    judged: dict[str, set[int]] = field(default_factory=dict)
    ids: dict[str, dict[int, bytes]] = field(default_factory=dict)


@dataclass(slots=True)
class _Changes:
    """What one batch changes in the store."""

    entries: dict[bytes, bytes | None] = field(default_factory=dict)
    ranges: list[tuple[bytes, bytes]] = field(default_factory=list)
    states: dict[str, NamespaceState] = field(default_factory=dict)

    def divided(self) -> tuple[Iterable[tuple[bytes, bytes]], list[bytes]]:
        """What is put, and what is deleted. Most batches delete nothing, and are not walked over."""
        deletes = (
            [] if None not in self.entries.values() else [k for k, v in self.entries.items() if v is None]
        )
        if not deletes:
            return cast("Iterable[tuple[bytes, bytes]]", self.entries.items()), deletes
        return [(key, value) for key, value in self.entries.items() if value is not None], deletes


class KeyValueRedo:
    """Applies batches to ``store``. One thread applies; ``states`` may be read by any.

    ``topic_prefix``: a namespace's topic is this and its name.
    """

    def __init__(self, store: RedoStore, topic_prefix: str, max_value_bytes: int) -> None:
        """``Corrupt`` if the store is not one of this view."""
        self._store = store
        self._prefix = topic_prefix
        self._max_value_bytes = max_value_bytes
        self.states: dict[str, NamespaceState] = {}
        self.position = FeedPosition()
        self.newest_ms = 0
        """The newest store time of what was applied since this was made."""
        self.load()

    def load(self) -> None:
        """Take over what the store says, at the beginning and when it was opened again. ``Corrupt``."""
        pairs = self._store.iterate(NAMESPACE_PREFIX)
        self.states = {split_namespace_key(key): NamespaceState.decode(value) for key, value in pairs}
        self.position = FeedPosition.decode(self._store.applied())

    def wanted(self, topic: str) -> bool:
        """Whether a topic is a namespace's."""
        return self.namespace_of(topic) is not None

    def namespace_of(self, topic: str) -> str | None:
        """The namespace whose topic it is; ``None`` if it is none's."""
        if not topic.startswith(self._prefix):
            return None
        try:
            return check_namespace(topic[len(self._prefix) :])
        except BadRequest:
            return None

    def following(self, queue: MessageQueue) -> Follow:
        """How far a queue is applied, for the feed."""
        namespace = self.namespace_of(queue.topic)
        if namespace is None or queue.queue_id != QUEUE_ID:
            return Follow()
        state = self.states.get(namespace, NamespaceState())
        return Follow(state.next, state.physical, state.stored_ms)

    def forget(self) -> None:
        """Begin at the beginning: the log is another one."""
        self._store.clear()
        self.states = {}
        self.position = FeedPosition()

    def apply(self, batch: FeedBatch, *, with_ids: bool = False) -> Applied:
        """Apply one batch, in one write with the position behind it. ``Unavailable``: nothing was; ``reopen`` the store."""
        done, changes = Applied(batch.position), _Changes()
        if batch.anew is not None:
            self._begin(batch.anew, changes)
        for topic, messages in _by_topic(batch.messages):
            namespace = self.namespace_of(topic)
            if namespace is not None:
                self._namespace(namespace, messages, batch, changes, done, with_ids=with_ids)
        if batch.passed is not None:
            self._pass(batch.passed, batch.lost, changes)
        changes.entries.update(
            (namespace_key(name), state.encode()) for name, state in changes.states.items()
        )
        puts, deletes = changes.divided()
        self._store.put_many(puts, deletes, ranges=changes.ranges, applied=batch.position.encode())
        self.states = {**self.states, **changes.states} if changes.states else self.states
        self.position = batch.position
        return done

    def _begin(self, queue: MessageQueue, changes: _Changes) -> None:
        namespace = self.namespace_of(queue.topic)
        if namespace is not None and queue.queue_id == QUEUE_ID:
            self._begin_namespace(namespace, changes)

    def _begin_namespace(self, namespace: str, changes: _Changes) -> None:
        log.warning(
            "a namespace begins anew: its topic was deleted and made again, or the broker lost the end of its log",
            extra={"namespace": namespace},
        )
        prefix = entries_prefix(namespace)
        for key in [key for key in changes.entries if key.startswith(prefix)]:
            del changes.entries[key]
        changes.ranges.append((prefix, prefix + b"\xff" * 4100))
        changes.states[namespace] = NamespaceState()

    def _pass(self, passed: Passed, lost: str | None, changes: _Changes) -> None:
        """No message follows that would show what is missing of a namespace."""
        namespace = self.namespace_of(passed.queue.topic)
        if namespace is None or passed.queue.queue_id != QUEUE_ID:
            return
        state = changes.states.get(namespace) or self.states.get(namespace) or NamespaceState()
        if state.broken is None and state.next < passed.end:
            changes.states[namespace] = _broken(namespace, state, lost, state.next, passed.end)

    def _namespace(
        self,
        namespace: str,
        messages: MessageBatch,
        batch: FeedBatch,
        changes: _Changes,
        done: Applied,
        *,
        with_ids: bool,
    ) -> None:
        mine = messages.headers["queue_id"] == QUEUE_ID
        done.off_queue += len(messages) - int(mine.sum())
        messages = _rows(messages, mine)
        for part in _lives(messages):
            self._one_life(namespace, part, batch, changes, done, with_ids=with_ids)

    def _one_life(
        self,
        namespace: str,
        messages: MessageBatch,
        batch: FeedBatch,
        changes: _Changes,
        done: Applied,
        *,
        with_ids: bool,
    ) -> None:
        """Messages of one queue whose offsets ascend."""
        if not len(messages):
            return
        state = changes.states.get(namespace) or self.states.get(namespace) or NamespaceState()
        headers = messages.headers
        if headers["queue_offset"][0] < state.next:
            if state.physical is not None and headers["physical_offset"][0] > state.physical:
                self._begin_namespace(namespace, changes)
                state = NamespaceState()
            else:  # read again after a restart
                messages = _rows(messages, headers["queue_offset"] >= state.next)
                if not len(messages):
                    return
        state = self._contiguous(namespace, state, messages, batch.lost)
        done.messages += len(messages)
        read = few_messages if len(messages) <= FEW else many_messages
        found = read(messages, self._max_value_bytes, with_ids=with_ids)
        if state.broken is None:
            self._writes(namespace, found.writes, changes, done)
        if with_ids:
            judged = () if state.broken is not None else map(int, found.writes.version)
            done.judged.setdefault(namespace, set()).update(judged)
            ids = zip(messages.headers["queue_offset"].tolist(), found.ids, strict=True)
            done.ids.setdefault(namespace, {}).update(ids)
        last = messages.headers[-1]
        self.newest_ms = max(self.newest_ms, int(messages.headers["store_timestamp"].max()))
        changes.states[namespace] = replace(
            state,
            next=_next(messages),
            physical=int(last["physical_offset"]),
            stored_ms=int(last["store_timestamp"]),
        )

    def _contiguous(
        self, namespace: str, state: NamespaceState, messages: MessageBatch, lost: str | None
    ) -> NamespaceState:
        """The state, broken if messages are missing before these, or among them."""
        if state.broken is not None:
            return state
        offsets, ends = messages.headers["queue_offset"], queue_ends(messages)
        missing = np.flatnonzero(offsets != np.concatenate(([state.next], ends[:-1])))
        if not len(missing):
            return state
        row = int(missing[0])
        before = state.next if row == 0 else int(ends[row - 1])
        return _broken(namespace, state, lost, before, int(offsets[row]))

    # ------------------------------------------------------------------ what writes do

    def _writes(self, namespace: str, writes: Writes, changes: _Changes, done: Applied) -> None:
        done.malformed += writes.malformed
        prefix, entries = entries_prefix(namespace), changes.entries
        keys, values = list(map(prefix.__add__, writes.keys)), writes.values
        asked = list(writes.conditions)
        held = dict(
            zip((keys[n] for n in asked), self._store.get_many([keys[n] for n in asked]), strict=True)
        )
        if changes.ranges:
            held = {key: None if self._cleared(key, changes) else value for key, value in held.items()}
        done_to = 0
        for number, condition in writes.conditions.items():
            entries.update(zip(keys[done_to:number], values[done_to:number], strict=True))
            key, done_to = keys[number], number + 1
            found = entries[key] if key in entries else held[key]
            entry = _living(found, int(writes.stored_ms[number]))
            if _holds(condition, entry):
                entries[key] = values[number]
            else:
                rejected = done.rejections.setdefault(namespace, {})
                rejected[int(writes.version[number])] = None if entry is None else entry.version
        entries.update(zip(keys[done_to:], values[done_to:], strict=True))

    @staticmethod
    def _cleared(key: bytes, changes: _Changes) -> bool:
        return any(first <= key < end for first, end in changes.ranges)


def _broken(namespace: str, state: NamespaceState, lost: str | None, first: int, end: int) -> NamespaceState:
    why = lost or f"offsets {first} to {end - 1} are not in the log, nor in an archive that is named"
    log.error(
        "messages of a namespace are missing: nothing of it is served any more",
        extra={"namespace": namespace, "missing": why},
    )
    return replace(state, broken=why)


def _living(found: bytes | None, now_ms: int) -> Entry | None:
    """The entry that a write stored at ``now_ms`` meets."""
    entry = None if found is None else entry_of(b"", found)
    if entry is not None and entry.expires_ms is not None and entry.expires_ms <= now_ms:
        return None
    return entry


def _holds(condition: Condition, entry: Entry | None) -> bool:
    if condition.absent:
        return entry is None and condition.value_sha256 is None
    if entry is None:
        return False
    if condition.version is not None and entry.version != condition.version:
        return False
    return condition.value_sha256 is None or hashlib.sha256(entry.value).digest() == condition.value_sha256


def _by_topic(messages: MessageBatch) -> Iterator[tuple[str, MessageBatch]]:
    """The messages of each topic, in order."""
    for index, topic in enumerate(messages.topics):
        rows = messages.headers["topic_index"] == index
        if rows.any():
            yield topic, _rows(messages, rows)


def _lives(messages: MessageBatch) -> Iterator[MessageBatch]:
    """Messages of one queue, divided where its offsets begin again."""
    offsets = messages.headers["queue_offset"]
    cuts = (np.flatnonzero(np.diff(offsets) <= 0) + 1).tolist()
    for first, end in zip([0, *cuts], [*cuts, len(offsets)], strict=True):
        yield MessageBatch(messages.buffer, messages.headers[first:end], messages.topics)


def _rows(messages: MessageBatch, rows: Bools) -> MessageBatch:
    return messages if rows.all() else MessageBatch(messages.buffer, messages.headers[rows], messages.topics)


def _next(messages: MessageBatch) -> int:
    return int(queue_ends(messages)[-1])
