"""What S3 says of each key of a batch of deletions, and what is believed of it."""

from __future__ import annotations

from typing import Any

import pytest

from tiered.clock import ManualClock
from tiered.errors import Denied, Invalid, TieredError, Unavailable
from tiered.provider.s3 import S3Provider
from tiered.settings import Store

KEYS = [f"data/{n}" for n in range(5)]


def driver(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | TieredError, **store: Any
) -> tuple[S3Provider, list[str]]:
    """A driver whose requests are answered so, and what it asks."""
    made, asked = S3Provider("bucket", "root", Store(**store), ManualClock()), list[str]()

    def call(verb: str, key: str, operation: str, **arguments: Any) -> Any:
        asked.append(operation)
        if operation != "delete_objects":
            return {"ResponseMetadata": {}}
        if isinstance(answer, TieredError):
            raise answer
        return answer

    monkeypatch.setattr(made, "_call", call)
    return made, asked


def test_only_what_is_said_to_be_gone_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = {
        "Deleted": [{"Key": "root/data/0"}, {"Key": "root/data/9"}],
        "Errors": [
            {"Key": "root/data/1", "Code": "AccessDenied", "Message": "no"},
            {"Key": "root/data/2", "Code": "SlowDown", "Message": "later"},
            {"Key": "root/data/3", "Code": "NoSuchKey", "Message": "gone"},
        ],
    }
    made, asked = driver(monkeypatch, answer)
    failed = made.delete_many(KEYS)
    assert {key: type(error) for key, error in failed.items()} == {
        "data/1": Denied, "data/2": Unavailable, "data/4": Unavailable
    }  # fmt: skip
    assert "did not say" in str(failed["data/4"])
    assert "s3:DeleteObject" in str(failed["data/1"])
    assert asked == ["delete_objects"]


@pytest.mark.parametrize("code", ["501 NotImplemented", "405 MethodNotAllowed"])
def test_a_store_that_knows_no_batches_is_asked_one_by_one_from_then_on(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    made, asked = driver(monkeypatch, Invalid("the store refuses", found=code))
    assert made.delete_many(KEYS) == {}
    assert made.delete_many(KEYS[:2]) == {}
    assert asked == ["delete_objects", *["delete_object"] * 7]


def test_a_whole_request_that_fails_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = driver(monkeypatch, Denied("the store refuses access", found="403 AccessDenied"))
    with pytest.raises(Denied):
        made.delete_many(KEYS)


def test_what_may_be_locked_is_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked = driver(monkeypatch, {}, object_lock="GOVERNANCE")
    assert made.capabilities.delete_keys == 1
    made.delete_many(KEYS[:2])
    assert asked == ["head_object", "delete_object"] * 2
