"""Topics and queues page by page: the same as walking over all of them, whatever their names, gaps and checkpoints."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from itertools import groupby, islice

import pytest

from tests.kit.histories import History
from tiered.archive.fold.apply import apply
from tiered.archive.state import listing
from tiered.archive.state.keys import GAP, QUEUE, offset_key, queue_key
from tiered.archive.state.layout import QueueRecord, pack_queue
from tiered.archive.state.listing import TopicState, list_queues, list_topics
from tiered.archive.state.scope import Scope
from tiered.archive.state.view import ArchiveState
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.text.machine import Machine

HOSTILE = ("", "A", "AB", "A\0", "A\0\x01", "A\0\xff", "A\x01", "Ä", "%RETRY%A", "z" * 127, "\U0010ffff")


@pytest.fixture(scope="module")
def history() -> History:
    made = History(random.Random(11), topics=12)
    for _ in range(60):
        made.step()
    return made


def hostile() -> MemoryStore:
    """Topics whose names are hostile as keys, each with the queues 0 and 2³¹−1, the latter with two gaps."""
    store = MemoryStore()
    pairs = []
    for number, topic in enumerate(HOSTILE):
        for queue_id in (0, 2**31 - 1):
            key = queue_key(MessageQueue(topic, queue_id))
            record = QueueRecord(1, 1, 1, max_offset=9, messages=number + 1, bytes=100, runs=1)
            pairs.append((QUEUE + key, pack_queue(record)))
            if queue_id:
                pairs += [(offset_key(GAP, key, 1, at), bytes(8) + bytes(8) + b"lost") for at in (3, 5)]
    store.put_many(pairs)
    return store


def slowly(state: ArchiveState) -> Iterator[TopicState]:
    """Queue by queue."""
    for topic, found in groupby(state.queues(), lambda q: q.queue.topic):
        queues = list(found)
        oldest = [q.min_store_time for q in queues if q.min_store_time is not None]
        newest = [q.max_store_time for q in queues if q.max_store_time is not None]
        yield TopicState(
            topic, len(queues), sum(q.messages for q in queues), sum(q.bytes for q in queues),
            min(oldest, default=None), max(newest, default=None), sum(1 for q in queues for _ in state.gaps(q.queue)),
        )  # fmt: skip


@pytest.mark.parametrize("chunk", [1, 2, 3, 8192])
def test_topics_are_what_their_queues_are_together(
    history: History, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_FIRST_CHUNK", chunk)
    monkeypatch.setattr(listing, "_CHUNK", chunk)
    expected = list(slowly(history.state))
    assert list(list_topics(history.store)) == expected
    assert any(topic.gaps for topic in expected)
    assert any(topic.queues > 1 for topic in expected)


def test_queues_come_with_their_gaps(history: History) -> None:
    state = history.state
    expected = [(q, tuple(state.gaps(q.queue))) for q in state.queues()]
    assert [(found.queue, found.gaps) for found in list_queues(state.view)] == expected


def paged(names: Sequence[TopicState]) -> list[str]:
    return [topic.topic for topic in names]


@pytest.mark.parametrize("prefix", ["", "A", "A\0", "Ä", "%RETRY%", "zz", "none"])
def test_pages_of_hostile_names_leave_nothing_out(prefix: str) -> None:
    store = hostile()
    ordered = sorted((n for n in HOSTILE if n.startswith(prefix)), key=str.encode)
    found, after = list[str](), None
    while page := paged(list(islice(list_topics(store, prefix=prefix, after=after), 2))):
        found += page
        after = page[-1]
    assert found == ordered
    rows, last = list[MessageQueue](), None
    while some := list(islice(list_queues(store, prefix=prefix, after=last), 3)):
        rows += [row.queue.queue for row in some]
        last = rows[-1]
        assert all(len(row.gaps) == (2 if row.queue.queue.queue_id else 0) for row in some)
    assert rows == [MessageQueue(topic, number) for topic in ordered for number in (0, 2**31 - 1)]
    assert all(topic.gaps == 2 for topic in list_topics(store, prefix=prefix))


def test_a_page_looks_at_little(history: History) -> None:
    seen = 0

    class Watched(MemoryStore):
        def iterate(self, *args: object, **more: object) -> Iterator[tuple[bytes, bytes]]:
            nonlocal seen
            for pair in hostile_store.iterate(*args, **more):  # type: ignore[arg-type]
                seen += 1
                yield pair

    hostile_store = MemoryStore()
    record = pack_queue(QueueRecord(1, 1, 1))
    hostile_store.put_many((QUEUE + queue_key(MessageQueue(f"T{n:05}", 0)), record) for n in range(20_000))
    page = list(islice(list_topics(Watched(), after="T10000"), 3))
    assert paged(page) == ["T10001", "T10002", "T10003"]
    assert seen <= 64


@pytest.mark.parametrize("prefix", ["topic-1", "topic-", "topic-3", "absent"])
def test_a_scope_of_a_beginning_folds_those_topics_alone(history: History, prefix: str) -> None:
    scope, partial = Scope.beginning(prefix), MemoryStore()
    for commit in history.commits:
        made = apply(partial, commit, scope)
        partial.put_many(made.puts, made.deletes, applied=made.head.position())
    assert list(list_topics(partial)) == list(list_topics(history.store, prefix=prefix))


def test_scopes_of_beginnings_are_joined() -> None:
    joined = Scope.beginning("Ab") | Scope.beginning("A") | Scope.topic("Abc") | Scope.queue("B", 1)
    assert joined.beginnings == ("A",)
    assert joined.prefixes == tuple(sorted((b"A", queue_key(MessageQueue("B", 1)))))
    assert joined.width is None
    assert joined.has("Axe", 7)
    assert not joined.has("B", 2)
    assert Scope.beginning("").everything
    assert Scope.beginning("Top").covers(GAP + queue_key(MessageQueue("Topic", 1)))
    assert not Scope.beginning("Top").covers(GAP + b"To")


def test_json_lines_come_as_rows_do() -> None:
    written = io.StringIO()

    def rows() -> Iterator[tuple[object, ...]]:
        yield ("one",)
        assert written.getvalue() == '{"name": "one"}\n'
        yield ("two",)

    with redirect_stdout(written):
        Machine(lines=True).table(["name"], rows())
        Machine(lines=True).table(["name"], [])
    assert [json.loads(line) for line in written.getvalue().splitlines()] == [
        {"name": "one"},
        {"name": "two"},
    ]
