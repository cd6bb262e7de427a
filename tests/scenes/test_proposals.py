"""Proposals: what was sealed elsewhere is committed as it was made, or refused, whatever is in the bucket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from tests.kit.aged import Stage, age
from tests.kit.archiveedits import Edits, rewind, start_again
from tests.kit.assemble import KEYS
from tests.kit.collecting import Sweeping
from tests.kit.fetchscene import ORDERS, Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all
from tests.kit.movingfold import planned_on_a_moving_fold
from tests.kit.proposing import Elsewhere, proposals, settle_all, waiting
from tests.kit.sealing import after_midnight, all_rows, seal_all
from tiered import crashpoint
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.rewrite.proposal import (
    Proposal,
    decode_proposal,
    encode_proposal,
    put_proposal,
    read_proposal,
)
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.sections import Section
from tiered.crashpoint import ProposalPoint
from tiered.errors import Corrupt, Refused, TieredError, Unavailable
from tiered.model import MessageQueue


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    """Two days that are over."""
    with scene(tmp_path) as made:
        age(made, Stage.FRESH)
        after_midnight(made, days=2)
        yield made


_SEEDS = count(100)


def levels(made: Scene) -> set[int]:
    return {item.level for item in made.state.objects() if item.references}


def objects_stored(made: Scene) -> set[str]:
    return {
        str(KEYS.path(i.key)) for area in ("data/", "segment/") for i in made.provider.list(KEYS.key(area))
    }


def retired(made: Scene) -> set[str]:
    return {each.path for each in made.state.retired()}


def first_proposal(made: Scene) -> tuple[str, Proposal]:
    (key, *_) = waiting(made)
    return key, read_proposal(made.provider, key)


def test_what_is_proposed_is_committed_as_it_was_made(small: Scene) -> None:
    before, head = all_rows(small), small.state.head()
    made = list(Elsewhere(small).propose())
    assert small.state.head() == head, "nothing is part of the archive yet"
    sums = {
        name: sum(each.figures.get(name, 0) for each in made)
        for name in ("proposals", "written_files", "messages")
    }
    assert sums == {"proposals": 6, "written_files": 6, "messages": sum(map(len, before.values()))}
    left = set(waiting(small))
    assert len(left) == 6
    done = settle_all(small)
    assert (done["accepted_proposals"], done["sealed_files"]) == (6, 6)
    assert all_rows(small) == before
    assert levels(small) == {2}
    assert retired(small) == {str(KEYS.path(key)) for key in left}, "committed ones are retired alone"
    assert settle_all(small) == {}
    sweeping = Sweeping.of(small)
    sweeping.count(sweeping.gc)
    sweeping.after_grace()
    assert waiting(small) == []
    assert objects_stored(small) == {item.path for item in small.state.objects()}


def test_runs_over_midnight_and_files_of_several_runs(tmp_path: Path) -> None:
    """What belongs to other days travels as an object of level 1; a job of several files is as many proposals."""
    with scene(tmp_path) as made:
        age(made, Stage.FRESH)
        merge_all(made.daemon)  # over midnight
        after_midnight(made)
        before = all_rows(made)
        assert any(
            len(read_proposal(made.provider, key).objects) == 2 for key in _proposed(made, segment_bytes=1)
        )
        settle_all(made)
        assert levels(made) == {1, 2}
        assert all_rows(made) == before
        after_midnight(made, days=2)
        _proposed(made)
        settle_all(made)
        assert levels(made) == {2}
        assert all_rows(made) == before


def _proposed(made: Scene, **options: int) -> list[str]:
    for each in Elsewhere(made, seed=next(_SEEDS), **options).propose():
        assert not each.troubles
    return waiting(made)


def _trim(made: Scene) -> None:
    for topic in ("Orders", "Payments"):
        Edits(made).trim(MessageQueue(topic, 0), 2)


CHANGES: dict[str, Callable[[Scene], object]] = {
    "sealed": lambda made: seal_all(made.daemon),
    "merged": lambda made: merge_all(made.daemon, block_bytes=1 << 20),
    "trimmed": _trim,
    "lost": lambda made: rewind_in_place(made),
}


def rewind_in_place(made: Scene) -> None:
    """The broker loses a message of the first day, and all behind it; the same daemon goes on."""
    rewind(
        made, [m for m, _ in made.broker.sent if (m.topic, m.queue_id) == (ORDERS.topic, ORDERS.queue_id)][-2]
    )


@pytest.mark.parametrize("change", ["sealed", "trimmed"])
def test_sources_that_changed_meanwhile(small: Scene, change: str) -> None:
    """A queue whose sources changed is left out; where none is left the proposal is refused, with its files."""
    names = _proposed(small)
    files = {item.path for key in names for item in read_proposal(small.provider, key).objects}
    CHANGES[change](small)
    before = all_rows(small)
    done = settle_all(small)
    assert all_rows(small) == before
    named = {str(KEYS.path(key)) for key in names}
    if change == "sealed":
        assert done == {"refused_proposals": 6}
        assert retired(small) == named | files, "one Retire of the proposal and of its files"
    else:
        assert (done["accepted_proposals"], "refused_proposals" in done) == (6, False)
        first = {run.queue: small.state.object(run.object) for run in reversed(list(small.state.runs_all()))}
        levels = {queue: item.level for queue, item in first.items() if item is not None}
        assert levels == {
            queue: 0 if queue.queue_id == 0 and queue.topic[0] != "!" else 2 for queue in levels
        }
        assert retired(small) == named


def test_two_proposals_for_the_same_sources(small: Scene) -> None:
    before = all_rows(small)
    for seed in (1, 2):
        list(Elsewhere(small, seed).propose())
    assert settle_all(small)["refused_proposals"] == 6
    assert all_rows(small) == before
    assert len([item for item in small.state.objects() if item.level == 2]) == 6
    assert settle_all(small) == {}


def test_a_proposal_of_an_earlier_epoch_is_left_to_collection(small: Scene) -> None:
    """Unread: its files may be deleted and forgotten at any time."""
    names = _proposed(small)
    files = objects_stored(small) - {item.path for item in small.state.objects()}
    before = all_rows(small)
    start_again(small)
    small.daemon.settle(2.0)
    gets = len(small.provider.gets)
    assert settle_all(small) == {}
    assert len(small.provider.gets) == gets
    sweeping = Sweeping.of(small)
    sweeping.count(sweeping.gc)
    assert retired(small) >= files | {str(KEYS.path(key)) for key in names}
    sweeping.after_grace()
    assert waiting(small) == []
    assert all_rows(small) == before


def changed(item: int = 0, **fields: object) -> Callable[[Proposal], Proposal]:
    def change(made: Proposal) -> Proposal:
        objects = list(made.objects)
        objects[item] = replace(objects[item], **fields)  # type: ignore[arg-type]
        return replace(made, objects=tuple(objects))

    return change


def _other_length(made: Proposal) -> Proposal:
    return changed(length=made.objects[0].length - 1)(made)


def _other_runs(made: Proposal) -> Proposal:
    runs = made.objects[0].runs.copy()
    runs["min_store_time"] -= 1
    return changed(runs=runs)(made)


def _other_footer(made: Proposal) -> Proposal:
    ((number, section),) = made.objects[0].sections.items()
    return changed(sections={number: Section(section.position, section.length, section.crc32c ^ 1)})(made)


FOREIGN: dict[str, tuple[Callable[[Proposal], Proposal], bool]] = {
    "another archive": (lambda p: replace(p, archive_id=bytes(16)), False),
    "another commit": (lambda p: replace(p, commit_id=bytes(16)), False),
    "a commit to come": (lambda p: replace(p, planned_on=p.planned_on + 1000), False),
    "a key of another epoch": (
        lambda p: changed(path=p.objects[0].path.replace("/0000000001-", "/0000000002-"))(p), False
    ),
    "what is no object's key": (changed(path="archive.json"), False),
    "an object without sections": (changed(sections={}), False),
    "an object twice": (lambda p: replace(p, objects=p.objects * 2), False),
    "keys of nothing": (lambda p: replace(p, keys=tuple(b"zz" for _ in p.keys)), False),
    "keys of no run": (lambda p: replace(p, keys=tuple(b"Q" + k[1:] for k in p.keys)), False),
    "another length": (_other_length, True),
    "another footer": (_other_footer, True),
    "runs that its file has not": (_other_runs, True),
    "sources that are not there": (lambda p: replace(p, keys=tuple(k + b"x" for k in p.keys)), True),
    "part of its sources": (lambda p: replace(p, keys=p.keys[:1], values=p.values[:1]), True),
}  # fmt: skip


@pytest.mark.parametrize("what", FOREIGN)
def test_foreign_and_false_proposals_are_refused(small: Scene, what: str) -> None:
    """With their files only where these are what they name; the daemon goes on."""
    before = all_rows(small)
    names = _proposed(small)
    change, with_files = FOREIGN[what]
    key, honest = first_proposal(small)
    spoiled = change(honest)
    for name in names:
        small.provider.delete(name)
    path = put_proposal(small.provider, KEYS, 1, bytes(16), spoiled)
    assert settle_all(small) == {"refused_proposals": 1}
    assert all_rows(small) == before
    assert levels(small) == {0, 1} - {0} or 2 not in levels(small)
    files = {item.path for item in spoiled.objects} if with_files else set()
    assert retired(small) == {path} | files
    assert KEYS.key(path) != key
    small.send(3)
    assert len(all_rows(small)[ORDERS, 1, None]) == len(before[ORDERS, 1, None]) + 3


@pytest.mark.parametrize("damage", ["flipped", "short", "gone", "proposal"])
def test_damage_is_refused(small: Scene, damage: str) -> None:
    before = all_rows(small)
    for name in _proposed(small)[1:]:
        small.provider.delete(name)
    key, made = first_proposal(small)
    spoiled = key if damage == "proposal" else KEYS.key(made.objects[0].path)
    data = bytes(small.provider.get(spoiled).data)
    small.provider.delete(spoiled)
    if damage == "short":
        small.provider.put(spoiled, [data[:-1]])
    elif damage != "gone":
        small.provider.put(spoiled, [data[:100] + bytes([data[100] ^ 1]) + data[101:]])
    assert settle_all(small) == {"refused_proposals": 1}
    assert all_rows(small) == before
    assert 2 not in levels(small)


@pytest.mark.parametrize("what", ["the commit", "the proposal", "its file"])
def test_one_that_cannot_be_judged_now_holds_up_no_other(small: Scene, what: str) -> None:
    """It is told, neither refused nor forgotten, and settled once what it needs can be read."""
    before = all_rows(small)
    names = _proposed(small)
    key, made = first_proposal(small)
    error: type[TieredError] = Unavailable
    failing, others = key if what == "the proposal" else KEYS.key(made.objects[0].path), 5
    if what == "the commit":  # all but the last are planned on it
        failing, others, error = KEYS.commit(made.planned_on), 1, Corrupt
        sound = small.daemon.log.reader.read(made.planned_on - 1)
        assert sound is not None
        last = read_proposal(small.provider, names[-1])
        small.provider.delete(names[-1])
        on = replace(last, planned_on=made.planned_on - 1, commit_id=sound.commit.commit_id)
        put_proposal(small.provider, KEYS, 1, b"\xff" * 16, on)

    def fail(asked: str, start: int, length: int) -> None:
        if asked == failing:
            raise error("it cannot be read", key=asked)

    passing, small.provider.gate = small.provider.gate, fail
    own_keys, turn = OwnKeys(), AtOnceTurn(small.daemon)
    task = proposals(small, own_keys)
    done = [task.run_once(turn)]
    while done[-1].more:
        done.append(task.run_once(turn))
    assert failing in str(done[-1].trouble)
    assert [each.figures for each in done].count({}) == 7 - others, (
        "each is tried once, and then the round ends"
    )
    assert sum(int(each.figures.get("accepted_proposals") or 0) for each in done) == others
    assert own_keys.given_up() == [], "a collection meanwhile names no file of it"
    small.provider.gate = passing
    assert settle_all(small, task)["accepted_proposals"] == 6 - others
    assert (levels(small), all_rows(small)) == ({2}, before)


@pytest.mark.parametrize(
    "point", [ProposalPoint.BEFORE_ACCEPTED, ProposalPoint.AFTER_ACCEPTED, ProposalPoint.AFTER_SETTLED]
)
def test_an_error_at_any_point_and_on(small: Scene, point: ProposalPoint) -> None:
    """The same process goes on: what counted is not committed twice, and what did not is committed."""
    before = all_rows(small)
    names = _proposed(small)
    task = proposals(small)
    met = []

    def fail(at: object) -> None:
        if at is point and not met:
            met.append(at)
            raise Unavailable("the store is away")

    crashpoint.install(fail)
    try:
        with pytest.raises(Unavailable):
            settle_all(small, task)
    finally:
        crashpoint.install(None)
    settle_all(small, task)
    assert all_rows(small) == before
    assert levels(small) == {2}
    assert retired(small) == {str(KEYS.path(key)) for key in names}


@pytest.mark.parametrize("point", list(ProposalPoint))
def test_a_crash_at_any_point_and_another_daemon(small: Scene, point: ProposalPoint) -> None:
    """What counted is part of the archive, what did not is an orphan; after a grace nothing is left of it."""
    before = all_rows(small)

    class Crash(BaseException):
        pass

    def crash(at: object) -> None:
        if at is point:
            raise Crash

    crashpoint.install(crash)
    try:
        with pytest.raises(Crash):
            list(Elsewhere(small).propose())
            settle_all(small)
    finally:
        crashpoint.install(None)
    start_again(small)
    small.daemon.settle(2.0)
    sweeping = Sweeping.of(small)
    settle_all(small)
    sweeping.count(sweeping.gc)
    sweeping.after_grace()
    assert all_rows(small) == before
    assert waiting(small) == []
    assert objects_stored(small) == {item.path for item in small.state.objects() if item.path}


def test_bytes_are_spent_and_a_dry_run_only_looks(small: Scene) -> None:
    names = _proposed(small)
    size = sum(item.length for key in names for item in read_proposal(small.provider, key).objects)
    head = small.state.head()
    outlook = proposals(small).plan()
    assert (outlook.jobs, outlook.figures) == (0, {"proposals": 6})
    assert small.state.head() == head
    turn = AtOnceTurn(small.daemon)
    settle_all(small, turn=turn)
    assert sum(turn.spent) >= size


def test_proposals_are_read_as_they_were_written(small: Scene) -> None:
    _proposed(small)
    key, made = first_proposal(small)
    data = encode_proposal(made)
    assert data == bytes(small.provider.get(key).data)
    assert encode_proposal(decode_proposal(data, key="k")) == data
    for at in range(0, len(data), 7):
        with pytest.raises(Corrupt, match="checksum"):
            decode_proposal(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :], key="k")
        with pytest.raises(Corrupt):
            decode_proposal(data[:at], key="k")


def test_a_newer_programs_proposal_is_left(small: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    _proposed(small)
    _, made = first_proposal(small)
    monkeypatch.setattr("tiered.archive.rewrite.proposal.PROPOSAL_FORMAT", 2)
    data = encode_proposal(made)
    monkeypatch.undo()
    with pytest.raises(Refused, match="newer program"):
        decode_proposal(data, key="k")


def test_a_fold_that_changes_while_proposals_are_counted_is_counted_as_of_one_moment(small: Scene) -> None:
    list(Elsewhere(small).propose())
    before, after, moving = planned_on_a_moving_fold(
        small.daemon, lambda: settle_all(small), lambda: proposals(small).plan().figures["proposals"]
    )
    assert (before, after) == (6, 0)
    assert moving
    assert set(moving) <= {before, after}


def test_a_proposal_is_judged_by_the_fold_of_one_moment(small: Scene) -> None:
    """Of its objects a part is known before and all are after: it is committed in any case, and never refused."""
    before = all_rows(small)
    list(Elsewhere(small).propose())
    log = small.daemon.log
    live = log.proven

    def changing() -> ArchiveState:
        raise AssertionError("the fold changes meanwhile")

    turn = AtOnceTurn(small.daemon, before=lambda: vars(log).update(proven=live))
    vars(log).update(proven=changing)
    assert proposals(small).run_once(turn).figures["accepted_proposals"] == 1
    assert all_rows(small) == before
