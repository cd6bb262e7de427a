"""Jobs and tables among very many queues: what they know of all of them is what a slow walk would tell, and no object is made
for a queue, a run or a gap. No JVM."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.kit.archiveedits import Edits
from tests.kit.assemble import Counting, memory
from tests.kit.command import archive_once
from tests.kit.fetchscene import ORDERS, Scene
from tests.kit.fetchscene import scene as new_scene
from tests.kit.histories import History
from tests.kit.litebroker import LiteBroker
from tests.kit.litehistories import LiteHistory
from tests.kit.manyqueues import RECORD_BYTES, ROWS, many_queues, topic_name
from tests.kit.sparkedits import MEMORY, QUEUES, Following, send
from tiered.archive.state.keys import QUEUE, queue_key
from tiered.archive.state.layout import QueueRecord, pack_queue
from tiered.archive.state.values import GapState, QueueState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.record.consumequeue import CQ_WIRE_DTYPE, UNIT_BYTES
from tiered.model import MessageQueue
from tiered_jobs.audit.check import shares
from tiered_jobs.audit.store import store_differences
from tiered_jobs.profile import facts as facts_module
from tiered_jobs.profile.facts import gather
from tiered_spark import loss, plan, snapshot
from tiered_spark.datasource import MetadataReader
from tiered_spark.loss import warn_of_gaps
from tiered_spark.options import Options, parse_options
from tiered_spark.plan import ScanPartition, partitions, wanted_runs
from tiered_spark.runs import RunTable
from tiered_spark.snapshot import Snapshot, open_snapshots
from tiered_spark.tables import METADATA
from tiered_spark.wanted import first_wish

pytestmark = pytest.mark.spark

COUNT, TOPICS = 10_000, 25
EVERYTHING = parse_options({**MEMORY, "includeSystemTopics": "true"})


@pytest.fixture(scope="module")
def archive() -> Counting:
    store = memory()
    many_queues(store, queues=COUNT, topics=TOPICS, behind=3, shard_bytes=1 << 18)
    return store


@pytest.fixture
def opened(archive: Counting, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    monkeypatch.setattr(snapshot, "shared_provider", lambda url: archive)
    return open_snapshots(EVERYTHING)[0]


@pytest.fixture
def as_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever makes an object for each queue, run or gap of a walk is an error from here on."""

    def refused(*_: object, **__: object) -> Any:
        raise AssertionError("an object is made for each of a walk")

    for kind, names in {
        ArchiveState: ("queues", "runs_all", "gaps", "runs", "closed_parts"), RunTable: ("__iter__",),
    }.items():  # fmt: skip
        for name in names:
            monkeypatch.setattr(kind, name, refused)
    monkeypatch.setattr(ScanPartition, "portions", property(refused))


def known(found: Snapshot) -> tuple[list[QueueState], list[RunState], list[GapState]]:
    """By the slow walks."""
    state = found.view.state
    return list(state.queues()), list(state.runs_all()), list(state.gaps())


