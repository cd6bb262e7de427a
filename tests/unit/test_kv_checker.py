"""The checker of the key-value view's histories: what cannot have happened is found, and what can is not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache
from tests.kit.kvhistory import (
    ANSWERED,
    DELETE,
    FAILED,
    GET,
    LINEARIZABLE,
    NOT_LINEARIZABLE,
    PUT,
    UNDECIDED,
    UNKNOWN,
    Checked,
    History,
    Operation,
    checked,
    went_back,
)
from tests.kit.kvsimulated import FAULTS, Simulation, correct, faulty

CORRECT = 300
FAULTY = 15


def put(call: int, end: int, version: int, value: str, **more: Any) -> Operation:
    return Operation(0, "k", PUT, call, value, outcome=ANSWERED, returned=end, version=version, **more)


def took(call: int, end: int, version: int, value: str, **more: Any) -> Operation:
    return put(call, end, version, value, applied=True, **more)


def deleted(call: int, end: int, version: int, **more: Any) -> Operation:
    return Operation(
        0, "k", DELETE, call, outcome=ANSWERED, returned=end, version=version, applied=True, **more
    )


def unanswered(call: int, value: str, **more: Any) -> Operation:
    return Operation(1, "k", PUT, call, value, outcome=UNKNOWN, **more)


def gone(call: int, **more: Any) -> Operation:
    return Operation(1, "k", DELETE, call, outcome=UNKNOWN, **more)


def got(call: int, end: int, found: tuple[int, str] | None, **more: Any) -> Operation:
    return Operation(2, "k", GET, call, outcome=ANSWERED, returned=end, found=found, **more)


CAN_BE: dict[str, list[Operation]] = {
    "nothing": [],
    "absent, then written, then deleted": [
        got(1, 2, None), took(3, 4, 0, "a"), got(5, 6, (0, "a")), deleted(7, 8, 1), got(9, 10, None),
    ],
    "reads beside a write see either": [took(1, 9, 0, "a"), got(2, 3, None), got(4, 5, (0, "a"))],
    "writes beside one another by their versions": [took(1, 9, 7, "a"), took(2, 8, 5, "b"), got(10, 11, (7, "a"))],
    "an answer at the time of a call is beside it": [took(1, 5, 1, "a"), took(5, 6, 0, "b"), got(7, 8, (1, "a"))],
    "an unanswered write long after its call": [
        unanswered(1, "u"), took(2, 3, 0, "a"), got(4, 5, (0, "a")), got(6, 7, (1, "u")),
    ],
    "an unanswered write that never was": [unanswered(1, "u"), took(2, 3, 0, "a"), got(4, 5, (0, "a"))],
    "an unanswered deletion": [took(1, 2, 0, "a"), gone(3), got(4, 5, (0, "a")), got(6, 7, None)],
    "an unanswered deletion between two that are told so": [
        took(1, 2, 0, "a"), gone(3), took(4, 5, 2, "b", if_absent=True),
    ],
    "an unanswered write that one that failed has met": [
        unanswered(1, "u"), put(2, 3, 9, "x", if_absent=True, current=4), got(4, 5, (4, "u")),
    ],
    "an unanswered write known by its version alone": [
        unanswered(1, "u"), put(2, 3, 9, "x", if_absent=True, current=4), took(4, 5, 10, "y", if_version=4),
    ],
    "an unanswered write known by its value alone": [unanswered(1, "u"), took(2, 3, 5, "y", if_value="u")],
    "unanswered writes of one value": [
        unanswered(1, "u"), unanswered(2, "u"), got(3, 4, (5, "u")), got(5, 6, (8, "u")),
    ],
    "an unanswered compare-and-set that another's took the place of": [
        took(1, 2, 0, "a"), unanswered(3, "u", if_version=0), took(4, 5, 2, "b", if_version=0), got(6, 7, (2, "b")),
    ],
    "a failed compare-and-set": [took(1, 2, 3, "a"), put(3, 4, 4, "b", if_version=2, current=3)],
    "a failed one of what is not there": [put(1, 2, 0, "b", if_version=2), put(3, 4, 1, "b", if_value="c")],
    "a failed creation": [took(1, 2, 0, "a"), put(3, 4, 1, "b", if_absent=True, current=0)],
    "all conditions must hold": [
        took(1, 2, 0, "a"), took(3, 4, 1, "b", if_version=0, if_value="a"),
        put(5, 6, 2, "c", if_version=1, if_value="a", current=1), put(7, 8, 3, "c", if_version=0, if_value="b", current=1),
    ],
    "a deletion of nothing": [deleted(1, 2, 0), got(3, 4, None)],
    "a write that failed for certain": [Operation(0, "k", PUT, 1, "f", outcome=FAILED), got(2, 3, None)],
    "a read without an answer": [took(1, 2, 0, "a"), Operation(0, "k", GET, 3, outcome=FAILED)],
}  # fmt: skip

CANNOT_BE: dict[str, list[Operation]] = {
    "a stale read": [took(1, 2, 0, "a"), took(3, 4, 1, "b"), got(5, 6, (0, "a"))],
    "a read from before the write was called": [got(1, 2, (0, "a")), took(3, 4, 0, "a")],
    "a read of what nobody wrote": [took(1, 2, 0, "a"), got(3, 4, (1, "c"))],
    "a read by another version": [took(1, 2, 0, "a"), got(3, 4, (1, "a"))],
    "two reads that go back": [took(1, 9, 0, "a"), got(2, 3, (0, "a")), got(4, 5, None)],
    "a lost put": [took(1, 2, 0, "a"), got(3, 4, None)],
    "versions against time": [took(1, 2, 7, "a"), took(3, 4, 5, "b")],
    "a version twice": [took(1, 3, 0, "a"), took(2, 4, 0, "b")],
    "a failed write's version again": [put(1, 2, 3, "x", if_version=9), took(3, 4, 3, "a")],
    "a resurrected deletion": [took(1, 2, 0, "a"), deleted(3, 4, 1), got(5, 6, (0, "a"))],
    "two winners by version": [
        took(1, 2, 0, "a"), took(3, 6, 1, "b", if_version=0), took(4, 5, 2, "c", if_version=0),
    ],
    "two winners by value": [took(1, 2, 0, "a"), took(3, 6, 1, "b", if_value="a"), took(4, 5, 2, "c", if_value="a")],
    "two creators": [took(1, 4, 0, "a", if_absent=True), took(2, 3, 1, "b", if_absent=True)],
    "two deletions by version": [took(1, 2, 0, "a"), deleted(3, 6, 1, if_version=0), deleted(4, 5, 2, if_version=0)],
    "a compare-and-set of what is not there": [took(1, 2, 0, "a", if_version=0)],
    "one condition of two held": [took(1, 2, 0, "a"), took(3, 4, 1, "b", if_version=0, if_value="z")],
    "a failed one whose condition held": [took(1, 2, 0, "a"), put(3, 4, 1, "b", if_version=0, current=0)],
    "a failed creation of what is not there": [put(1, 2, 0, "b", if_absent=True)],
    "a failed one without a condition": [took(1, 2, 0, "a"), put(3, 4, 1, "b", current=0)],
    "a failed one that met an older entry": [
        took(1, 2, 0, "a"), took(3, 4, 1, "b"), put(5, 6, 2, "c", if_version=7, current=0),
    ],
    "a failed one that met nothing where something was": [took(1, 2, 0, "a"), put(3, 4, 1, "b", if_version=7)],
    "a failed one that met something where nothing was": [put(1, 2, 3, "b", if_version=7, current=0)],
    "an unanswered write twice": [
        unanswered(1, "u"), got(2, 3, (0, "u")), took(4, 5, 1, "a"), got(6, 7, (2, "u")),
    ],
    "an unanswered write before its call": [got(1, 2, (0, "u")), unanswered(3, "u")],
    "an unanswered write by two versions": [unanswered(1, "u"), got(2, 3, (0, "u")), got(4, 5, (1, "u"))],
    "an unanswered write between versions that leave no room": [
        unanswered(1, "u"), took(2, 3, 4, "a"), got(4, 5, (5, "u")), took(6, 7, 5, "b"),
    ],
    "an unanswered compare-and-set whose condition never held": [
        took(1, 2, 0, "a"), unanswered(3, "u", if_version=7), got(4, 5, (1, "u")),
    ],
    "an unanswered write by a version above what came later": [
        unanswered(1, "u"), put(2, 3, 3, "x", if_absent=True, current=4),
    ],
    "an unanswered write by a version below what came earlier": [
        took(1, 2, 5, "a"), deleted(3, 4, 6), unanswered(5, "u"), put(6, 7, 9, "x", if_absent=True, current=4),
    ],
    "an unanswered compare-and-set that cannot be what another met": [
        took(1, 2, 0, "a"), unanswered(3, "u", if_version=7), put(4, 5, 9, "x", if_version=8, current=4),
    ],
    "an unanswered deletion between versions that leave no room": [
        took(1, 2, 4, "a"), gone(3), took(4, 5, 5, "b", if_absent=True),
    ],
    "one unanswered deletion for two": [
        took(1, 2, 0, "a"), gone(3), took(4, 5, 5, "b", if_absent=True), took(6, 7, 9, "c", if_absent=True),
    ],
    "a write that failed for certain and was seen": [
        Operation(0, "k", PUT, 1, "f", outcome=FAILED), got(2, 3, (0, "f")),
    ],
}  # fmt: skip


def verdicts(
    directory: Path, histories: dict[str, list[Operation]], seconds: float = 60
) -> dict[str, Checked]:
    paths = [
        History(operations).save(directory / f"{number}.jsonl")
        for number, operations in enumerate(histories.values())
    ]
    return dict(zip(histories, checked(paths, seconds), strict=True))


@pytest.mark.porcupine
@pytest.mark.parametrize(("histories", "wanted"), [(CAN_BE, LINEARIZABLE), (CANNOT_BE, NOT_LINEARIZABLE)])
def test_histories_written_by_hand(
    tmp_path: Path, histories: dict[str, list[Operation]], wanted: str
) -> None:
    found = verdicts(tmp_path, histories)
    assert {name: str(each) for name, each in found.items() if each.verdict != wanted} == {}


@pytest.mark.porcupine
def test_histories_of_a_correct_map_pass(tmp_path: Path) -> None:
    found = verdicts(tmp_path, {f"seed {seed}": correct(seed).operations for seed in range(CORRECT)})
    assert {name: str(each) for name, each in found.items() if not each.good} == {}
    assert sum(each.unanswered for each in found.values()) > 3 * CORRECT
    assert sum(each.operations for each in found.values()) > 60 * CORRECT


@pytest.mark.porcupine
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_planted_faults_are_found_with_their_key(
    tmp_path: Path, fault: Callable[[Simulation, str], None]
) -> None:
    planted = {f"seed {seed}": faulty(fault, seed) for seed in range(FAULTY)}
    found = verdicts(tmp_path, {name: history.operations for name, (history, _) in planted.items()})
    missed = {name: str(each) for name, each in found.items() if each.key != planted[name][1]}
    assert missed == {}
    assert {each.verdict for each in found.values()} == {NOT_LINEARIZABLE}
    assert all(0 < len(each.counter_example) <= 16 for each in found.values())


@pytest.mark.porcupine
def test_a_counter_example_ends_where_it_shows_and_has_no_reads_that_are_not_needed(tmp_path: Path) -> None:
    before = [
        each
        for at in range(0, 400, 4)
        for each in (took(at, at + 1, at, f"v{at}"), got(at + 2, at + 3, (at, f"v{at}")))
    ]
    wrong = [got(401, 402, (392, "v392")), took(403, 404, 500, "later")]
    (found,) = verdicts(tmp_path, {"": before + wrong}).values()
    assert found.verdict == NOT_LINEARIZABLE
    assert [each["call"] for each in found.counter_example if each["kind"] == GET] == [401]
    assert found.counter_example[-1]["call"] == 401


@pytest.mark.porcupine
def test_too_little_time_is_not_taken_for_good(tmp_path: Path) -> None:
    """Deletions without an answer, of which any may be the one, and an end that none explains."""
    held = [
        took(10, 20, 5, "a"),
        *(gone(at) for at in range(1, 9)),
        *(unanswered(at, "same") for at in range(30, 60)),
    ]
    met = [
        put(100 + at, 101 + at, 200 + 2 * at, "x", if_value=f"y{at}", current=100 + at) for at in range(20)
    ]
    (found,) = verdicts(tmp_path, {"": [*held, *met, got(400, 401, (1, "b"))]}, seconds=0.05).values()
    assert (found.verdict, found.good, found.key) == (UNDECIDED, False, "k")


@pytest.mark.porcupine
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "post"}, "kind .post. is none of"),
        ({"outcome": "fine"}, "outcome .fine. is none of"),
        ({"returned": None}, "an answer without its time"),
        ({"returned": 0}, "before its call"),
        ({"version": None}, "without a version"),
        ({"value": ""}, "without the digest"),
        ({"current": 3}, "with what stood in its way"),
    ],
)
def test_what_is_no_history_is_refused(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    wrong = took(1, 2, 0, "a")
    for name, value in change.items():
        setattr(wrong, name, value)
    with pytest.raises(ValueError, match=said):
        verdicts(tmp_path, {"": [took(1, 2, 0, "a"), wrong]})


def test_the_checker_is_built_from_what_is_pinned() -> None:
    module = (cache.CHECKER_DIRECTORY / "go.mod").read_text()
    assert f"require github.com/anishathalye/porcupine {cache.PORCUPINE}\n" in module
    sums = (cache.CHECKER_DIRECTORY / "go.sum").read_text().splitlines()
    pinned = re.escape(f"github.com/anishathalye/porcupine {cache.PORCUPINE}")
    assert [bool(re.match(rf"{pinned}(/go\.mod)? h1:", line)) for line in sums] == [True, True]
    files = {path.name for path in cache.CHECKER_DIRECTORY.iterdir()}
    assert files == {path.name for path in cache.CHECKER_SOURCES}, "another source gives another binary"


def shown(call: int, found: tuple[int, str] | None, client: int = 2, view: str = "one") -> Operation:
    return Operation(client, "k", GET, call, outcome=ANSWERED, returned=call + 1, found=found, shown_by=view)


def test_reads_by_any_must_not_go_back() -> None:
    fine = [
        shown(1, None), shown(3, (0, "a")), shown(5, (0, "a")), shown(7, None), shown(9, (4, "b")), shown(11, None),
        shown(13, (0, "a"), view="other"), shown(15, (0, "a"), client=3), took(17, 18, 1, "c"),
        Operation(2, "k", GET, 19, shown_by="one"),
    ]  # fmt: skip
    assert went_back(fine) == []
    assert went_back([shown(1, (4, "b")), shown(3, (2, "a"))]) == ["client 2 saw k by one at 2 after 4"]
    assert went_back([shown(3, None), shown(1, (4, "b")), shown(5, (4, "b"))]) == [
        "client 2 saw k by one at 4 after 4"
    ]
    assert went_back([shown(1, (4, "b")), shown(3, None), shown(5, (2, "a"))]) == [
        "client 2 saw k by one at 2 after 4"
    ]


def test_the_checker_is_not_given_reads_by_any(tmp_path: Path) -> None:
    history = History([took(1, 2, 0, "a"), shown(3, None)])
    assert len(history.save(tmp_path / "history").read_text().splitlines()) == 1
