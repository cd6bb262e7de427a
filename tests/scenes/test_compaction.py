"""Compaction by key, against a dict: the newest message of each key, whatever was merged, trimmed or kept on disk meanwhile."""

from __future__ import annotations

import errno
import os
import random
import tempfile
import tracemalloc
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from tests.kit.archiveedits import Edits
from tests.kit.command import archive_once, tiered
from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Scene, scene
from tests.kit.keyed import compacted, folded, send_keyed, view_of
from tests.kit.merging import merge_all
from tests.kit.pipeline import INNER_BATCH, Crafted
from tests.kit.sealing import after_midnight, seal_all
from tiered.archive.read.compaction import KEY_ENTRY, CompactedQueue, KeyEntries, newest_messages
from tiered.errors import Unavailable
from tiered.model import MessageQueue

MEMORY = (1 << 20, 4096, 64)
"""Everything in memory; room for some forty keys, so that most lie in files; for one key, and not even for the outcome."""


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made


def expected(made: Scene, first: int = 0) -> list[tuple[int, bytes]]:
    """The newest message of each key by a dict, of those that reach above ``first``."""
    newest: dict[str, tuple[int, bytes, bool]] = {}
    for message, raw in made.broker.sent:
        owned = int(message.properties.get("INNER_NUM", "1"))
        key = message.properties.get("KEYS", "")
        if key.strip() and message.queue_offset + owned > first:
            newest[key] = message.queue_offset, raw, bool(message.body)
    return sorted((offset, raw) for offset, raw, lives in newest.values() if lives)


@pytest.mark.parametrize("memory_bytes", MEMORY)
def test_the_newest_message_of_each_key_is_kept_with_its_offset(small: Scene, memory_bytes: int) -> None:
    chance = random.Random(3)
    for keys in (7, 400, 90):
        send_keyed(small, chance, 300, keys)
        assert compacted(small, memory_bytes) == expected(small)
    merge_all(small.daemon)
    assert compacted(small, memory_bytes) == expected(small)
    after_midnight(small)
    seal_all(small.daemon)
    assert {item.level for item in small.state.objects() if item.references} == {2}
    assert compacted(small, memory_bytes) == expected(small)
    assert len(expected(small)) > 250
    assert compacted(small, memory_bytes, MessageQueue("Orders", 7)) == []


def test_what_retention_took_no_longer_counts(small: Scene) -> None:
    chance = random.Random(5)
    for _ in range(4):
        send_keyed(small, chance, 60, 40)
    Edits(small).trim(ORDERS, 97)
    assert compacted(small, 4096) == expected(small, 97)


def test_a_trim_inside_an_inner_batch_counts_from_there(small: Scene) -> None:
    inner = {"KEYS": "batch", "INNER_NUM": "4"}
    small.broker.send("Orders", 0, b"many", sys_flag=INNER_BATCH, properties=inner)
    small.broker.send("Orders", 0, b"last", properties={"KEYS": "last"})
    small.daemon.settle(SETTLED_SECONDS)
    for first in (2, 3):
        Edits(small).trim(ORDERS, first)
        assert len(compacted(small)) == 2
        assert compacted(small) == folded(small)


def test_files_are_gone_afterwards_and_messages_without_a_key_are_counted(
    small: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "spill"
    directory.mkdir()
    send_keyed(small, random.Random(9), 400, 400)
    monkeypatch.setattr(tempfile, "tempdir", None)
    found = CompactedQueue(view_of(small), ORDERS, memory_bytes=2048, directory=str(directory))
    offsets = found.offsets()
    first = next(offsets)
    assert any(directory.iterdir()), "more than there was room for"
    kept = np.concatenate([first, *offsets]).tolist()
    assert kept == [offset for offset, _ in expected(small)]
    assert not any(directory.iterdir())
    without = [m for m, _ in small.broker.sent if not m.properties.get("KEYS", "").strip()]
    assert found.without_key == len(without) > 0


def test_the_outcome_has_its_room_before_it_is_written(
    small: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a file with holes that is mapped a full disk would end the process."""
    send_keyed(small, random.Random(9), 40, 40)
    asked: list[int] = []

    def full(descriptor: int, offset: int, length: int) -> None:
        asked.append(length)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    found = CompactedQueue(view_of(small), ORDERS, memory_bytes=8, directory=str(tmp_path))
    with pytest.raises(Unavailable, match="the disk is full"):
        list(found.offsets())
    assert len(asked) == 1


def test_the_verb_shows_what_is_kept_at_a_commit(tmp_path: Path) -> None:
    broker, archive = Crafted(tmp_path / "store", file_bytes=1 << 16), tmp_path / "archive"
    for body, key in (
        (b"one", "a"),
        (b"two", "b"),
        (b"three", "a"),
        (b"four", "c"),
        (b"", "b"),
        (b"five", ""),
    ):
        broker.send("Orders", 0, body, properties={"KEYS": key} if key else {})
    assert archive_once(broker.store, archive, "hold.max_disk_percent=99").code == 0
    words = ("read", "--archive", f"file://{archive}", "--topic", "Orders", "--queue", 0, "--compacted")
    rows = tiered(*words, "--json")
    assert rows.code == 0, rows.err
    assert [(row["queue_offset"], row["keys"]) for row in rows.rows] == [(2, ["a"]), (3, ["c"])]
    assert [row["queue_offset"] for row in tiered(*words, "--offset", 3, "--json").rows] == [3]
    assert [row["queue_offset"] for row in tiered(*words, "--count", 1, "--json").rows] == [2]
    head = tiered("status", "--archive", f"file://{archive}", "--json").json["seq"]
    assert [row["queue_offset"] for row in tiered(*words, "--as-of", head, "--json").rows] == [2, 3]
    absent = tiered("read", "--archive", f"file://{archive}", "--topic", "Order", "--queue", 0, "--compacted")
    assert absent.code == 5
    assert "did you mean Orders" in absent.err
    assert "1 message" in tiered(*words).text + tiered(*words).err


def test_more_keys_than_there_is_room_for_take_no_more_memory(tmp_path: Path) -> None:
    chance = np.random.default_rng(1)
    count, room = 400_000, 1 << 20
    hashes = chance.integers(0, 1 << 63, 300_000, np.uint64)[chance.integers(0, 300_000, count)]
    found = []
    with ExitStack() as stack:
        entries = KeyEntries(stack, room, count, str(tmp_path))
        tracemalloc.start()
        for first in range(0, count, 1000):
            some = np.zeros(1000, KEY_ENTRY)
            some["high"], some["message"] = (
                hashes[first : first + 1000],
                np.arange(first, first + 1000) * 2 + 1,
            )
            entries.add(some)
        for part in entries.parts():
            found.append(newest_messages(part))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    newest = dict(zip(hashes.tolist(), range(count), strict=True))
    assert sorted(np.concatenate(found).tolist()) == sorted(newest.values())
    assert peak < room + sum(part.nbytes for part in found), (
        f"{peak} bytes for {count * KEY_ENTRY.itemsize} of entries"
    )
