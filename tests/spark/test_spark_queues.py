"""Plans among very many queues: which keys are walked over, which runs are found, what is fetched and held. No JVM."""

from __future__ import annotations

import gc
import random
import sys
from collections.abc import Callable
from fnmatch import fnmatchcase

import numpy as np
import pytest

from tests.kit.assemble import KEYS, Counting, memory
from tests.kit.histories import History
from tests.kit.manyqueues import many_queues, topic_name
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.state.keys import queue_key, topic_key
from tiered.archive.state.scope import Scope
from tiered.archive.state.values import RunState
from tiered.archive.state.view import ArchiveState
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered_spark import queues as queues_module
from tiered_spark import runs as runs_module
from tiered_spark import snapshot
from tiered_spark.choice import MAX_IDS, Choice, key_prefixes, literal, scope_of
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader
from tiered_spark.options import exactly, parse_options, perhaps
from tiered_spark.plan import ScanPartition
from tiered_spark.queues import read_queues
from tiered_spark.runs import RunTable, newer_runs, read_runs

pytestmark = pytest.mark.spark

QUEUES, TOPICS = 10_000, 25
MEMORY = {"archive": "memory://x"}


@pytest.fixture(scope="module")
def archive() -> Counting:
    """Ten thousand queues, 30,000 runs; a checkpoint of small shards and three commits behind it."""
    store = memory()
    many_queues(store, queues=QUEUES, topics=TOPICS, behind=3, shard_bytes=1 << 18)
    store.calls.clear()
    return store


@pytest.fixture(scope="module")
def every(archive: Counting) -> set[RunState]:
    """All its runs, by a fold of everything."""
    view = ArchiveReader(archive, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()
    return set(view.state.runs_all())


@pytest.fixture
def planned(archive: Counting, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[ScanPartition]]:
    """A plan of it."""
    monkeypatch.setattr(snapshot, "shared_provider", lambda url: archive)

    def plan(**options: str) -> list[ScanPartition]:
        archive.calls.clear()
        found = MessageReader(parse_options({**MEMORY, **options}), message_schema()).partitions()
        assert all(isinstance(part, ScanPartition) for part in found)
        return found  # type: ignore[return-value]

    return plan


def runs_of(parts: list[ScanPartition]) -> set[RunState]:
    """Each run of a plan, once."""
    found = [piece.run for part in parts for portion in part.portions for piece in portion.pieces]
    assert len(set(found)) == len(found)
    return set(found)


@pytest.mark.parametrize(
    ("pattern", "begins", "whole"),
    [
        ("Orders", "Orders", True), ("Orders*", "Orders", False), ("*", "", False), ("Ord?rs", "Ord", False),
        ("[O]rders", "Orders", True), ("Ord[ae]rs", "Ord", False), ("Ord[!e]rs", "Ord", False), ("Or[[]d", "Or[d", True),
        ("[]]d", "]d", True), ("Or[d", "Or", False), ("[!", "", False), ("", "", True),
    ],
)  # fmt: skip
def test_what_all_names_of_a_pattern_begin_with(pattern: str, begins: str, whole: bool) -> None:
    assert literal(pattern) == (begins, whole)
    if whole:
        assert fnmatchcase(begins, pattern)


ODD = (
    *("Orders", "%RETRY%group", "a*b", "Or[d", "[!x]", "a?", "ü"),
    *("!x", "!", "]", "]x", "[x]", "[]]", "[!]", "^", "-"),
)


@pytest.mark.parametrize("name", ODD)
def test_a_pattern_for_one_name_is_known_as_one(name: str) -> None:
    assert literal(exactly(name)) == (name, True)
    assert fnmatchcase(name, exactly(name))
    if not set("*?[").intersection(name):
        some = parse_options({**MEMORY, **perhaps([name])})
        assert some.takes(name)
        assert key_prefixes(some) == [topic_key(name)]


def test_keys_of_topics_that_are_named() -> None:
    some = parse_options({**MEMORY, "topics": "B,[A],C"})
    assert scope_of(some).topics == dict.fromkeys("ABC")
    assert key_prefixes(some) == [topic_key("A"), topic_key("B"), topic_key("C")]
    one = [queue_key(MessageQueue(topic, number)) for topic in "ABC" for number in (3, 7)]
    assert key_prefixes(some, {7, 3}) == one
    assert key_prefixes(some, range(MAX_IDS + 1)) == key_prefixes(some)


def test_keys_of_patterns() -> None:
    some = parse_options({**MEMORY, "topics": "Orders*,OrdersOld,Clicks,Ord?"})
    assert scope_of(some) == Scope({"OrdersOld": None, "Clicks": None}, ("Ord",))
    assert scope_of(parse_options({**MEMORY, "topics": "Orders,*42"})).everything
    assert key_prefixes(some) == [topic_key("Clicks"), b"Ord"]
    assert key_prefixes(parse_options(MEMORY), {1}) == [b""]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("chunk", "apart"), [(1, 0), (3, 1), (8192, 0), (8192, 64)])
