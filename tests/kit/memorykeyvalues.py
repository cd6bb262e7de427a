"""A key-value view in memory: each namespace is a list of writes, decided in their order, as redo decides them."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tiered.clock import Clock, ManualClock
from tiered.errors import BadRequest, NotFound
from tiered.keyvalue import (
    ALWAYS,
    AT_ONCE,
    MOST_KEYS,
    PAGE_BYTES,
    Condition,
    Entry,
    KeyPage,
    ReadRule,
    WriteOutcome,
    check_key,
    check_namespace,
)


@dataclass
class MemoryNamespace:
    """``next`` is the version of the next write, with or without effect."""

    entries: dict[bytes, Entry] = field(default_factory=dict)
    next: int = 0


@dataclass
class MemoryKeyValues:
    """``trouble`` is called with the verb's name before it does anything, ``afterwards`` when a write has been decided, before
    its answer. ``rules``: of every read. ``writes``: how many came to a decision."""

    clock: Clock = field(default_factory=ManualClock)
    trouble: Callable[[str], None] = lambda verb: None
    afterwards: Callable[[str], None] = lambda verb: None
    max_value_bytes: int = 1024 * 1024
    held: dict[str, MemoryNamespace] = field(default_factory=dict)
    rules: list[ReadRule] = field(default_factory=list)
    writes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, namespace: str, key: bytes, rule: ReadRule = AT_ONCE) -> Entry | None:
        self._read("get", rule)
        return self._alive(self._named(namespace).entries.get(check_key(key)))

    def get_many(self, namespace: str, keys: Sequence[bytes], rule: ReadRule = AT_ONCE) -> list[Entry | None]:
        self._read("get_many", rule)
        if not 0 < len(keys) <= MOST_KEYS:
            raise BadRequest("too many keys")
        with self.lock:
            held = self._named(namespace).entries
            found = [self._alive(held.get(check_key(key))) for key in keys]
        if len(keys) > 1 and sum(len(entry.value) for entry in found if entry is not None) > PAGE_BYTES:
            raise BadRequest("too many bytes", hint="ask for fewer keys")
        return found

    def page(
        self, namespace: str, prefix: bytes, *, after: bytes | None, count: int, rule: ReadRule = AT_ONCE
    ) -> KeyPage:
        self._read("page", rule)
        if not 0 < count <= MOST_KEYS:
            raise BadRequest("too many entries")
        with self.lock:
            named = self._named(namespace)
            rest = sorted(
                key for key in named.entries if key.startswith(prefix) and (after is None or key > after)
            )
            alive = [entry for key in rest if (entry := self._alive(named.entries[key])) is not None]
            made: list[Entry] = []
            for entry in alive[:count]:
                made.append(entry)
                if sum(len(one.value) for one in made) >= PAGE_BYTES:
                    break
            more = made[-1].key if len(made) < len(alive) else None
            return KeyPage(tuple(made), more, named.next)

    def put(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
    ) -> WriteOutcome:
        self.trouble("put")
        if len(value) > self.max_value_bytes:
            raise BadRequest("a value is too large")
        outcome = self._write(namespace, key, value, condition, ttl_ms)
        self.afterwards("put")
        return outcome

    def delete(self, namespace: str, key: bytes, *, condition: Condition = ALWAYS) -> WriteOutcome:
        self.trouble("delete")
        outcome = self._write(namespace, key, None, condition, None)
        self.afterwards("delete")
        return outcome

    def create(self, namespace: str) -> bool:
        self.trouble("create")
        with self.lock:
            made = check_namespace(namespace) not in self.held
            self.held.setdefault(namespace, MemoryNamespace())
        return made

    def namespaces(self) -> list[str]:
        self.trouble("namespaces")
        return sorted(self.held)

    def _write(
        self, namespace: str, key: bytes, value: bytes | None, condition: Condition, ttl_ms: int | None
    ) -> WriteOutcome:
        with self.lock:
            self.writes += 1
            named, stored_ms = self._named(namespace), self.clock.now_ms()
            version, entry = named.next, self._alive(named.entries.get(check_key(key)))
            named.next += 1
            if not _holds(condition, entry):
                return WriteOutcome(False, version, None if entry is None else entry.version)
            if value is None:
                named.entries.pop(key, None)
            else:
                ends_ms = None if ttl_ms is None else stored_ms + ttl_ms
                named.entries[key] = Entry(key, value, version, stored_ms, ends_ms)
            return WriteOutcome(True, version)

    def _named(self, namespace: str) -> MemoryNamespace:
        if check_namespace(namespace) not in self.held:
            raise NotFound(
                "there is no such namespace", namespace=namespace, hint="tiered kv create makes it"
            )
        return self.held[namespace]

    def _alive(self, entry: Entry | None) -> Entry | None:
        ends_ms = None if entry is None else entry.expires_ms
        return None if ends_ms is not None and ends_ms <= self.clock.now_ms() else entry

    def _read(self, verb: str, rule: ReadRule) -> None:
        self.trouble(verb)
        self.rules.append(rule)


def _holds(condition: Condition, entry: Entry | None) -> bool:
    if condition.absent and entry is not None:
        return False
    if condition.version is not None and (entry is None or entry.version != condition.version):
        return False
    digest = condition.value_sha256
    return digest is None or (entry is not None and hashlib.sha256(entry.value).digest() == digest)
