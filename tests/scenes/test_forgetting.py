"""Queues of topics that are gone, forgotten by their task: when, what is looked at again, and what other readers see."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.kit.archiveedits import Edits, rewind
from tests.kit.assemble import KEYS, assemble
from tests.kit.collecting import GRACE_MS, HOUR_MS, Sweeping
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import AtOnceTurn
from tiered.archive.log.flush import Proven, Unsettled
from tiered.archive.log.reader import LogReader
from tiered.archive.log.shadow import difference
from tiered.archive.rewrite.forgetting import WAITS_FOR_A_START, Forget
from tiered.archive.state.keys import DISPATCH, FOLD_PREFIXES, queue_key, topic_key
from tiered.archive.state.view import ArchiveState
from tiered.cli.figures import figures
from tiered.cli.standing import forgotten_queues, noted_topics
from tiered.codec.format.edits import EditKind, Rows, SinkStep, batch
from tiered.daemon.brokertopics import NOTES_FILE, BrokersTopics
from tiered.daemon.topicnotes import EMPTY, TopicNotes
from tiered.daemon.topicnotes import GONE as NOTED_GONE
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.repair.mend import Mender
from tiered.settings import Retain, Settings, Source, State

GONE = MessageQueue("Gone", 0)


@dataclass
class Place:
    """A broker that has deleted a topic whose messages retention has taken; one other topic stays."""

    scene: Scene
    sweeping: Sweeping
    state: Path
    settings: Settings

    @property
    def notes(self) -> Path:
        return self.state / NOTES_FILE

    def noted(self) -> dict[str, dict[str, int]]:
        return TopicNotes(self.notes, self.scene.daemon.log.reader.identity.archive_id).read().times

    def list_topics(self, *names: str) -> None:
        listed = json.dumps({"topicConfigTable": {name: {} for name in ("TBW102", "Stays", *names)}})
        (self.scene.broker.store / "config" / "topics.json").write_text(listed)

    def broker(self, *, notes: bool) -> BrokersTopics:
        return BrokersTopics(self.settings, self.scene.daemon.log.reader.identity.archive_id, notes=notes)

    def forget(self) -> int:
        return self.sweeping.count(self.sweeping.forget).get("forgotten_queues", 0)

    def known(self) -> bool:
        return self.scene.state.queue(GONE) is not None

    def wait(self, ms: int) -> None:
        self.scene.clock.advance(ms / 1000)

    def send(self, count: int = 1) -> None:
        made = self.scene
        made.broker.time_ms = made.clock.now_ms()
        for _ in range(count):
            made.broker.send(GONE.topic, GONE.queue_id)
        made.daemon.settle(2.0)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """The topic is gone and its messages are trimmed; nobody has noted yet that nothing is left."""
    with scene(tmp_path, forgets=True) as made:
        yield emptied(made, tmp_path)


def emptied(made: Scene, directory: Path) -> Place:
    state = directory / "state"
    for path in (state, made.broker.store / "config"):
        path.mkdir()
    settings = Settings(source=Source(store_dir=str(made.broker.store)), state=State(directory=str(state)))
    broker = BrokersTopics(settings, made.daemon.log.reader.identity.archive_id, notes=True)
    found = Place(
        made, Sweeping.of(made, broker=broker, keep_ms=0, deleted_topic_ms=HOUR_MS), state, settings
    )
    found.list_topics(GONE.topic)
    made.broker.send("Stays", 0)
    found.send(3)
    found.list_topics()
    found.wait(2 * HOUR_MS)
    found.sweeping.count(found.sweeping.retention)  # sees that it is gone
    found.wait(2 * HOUR_MS)
    assert found.sweeping.count(found.sweeping.retention) == {"trimmed_queues": 1}
    return found


def test_a_queue_is_forgotten_a_grace_after_it_was_seen_to_be_empty(place: Place) -> None:
    assert place.forget() == 0
    noted = place.noted()[EMPTY]
    assert noted == {GONE.topic: place.scene.clock.now_ms()}
    place.wait(GRACE_MS - 1000)
    assert place.forget() == 0
    place.wait(1000)
    assert place.forget() == 1
    assert not place.known()
    assert place.scene.state.queue(MessageQueue("Stays", 0)) is not None
    assert place.forget() == 0
    assert place.noted()[EMPTY] == {}


def test_without_its_note_the_time_begins_anew(place: Place) -> None:
    place.forget()
    place.wait(GRACE_MS)
    place.notes.unlink()
    assert place.forget() == 0
    place.wait(GRACE_MS)
    assert place.forget() == 1


def test_retention_leaves_the_other_note_alone(place: Place) -> None:
    place.forget()
    before = place.noted()[EMPTY]
    place.list_topics(GONE.topic)
    place.scene.broker.send("Other", 0)
    place.scene.daemon.settle(2.0)
    place.list_topics()
    place.sweeping.count(place.sweeping.retention)
    found = place.noted()
    assert found[NOTED_GONE].keys() == {"Other"}
    assert found[EMPTY] == before


def test_a_topic_that_is_back_is_not_forgotten(place: Place) -> None:
    """Also without a message: the broker may number on."""
    place.forget()
    place.wait(GRACE_MS)
    place.list_topics(GONE.topic)
    assert place.forget() == 0
    place.list_topics()
    assert place.forget() == 0, "and its time begins anew"
    assert place.known()


def test_a_process_beside_the_daemon_goes_by_its_note(place: Place) -> None:
    log, clock = place.scene.daemon.log, place.scene.clock
    retain = Retain(deleted_topic_ms=HOUR_MS, min_age_ms=HOUR_MS)
    other = Forget(log, clock, lambda: retain, GRACE_MS, place.broker(notes=False), opens_epoch=True)
    assert other.plan().jobs == 0
    place.wait(GRACE_MS)
    assert other.plan().jobs == 0, "it has noted nothing itself"
    place.forget()
    assert other.plan().figures["waiting_topics"] == 1
    place.wait(GRACE_MS)
    seen = other.plan()
    assert (seen.jobs, seen.said) == (1, "1 queues of 1 deleted topics to be forgotten")
    assert seen.rows == ({"topic": GONE.topic, "queue_id": 0, "generation": 1},)
    assert place.known()


@pytest.mark.parametrize("retain", [Retain(), Retain(deleted_topic_ms=86_400_000, forget_queues=False)])
def test_off_where_deleted_topics_are_kept_or_the_setting_says_so(place: Place, retain: Retain) -> None:
    log, clock = place.scene.daemon.log, place.scene.clock
    task = Forget(log, clock, lambda: retain, 0, place.broker(notes=True))
    assert not task.due(clock.monotonic() + 10**6)
    assert task.plan().said.startswith("no queue is forgotten: ")
    assert task.run_once(AtOnceTurn(place.scene.daemon)).figures == {}


def test_an_epoch_that_does_not_allow_it_waits_for_the_next(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        found = emptied(made, tmp_path)
        found.wait(GRACE_MS)
        turn = AtOnceTurn(made.daemon)
        assert found.sweeping.forget.run_once(turn).trouble is None
        found.wait(GRACE_MS)
        done = found.sweeping.forget.run_once(turn)
        assert done.left == {"waiting_queues": 0, "overdue_queues": 1}
        assert done.trouble == f"1 queues of deleted topics are not forgotten: {WAITS_FOR_A_START}"
        assert WAITS_FOR_A_START in found.sweeping.forget.plan().said
        assert found.known()
        made.daemon.close()
        made.daemon = assemble(
            made.broker.store, made.provider, made.clock, metadata=made.daemon.log.store, forgets=True
        )
        again = Forget(made.daemon.log, made.clock, lambda: retained(), GRACE_MS, found.broker(notes=True))
        done = again.run_once(AtOnceTurn(made.daemon))
        assert (done.figures, done.trouble) == ({"forgotten_queues": 1}, None), "its time went on"
        assert done.left == {"waiting_queues": 0, "overdue_queues": 0}


def retained() -> Retain:
    return Retain(deleted_topic_ms=HOUR_MS, min_age_ms=HOUR_MS)


def test_what_waits_is_told(place: Place) -> None:
    def left() -> dict[str, int]:
        return dict(place.sweeping.forget.run_once(AtOnceTurn(place.scene.daemon)).left)

    def status() -> dict[str, object]:
        made = place.scene
        view: Any = SimpleNamespace(state=made.state, identity=made.daemon.log.reader.identity)
        noted = noted_topics(view, place.settings)
        found = figures(made.state, place.settings, made.clock.now_ms(), gone=set(map(topic_key, noted)))
        return forgotten_queues(made.state.head(), found, noted, place.settings)

    assert (status()["empty_queues"], status()["waiting_queues"], status()["next_ms"]) == (1, 0, None)
    assert left() == {"waiting_queues": 1, "overdue_queues": 0}
    due_ms = place.scene.clock.now_ms() + GRACE_MS
    assert (status()["waiting_queues"], status()["next_ms"]) == (1, due_ms)
    place.wait(GRACE_MS)
    assert left() == {"waiting_queues": 0, "overdue_queues": 0}


def sink_at(place: Place, physical: int | None) -> None:
    """A sink is so far in the log; ``None``: it reads the archive."""
    head = place.scene.state.head()
    assert head is not None
    row: dict[str, Any] = {
        "sink_id": b"\7" * 16, "sink": "copy", "step": SinkStep.ANEW, "revision": head.seq, "lineage": head.lineage,
        "looked": head.seq, "sink_position": [physical, None],
        "sink_queues": {"topic": [], "queue_id": [], "next": [], "physical": []},
    }  # fmt: skip
    Edits(place.scene).put(
        batch(EditKind.SINK_PROGRESS, **{name: Rows([value]) for name, value in row.items()})
    )


def test_a_sink_that_has_to_hear_what_it_lacks_keeps_the_queue(place: Place) -> None:
    queue = place.scene.state.queue(GONE)
    assert queue is not None
    place.forget()
    place.wait(GRACE_MS)
    for physical in (None, queue.last_physical_end - 1):
        sink_at(place, physical)
        assert "others wait for sinks: copy" in place.sweeping.forget.plan().said
        (done,) = place.sweeping.all(place.sweeping.forget)
        assert done.figures == {"forgotten_queues": 0, "waits_for": "sinks: copy"}
        assert done.left == {"waiting_queues": 0, "overdue_queues": 1}
        assert place.known()
    sink_at(place, queue.last_physical_end)
    assert place.forget() == 1
    assert not place.known()


class Late(AtOnceTurn):
    """Something happens between the plan and the place in the line."""

    meanwhile: Callable[[], None]

    def commit(self, flush: Unsettled) -> Proven | None:
        self.meanwhile()
        return super().commit(flush)


@pytest.mark.parametrize("what", ["a run", "a closed part", "forgotten by another", "trimmed again"])
def test_a_queue_that_is_not_as_it_was_is_left_out_at_its_place(place: Place, what: str) -> None:
    place.forget()
    place.wait(GRACE_MS)
    made = place.scene
    turn = Late(made.daemon)

    def meanwhile() -> None:
        turn.meanwhile = lambda: None
        if what == "forgotten by another":
            assert place.forget() == 1
            return
        made.broker.following.pop((GONE.topic, GONE.queue_id))
        place.send(2)
        if what == "a closed part":
            rewind(made, made.broker.sent[-2][0])
        if what == "trimmed again":  # its highest generation is another one now
            place.wait(30 * HOUR_MS)
            assert place.sweeping.count(place.sweeping.retention) == {"trimmed_queues": 1}

    turn.meanwhile = meanwhile
    assert place.sweeping.forget.run_once(turn).figures == {"forgotten_queues": 0}
    assert place.known() == (what != "forgotten by another")


def test_who_begins_before_it_and_who_begins_after_see_the_same(place: Place) -> None:
    """Checkpoints on both sides, followed to where the topic is back; as of the commit before the queue is still there."""
    before = place.sweeping.save()
    place.forget()
    place.wait(GRACE_MS)
    assert place.forget() == 1
    head = place.scene.state.head()
    assert head is not None
    place.sweeping.save()
    place.scene.broker.following.pop((GONE.topic, GONE.queue_id))
    place.send()
    reader = LogReader(place.scene.provider, KEYS, place.scene.daemon.log.reader.identity)
    whole, old, was = MemoryStore(), MemoryStore(), MemoryStore()
    reader.fold(whole)
    reader.fold_until(old, before.seq)
    reader.fold_until(was, head.seq - 1)
    assert ArchiveState(old).queue(GONE) is not None
    assert ArchiveState(was).queue(GONE) is not None
    back = ArchiveState(whole).queue(GONE)
    assert back is not None
    assert (back.generation, back.messages) == (2, 1)
    assert list(whole.iterate(b"q")) == list(place.scene.daemon.log.store.iterate(b"q"))


def test_a_crash_behind_the_commit_leaves_no_dispatch_offset(place: Place) -> None:
    """The local store heard nothing of the commit: the next start folds it from the bucket."""
    place.forget()
    place.wait(GRACE_MS)
    made = place.scene
    store, kept = made.daemon.log.store, MemoryStore()
    kept.put_many(list(store.iterate(b"")), applied=store.applied())
    assert place.forget() == 1
    made.daemon.close()
    made.daemon = assemble(made.broker.store, made.provider, made.clock, metadata=kept, forgets=True)
    assert not list(kept.iterate(DISPATCH + queue_key(GONE)))
    assert made.state.queue(GONE) is None


def test_a_later_start_without_the_setting_keeps_the_feature(place: Place) -> None:
    made = place.scene
    made.daemon.close()
    made.daemon = assemble(made.broker.store, made.provider, made.clock, metadata=made.daemon.log.store)
    head = made.state.head()
    assert head is not None
    assert head.required_features == ("forgotten-queues",)


def test_more_queues_than_a_commit_takes(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(5):
        place.scene.broker.send("Wide", number)
    place.scene.daemon.settle(2.0)
    place.list_topics()
    place.wait(30 * HOUR_MS)
    place.sweeping.count(place.sweeping.retention)
    place.wait(2 * HOUR_MS)
    place.sweeping.count(place.sweeping.retention)
    place.forget()
    place.wait(GRACE_MS)
    monkeypatch.setattr("tiered.archive.rewrite.forgetting.QUEUES_AT_ONCE", 2)
    monkeypatch.setattr("tiered.archive.rewrite.forgetting.COMMITS", 2)
    assert [done.figures["forgotten_queues"] for done in place.sweeping.all(place.sweeping.forget)] == [4, 2]
    head = place.scene.state.head()
    assert head is not None
    assert head.forgotten.queues == 6


def test_a_damaged_commit_that_forgot_queues_is_made_anew_from_a_later_fold(place: Place) -> None:
    place.forget()
    place.wait(GRACE_MS)
    assert place.forget() == 1
    made = place.scene
    head = made.state.head()
    assert head is not None
    made.broker.following.pop((GONE.topic, GONE.queue_id))
    place.send()  # and the topic is back
    local, view = MemoryStore(), made.daemon.log.store
    local.put_many(
        [pair for prefix in FOLD_PREFIXES for pair in view.iterate(prefix)], applied=view.applied()
    )
    key = KEYS.commit(head.seq)
    whole = bytes(made.provider.get(key).data)
    made.provider.put(key, [whole[:-100]], create_only=False)
    identity = made.daemon.log.reader.identity
    mender = Mender(made.provider, KEYS, identity, local, lambda n: b"r" * n, table_cache_bytes=1 << 20)
    (step,) = mender.plan()
    assert (step.seq, step.exact) == (head.seq, True)
    mender.mend([step])
    again = MemoryStore()
    LogReader(made.provider, KEYS, identity).fold(again)
    assert difference(again, local) is None
