"""The daemon beside a real broker: what the broker says of its log, what its clients were promised, and the proof.

``Truth`` gathers both sides of the comparison that every such test ends with: the broker's own files, and the messages
acknowledged to the Java client. ``lose_power`` does to a commitlog what a power cut does to pages that were not flushed.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit import cache, golden, remoting
from tests.kit.broker import Broker
from tests.kit.client import Outcome
from tests.kit.daemonproc import TIERED, wait_for
from tests.kit.oracle import Oracle, Queue, Verdict, archived_queues, compare, opened, scan_log
from tests.kit.warm import WARM, can_fork
from tiered.archive.read.flatfile import FlatMessageFile
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.archive.state.view import ArchiveState
from tiered.metadata.memory import MemoryStore
from tiered.settings import Source, Store

DEFAULTS: Mapping[str, object] = {
    "dispatch.group_commit_interval_ms": 1000,
    "source.poll_interval_ms": Source().poll_interval_ms,
    "source.confirm_reread_ms": Source().confirm_reread_ms,
    "source.restart_check_ms": Source().restart_check_ms,
}
"""Puts a ``Daemon`` of the kit, which hurries, back to the pace of the defaults."""

COMPRESSED = 0x1


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb of the command line said."""

    code: int
    out: bytes
    err: str

    def rows(self) -> Any:
        """Its JSON."""
        return json.loads(self.out)

    def lines(self) -> list[dict[str, Any]]:
        """Its JSON lines."""
        return [json.loads(line) for line in self.out.decode().splitlines()]


def tiered(*arguments: object, environment: Mapping[str, str] | None = None) -> Answer:
    """Run one verb of the command line to its end, in a process of its own."""
    words, own = [str(argument) for argument in arguments], {**os.environ, **(environment or {})}
    if can_fork(environment or {}) and words[:1] != ["spark"]:
        done = WARM.run(words, own, timeout=120)
    else:
        done = subprocess.run([*TIERED, *words], capture_output=True, env=own, timeout=120)
    return Answer(done.returncode, done.stdout, done.stderr.decode())


def runtime_info(broker: Broker) -> dict[str, str]:
    """The broker's own figures, as its administration tool shows them."""
    body = remoting.request(broker.address, remoting.RUNTIME_INFO).body
    return dict(json.loads(body)["table"])


def log_end(broker: Broker) -> int:
    """Physical offset at which the running broker writes on, by its own word."""
    return int(runtime_info(broker)["commitLogMaxOffset"])


def expire(broker: Broker, seconds: float = 90.0) -> list[str]:
    """Let the broker delete every commitlog file that is full, once; names of the files that went.

    The queues' minimum offsets follow at the cleaner's next turn: see ``settled_minimums``. The broker must be idle.
    """
    files, end = broker.commitlog_files(), log_end(broker)
    current = max(name for name in files if int(name) <= end)
    broker.set_conf("fileReservedTime", 0)
    remoting.request(broker.address, remoting.DELETE_EXPIRED_LOG, timeout_seconds=15)
    wait_for(lambda: broker.commitlog_files()[0] >= current, "every full file expired", seconds)
    broker.set_conf("fileReservedTime", 72)
    return sorted(set(files) - set(broker.commitlog_files()))


def settled_minimums(broker: Broker, topic: str, seconds: float = 30.0) -> dict[int, int]:
    """First offset of each queue of a topic, once it is that of the first record that the log still has.

    Where the cleaner needs several rounds, because a file was still being flushed, the queues follow after each. A queue of
    which nothing is left begins at its end; with a 4.9 broker, wherever that says.
    """
    kept: dict[int, int | None] = {}

    def looked() -> bool:
        begin = int(broker.commitlog_files()[0])
        try:
            for (name, queue), offsets in queue_offsets(broker.store_dir).items():
                if name == topic:
                    left = (at for at, physical in offsets.items() if physical >= begin)
                    kept[queue] = min(left, default=None)
        except FileNotFoundError:  # the cleaner was quicker
            return False
        return True

    wait_for(looked, f"queues of {topic} that hold still while they are read", seconds)
    found: dict[int, int] = {}

    def settled() -> bool:
        offsets = {queue: broker.offsets(topic, queue) for queue in kept}
        found.update((queue, held.start) for queue, held in offsets.items())
        anywhere = broker.version == cache.ROCKETMQ_4
        return all(
            held.start == (held.stop if kept[queue] is None else kept[queue])
            or (anywhere and kept[queue] is None)
            for queue, held in offsets.items()
        )

    wait_for(settled, f"minimums of the queues of {topic}", seconds)
    return found


def queue_offsets(store: Path) -> dict[Queue, dict[int, int]]:
    """{queue: {queue offset: physical offset}} as the broker's consume queues say; where those are in RocksDB, which a running
    broker keeps in memory, as the records say themselves."""
    if (store / "consumequeue" / "CURRENT").exists():
        found: dict[Queue, dict[int, int]] = defaultdict(dict)
        for queue, record in scan_log(store / "commitlog"):
            found[queue][record.queue_offset] = record.physical_offset
        return found
    return {
        (topic, queue): {at: unit[0] for at, unit in golden.consume_queue(path).items()}
        for topic, queue, path in golden.queues(store)
    }


def consume_queues(store: Path) -> dict[Queue, dict[int, tuple[int, int, int]]]:
    """{queue: {queue offset: (physical offset, size, tags code)}} from the broker's consume-queue files."""
    found = {(topic, queue): golden.consume_queue(path) for topic, queue, path in golden.queues(store)}
    return {queue: units for queue, units in found.items() if units}


