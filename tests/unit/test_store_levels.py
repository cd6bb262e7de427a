"""Storage levels: whose answer a read is, by RocketMQ's table; live, per topic."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.readstore import cold, with_fetch
from tiered.errors import Invalid
from tiered.filter.storagelevels import LocalQueue, StorageLevel, StorageLevels, archive_answers

DISABLE, NOT_IN_DISK, NOT_IN_MEM, FORCE = StorageLevel

EMPTY = LocalQueue(None, 0)
"""The broker's commitlog, or the queue, is empty: RocketMQ's minimum is below 0 then."""


@pytest.mark.parametrize(
    ("level", "offset", "end", "local", "archive"),
    [
        # the archive has [.., 200), the broker [100, 300)
        (FORCE, 50, 200, LocalQueue(100, 300), True),
        (FORCE, 150, 200, LocalQueue(100, 300), True),
        (FORCE, 250, 200, LocalQueue(100, 300), True),
        (FORCE, 50, None, LocalQueue(100, 300), True),
        (DISABLE, 50, 200, LocalQueue(100, 300), False),
        (DISABLE, 50, 200, EMPTY, False),
        (DISABLE, 150, 200, LocalQueue(100, 300, in_memory=False), False),
        (NOT_IN_DISK, 50, None, LocalQueue(100, 300), False),
        (NOT_IN_DISK, 50, 200, LocalQueue(100, 300), True),
        (NOT_IN_DISK, 99, 200, LocalQueue(100, 300), True),
        (NOT_IN_DISK, 100, 200, LocalQueue(100, 300), False),
        (NOT_IN_DISK, 199, 200, LocalQueue(100, 300), False),
        (NOT_IN_DISK, 200, 200, LocalQueue(300, 400), False),
        (NOT_IN_DISK, 150, 200, EMPTY, True),
        (NOT_IN_DISK, 150, 200, LocalQueue(100, 120), True),
        (NOT_IN_DISK, 150, 200, LocalQueue(100, 300, in_memory=False), False),
        (NOT_IN_MEM, 150, 200, LocalQueue(100, 300, in_memory=False), True),
        (NOT_IN_MEM, 150, 200, LocalQueue(100, 300, in_memory=True), False),
        (NOT_IN_MEM, 50, 200, LocalQueue(100, 300), True),
        (NOT_IN_MEM, 200, 200, LocalQueue(100, 300, in_memory=False), False),
    ],
)
def test_who_answers(
    level: StorageLevel, offset: int, end: int | None, local: LocalQueue, archive: bool
) -> None:
    assert archive_answers(level, offset, end, local) is archive


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


def test_levels_are_set_live() -> None:
    levels = StorageLevels("NOT_IN_DISK", ("Ord*=DISABLE",))
    levels.set("Orders", FORCE)
    assert levels.level("Orders") is FORCE, "a new pattern goes first"
    levels.set("Ord*", "NOT_IN_MEM")
    assert (levels.level("Orders"), levels.level("Ordnance")) == (FORCE, NOT_IN_MEM), (
        "a known one keeps its place"
    )
    levels.set("Orders", None)
    assert levels.level("Orders") is NOT_IN_MEM
    levels.set("*", FORCE)
    assert (levels.level("Orders"), levels.level("Else")) == (NOT_IN_MEM, FORCE), "* is the default"
    levels.set("absent", None)
    with pytest.raises(Invalid):
        levels.set("", FORCE)
    with pytest.raises(Invalid):
        levels.set("T", "SOMETIMES")
    everything = StorageLevels("NOT_IN_DISK", ("*=FORCE",))
    everything.set("*", DISABLE)
    assert everything.level("T") is DISABLE


@pytest.mark.parametrize("entry", ["Orders", "=FORCE", " =FORCE", "Orders=", "Orders=YES"])
def test_settings_that_make_no_sense(entry: str) -> None:
    with pytest.raises(Invalid):
        StorageLevels("NOT_IN_DISK", (entry,))


def test_the_store_decides_with_what_it_knows(tmp_path: Path) -> None:
    with cold(tmp_path, open_now=False) as scene:
        for topic in ("Orders", "rmq_sys_wheel_timer"):
            for _ in range(5):
                scene.broker.send(topic)
        scene.archive()
        store = scene.open(settings=with_fetch(topic_storage_levels=("Hot*=DISABLE",)))
        behind = LocalQueue(3, 9)
        assert store.answers("Orders", 0, 2, behind) is True
        assert store.answers("Orders", 0, 3, behind) is False
        assert store.answers("Unknown", 0, 2, behind) is False
        assert store.answers("HotTopic", 0, 2, behind) is False
        store.set_storage_level("Orders", FORCE)
        assert store.storage_level("Orders") is FORCE
        assert store.answers("Orders", 0, 3, behind) is True
        store.set_storage_level("*", "FORCE")
        assert store.answers("rmq_sys_wheel_timer", 0, 0, EMPTY) is False, "RocketMQ's own are the broker's"
        store.set_storage_level("Orders", "DISABLE")
        assert store.answers("Orders", 0, 2, behind) is False
        assert scene.get("Orders", 0, 2).records, "who asks the archive itself is answered"


def test_all_levels_anew_or_none() -> None:
    levels = StorageLevels("NOT_IN_DISK", ["Orders*=FORCE"])
    with pytest.raises(Invalid, match="topic_storage_levels"):
        levels.replace("DISABLE", ["Pay"])
    assert (levels.level("Orders1"), levels.level("Pay")) == (FORCE, NOT_IN_DISK)
    levels.replace("DISABLE", ["Pay=NOT_IN_MEM"])
    assert (levels.level("Orders1"), levels.level("Pay")) == (DISABLE, NOT_IN_MEM)


def test_levels_of_a_store_that_is_open(tmp_path: Path) -> None:
    with cold(tmp_path) as scene:
        scene.store.replace_storage_levels("FORCE", ["T=DISABLE"])
        assert scene.store.storage_level("T") is DISABLE
        assert scene.store.storage_level("U") is FORCE
