"""A broker's refusal of *view by id* has the code of *not found*: only its remark tells them apart, and it must pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.fakearchive import RECORD_ROOM, record
from tests.kit.gatewaydesk import Desk, asking, simple
from tiered.codec.remoting.frame import Command

PLACE = 40 * RECORD_ROOM


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    desk.archive.fill("T", 0, 10, 150)
    yield desk
    desk.close()


@pytest.mark.parametrize(
    "remark",
    [
        "AclException: No accessKey is configured, org.apache.rocketmq.acl.plain.PlainPermissionManager.validate",
        "AclException: Check signature failed for accessKey=reader, can not find it",
        "the broker is shutting down",
        "",
        None,
    ],
)
def test_a_refusal_passes_though_the_archive_has_the_message(desk: Desk, remark: str | None) -> None:
    answer = simple(1, remark)
    assert desk.ask(asking(33, offset=str(PLACE)), answer) is answer


def test_not_found_does_not(desk: Desk) -> None:
    answer = simple(1, f"can not find message by the offset, {PLACE}")
    made = desk.ask(asking(33, offset=str(PLACE)), answer)
    assert isinstance(made, Command)
    assert (made.code, bytes(made.body)) == (0, record("T", 0, 40))
