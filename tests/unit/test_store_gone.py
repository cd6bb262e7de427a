"""Objects that a view names and that are gone: when to look again, and what is said when that is of no help."""

from __future__ import annotations

import pytest

from tiered.errors import Corrupt, NotFound, Unavailable
from tiered.store.gone import LOOKS, MOST_LOOKS, GoneObjects


def lost(gone: NotFound) -> Corrupt:
    return Corrupt("lost", key=gone.fields["key"])


def test_one_that_is_named_again_and_again_is_lost() -> None:
    gone = GoneObjects(lost)
    for _ in range(LOOKS):
        gone.met(NotFound("gone", key="a"))
    with pytest.raises(Corrupt) as raised:
        gone.met(NotFound("gone", key="a"))
    assert raised.value.fields["key"] == "a"


def test_others_that_go_away_meanwhile_are_not() -> None:
    """Each look has led to another view, so nothing says that one of them is damage."""
    gone = GoneObjects(lost)
    for number in range(MOST_LOOKS):
        gone.met(NotFound("gone", key=f"{number}"))
    with pytest.raises(Unavailable, match="faster than they are read"):
        gone.met(NotFound("gone", key="one more"))
    assert MOST_LOOKS > 4 * LOOKS
