"""Scans and streams beside edits of the archive: a plan made before an edit and read after it gives the rows of its own
snapshot, or says what is gone; a plan made after it gives the new state. No JVM."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from tests.kit.archiveedits import DISPATCH, Edits, rewind, start_again
from tests.kit.assemble import KEYS, assemble, memory
from tests.kit.fetchscene import ORDERS, Ranges, Scene
from tests.kit.fetchscene import scene as new_scene
from tests.kit.merging import merge_all
from tests.kit.sparkedits import (
    HEADERS,
    MEMORY,
    QUEUES,
    WHOLE,
    Following,
    Rowset,
    World,
    answer,
    places,
    planned,
    seen,
    send,
)
from tests.kit.sparkscene import scan
from tiered.codec.format.edits import EditKind, Rows, batch
from tiered.errors import NotFound, Refused
from tiered_spark import plan_keys, plan_merged, snapshot
from tiered_spark.positions import Position

pytestmark = pytest.mark.spark


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with new_scene(tmp_path) as made:
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: made.provider)
        plan_keys._objects.cache_clear()
        plan_merged._kept.clear()  # the archives of all tests have one id
        yield made


@pytest.fixture
def edits(scene: Scene) -> Edits:
    """Five objects of 40 messages each in one queue, and one that holds another queue too."""
    for _ in range(5):
        send(scene, 40)
    send(scene, 40, lambda n: QUEUES[n % 2])
    return Edits(scene)


def send_one(scene: Scene, **fields: object) -> None:
    """A message that a broker would number otherwise."""
    scene.broker.send(**fields)  # type: ignore[arg-type]
    scene.daemon.settle()


EDITS: dict[str, Callable[[Edits], object]] = {
    "merge": lambda e: e.merge(ORDERS, e.runs(ORDERS)[1:4]),
    "seal": lambda e: e.merge(ORDERS, e.runs(ORDERS)[:5], level=2),
    "merging": lambda e: merge_all(e.scene.daemon),
    "trim": lambda e: e.trim(ORDERS, 100),
    "trim of all": lambda e: e.trim(ORDERS, 220),
    "rewind": lambda e: rewind(e.scene, e.scene.broker.sent[150][0]),
    "new messages": lambda e: send(e.scene, 10),
    "offsets that begin anew": lambda e: send_one(e.scene, queue_offset=0),
    "a gap": lambda e: send_one(e.scene, queue_offset=500),
    "another writer": lambda e: start_again(e.scene),
}


@pytest.mark.parametrize("columns", ["", HEADERS])
@pytest.mark.parametrize("name", EDITS)
def test_a_plan_made_before_an_edit_gives_its_snapshot(edits: Edits, name: str, columns: str) -> None:
    chosen = {"columns": columns} if columns else {}
    before = seen(scan({**MEMORY, **chosen}))
    assert len(before) == 240
    later = planned(columns)
    EDITS[name](edits)
    assert later() == before
    after = seen(scan({**MEMORY, **chosen}))
    gone = {"trim": 100, "trim of all": 220, "rewind": 89, "offsets that begin anew": 219, "a gap": -1}
    wanted = len(before) - gone.get(name, 0) + (10 if name == "new messages" else 0)
    assert len(after) == wanted
    if name in ("merge", "seal", "merging", "another writer"):
        assert after == before


@pytest.mark.parametrize("columns", ["", HEADERS])
@pytest.mark.parametrize("onDamage", ["fail", "skip"])
def test_a_plan_whose_objects_were_deleted_says_so(edits: Edits, columns: str, onDamage: str) -> None:  # noqa: N803
    """Also where damage is skipped: what retention took is no damage."""
    later = planned(columns, onDamage=onDamage)
    edits.trim(ORDERS, 100)
    assert len(edits.retire()) == 2
    named = later()
    assert len(named) == 240  # named for deletion, and still there
    gone = edits.delete()
    with pytest.raises(NotFound) as caught:
        later()
    assert caught.value.fields["key"] in [KEYS.key(path) for path in gone]
    assert "run it again" in str(caught.value)
    assert [
        row["queue_offset"] for row in scan({**MEMORY, "topics": "Orders"}) if row["queue_id"] == 0
    ] == list(range(100, 220))


def test_a_key_look_up_beside_a_merge(edits: Edits) -> None:
    for n in range(30):
        edits.scene.broker.send(properties={"KEYS": f"needle key-{n}"} if n % 10 == 0 else {})
        if n % 7 == 0:
            edits.scene.daemon.settle()
    edits.scene.daemon.settle()
    later, before = planned(keys="needle"), seen(scan({**MEMORY, "keys": "needle"}))
    assert len(before) == 3
    edits.merge(ORDERS, edits.runs(ORDERS)[-4:])
    assert later() == before == seen(scan({**MEMORY, "keys": "needle"}))


def test_the_past_before_a_trim(edits: Edits) -> None:
    """``asOfCommit`` gives what was trimmed since, as long as its objects and its commits are there; then the plan says which
    is the oldest that can be chosen, and that one can be."""
    head = edits.scene.state.head()
    assert head is not None
    past, before = {**MEMORY, "asOfCommit": str(head.seq)}, seen(scan(MEMORY))
    edits.trim(ORDERS, 100)
    edits.merge(ORDERS, edits.runs(ORDERS)[1:3])
    assert seen(scan(past)) == before
    named = edits.scene.state.head()
    assert named is not None
    edits.retire()
    assert seen(scan(past)) == before
    later = planned(**past)
    gone = {KEYS.key(path) for path in edits.delete()}
    with pytest.raises(NotFound, match="run it again") as caught:
        later()
    with pytest.raises(NotFound, match=rf"commit {named.seq} is the oldest that can be chosen") as caught:
        planned(**past)
    assert caught.value.fields["object"] in gone
    assert len(scan({**MEMORY, "asOfCommit": str(named.seq)})) == 140
    with pytest.raises(NotFound, match="is the oldest that can be chosen"):
        scan({**MEMORY, "asOfCommit": str(named.seq - 1)})
    only = {
        **past,
        "topics": "Orders",
        "columns": "queue_id,queue_offset",
        "startingTimestamp": "9999999999999",
    }
    assert scan(only) == []  # what is not needed need not be there
    floor = edits.put(batch(EditKind.RETIRE, keys=Rows([[]]), floor=Rows([head.seq + 1])))
    with pytest.raises(
        NotFound, match=rf"commits {head.seq + 1} to {floor}.*commit {head.seq + 1} is the oldest"
    ):
        scan(past)
    assert len(scan(MEMORY)) == 140


def test_an_object_that_is_another_is_not_believed(edits: Edits) -> None:
    """Its bytes fail their checksums: an error, and no row of it."""
    first, second = edits.runs(ORDERS)[:2]
    items = [edits.scene.state.object(run.object) for run in (first, second)]
    assert items[0] is not None
    assert items[1] is not None
    later = [planned(columns, onDamage="skip") for columns in (WHOLE, HEADERS)]
    data = edits.scene.provider.get(KEYS.key(items[1].path)).data
    edits.scene.provider.delete(KEYS.key(items[0].path))
    edits.scene.provider.put(KEYS.key(items[0].path), [data], create_only=True)
    whole, headers = (rows() for rows in later)
    for rows in (whole, headers):
        assert len(rows) == 200
        assert not [
            row
            for row in rows
            if row["topic"] == "Orders" and row["queue_offset"] < 40 and row["queue_id"] == 0
        ]


# ---- at random, against a plain model


@pytest.mark.parametrize("seed", range(6))
def test_scans_beside_edits_at_random(scene: Scene, seed: int) -> None:
    """Each scan is read some edits after it was planned."""
    world = World(scene, random.Random(seed))
    waiting: list[tuple[Callable[[], Rowset], list[tuple[Any, ...]], int]] = []
    outcomes: Counter[str] = Counter()
    for _ in range(24):
        columns = world.chance.choice([HEADERS, WHOLE])
        waiting.append((planned(columns), world.rows(), world.deleted))
        world.step("flush", "flush", "trim", "merge", "merge", "compact", "lose", "delete")
        assert places(scan({**MEMORY, "columns": columns})) == world.rows()
        while len(waiting) > world.chance.randint(0, 4):
            later, wanted, deleted = waiting.pop(world.chance.randrange(len(waiting)))
            rows = answer(later)
            outcomes["gone" if rows is None else "snapshot"] += 1
            if rows is None:
                assert world.deleted > deleted
            else:
                assert places(rows) == wanted
    bodies = {m.physical_offset: m.body for messages in world.live.values() for m, _ in messages}
    assert {r["physical_offset"]: r["body"] for r in scan({**MEMORY, "columns": WHOLE})} == bodies
    assert outcomes["snapshot"] > 5, (outcomes, world.done)


# ---- streams


@pytest.mark.parametrize("seed", range(8))
def test_a_stream_beside_edits_at_random(scene: Scene, seed: int) -> None:
    """Batches are read some edits after they were planned; one that fails is planned anew, as a restart does."""
    world = World(scene, random.Random(seed))
    query = Following(failOnDataLoss="false", **({"maxMessagesPerTrigger": "9"} if seed % 2 else {}))
    handed: list[tuple[Any, ...]] = []
    outcomes: Counter[str] = Counter()
    for _ in range(24):
        world.step("flush", "flush", "trim", "merge", "compact", "lose", "delete")
        if world.chance.random() < 0.2:
            query.restart()
        assert query.at is not None
        query.at, end = json.loads(json.dumps(query.at)), query.latest()
        begin, stop = *query.at.values(), *end.values()
        rows = None
        while rows is None:
            later, wanted, deleted = query.plan(end), world.rows(begin, stop), world.deleted
            if world.chance.random() < 0.5:
                world.step("flush", "trim", "merge", "compact", "lose", "delete")
            rows = answer(later)
            if rows is None:
                assert world.deleted > deleted
                outcomes["gone"] += 1
                query.restart()
        assert places(rows) == wanted
        assert len(rows) <= 9 or not seed % 2
        handed += [(r["physical_offset"], r["body"]) for r in rows]
        query.at = end
        outcomes["read"] += 1
    assert len(handed) == len(set(handed)) > (60 if seed % 2 else 100), (outcomes, world.done)


def test_a_stream_across_merges(edits: Edits) -> None:
    """Merged rows keep the commits they came with: what had been read is not read again, what had not been is."""
    query, before = Following(), seen(scan({**MEMORY, "columns": WHOLE}))
    assert query.next() == before
    late = send(edits.scene, 30)
    edits.merge(ORDERS, edits.runs(ORDERS)[-3:])  # read before, and not
    edits.merge(ORDERS, edits.runs(ORDERS)[:3], level=2)
    merge_all(edits.scene.daemon)
    assert places(query.next()) == sorted(
        (m.topic, m.queue_id, m.queue_offset, m.physical_offset) for m in late
    )
    assert query.next() == []
    assert len(Following().next()) == 270
    assert Following(startingPosition="latest").next() == []


def test_a_batch_planned_before_a_merge_is_read_after_it(edits: Edits) -> None:
    query = Following()
    before = seen(scan({**MEMORY, "columns": WHOLE}))
    later = query.plan(query.latest())
    edits.merge(ORDERS, edits.runs(ORDERS)[:3])
    assert later() == before
    edits.retire()
    edits.delete()
    with pytest.raises(NotFound, match="run it again"):
        later()


@pytest.mark.parametrize("now", [False, True])
def test_another_archive_in_the_same_place_is_not_gone_on_with(
    edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: bool
) -> None:
    """It may well be longer than the one that the query had read."""
    query = Following()
    assert len(query.next()) == 240
    with new_scene(tmp_path / "other") as other:
        other.daemon.close()
        other.provider = Ranges(memory(other.clock))
        other.daemon = assemble(other.broker.store, other.provider, other.clock, dispatch=DISPATCH, seed=2)
        for _ in range(20):
            send(other, 5)
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: other.provider)
        query.restart()
        if now:
            query.reader.prepareForTriggerAvailableNow()
        with pytest.raises(Refused, match="new checkpoint location"):
            query.next()


def test_a_batch_that_is_done_again_needs_what_was_planned(scene: Scene) -> None:
    """After a crash Spark asks for the batch that it had planned, and for no offset: what is not there must not be no rows."""
    send(scene, 40)
    query = Following()
    first, end = query.at, query.latest()
    assert first is not None
    rows = query.plan(end)()
    query.restart()
    assert query.plan(end)() == rows  # the same archive: the same rows
    (place,) = end
    for start, stop in (
        (first, {place: end[place] + 1}),  # the archive is behind
        ({place: end[place] + 1}, {place: end[place] + 1}),
        (first, {place.replace("memory://x", "memory://x/"): end[place]}),  # another spelling of its URL
        (first, {**end, "memory://x C/other 00": 0}),  # another choice of archives
        ({**end, "memory://x C/other 00": 0}, end),
    ):
        query.restart()
        query.at = start
        with pytest.raises(Refused, match="new checkpoint location"):
            query.plan(stop)
    query.at = {"memory://x C/other 00": -1}  # nothing was read of it
    assert query.plan({**end, "memory://x C/other 00": -1})() == rows
    query.at = {}  # archives that were added later
    assert query.plan(end)() == rows
    assert query.plan({})() == []


def test_a_batch_is_held_against_the_archive_as_it_is_now(scene: Scene) -> None:
    """Not as it was when the query began: it has grown since, and perhaps another reader has planned the batch."""
    send(scene, 40)
    query = Following()
    query.at = query.latest()
    new = send(scene, 7)
    other = Following()
    other.at = query.at
    end = other.latest()
    assert places(query.plan(end)()) == sorted(
        (m.topic, m.queue_id, m.queue_offset, m.physical_offset) for m in new
    )


@pytest.mark.parametrize("limit", ["maxMessagesPerTrigger", "maxBytesPerTrigger"])
def test_a_commit_larger_than_a_batch_is_divided(edits: Edits, limit: str) -> None:
    """Behind a bulk run, merged meanwhile or not, and with a query that begins anew behind each batch."""
    before, query = seen(scan({**MEMORY, "columns": WHOLE})), Following()
    query.next()
    send(edits.scene, 200, lambda n: QUEUES[n % 3])  # one commit
    wanted = [row for row in seen(scan({**MEMORY, "columns": WHOLE})) if row not in before]
    query.options[limit] = "7" if limit == "maxMessagesPerTrigger" else "4000"
    sizes: list[int] = []
    rows: Rowset = []
    while True:
        query.restart()
        assert query.at is not None
        query.at = json.loads(json.dumps(query.at))
        some = query.next()
        if not some:
            break
        sizes.append(len(some))
        rows += some
        if len(sizes) == 4:
            merge_all(edits.scene.daemon)
            edits.merge(ORDERS, edits.runs(ORDERS)[-3:], level=2)
    assert seen(rows) == wanted
    assert len(sizes) > 15
    assert limit == "maxBytesPerTrigger" or max(sizes) <= 7
    assert [type(position) for position in query.at.values()] == [int]  # as earlier versions have it


def test_retention_inside_a_commit_that_was_read_in_part(edits: Edits) -> None:
    """What was read of it may go, what was not may not."""
    query = Following()
    query.next()
    send(edits.scene, 200, lambda n: QUEUES[n % 2])
    query.options["maxMessagesPerTrigger"] = "70"
    query.restart()
    query.next()
    assert query.at is not None
    (position,) = map(Position.parse, query.at.values())
    assert position.queue is not None
    edits.trim(position.queue, position.offset)
    query.restart()
    assert len(query.next()) > 0
    last = max(queue for queue in QUEUES if edits.runs(queue))
    edits.trim(last, edits.runs(last)[-1].end - 1)
    with pytest.raises(Refused, match="had not read"):
        query.next()


def test_limits_do_not_reach_beyond_an_edit(edits: Edits) -> None:
    """A batch that was cut short is followed by the rest, though queues were trimmed between the two."""
    query = Following(maxMessagesPerTrigger="50", failOnDataLoss="false")
    first = query.next()
    assert len(first) == 40
    edits.trim(ORDERS, 100)
    rest: Rowset = []
    while len(rest) < 140:
        rows = query.next()
        assert rows
        assert len(rows) <= 50
        rest += rows
    assert [r["queue_offset"] for r in rest if (r["topic"], r["queue_id"]) == ("Orders", 0)] == list(
        range(100, 220)
    )
    assert query.reader.latestOffset(query.at or {}, ReadAllAvailable()) == query.at