@dataclass(slots=True)
class Truth:
    """Both sides of the proof for one broker and one archive.

    ``store``: settings that reach the archive. ``oracle`` remembers what the broker deletes.
    """

    broker: Broker
    url: str
    store: Store = field(default_factory=Store)
    acknowledged: list[dict[str, Any]] = field(default_factory=list)
    oracle: Oracle = field(init=False)

    def __post_init__(self) -> None:
        self.oracle = Oracle(self.broker.store_dir)

    def sent(self, *outcomes: Outcome) -> None:
        """Remember what the client was promised."""
        for outcome in outcomes:
            self.acknowledged += [line for line in outcome.lines() if line["kind"] != "unknown"]

    def look(self) -> int:
        """Take in the running broker's files up to its own end, which is returned."""
        end = log_end(self.broker)
        self.oracle.look(end)
        return end

    def archive(self) -> View:
        """The archive as a fresh reader sees it."""
        return opened(self.url, self.store)

    def prove(self, *, in_gaps: int = 0, deep: bool = True) -> Verdict:
        """Archive and broker's log hold the same records once, in order, byte for byte; every promise is kept."""
        archive = self.archive()
        verdict = compare(archive, self.oracle)
        assert verdict.good, str(verdict)
        assert verdict.in_gaps == in_gaps, str(verdict)
        assert verdict.readable == verdict.messages - in_gaps > 0, str(verdict)
        if in_gaps == 0:
            missing = broken_promises(self.acknowledged, archive)
            assert not missing, missing[:3]
        if deep:
            report = Verifier(archive).run(deep=True)
            assert report.sound, report.damage
        return verdict


def broken_promises(lines: Iterable[Mapping[str, Any]], archive: View) -> list[Mapping[str, Any]]:
    """Acknowledged messages that are not in the archive where the broker said, with the body that was sent.

    Committed and delayed messages come to their topic at a place of the broker's choice, so they are looked for by key.
    """
    found = archived_queues(archive, max(1, archive.state.head().highest_lineage))  # type: ignore[union-attr]
    records = {
        queue: {offset: golden.parse_record(data) for offset, data in items} for queue, items in found.items()
    }
    by_key = {
        (queue[0], record.properties.get(b"UNIQ_KEY", b"").decode()): record
        for queue, items in records.items()
        for record in items.values()
    }
    bad: list[Mapping[str, Any]] = []
    for line in lines:
        if line["kind"] in ("normal", "batch"):
            record = records.get((line["topic"], line["queue_id"]), {}).get(line["queue_offset"])
        else:
            topic = "RMQ_SYS_TRANS_HALF_TOPIC" if line["kind"] == "rollback" else line["topic"]
            record = by_key.get((topic, line["unique_key"]))
        if record is None or not same_content(line, record):
            bad.append(line)
    return bad


def same_content(line: Mapping[str, Any], record: golden.SlowRecord) -> bool:
    """Whether a record has the body, keys, tags and properties that the client sent."""
    body = zlib.decompress(record.body) if record.sys_flag & COMPRESSED else record.body
    kept = {name.decode(): value.decode() for name, value in record.properties.items()}
    own = ("seq", "region", "名前")
    return (
        hashlib.sha256(body).hexdigest() == line["body_sha256"]
        and (kept.get("UNIQ_KEY"), kept.get("KEYS"), kept.get("TAGS"))
        == (line["unique_key"], line["keys"], line["tags"])
        and all(kept.get(name) == line["properties"].get(name) for name in own)
    )


class Follower:
    """A reader of its own beside the daemon: asks the bucket, reads what is new of each queue, notes when it could."""

    def __init__(self, archive: View) -> None:
        self._archive = archive
        self._store = MemoryStore()
        self._read_up_to: dict[Queue, int] = {}

    def look(self, topic: str) -> list[bytes]:
        """Records of ``topic`` that were not readable at the last look."""
        self._archive.log.fold(self._store)
        state = ArchiveState(self._store)
        new: list[bytes] = []
        for queue in state.queues(topic):
            key = (topic, queue.queue.queue_id)
            file = FlatMessageFile(state, self._archive.objects, queue.queue)
            for stretch in file.read(self._read_up_to.get(key, 0)):
                new += [bytes(stretch.record(i)) for i in range(len(stretch))]
                self._read_up_to[key] = int(stretch.next_offset)
        return new


def record_starts(store: Path, end: int) -> list[tuple[int, int]]:
    """(physical offset, size) of every record below ``end``."""
    return [
        (record.physical_offset, len(record.data))
        for _, record in scan_log(store / "commitlog")
        if record.physical_offset < end
    ]


def lose_power(store: Path, end: int, *, lost_records: int, leftovers: bool) -> int:
    """Cut the tail of a dead broker's commitlog in the middle of a record; returns where that record starts.

    Everything behind is zeroed, as with pages that were never written; with ``leftovers`` only a part of the one record is, as
    with pages written out of order, and whole old records stay behind it.
    """
    start, size = record_starts(store, end)[-lost_records]
    file = max(p for p in (store / "commitlog").iterdir() if p.name.isdigit() and int(p.name) <= start)
    position, half = start - int(file.name), size // 2
    length = size - half if leftovers else file.stat().st_size - position - half
    with file.open("r+b") as log:
        log.seek(position + half)
        log.write(bytes(length))
    for later in (store / "commitlog").iterdir():
        if int(later.name) > start and not leftovers:
            later.write_bytes(bytes(later.stat().st_size))
    return start
