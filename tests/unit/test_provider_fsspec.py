"""What fsspec's file systems do differently: no lengths with ranges, no suffix ranges in some, commits of any size in all."""

from __future__ import annotations

import random
import string
import uuid
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from tests.kit.assemble import KEYS, assemble, open_log
from tests.kit.pipeline import Crafted
from tiered.archive.log.reader import TAIL_BYTES
from tiered.clock import ManualClock
from tiered.errors import Conflict, Denied, Invalid, NotFound, TieredError, Unavailable
from tiered.provider.fsspec import FsspecProvider
from tiered.provider.wrap import is_after_unknown
from tiered.settings import Store

LETTERS = string.ascii_letters + string.digits


def made(protocol: str = "memory", root: str = "") -> FsspecProvider:
    return FsspecProvider(protocol, root or f"/{uuid.uuid4()}", {}, Store(), ManualClock(1_700_000_060_000))


class RefusedRange(Exception):
    """As azure.core's ``HttpResponseError``, by which adlfs lets a range behind the end be known."""

    status_code = 416


class NoSuffix(MemoryFileSystem):  # type: ignore[misc]
    """As adlfs 2026.8 was seen to answer over Azurite 3.37: a start is the offset of a request to the store, a negative one
    an error, as is one at the end or behind it; a listing of nothing is a list."""

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        if start is not None and start < 0:
            raise ValueError("Offset must be an integer greater than or equal to 0")
        if start is not None and start >= self.info(path)["size"]:
            raise RefusedRange
        found: bytes = super().cat_file(path, start, end, **kwargs)
        return found

    def find(self, path: str, *arguments: Any, **named: Any) -> Any:
        return super().find(path, *arguments, **named) or []


@pytest.fixture
def azure(monkeypatch: pytest.MonkeyPatch) -> FsspecProvider:
    """A provider of ``abfs`` over a file system that takes no suffix ranges."""
    provider = made("abfs", "container/root")
    system = NoSuffix(skip_instance_cache=True)
    system.store, system.pseudo_dirs = {}, [""]
    monkeypatch.setattr(provider, "_make", lambda: system)
    return provider


def test_the_last_bytes_where_no_suffix_is_taken(azure: FsspecProvider) -> None:
    data = bytes(range(256)) * 4
    azure.put("a/k", [data])
    azure.put("a/empty", [b""])
    for count in (1, 100, 1024, 5000):
        found = azure.get("a/k", -count)
        assert (found.data, found.object_length) == (data[-count:], 1024)
    assert azure.get("a/empty", -10).data == b""
    with pytest.raises(NotFound):
        azure.get("a/absent", -10)


def test_a_range_behind_the_end_and_a_listing_of_nothing(azure: FsspecProvider) -> None:
    assert list(azure.list("a/")) == []
    azure.put("a/k", [b"data"])
    assert azure.get("a/k", 4).data == b""
    assert azure.get("a/k", 9, 5).data == b""
    assert [stored.key for stored in azure.list("a/")] == ["a/k"]


def test_a_server_that_hangs_up_on_what_it_refuses_is_in_conflict(
    azure: FsspecProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """versitygw 1.8.0 answers 412 before it has read a body of some MiB; aiohttp told one in ten as a broken connection."""
    azure.put("there", [b"first"])

    def hangs_up(*arguments: Any, **named: Any) -> None:
        raise ConnectionResetError("Could not connect to the endpoint URL")

    monkeypatch.setattr(azure._connected(), "pipe_file", hangs_up)
    with pytest.raises(Conflict) as conflict:
        azure.put("there", [b"second"])
    assert is_after_unknown(conflict.value), "its own put may have arrived"
    with pytest.raises(Unavailable):
        azure.put("not-there", [b"second"])
    with pytest.raises(Unavailable):
        azure.put("there", [b"second"], create_only=False)
    assert azure.get("there").data == b"first"


def test_a_root_that_is_gone_is_not_made_by_a_write(tmp_path: Path) -> None:
    store = made("file", str(tmp_path / "disk" / "archive"))
    with pytest.raises(Invalid, match="missing"):
        store.create_root()
    assert not (tmp_path / "disk").exists()
    (tmp_path / "disk").mkdir()
    store.create_root()
    store.put("a/k", [b"x"])
    (tmp_path / "disk").rename(tmp_path / "away")
    (tmp_path / "disk").mkdir()
    with pytest.raises(Invalid, match="missing"):
        store.put("b/k", [b"x"])
    assert list((tmp_path / "disk").iterdir()) == []
    (tmp_path / "disk").rmdir()
    (tmp_path / "away").rename(tmp_path / "disk")
    store.create_root()
    store.put("b/k", [b"x"])
    assert store.get("a/k").data == b"x"


class Answered(Exception):
    """An error of a library that keeps the status under this name."""

    def __init__(self, name: str, status: int) -> None:
        super().__init__(f"{name} {status}")
        setattr(self, name, status)


@pytest.mark.parametrize("name", ["status_code", "status", "code"])
@pytest.mark.parametrize(
    ("status", "kind"), [(401, Denied), (403, Denied), (404, Invalid), (429, Unavailable), (503, Unavailable)]
)
def test_a_refusal_is_no_outage(
    azure: FsspecProvider, monkeypatch: pytest.MonkeyPatch, name: str, status: int, kind: type[TieredError]
) -> None:
    """Rights that are missing do not come by asking again in silence."""
    monkeypatch.setattr(Answered, "__module__", "azure.core.exceptions")

    def refuse(*_: Any, **__: Any) -> None:
        raise Answered(name, status)

    monkeypatch.setattr(NoSuffix, "pipe_file", refuse)
    with pytest.raises(TieredError) as caught:
        azure.put("a/k", [b"x"])
    assert type(caught.value) is kind


def test_a_flush_of_ten_thousand_topics_with_long_names(tmp_path: Path) -> None:
    """Its commit is larger than the first request for it, and no answer says how large the object is."""
    chance = random.Random(7)
    broker = Crafted(tmp_path / "store", file_bytes=1 << 24)
    topics = ["".join(chance.choices(LETTERS, k=120)) for _ in range(10_000)]
    for topic in topics:
        broker.send(topic=topic, body=b"x")
    clock = ManualClock(1_700_000_060_000)
    root = f"/{uuid.uuid4()}"
    provider = FsspecProvider("memory", root, {}, Store(), clock)
    daemon = assemble(broker.store, provider, clock, dispatch={"max_edit_bytes": 16 << 20})
    daemon.settle()
    daemon.close()
    lengths = [stored.length for stored in provider.list(f"{KEYS.root}commit/")]
    assert max(lengths) > 2 * TAIL_BYTES
    again = open_log(FsspecProvider("memory", root, {}, Store(), clock), clock, seed=2)
    assert again.tip == daemon.log.tip
    assert {q.queue.topic for q in again.proven().queues()} == set(topics)