def test_runs_of_chosen_queues_are_those_of_a_walk_over_all(
    seed: int, chunk: int, apart: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (queues_module, runs_module):
        monkeypatch.setattr(module, "CHUNK", chunk)
    monkeypatch.setattr(runs_module, "APART", apart)
    chance = random.Random(seed)
    history = History(chance, topics=5, queues=4)
    for _ in range(60):
        history.step()
    state = ArchiveState(history.store)
    current = {queue.queue: queue.generation for queue in state.queues()}
    names = sorted({queue.topic for queue in current})
    for _ in range(8):
        shown = frozenset(chance.sample(names, chance.randint(0, len(names))))
        ids = chance.choice([None, frozenset({0, 3}), frozenset({9})])
        prefixes = chance.choice([[b""], [topic_key(name) for name in sorted(shown)]])
        found = read_runs(state, Choice(prefixes, shown.__contains__, ids))
        wanted = {
            q
            for q in current
            if current[q] is not None and q.topic in shown and (ids is None or q.queue_id in ids)
        }
        assert found.queues.names() == sorted(wanted, key=queue_key)
        assert list(found) == [
            run for run in state.runs_all() if run.queue in wanted and run.generation == current[run.queue]
        ]
        everything = read_queues(state, Choice()).queues
        rows = found.queues.rows_in(everything)
        assert everything.only(rows).names() == found.queues.names()
        there = everything.rows_in(found.queues)
        assert np.flatnonzero(there >= 0).tolist() == rows.tolist()


@pytest.mark.parametrize(
    ("topics", "ids"), [((23,), ()), ((7, 8, 19), ()), ((23,), (7,)), ((22, 23), (7, 8, 399))], ids=str
)
def test_topics_among_many_take_few_requests(
    archive: Counting,
    planned: Callable[..., list[ScanPartition]],
    every: set[RunState],
    topics: tuple[int, ...],
    ids: tuple[int, ...],
) -> None:
    names = {topic_name(number) for number in topics}
    some = runs_of(planned(topics=",".join(names), **({"queueIds": ",".join(map(str, ids))} if ids else {})))
    assert some == {
        run for run in every if run.queue.topic in names and (not ids or run.queue.queue_id in ids)
    }
    gets = [key for verb, key in archive.calls if verb == "get"]
    shards = [key for key in gets if "/shard/" in key]
    # Head and objects; of a topic its queues and runs, which a shard may end among.
    assert len(shards) <= 2 + 3 * len(topics), shards
    assert len(gets) - len(shards) <= 3 + 3, gets  # three commits lie behind the checkpoint


def test_a_plan_of_everything_holds_no_object_for_a_queue_or_a_run(
    archive: Counting, planned: Callable[..., list[ScanPartition]], every: set[RunState]
) -> None:
    planned(topics=topic_name(1))
    gc.collect()
    before = sys.getallocatedblocks()
    parts = planned()
    gc.collect()
    assert sys.getallocatedblocks() - before < QUEUES // 10
    assert sum(verb == "get" and "/shard/" in key for verb, key in archive.calls) > 20
    assert len(every) == 3 * QUEUES + 3000
    assert runs_of(parts) == every


@pytest.mark.parametrize("topics", ["*", f"{topic_name(3)},{topic_name(23)}"])
def test_what_a_batch_adds_is_found_without_a_walk(
    archive: Counting, topics: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "shared_provider", lambda url: archive)
    options = parse_options({**MEMORY, "topics": topics})
    (found,) = snapshot.open_snapshots(options)
    choice, state = found.choice(options), found.view.state
    walked = {behind: list(read_runs(state, choice, found.commit - behind)) for behind in range(5)}
    assert [bool(walked[behind]) for behind in range(5)] == [False, True, True, True, True]
    archive.calls.clear()
    walks: list[int] = []

    def walk(state: ArchiveState, choice: Choice, after: int) -> RunTable:
        walks.append(after)
        return read_runs(state, choice, after)

    monkeypatch.setattr(runs_module, "read_runs", walk)
    for behind, runs in walked.items():
        assert list(newer_runs(state, choice, found.commit - behind)) == runs
        assert (
            not archive.calls and not walks
        ) or behind == 4  # the fourth is in the checkpoint: only a walk tells
    assert walks == [found.commit - 4]
