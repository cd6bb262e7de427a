"""The judge of what consumers were handed must see each thing that can go wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kit.delivery import compare, first_from


def line(offset: int, *, queue: int = 0, kind: str = "normal", **changes: Any) -> dict[str, Any]:
    body = {"body_bytes": 3, "body_crc": offset, "body_sha256": str(offset)}
    names = {"keys": f"k{offset}", "tags": "A", "unique_key": f"u{offset}", "msg_id": f"u{offset}"}
    at = {"topic": "T", "queue_id": queue, "queue_offset": offset, "offset_msg_id": f"{queue}/{offset}"}
    return {"kind": kind, **at, **names, **body, "properties": {"seq": str(offset)}, **changes}


SENT = [line(offset, queue=queue) for queue in (0, 1) for offset in range(4)]


def test_everything_once_and_in_order_is_exact_also_when_queues_are_mixed() -> None:
    mixed = [SENT[i] for i in (0, 4, 5, 1, 2, 6, 7, 3)]
    found = compare(SENT, mixed)
    assert found.exact, str(found)
    assert (found.expected, found.received) == (8, 8)


def test_a_message_that_never_came_is_skipped() -> None:
    found = compare(SENT, SENT[:2] + SENT[3:])
    assert found.skipped == (("T", 0, 2),)
    assert not found.complete
    assert "skipped 1" in str(found)


def test_what_lies_before_the_beginning_need_not_come() -> None:
    assert compare(SENT, [SENT[3], *SENT[6:]], begin={0: 3, 1: 2}).exact


def test_what_came_again_is_repeated_and_not_disordered() -> None:
    found = compare(SENT, [*SENT, *SENT[1:3]])
    assert found.repeated == (("T", 0, 1), ("T", 0, 2))
    assert found.disordered == ()
    assert found.complete
    assert not found.exact


def test_what_came_too_late_is_disordered() -> None:
    found = compare(SENT, [*SENT[:1], *SENT[2:], SENT[1]])
    assert found.disordered == (("T", 0, 1),)
    assert not found.exact


@pytest.mark.parametrize(
    "change",
    [
        {"keys": "k"},
        {"tags": None},
        {"body_sha256": "x"},
        {"msg_id": "m"},
        {"offset_msg_id": "o"},
        {"properties": {}},
    ],
)
def test_what_came_changed_is_different(change: dict[str, Any]) -> None:
    found = compare(SENT, [{**SENT[0], **change}, *SENT[1:]])
    assert len(found.different) == 1
    assert not found.complete


def test_properties_that_broker_and_client_add_are_no_difference() -> None:
    added = {"seq": "0", "MIN_OFFSET": "0", "CLUSTER": "c"}
    assert compare(SENT, [{**SENT[0], "properties": added}, *SENT[1:]]).exact


def test_what_nobody_sent_is_foreign() -> None:
    assert compare(SENT, [*SENT, line(9)]).foreign == (("T", 0, 9),)


def test_calls_that_failed_promise_nothing() -> None:
    assert compare([*SENT, {**line(9), "kind": "unknown"}], SENT).exact


def test_the_first_offsets_from_a_time_on() -> None:
    stored = [(0, 4, 10), (0, 5, 20), (0, 3, 20), (1, 9, 19), (1, 10, 30), (2, 1, 5)]
    lines = [{"queue_id": q, "queue_offset": o, "store_timestamp": t} for q, o, t in stored]
    assert first_from(lines, 20) == {0: 3, 1: 10}