def test_what_a_profile_knows_of_topics(
    opened: Snapshot, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    queues, runs, _ = known(opened)

    def of_object(found: Snapshot, times: object, item: object, some: RunTable) -> tuple[Any, Any, Any]:
        """Objects are not there: a byte for each run, two of them stored."""
        numbers = some.records["physical_start"] // (ROWS * RECORD_BYTES) % COUNT % TOPICS
        assert some.queues.topics.take(some.queues.topic[some.queue]).to_pylist() == [
            *map(topic_name, numbers)
        ]
        topics, counts = np.unique(some.queues.topic[some.queue], return_counts=True)
        return topics, counts, 2 * counts

    monkeypatch.setattr(facts_module, "_of_object", of_object)
    request.getfixturevalue("as_arrays")
    facts = gather([opened], EVERYTHING)
    by_topic = Counter(run.queue.topic for run in runs)
    assert set(facts.topics.to_pylist()) == set(by_topic)
    names = [topic_name(3), topic_name(7)]
    for topic, one in facts.of(names).items():
        mine = [queue for queue in queues if queue.queue.topic == topic]
        assert (one.queues, one.largest_queue) == (len(mine), max(queue.messages for queue in mine))
        assert (one.record_bytes, one.stored_bytes) == (by_topic[topic], 2 * by_topic[topic])
    assert facts.without().queues == len(queues)
    assert facts.without(names).record_bytes == len(runs) - sum(by_topic[name] for name in names)
    assert facts.others(names, 3) == [topic_name(n) for n in (0, 1, 2)]
    assert facts.others(names, 100) == sorted(set(by_topic) - set(names))
    assert facts.others(names, 0) == []
    twice = gather([opened, opened], EVERYTHING)
    assert twice.without().queues == 2 * len(queues)
    assert twice.without().largest_queue == facts.without().largest_queue
    assert len(twice.topics) == TOPICS


def test_shares_of_an_audit(opened: Snapshot, as_arrays: None) -> None:
    small = parse_options({**MEMORY, "partitionBytes": "100000"})
    parts = partitions(opened, wanted_runs(opened, small, first_wish(small)), small)
    made = shares(parts)
    assert len(made) > 20
    refs = Counter(item.ref for item in opened.view.state.objects())
    assert Counter(ref for share in made for ref in share.firsts) == refs, (
        "each object's tables are checked once"
    )


def test_partitions_hold_every_run_of_its_own_queue_in_the_order_of_objects(
    opened: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sorted where they lie, cut a thousand at a time, and as they arrive where a task runs."""
    monkeypatch.setattr(plan, "CUT_AT_ONCE", 1000)
    small = parse_options({**MEMORY, "partitionBytes": "100000"})
    made = partitions(opened, wanted_runs(opened, small, first_wish(small)), small)
    parts: list[ScanPartition] = pickle.loads(pickle.dumps(made))
    found = [piece.run for part in parts for portion in part.portions for piece in portion.pieces]
    runs = sorted(
        opened.view.state.runs_all(),
        key=lambda run: (run.object.commit_seq, run.object.index, run.first_block),
    )
    assert found == runs != []


def rows(table: str, options: Options) -> list[dict[str, Any]]:
    reader = MetadataReader(options)
    return [row for batch in reader.read(None) for row in batch.to_pylist()]  # type: ignore[arg-type]


def test_the_table_of_queues(opened: Snapshot, request: pytest.FixtureRequest) -> None:
    queues, _, _ = known(opened)
    request.getfixturevalue("as_arrays")
    found = rows("queues", parse_options({**MEMORY, "table": "queues"}))
    assert [(row["topic"], row["queue_id"], row["max_offset"], row["runs"]) for row in found] == [
        (queue.queue.topic, queue.queue.queue_id, queue.max_offset, queue.runs) for queue in queues
    ]
    ms = [int(row["max_store_timestamp"].timestamp() * 1000) for row in found]
    assert ms == [queue.max_store_time for queue in queues]
    assert rows("gaps", parse_options({**MEMORY, "table": "gaps"})) == []


@pytest.mark.parametrize("seed", range(2))
def test_tables_after_any_history(
    seed: int, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> None:
    """Queues without a current generation, and gaps and runs of all generations."""
    history = History(random.Random(seed), topics=5, queues=4)
    for _ in range(80):
        history.step()
    gone = QUEUE + queue_key(MessageQueue("Gone", 3))
    history.store.put_many([(gone, pack_queue(QueueRecord(highest_generation=2)))])
    found = SimpleNamespace(
        view=SimpleNamespace(state=ArchiveState(history.store)),
        choice=Snapshot.choice.__get__(SimpleNamespace(shows=lambda topic, options: True)),
        place=SimpleNamespace(cluster="c", broker="b"), commit=7, objects=lambda refs: refs,
    )  # fmt: skip
    queues, _, gaps = known(found)  # type: ignore[arg-type]
    assert gaps
    assert [queue.queue.topic for queue in queues if queue.generation is None] == ["Gone"]
    request.getfixturevalue("as_arrays")
    shown = list(METADATA["queues"].rows(found, EVERYTHING))  # type: ignore[arg-type]
    assert [row[2:10] for row in shown] == [
        (q.queue.topic, q.queue.queue_id, q.generation, q.min_offset, q.max_offset, q.messages, q.bytes, q.runs) for q in queues
    ]  # fmt: skip
    assert [row[10] is None for row in shown] == [queue.min_store_time is None for queue in queues]
    assert list(METADATA["gaps"].rows(found, EVERYTHING)) == [  # type: ignore[arg-type]
        ("c", "b", g.queue.topic, g.queue.queue_id, g.generation, g.start, g.end, g.end - g.start, g.reason, g.commit_seq)
        for g in gaps
    ]  # fmt: skip
    warn_of_gaps(EVERYTHING, [found])  # type: ignore[list-item]
    assert f"{sum(g.end - g.start for g in gaps)} messages of these topics were lost" in caplog.text


def test_the_table_of_aliases() -> None:
    """Every alias whose record is kept, by lite queue, generation and offset; some lite queues are asked for by name."""
    history = LiteHistory(random.Random(3))
    for _ in range(60):
        history.step()
    found = SimpleNamespace(
        view=SimpleNamespace(state=ArchiveState(history.store)),
        choice=Snapshot.choice.__get__(SimpleNamespace(shows=lambda topic, options: True)),
        place=SimpleNamespace(cluster="c", broker="b"), commit=7,
    )  # fmt: skip
    expected = [
        (name, generation, offset, alias[0].topic, alias[0].queue_id, *alias[1:4])
        for name, queue in sorted(history.lite.items())
        for (generation, offset), alias in sorted(queue.aliases.items())
        if not history.is_gone(alias)
    ]
    assert expected
    shown = list(METADATA["aliases"].rows(found, EVERYTHING))  # type: ignore[arg-type]
    assert [row[2:10] for row in shown] == expected
    assert all(row[:2] == ("c", "b") and row[11] == 7 for row in shown)
    some = parse_options({**MEMORY, "table": "aliases", "topics": "%LMQ%a"})
    only = list(METADATA["aliases"].rows(found, some))  # type: ignore[arg-type]
    assert only == [row for row in shown if row[2] == "%LMQ%a"]


# ---- the broker's own queues


def put_queue(store: Path, topic: str, queue_id: int, end: int) -> None:
    """A consume queue of units [0, end)."""
    units = np.zeros(end, CQ_WIRE_DTYPE)
    units["size"] = 100
    directory = store / "consumequeue" / topic / str(queue_id)
    directory.mkdir(parents=True)
    (directory / "00000000000000000000").write_bytes(units.tobytes().ljust(UNIT_BYTES * (end + 3), b"\0"))


def audited(store: Path, found: Snapshot, **flags: object) -> tuple[Any, Any, dict[str, Any]]:
    args = SimpleNamespace(store=str(store), limit=flags.pop("limit", 100))
    work = SimpleNamespace(args=args, options=lambda **more: {**MEMORY, **flags, **more})
    told: dict[str, Any] = {}
    return *store_differences(work, [found], told), told["store"]  # type: ignore[arg-type]


def test_a_store_of_many_queues(opened: Snapshot, tmp_path: Path, as_arrays: None) -> None:
    (tmp_path / "commitlog").mkdir()
    for number in range(40):
        put_queue(tmp_path, topic_name(number % 4), number // 4, 12 + (number % 3) - 1)
    put_queue(tmp_path, "Unknown", 0, 9)
    listed, kinds, told = audited(tmp_path, opened, limit=5)
    # Ten thousand queues of 12 messages, of which the first three thousand have 16.
    assert kinds == {"the archive ends behind the broker's queue": 40}
    assert len(listed) == 5, "no more are held than are listed"
    assert told == {"queues": 41, "queues_compared": 40, "messages_behind": 9}
    listed, kinds, told = audited(tmp_path, opened, topics="Unknown")
    assert (listed, kinds, told["messages_behind"]) == ([], {}, 9)


def test_lite_queues_of_a_store(tmp_path: Path) -> None:
    """The archive keeps them as further names of messages, and they are not behind."""
    broker = LiteBroker(tmp_path / "store")
    for number in range(30):
        broker.time_ms += 10
        broker.place(["%LMQ%a", "%LMQ%b"][: number % 3], queue_id=number % 2, body=b"%d" % number)
    assert archive_once(broker.store, tmp_path / "archive", "dispatch.lite_queues=true").code == 0
    url = f"file://{tmp_path / 'archive'}"
    (found,) = open_snapshots(parse_options({"archive": url}))
    copy = tmp_path / "copy"
    (copy / "commitlog").mkdir(parents=True)
    for topic, queue_id, end in (("Orders", 0, 15), ("Orders", 1, 15), ("%LMQ%a", 0, 20), ("%LMQ%b", 0, 13)):
        put_queue(copy, topic, queue_id, end)
    listed, _, told = audited(copy, found)
    assert listed == []
    assert told == {"queues": 4, "queues_compared": 4, "messages_behind": 3}


# ---- what retention took from a stream


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with new_scene(tmp_path) as made:
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: made.provider)
        send(made, 100, lambda n: QUEUES[n % 2])
        yield made


def test_a_batch_looks_only_at_queues_that_changed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    walks: list[Any] = []

    def walk(*args: Any, **named: Any) -> Any:
        walks.append(args)
        return read_queues(*args, **named)

    read_queues = loss.read_queues
    monkeypatch.setattr(loss, "read_queues", walk)
    edits, query = Edits(scene), Following()
    query.next()
    send(scene, 40, lambda n: QUEUES[n % 2])
    assert len(query.next()) == 40
    assert len(walks) == 1, "the first look is at all of them"
    edits.trim(ORDERS, 10)
    send(scene, 40, lambda n: QUEUES[n % 2])
    assert len(query.next()) == 40
    assert len(walks) == 2, "something was trimmed: the archive as the stream had read it is looked at"
    for _ in range(3):
        send(scene, 20, lambda n: QUEUES[n % 2])
        assert len(query.next()) == 20
    assert len(walks) == 2, "what was trimmed before is not looked at again, though its queue goes on"
