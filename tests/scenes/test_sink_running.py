"""A sink beside a writer: what is replicated, where it goes on, what is missing and said, what keeps it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.assemble import plan
from tests.kit.sinkrunning import Given, SinkScene, away
from tiered.archive.state.sinklisting import list_sinks
from tiered.archive.state.sinks import sink, sink_queues
from tiered.backoff import Backoff
from tiered.codec.format.edits import EditKind, SinkStep, batch
from tiered.errors import Fenced, Invalid
from tiered.model import MessageQueue
from tiered.provider.wrap import TokenBucket
from tiered.sink.base import Sink, SinkPosition
from tiered.sink.book import StoredSink
from tiered.sink.ledger import SinkAdvance
from tiered.sink.order import SinkOrder
from tiered.sink.progress import SinkPhase
from tiered.sink.running import UNHEARD

ORDERS, BILLS = MessageQueue("Orders", 0), MessageQueue("Bills", 0)


@pytest.fixture(params=[True, False], ids=["keeps", "keeps-nothing"])
def scene(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[SinkScene]:
    made = SinkScene(tmp_path, keeps=request.param)
    yield made
    assert made.ledger.trouble is None


def filled(scene: SinkScene, count: int = 40) -> SinkScene:
    for number in range(count):
        scene.put(topic="Bills" if number % 3 == 0 else "Orders")
    scene.archive()
    return scene


def test_the_live_log_as_far_as_it_is_archived(scene: SinkScene) -> None:
    filled(scene)
    scene.put(5)
    assert scene.run() is SinkPhase.LIVE
    assert len(scene.got()) == 40, "what is not archived is not replicated"
    scene.archive()
    scene.run()
    assert scene.got() == scene.everything()
    assert scene.runner.progress.lag_bytes == 0


def test_what_is_given_at_the_end_of_the_log_is_flushed_at_once(scene: SinkScene) -> None:
    filled(scene)
    scene.flush_bytes = 1 << 20
    scene.restart()
    scene.run()
    flushes = scene.runner.progress.flushes
    scene.put(5)
    scene.archive()
    for _ in range(9):
        scene.runner.step()
        scene.clock.advance(0.01)
    assert scene.got() == scene.everything(), "nothing more is there to be gathered"
    assert scene.runner.progress.flushes == flushes + 1


def test_ahead_of_the_archive_where_that_is_wanted(tmp_path: Path) -> None:
    scene = SinkScene(tmp_path, ahead=True)
    filled(scene)
    scene.put(5)
    scene.run()
    assert scene.got() == scene.everything()
    assert scene.proven < scene.log.position


def test_what_the_broker_deleted_comes_from_the_archive(scene: SinkScene) -> None:
    filled(scene, 120)
    scene.log.delete_oldest()
    scene.log.delete_oldest()
    scene.put(7)
    scene.archive()
    scene.run()
    assert scene.got() == scene.everything()
    assert scene.runner.progress.lost_messages == 0


def test_a_sink_that_fell_behind_joins_again_without_a_gap_or_a_repeat(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    scene.put(90)
    scene.put(30, topic="Bills")
    scene.archive()
    for _ in range(3):
        scene.log.delete_oldest()
    scene.put(3)
    scene.archive()
    scene.run()
    assert scene.got() == scene.everything()


def test_the_archive_knows_how_far_it_is_and_the_next_process_goes_on_there(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    scene.commit()
    state = scene.daemon.log.proven()
    known = sink(state.view, scene.stored.sink_id)
    assert known is not None
    assert (known.name, known.physical) == ("copy", scene.proven)
    reached = {queue: found.next for queue, found in sink_queues(state.view, scene.stored.sink_id)}
    assert reached == scene.next
    scene.put(4)
    scene.restart()
    scene.archive()
    scene.run()
    assert scene.got() == scene.everything()
    scene.commit()
    view = scene.daemon.log.proven().view
    assert {queue: found.next for queue, found in sink_queues(view, scene.stored.sink_id)} == scene.next


def test_what_it_still_has_to_be_given_is_listed(scene: SinkScene) -> None:
    """Of each queue that it was given anything of; also where others stand before, between and behind them."""
    for topic, count in (("Bills", 3), ("Orders", 4)):
        scene.put(count, topic)
    scene.archive()
    scene.run()
    scene.commit()
    [listed] = list_sinks(scene.daemon.log.frozen().view)
    assert (listed.state.name, listed.queues, listed.left) == (scene.stored.name, 2, 0)
    for topic, count in (("A", 1), ("Bills", 2), ("C", 1), ("Orders", 5), ("Z", 1)):
        scene.put(count, topic)
    scene.archive()
    [listed] = list_sinks(scene.daemon.log.frozen().view)
    assert (listed.queues, listed.left) == (2, 7)


def test_its_progress_rides_on_commits_of_messages(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    assert scene.ledger.waits
    scene.put(1)
    scene.archive()
    assert sink(scene.daemon.log.proven().view, scene.stored.sink_id) is not None
    kinds = [{edit.kind.name for edit in each.commit.commit.edits} for each in scene.daemon.proven]
    assert any(found >= {"SINK_PROGRESS", "APPEND_RUN"} for found in kinds)
    before = len(scene.daemon.proven)
    scene.run()
    scene.commit()
    scene.commit()
    assert len(scene.daemon.proven) == before + 1, "what the archive knows is not said again"


@pytest.mark.parametrize("call", ["open", "write", "flush", "flushed"])
def test_a_destination_that_is_away_for_a_while(scene: SinkScene, call: str) -> None:
    filled(scene)
    failing = away(3, call)
    scene.there.fail = lambda at: failing(at) if scene.there.given or at != "flushed" else None
    scene.run()
    assert scene.runner.progress.phase is SinkPhase.LIVE
    got = scene.got()
    if scene.there.keeps or call != "flushed":
        assert got == scene.everything()
    else:  # nobody knows that they are there, and they come again
        assert set(got) == set(scene.everything())
        assert len(got) > len(scene.everything())


def test_it_stands_still_while_it_is_opened_again(scene: SinkScene) -> None:
    """An opening may take as long as a destination takes not to answer: alerts on standing still must not end meanwhile."""
    filled(scene)
    seen: list[SinkPhase] = []
    failing = away(3, "open")

    def opening(call: str) -> None:
        if call == "open":
            seen.append(scene.runner.progress.phase)
        failing(call)

    scene.there.fail = opening
    scene.run()
    assert seen == [SinkPhase.OPENING, SinkPhase.AWAY, SinkPhase.AWAY, SinkPhase.AWAY]
    scene.change(paused=True)
    scene.run()
    scene.change(paused=False)
    scene.run()
    assert seen[-1] is SinkPhase.OPENING


@pytest.mark.parametrize("call", ["write", "flush"])
def test_a_destination_that_opens_and_then_refuses_goes_on_with_its_first_flush(
    scene: SinkScene, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """Each try opens, reads and fails: it stands still all the while, is asked ever more seldom, and says both once."""
    caplog.set_level(logging.INFO, "tiered.sink")
    filled(scene)
    scene.there.fail = away(6, call)
    phases: list[SinkPhase] = []
    began = scene.clock.monotonic()
    while scene.runner.progress.phase is not SinkPhase.LIVE:
        wait = scene.runner.step().wait_seconds
        phases.append(scene.runner.progress.phase)
        scene.clock.advance(wait or 0)
        assert len(phases) < 500
    failed = phases.index(SinkPhase.AWAY)
    assert set(phases[failed:-1]) == {SinkPhase.AWAY}
    assert scene.clock.monotonic() - began > sum(Backoff().seconds(1) for _ in range(12))
    said = [record.message for record in caplog.records]
    assert said[:2] == ["a sink stands still", "a sink goes on"]
    assert "a sink stands still" not in said[1:]
    scene.run()
    assert scene.got() == scene.everything()


def test_a_destination_that_forgot_its_position_stops_the_sink_until_it_is_told_where_to_begin(
    tmp_path: Path,
) -> None:
    scene = filled(SinkScene(tmp_path))
    scene.run()
    scene.commit()
    before = scene.got()
    scene.there.position = SinkPosition()
    scene.restart()
    assert scene.run() is SinkPhase.STOPPED
    assert "does not know any more" in str(scene.runner.progress.why)
    assert "rewind-to copy" in str(scene.runner.progress.why)
    assert scene.got() == before, "nothing comes twice in silence"
    scene.change(rewind_ms=None)
    assert scene.run() is SinkPhase.LIVE
    assert scene.there.anew == [False, False, True]
    assert sorted(scene.got()) == sorted([*before, *scene.everything()])


def test_without_a_position_of_its_own_what_no_commit_knew_comes_again_in_order(tmp_path: Path) -> None:
    scene = filled(SinkScene(tmp_path, keeps=False))
    scene.run()
    scene.commit()
    scene.put(10)
    scene.archive()
    scene.ledger.riding = lambda fold: []  # type: ignore[method-assign]
    scene.run()
    scene.restart()
    scene.run()
    offsets = scene.there.of(ORDERS)
    again = offsets.index(max(offsets)) + 1
    assert offsets[:again] == list(range(again))
    assert offsets[again:] == list(range(offsets[again], again)), "a stretch at the end, in its order"


@pytest.mark.parametrize("error", [Invalid("a topic is not there"), Fenced("another process")])
def test_what_waiting_does_not_mend_stops_the_sink_until_its_order_changes(
    scene: SinkScene, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    filled(scene)

    def fail(call: str) -> None:
        if call == "write":
            raise error

    scene.there.fail = fail
    assert scene.run() is SinkPhase.STOPPED
    assert str(error) in str(scene.runner.progress.why)
    assert [r.message for r in caplog.records if r.levelname == "ERROR"] == ["a sink has stopped"]
    scene.there.fail = lambda call: None
    assert scene.run() is SinkPhase.STOPPED
    scene.change()
    assert scene.run() is SinkPhase.LIVE
    assert scene.got() == scene.everything()


def test_a_driver_that_fails_in_its_own_way_harms_nobody(
    scene: SinkScene, caplog: pytest.LogCaptureFixture
) -> None:
    filled(scene)
    left = [2]

    def fail(call: str) -> None:
        if call == "write" and left[0]:
            left[0] -= 1
            raise KeyError("driver")

    scene.there.fail = fail
    assert scene.run() is SinkPhase.LIVE
    assert scene.got() == scene.everything()
    assert any("unexpectedly" in record.message for record in caplog.records)


def test_paused_and_resumed(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    scene.change(paused=True)
    scene.put(9)
    scene.archive()
    assert scene.run() is SinkPhase.PAUSED
    assert len(scene.got()) == 40
    scene.change(paused=False)
    scene.run()
    assert scene.got() == scene.everything()


def test_the_archive_is_given_at_a_rate_and_the_log_is_not(scene: SinkScene) -> None:
    filled(scene, 120)
    for _ in range(3):
        scene.log.delete_oldest()
    started = scene.clock.monotonic()
    scene.runner._bucket = TokenBucket(1_000, scene.clock)
    given: list[float] = []
    for _ in range(4_000):
        before = len(scene.there.given)
        wait = scene.runner.step().wait_seconds
        if scene.runner.progress.why == UNHEARD:
            scene.commit()
        if len(scene.there.given) > before and scene.runner.progress.phase is SinkPhase.BACKFILLING:
            given.append(scene.clock.monotonic())
        if scene.runner.progress.phase is SinkPhase.LIVE:
            break
        scene.clock.advance(wait)
    archived = sum(map(len, scene.log.records.values()))
    took = scene.clock.monotonic() - started
    assert took > 0.5 * archived / 1_000
    assert len(set(given)) > 5, "bit by bit"
    scene.put(30)
    scene.archive()
    since = scene.clock.monotonic()
    while len(scene.there.given) < 150:
        scene.clock.advance(scene.runner.step().wait_seconds / 100)
    assert scene.clock.monotonic() - since < 1
    assert scene.got() == scene.everything()


def test_other_options_are_those_it_is_opened_with(scene: SinkScene) -> None:
    """What was written under those of before is flushed first, and nothing comes twice."""
    filled(scene)
    scene.run()
    before = scene.there.opened
    scene.put(7)
    scene.archive()
    for _ in range(3):
        scene.runner.step()
    scene.change(order=SinkOrder("copy", "memory", {"url": "elsewhere"}))
    assert scene.run() is SinkPhase.LIVE
    assert scene.there.opened == before + 1
    assert scene.got() == scene.everything()


def test_other_options_mend_a_destination_that_took_nothing(scene: SinkScene) -> None:
    """It goes on where it is, although what was written under the options of before cannot be flushed."""
    filled(scene)
    scene.run()
    asked: list[dict[str, str]] = []
    opened = scene.there.open

    def opens(stored: StoredSink, anew: bool) -> Sink:
        asked.append(dict(stored.order.options))
        return opened(stored, anew)

    scene.there.open = opens  # type: ignore[method-assign]
    scene.there.fail = away(1 << 30, "flush")
    scene.put(7)
    scene.archive()
    assert scene.run() is SinkPhase.AWAY
    assert len(scene.got()) == 40
    scene.change(order=SinkOrder("copy", "memory", {"url": "elsewhere"}))
    while asked[-1:] != [{"url": "elsewhere"}]:
        scene.runner.step()
        assert len(asked) < 50
    scene.there.fail = lambda call: None
    assert scene.run() is SinkPhase.LIVE
    assert scene.got() == scene.everything()


def test_topics_are_chosen_and_what_is_included_later_comes_from_its_beginning(scene: SinkScene) -> None:
    scene.change(order=SinkOrder("copy", "memory", exclude=("Bills",)))
    filled(scene)
    scene.run()
    assert {queue for queue, _, _ in scene.got()} == {ORDERS}
    scene.put(80, topic="Bills")
    scene.archive()
    scene.log.delete_oldest()
    scene.run()
    scene.change(order=SinkOrder("copy", "memory"))
    scene.put(2, topic="Bills")
    scene.archive()
    scene.run()
    assert scene.got() == scene.everything()
    assert scene.runner.progress.lost_messages == 0


def test_rocketmqs_own_topics_are_left_out_unless_named(scene: SinkScene) -> None:
    scene.put(2, topic="SCHEDULE_TOPIC_XXXX")
    scene.put(3)
    scene.archive()
    scene.run()
    assert {queue.topic for queue, _, _ in scene.got()} == {"Orders"}
    scene.change(order=SinkOrder("copy", "memory", topics=("*", "SCHEDULE_TOPIC_XXXX")))
    scene.run()
    assert {queue.topic for queue, _, _ in scene.got()} == {"Orders", "SCHEDULE_TOPIC_XXXX"}


def test_from_now_on(scene: SinkScene) -> None:
    filled(scene)
    scene.change(order=replace(scene.stored.order, from_start=False))
    scene.run()
    assert scene.got() == []
    scene.put(3)
    scene.put(2, topic="New")
    scene.archive()
    scene.run()
    assert scene.got() == sorted(scene.wrote[40:], key=lambda given: given[0])
    assert scene.runner.progress.lost_messages == 0


def test_begin_again(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    scene.change(rewind_ms=None)
    scene.run()
    offsets = scene.there.of(BILLS)
    assert offsets == [*range(14), *range(14)]
    scene.run()
    scene.commit()
    scene.restart()
    scene.run()
    assert scene.there.of(BILLS) == offsets, "once"


def test_a_topic_that_begins_while_a_sink_that_began_with_now_is_paused_is_given(tmp_path: Path) -> None:
    """From its first message on: it is none of those that were there before the sink."""
    scene = SinkScene(tmp_path)
    scene.change(order=replace(scene.stored.order, from_start=False))
    scene.put(5)
    scene.archive()
    assert scene.run() is SinkPhase.LIVE
    scene.put(3)
    scene.archive()
    scene.run()
    scene.commit()
    scene.change(paused=True)
    scene.run()
    scene.put(4, topic="Later")
    scene.put(2)
    scene.archive()
    scene.change(paused=False)
    scene.run()
    scene.put(2, topic="Later")
    scene.archive()
    scene.run()
    assert scene.there.of(ORDERS) == [5, 6, 7, 8, 9]
    assert scene.there.of(MessageQueue("Later", 0)) == [0, 1, 2, 3, 4, 5]


def lose_tail(scene: SinkScene) -> list[Given]:
    """The broker loses all from its 30th message on, and gets others, of both queues; what was lost."""
    kept = sorted(scene.log.records)[29]
    lost = [given for given, at in zip(scene.wrote, sorted(scene.log.records), strict=True) if at >= kept]
    scene.log.cut(kept)
    scene.salt = "again"
    scene.wrote = scene.wrote[:29]
    for queue in (ORDERS, BILLS):
        scene.next[queue] = sum(1 for at, _, _ in scene.wrote if at == queue)
    scene.put(20)
    scene.put(3, topic="Bills")
    return lost


def test_a_tail_that_the_broker_lost_after_it_was_replicated_is_said(
    scene: SinkScene, caplog: pytest.LogCaptureFixture
) -> None:
    filled(scene)
    scene.run()
    scene.commit()
    lost = lose_tail(scene)
    scene.restart()
    scene.archive()
    scene.run()
    assert scene.runner.progress.lost_at_source == len(lost)
    assert any("the broker lost messages" in record.message for record in caplog.records)
    for queue in (ORDERS, BILLS):
        had = [given for given in scene.there.given if given[0] == queue]
        first = min(offset for at, offset, _ in lost if at == queue)
        wanted = [given for given in scene.wrote if given[0] == queue]
        again = len(had) - (len(wanted) - first)
        assert had[again:] == wanted[first:], "from where the log was cut, as the broker has it now"
        assert [g for g in had[:again] if g not in lost] == wanted[:first]
    scene.commit()
    known = sink(scene.daemon.log.proven().view, scene.stored.sink_id)
    assert known is not None
    assert known.physical == scene.proven


def test_a_lost_tail_is_told_once_whenever_the_daemon_is_killed(tmp_path: Path) -> None:
    """A destination that keeps its position is told of the rewind with it; the archive hears of that only later."""
    scene = filled(SinkScene(tmp_path))
    scene.run()
    scene.commit()
    lose_tail(scene)
    scene.restart()
    scene.archive()
    assert scene.run(commits=False) is SinkPhase.WAITING
    had, marks = list(scene.there.given), list(scene.there.marks)
    lost = scene.runner.progress.lost_at_source
    assert lost > 0
    assert sum(mark.end - mark.first for mark in marks) == lost
    for _ in range(2):
        scene.restart()
        scene.run(commits=False)
        assert scene.runner.progress.lost_at_source == 0
        assert scene.there.marks == marks
        assert scene.there.given == had
    scene.run()
    given = [*had, *scene.wrote[29:]]
    scene.restart()
    scene.run()
    assert scene.there.marks == marks
    assert len(scene.there.given) == len(given)
    assert sorted(scene.there.given[-23:], key=lambda given: given[0]) == sorted(
        scene.wrote[-23:], key=lambda given: given[0]
    )


def test_a_loss_that_does_not_fit_one_commit_is_accounted_for_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the commits that say of which queues a sink took something back: nothing may be passed over."""
    monkeypatch.setattr("tiered.sink.ledger.MAX_QUEUES", 1)
    scene = filled(SinkScene(tmp_path, keeps=False))
    scene.run()
    for _ in range(3):
        scene.commit()
    lose_tail(scene)
    scene.restart()
    scene.archive()
    scene.run(commits=False)
    scene.commit()
    scene.restart()
    scene.run()
    missing = set(scene.wrote) - set(scene.there.given)
    assert missing == set()


