"""A stream that survives Spark's limit for its Python process. No JVM."""

from __future__ import annotations

from typing import Any

import pytest

from tiered_spark import SteadyQuery
from tiered_spark.steady import LATE

pytestmark = pytest.mark.spark


class Query:
    """Ends at its first look with this error, or well."""

    def __init__(self, error: Exception | None) -> None:
        self.error, self.isActive, self.stopped = error, True, False

    def awaitTermination(self, seconds: float) -> bool:  # noqa: N802 - Spark's name
        self.isActive = False
        if self.error is not None:
            raise self.error
        return True

    def exception(self) -> Exception | None:
        return self.error

    def stop(self) -> None:
        self.stopped = True


def steady(*outcomes: object, restarts: int = 20) -> tuple[SteadyQuery, list[Any]]:
    """Queries that end so, one after the other; an exception class: the start itself fails."""
    left, started = list(outcomes), []

    def start() -> Any:
        outcome = left.pop(0)
        if isinstance(outcome, OSError):
            raise outcome
        started.append(Query(outcome if isinstance(outcome, Exception) else None))
        return started[-1]

    return SteadyQuery(start, restarts), started


@pytest.mark.parametrize("says", LATE)
def test_a_process_that_began_too_late_is_begun_again(says: str, caplog: pytest.LogCaptureFixture) -> None:
    query, started = steady(RuntimeError(f"[STREAM_FAILED] {says}"), OSError(says), RuntimeError(says), None)
    query.wait()
    assert (len(started), query.restarted) == (3, 3)
    assert "did not begin in time" in caplog.text
    query.stop()
    assert started[-1].stopped


def test_any_other_error_ends_it() -> None:
    query, started = steady(RuntimeError(LATE[0]), RuntimeError("retention took away"), None)
    with pytest.raises(RuntimeError, match="retention took away"):
        query.wait()
    assert len(started) == 2


def test_it_is_not_begun_for_ever() -> None:
    query, started = steady(*(RuntimeError(LATE[0]) for _ in range(9)), restarts=3)
    with pytest.raises(RuntimeError, match="Timed out"):
        query.wait()
    assert (len(started), query.restarted) == (4, 3)
