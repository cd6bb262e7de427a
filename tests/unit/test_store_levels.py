"""Storage levels: whose answer a read is, by RocketMQ's table; live, per topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.readstore import cold, with_fetch
from tiered.errors import Invalid
from tiered.filter.storagelevels import StorageLevel, StorageLevels

DISABLE, NOT_IN_DISK, NOT_IN_MEM, FORCE = StorageLevel


@pytest.mark.parametrize(
    ("text", "level"),
    [("DISABLE", DISABLE), ("0", DISABLE), ("1", NOT_IN_DISK), (" not_in_mem ", NOT_IN_MEM), ("3", FORCE)],
)
def test_names_and_digits(text: str, level: StorageLevel) -> None:
    assert StorageLevel.parse(text) is level


@pytest.mark.parametrize("text", ["", "4", "-1", "FORCED", "NOT IN DISK"])
def test_what_is_no_level(text: str) -> None:
    with pytest.raises(Invalid, match="not a storage level"):
        StorageLevel.parse(text)


def test_patterns_in_order_then_the_default() -> None:
    levels = StorageLevels("NOT_IN_DISK", ("Orders=FORCE", "Ord*=DISABLE", " ?=2 "))
    assert levels.level("Orders") is FORCE
    assert levels.level("Orders2") is DISABLE
    assert levels.level("T") is NOT_IN_MEM
    assert levels.level("Else") is NOT_IN_DISK


@pytest.mark.parametrize("entry", ["Orders", "=FORCE", " =FORCE", "Orders=", "Orders=YES"])
def test_settings_that_make_no_sense(entry: str) -> None:
    with pytest.raises(Invalid):
        StorageLevels("NOT_IN_DISK", (entry,))


def test_who_asks_the_archive_itself_is_answered_whatever_the_level(tmp_path: Path) -> None:
    with cold(tmp_path, open_now=False) as scene:
        for _ in range(5):
            scene.broker.send("Orders")
        scene.archive()
        scene.open(settings=with_fetch(topic_storage_levels=("Orders=DISABLE",)))
        assert scene.get("Orders", 0, 2).records


def test_all_levels_anew_or_none() -> None:
    levels = StorageLevels("NOT_IN_DISK", ["Orders*=FORCE"])
    with pytest.raises(Invalid, match="topic_storage_levels"):
        levels.replace("DISABLE", ["Pay"])
    assert (levels.level("Orders1"), levels.level("Pay")) == (FORCE, NOT_IN_DISK)
    levels.replace("DISABLE", ["Pay=NOT_IN_MEM"])
    assert (levels.level("Orders1"), levels.level("Pay")) == (DISABLE, NOT_IN_MEM)