def test_a_topic_that_was_deleted_and_made_again(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    scene.next[BILLS] = 0
    scene.put(5, topic="Bills")
    scene.archive()
    scene.run()
    assert scene.there.of(BILLS) == [*range(14), *range(5)]
    assert scene.runner.progress.begun_anew == 1
    scene.commit()
    scene.restart()
    scene.run()
    assert scene.there.of(BILLS) == [*range(14), *range(5)]


def test_progress_in_many_queues_takes_several_commits_and_the_place_in_the_log_the_last(
    scene: SinkScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.sink.ledger.MAX_QUEUES", 2)
    for number in range(7):
        scene.put(2, topic=f"T{number}")
    scene.archive()
    scene.run()
    known = []
    while scene.ledger.waits:
        scene.commit()
        view = scene.daemon.log.proven().view
        state = sink(view, scene.stored.sink_id)
        assert state is not None
        known.append((state.physical, len(list(sink_queues(view, scene.stored.sink_id)))))
    assert known[:4] == [(None, 2), (None, 4), (None, 6), (scene.proven, 7)]


def test_what_the_fold_refuses_keeps_no_commit(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    scene.ledger.keep(SinkAdvance(b"short", "wrong", 1, 1, 0))
    scene.put(3)
    scene.archive()
    assert scene.proven == scene.log.position, "messages are archived all the same"
    assert "16 bytes" in str(scene.ledger.trouble)
    assert not scene.ledger.waits
    scene.ledger.trouble = None
    scene.ledger._waiting.pop(b"short")


def test_a_broker_that_was_installed_anew(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    scene.commit()
    scene.reinstall()
    scene.put(6)
    scene.restart(archive={"new_lineage": True})
    scene.archive()
    scene.run()
    assert scene.there.of(ORDERS) == [*range(26), *range(6)]
    scene.commit()
    scene.restart(archive={"new_lineage": True})
    scene.put(3, topic="Bills")
    scene.archive()
    scene.run()
    assert scene.there.of(BILLS) == [*range(14), *range(3)], (
        "met only now, below where the sink was in the log before"
    )
    assert scene.there.of(ORDERS) == [*range(26), *range(6)]
    assert (scene.runner.progress.lost_messages, scene.runner.progress.lost_at_source) == (0, 0)


def test_messages_that_are_missing_are_counted_and_never_passed_over_in_silence(
    scene: SinkScene, caplog: pytest.LogCaptureFixture
) -> None:
    filled(scene)
    scene.run()
    scene.next[ORDERS] += 4
    scene.put(3)
    scene.archive()
    scene.run()
    assert scene.runner.progress.lost_messages == 4
    (kind, gone) = scene.runner.progress.lost[0]
    assert (kind, gone.queue, gone.messages) == ("missing", ORDERS, 4)
    assert any("lacks messages" in record.message for record in caplog.records)


@pytest.mark.parametrize("in_order", [False, True])
def test_the_end_of_a_queue_that_retention_took_is_said_though_no_message_follows(
    scene: SinkScene, in_order: bool, caplog: pytest.LogCaptureFixture
) -> None:
    scene.change(order=SinkOrder("copy", "memory", in_order=in_order))
    filled(scene)
    scene.run()
    scene.commit()
    had = scene.next[BILLS]
    scene.put(4, topic="Bills")
    scene.put(40)
    scene.archive()
    while len(scene.log.bases()) > 1:
        scene.log.delete_oldest()
    trim = batch(EditKind.TRIM_QUEUE, topic="Bills", queue_id=0, generation=1, first_offset=had + 4)
    scene.daemon.log.put(plan(scene.daemon.log, trim))
    scene.restart()
    scene.run()
    assert [(kind, gone[:3]) for kind, gone in scene.runner.progress.lost] == [
        ("missing", (BILLS, had, had + 4))
    ]
    assert any("lacks messages" in record.message for record in caplog.records)
    scene.put(2, topic="Bills")
    scene.archive()
    assert scene.run() is SinkPhase.LIVE
    assert scene.there.of(BILLS) == [*range(had), had + 4, had + 5]
    assert scene.there.of(ORDERS) == list(range(scene.next[ORDERS]))
    assert scene.runner.progress.lost_messages == 4, "said once"


def test_a_removed_sink_leaves_nothing(scene: SinkScene) -> None:
    filled(scene)
    scene.run()
    scene.commit()
    scene.ledger.keep(SinkAdvance(scene.stored.sink_id, "copy", 0, 0, 0, step=SinkStep.REMOVED))
    scene.commit()
    assert sink(scene.daemon.log.proven().view, scene.stored.sink_id) is None
    scene.commit()
    assert not scene.ledger.waits
