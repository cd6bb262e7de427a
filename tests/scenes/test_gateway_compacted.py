"""The page of the newest messages of their keys: what ``tiered read --compacted`` gives, at a cost that is bounded."""

from __future__ import annotations

import base64
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.kit.archiveedits import Edits, rewind
from tests.kit.assemble import AtOnce
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.gatewaydesk import at_default_level
from tests.kit.httpscene import serving
from tests.kit.keyed import folded, send_keyed
from tests.kit.readstore import reader_follower
from tiered.archive.read.compaction import CompactedQueue
from tiered.archive.read.flatfile import RunReader, Stretch
from tiered.archive.state.values import RunState
from tiered.codec.record.message import decode_message
from tiered.settings import MIB, Settings
from tiered.store import compactedpages
from tiered.store.compactedpages import KEPT_SECONDS
from tiered.store.messages import MessageStore

PATH = "/v1/topics/Orders/queues/0/compacted"


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[Scene]:
    """300 messages of 40 keys."""
    with scene(tmp_path) as made:
        send_keyed(made, random.Random(1), 300, 40)
        yield made


@contextmanager
def pages(made: Scene, memory_bytes: int = MIB) -> Iterator[Any]:
    """The pages over a reader of its own; its clock is the scene's."""
    settings = Settings()
    follower = reader_follower(made.provider, made.clock, made.metrics, fetch=settings.fetch)
    follower.open()
    store = MessageStore(settings, follower, AtOnce(), made.clock, made.metrics)
    store._compacted_pages._memory_bytes = memory_bytes
    with serving(at_default_level(store)) as served:
        yield served


def read_on(served: Any, count: int, offset: int | None = None) -> tuple[list[tuple[int, bytes]], set[int]]:
    """All pages from an offset on: offsets and bodies, and the commits that they were of."""
    found: list[tuple[int, bytes]] = []
    commits, at = set[int](), "" if offset is None else f"&offset={offset}"
    while True:
        said = served.json(f"{PATH}?count={count}{at}")
        assert len(said["messages"]) <= count
        assert "error" not in said
        found += [(m["queue_offset"], base64.b64decode(m["body_base64"])) for m in said["messages"]]
        commits.add(said["commit"])
        if said["end"]:
            return found, commits
        assert not said["messages"] or found[-1][0] + 1 == said["next_offset"]
        at = f"&offset={said['next_offset']}"


def wanted(made: Scene) -> list[tuple[int, bytes]]:
    return [(offset, decode_message(raw).body) for offset, raw in folded(made)]


