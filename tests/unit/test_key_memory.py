"""Message keys cost a bounded multiple of memory, however many and however short they are."""

from __future__ import annotations

import gc
import random
import re
import string
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.kit.assemble import assemble
from tests.kit.pipeline import Crafted
from tiered.clock import ManualClock
from tiered.codec.record import properties
from tiered.codec.record.columns import decode_headers
from tiered.codec.record.frame import scan
from tiered.codec.record.message import Message, encode_message
from tiered.codec.record.properties import key_hash, property_columns
from tiered.provider.posix import PosixProvider

MIB = 1 << 20
LETTERS = string.ascii_lowercase + string.digits
SHORT_KEYS = 15_000
"""Keys of one letter that a message has room for."""


def peak_bytes(work: Callable[[], object]) -> int:
    """How much more memory than before the process has at most while it works. Tracing each allocation would take ten times as
    long."""

    def status(name: str) -> int:
        found = re.search(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found is not None
        return 1024 * int(found[1])

    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = status("VmRSS")
    work()
    return status("VmHWM") - before


def short_keys(chance: random.Random) -> str:
    return " ".join(chance.choices(LETTERS, k=SHORT_KEYS))


def columns(messages: list[Message]) -> properties.PropertyColumns:
    data = b"".join(map(encode_message, messages))
    return property_columns(decode_headers(data, scan(data, base=None, max_record_bytes=8 * MIB)))


def test_a_key_of_a_byte_costs_some_ten() -> None:
    """And not 140: only a part of the keys is on its way at a time."""
    chance = random.Random(1)
    messages = [
        Message("T", 0, n, 0, b"", {"KEYS": short_keys(chance)}, store_timestamp=1) for n in range(100)
    ]
    data = b"".join(map(encode_message, messages))
    batch = decode_headers(data, scan(data, base=None, max_record_bytes=8 * MIB))
    found: list[properties.PropertyColumns] = []
    peak = peak_bytes(lambda: found.append(property_columns(batch)))
    keys = 100 * SHORT_KEYS
    assert len(found[0].key_hash) == keys
    assert peak < len(data) + 40 * keys + 40 * MIB


def test_keys_in_parts_are_the_keys_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(2)

    def keys() -> str:
        words = [
            "".join(chance.choices(LETTERS, k=chance.randint(0, 9))) for _ in range(chance.randint(0, 8))
        ]
        return " ".join(words) or " "

    messages = [
        Message(
            f"Topic-{n % 3}",
            0,
            n,
            0,
            b"",
            {"A": "a b", "KEYS": keys(), "UNIQ_KEY": f"{n}", "Z": "z z"},
            store_timestamp=1,
        )
        for n in range(500)
    ]
    whole = columns(messages)
    monkeypatch.setattr(properties, "_PASS_BYTES", 64)
    parts = columns(messages)
    for name in ("key_row", "key_hash"):
        assert np.array_equal(getattr(whole, name), getattr(parts, name))
    wanted = [(n, key_hash(f"Topic-{n % 3}", f"{n}")) for n in range(500)] + [
        (n, key_hash(m.topic, word)) for n, m in enumerate(messages) for word in m.properties["KEYS"].split()
    ]
    assert list(zip(parts.key_row.tolist(), parts.key_hash.tolist(), strict=True)) == wanted


def test_a_flush_ends_when_its_keys_are_too_many(tmp_path: Path) -> None:
    chance, messages, most = random.Random(3), 80, 100_000
    broker = Crafted(tmp_path / "store", file_bytes=1 << 24)
    for number in range(messages):
        broker.send(body=b"x", properties={"UNIQ_KEY": f"{number:032x}", "KEYS": short_keys(chance)})
    clock = ManualClock(1_700_000_060_000)
    provider = PosixProvider(str(tmp_path / "archive"), clock)
    daemon = assemble(broker.store, provider, clock, dispatch={"max_flush_keys": most, "pipeline_flushes": 1})
    daemon.proven.clear()
    peak = peak_bytes(daemon.settle)
    flushes = [proven.flush.messages for proven in daemon.proven]
    assert sum(flushes) == messages
    assert max(flushes) * SHORT_KEYS <= most
    assert len(flushes) <= 2 * messages * SHORT_KEYS / most + 1, "halves, and no smaller pieces than needed"
    assert peak < 4 * broker.position + 100 * most + 40 * MIB
    assert sum(map(daemon.objects.check_keys, daemon.state.objects())) == messages * (SHORT_KEYS + 1)
    daemon.close()