@pytest.mark.parametrize("count", [1, 7, 1000])
def test_all_pages_together_are_what_a_fold_keeps(keyed: Scene, count: int) -> None:
    with pages(keyed) as served:
        assert read_on(served, count)[0] == wanted(keyed) != []
        middle = wanted(keyed)[len(wanted(keyed)) // 2][0]
        assert read_on(served, count, middle)[0] == [row for row in wanted(keyed) if row[0] >= middle]
        send_keyed(keyed, random.Random(2), 30, 40)
        keyed.clock.advance(10)
        assert read_on(served, count)[0] == wanted(keyed)
        end = served.json(f"{PATH}?offset=100000")
        assert (end["messages"], end["end"]) == ([], True)


def test_a_queue_is_decided_once_for_all_its_pages(keyed: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it grows, too, for a while: then it is decided anew, and no key is left out."""
    decided, offsets = [], CompactedQueue.offsets

    def counted(self: CompactedQueue) -> Any:
        decided.append(self)
        return offsets(self)

    monkeypatch.setattr(CompactedQueue, "offsets", counted)
    with pages(keyed) as served:
        first = served.json(f"{PATH}?count=5")
        send_keyed(keyed, random.Random(3), 20, 40)
        keyed.clock.advance(5)
        second = served.json(f"{PATH}?count=5&offset={first['next_offset']}")
        assert (second["commit"], len(decided)) == (first["commit"], 1)
        keyed.clock.advance(KEPT_SECONDS)
        rest, commits = read_on(served, 5, second["next_offset"])
        assert len(decided) == 2
        assert min(commits) > first["commit"]
        given = dict(rest) | {
            m["queue_offset"]: base64.b64decode(m["body_base64"])
            for m in (*first["messages"], *second["messages"])
        }
        assert set(wanted(keyed)) <= set(given.items())
        for _ in range(2):
            assert served.json(f"{PATH}?count=5")["commit"] in commits
            assert len(decided) == 3, "what lies before the second page was not looked at again for it"


def test_who_asks_for_what_came_since_reads_no_more_than_that(
    keyed: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, stretches = list[int](), RunReader.stretches

    def counted(self: RunReader, run: RunState, first: int, end: int) -> Iterator[Stretch]:
        for stretch in stretches(self, run, first, end):
            read.append(len(stretch))
            yield stretch

    monkeypatch.setattr(RunReader, "stretches", counted)
    with pages(keyed) as served:
        whole = served.json(f"{PATH}?count=1000")
        at = whole["next_offset"]
        for number in range(4):
            send_keyed(keyed, random.Random(number), 3, 40)
            keyed.clock.advance(5)
            read.clear()
            found, _ = read_on(served, 2, at)
            assert sum(read) <= 3 * 3, "three messages for each of at most three pages"
            assert found == [row for row in wanted(keyed) if row[0] >= at]
            at = served.json(f"{PATH}?offset=100000")["next_offset"]
            again = served.json(f"{PATH}?count=5&offset={whole['min_offset']}")
            assert again["commit"] == whole["commit"], "its pages are kept beside"
        keyed.clock.advance(KEPT_SECONDS)
        found, _ = read_on(served, 1000, at - 1)
        assert found == [row for row in wanted(keyed) if row[0] >= at - 1]
        assert read_on(served, 7)[0] == wanted(keyed)


def test_what_is_read_for_a_page_is_bounded(keyed: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page does not read gigabytes, nor keep more keys than there is memory for: it says what would help."""
    known = keyed.state.queue(ORDERS)
    assert known is not None
    with pages(keyed) as served:
        monkeypatch.setattr(compactedpages, "MOST_BYTES", known.bytes - 1)
        error = served.json(PATH, status=409)["error"]
        assert (error["found"], error["topic"]) == (f"{known.bytes} bytes", "Orders")
        assert "tiered read --compacted" in error["fix"]
        monkeypatch.setattr(compactedpages, "MOST_BYTES", known.bytes)
        assert read_on(served, 100)[0] == wanted(keyed)
    with pages(keyed, memory_bytes=len(wanted(keyed)) * 8 - 1) as served:
        assert "fetch.compact_bytes" in served.json(PATH, status=409)["error"]["fix"]


def test_what_went_while_pages_are_read(keyed: Scene) -> None:
    """Trimmed messages are left out of later pages; damage is said in the page, with where to go on."""
    with pages(keyed) as served:
        rows = wanted(keyed)
        first = served.json(f"{PATH}?count=2")
        edits = Edits(keyed)
        edits.trim(ORDERS, rows[6][0])
        edits.retire()
        edits.delete()
        keyed.clock.advance(5)
        assert read_on(served, 3, first["next_offset"])[0] == rows[6:]
        keyed.provider.spoil = lambda key, start, data: data if "/data/" not in key else bytes(len(data))
        broken = served.json(f"{PATH}?count=3&offset={rows[6][0]}")
        assert (broken["error"]["status"], broken["end"], broken["next_offset"]) == (500, False, rows[6][0])


def test_a_queue_whose_end_was_lost_and_written_anew(keyed: Scene) -> None:
    """It ends where it did, in its old generation, and is decided anew all the same: what was decided is of other messages."""
    with pages(keyed) as served:
        first, before = served.json(f"{PATH}?count=2"), keyed.state.queue(ORDERS)
        rewind(keyed, keyed.broker.sent[-1][0])
        after = keyed.state.queue(ORDERS)
        assert before is not None
        assert after is not None
        assert (after.generation, after.max_offset) == (before.generation, before.max_offset)
        keyed.clock.advance(5)
        assert read_on(served, 3, first["next_offset"])[0] == wanted(keyed)[2:]
        assert read_on(served, 1000)[0] == wanted(keyed)


def test_queues_that_are_not_there(keyed: Scene) -> None:
    with pages(keyed) as served:
        for path in ("/v1/topics/Other/queues/0/compacted", "/v1/topics/Orders/queues/7/compacted"):
            assert served.json(path, status=404)["error"]["message"] == "this queue is not archived"
        assert served.json(f"{PATH}?count=0", status=400)["error"]["parameter"] == "count"
