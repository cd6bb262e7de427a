"""Legal holds in the bucket, commits' ages by the store's clock, and the verbs that show what retention would do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.kit.assemble import KEYS, memory
from tests.kit.fetchscene import ORDERS, Scene, scene
from tiered.archive.rewrite.holds import FOR_EVER_MS, add_hold, drop_hold, holds_in_force, read_holds
from tiered.archive.rewrite.policy import LegalHold
from tiered.archive.rewrite.retention import look
from tiered.archive.rewrite.storetime import aged_commit
from tiered.clock import ManualClock
from tiered.errors import Conflict, Corrupt, Invalid, NotFound, Refused, Unavailable
from tiered.provider.base import Fetched, Stored
from tiered.provider.wrap import Wrapped
from tiered.settings import Retain

ARCHIVE = b"archive-archive-"
HOLD = LegalHold("case-7", "Orders*", 1000, 2000)


def test_a_hold_is_in_force_from_the_moment_it_is_put_until_it_is_dropped() -> None:
    provider, chance = memory(), Random(1)
    made = add_hold(provider, KEYS, ARCHIVE, HOLD, "asked for by legal", 77, chance.randbytes)
    open_end = LegalHold("case-8", "Ärger?", 0, FOR_EVER_MS)
    add_hold(provider, KEYS, ARCHIVE, open_end, "", 78, chance.randbytes)
    assert holds_in_force(provider, KEYS, ARCHIVE) == [HOLD, open_end]
    assert read_holds(provider, KEYS, ARCHIVE)[0] == made
    drop_hold(provider, KEYS, ARCHIVE, "case-7")
    assert holds_in_force(provider, KEYS, ARCHIVE) == [open_end]
    assert [(s.hold.name, s.dropped, s.reason) for s in read_holds(provider, KEYS, ARCHIVE)] == [
        ("case-7", True, "asked for by legal"), ("case-8", False, ""),
    ]  # fmt: skip
    add_hold(provider, KEYS, ARCHIVE, HOLD, "again", 79, chance.randbytes)
    assert holds_in_force(provider, KEYS, ARCHIVE) == [open_end, HOLD]


def test_wrong_holds_are_refused() -> None:
    provider, chance = memory(), Random(1)
    add_hold(provider, KEYS, ARCHIVE, HOLD, "", 1, chance.randbytes)
    with pytest.raises(Conflict, match="of this name"):
        add_hold(provider, KEYS, ARCHIVE, HOLD, "", 2, chance.randbytes)
    for wrong in (LegalHold("", "a", 0, 1), LegalHold("a", " ", 0, 1), LegalHold("a", "b", 5, 5)):
        with pytest.raises(Invalid, match=r"ends after it begins|a hold's name has letters"):
            add_hold(provider, KEYS, ARCHIVE, wrong, "", 2, chance.randbytes)
    with pytest.raises(NotFound, match="no hold of this name") as found:
        drop_hold(provider, KEYS, ARCHIVE, "case-9")
    assert found.value.fields["expected"] == "case-7"


@pytest.mark.parametrize("damage", ["flip", "cut", "foreign", "moved", "stray", "lost"])
def test_what_cannot_be_read_holds_everything(damage: str) -> None:
    provider, chance = memory(), Random(1)
    add_hold(provider, KEYS, ARCHIVE, HOLD, "", 1, chance.randbytes)
    (stored,) = provider.inner.list("")
    data = bytes(provider.get(stored.key).data)
    if damage == "flip":
        provider.put(stored.key, [data.replace(b"1000", b"1001")], create_only=False)
    elif damage == "cut":
        provider.put(stored.key, [data[:-3]], create_only=False)
    elif damage == "moved":
        provider.put(stored.key[:-1] + "x".translate({120: "0123"[stored.key[-1] == "0"]}), [data])
    elif damage == "stray":
        provider.put(KEYS.key("hold/readme.txt"), [b"hello"])
    elif damage == "lost":
        drop_hold(provider, KEYS, ARCHIVE, "case-7")
        provider.delete(stored.key)
    with pytest.raises(Corrupt, match="nothing is trimmed"):
        holds_in_force(provider, KEYS, b"another-archive-" if damage == "foreign" else ARCHIVE)


def archive(s: Scene, flushes: int) -> None:
    """One commit after the other, ten seconds apart by every clock."""
    for _ in range(flushes):
        s.broker.time_ms = s.clock.now_ms()
        s.send(2)
        s.clock.advance(10)


def test_age_is_the_stores_and_a_missing_commit_counts_as_too_young(tmp_path: Path) -> None:
    with scene(tmp_path) as s:
        archive(s, 12)
        reader = s.daemon.log.reader
        head = s.state.head()
        assert head is not None
        now_ms = s.clock.now_ms()
        times = [s.provider.head(KEYS.commit(seq)).last_modified_ms for seq in range(head.seq + 1)]
        for age_ms in (0, 10_000, 35_000, 65_000, 10**9):
            expected = max((n for n, t in enumerate(times) if now_ms - t >= age_ms), default=-1)
            assert aged_commit(reader, head, age_ms) == expected
        aged = aged_commit(reader, head, 35_000)
        s.provider.delete(KEYS.commit(aged))
        assert aged_commit(reader, head, 35_000) == aged - 1
        s.provider.delete(KEYS.commit(aged - 2))
        assert aged_commit(reader, head, 35_000) <= aged - 1


class Timeless(Wrapped):
    """A store that tells no times of its objects."""

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        found = self.inner.get(key, start, length)
        return Fetched(found.data, found.object_length, found.date_ms, None)


class Unlisted(Wrapped):
    """A store that gives every key and lists none."""

    def list(self, *_: object, **__: object) -> Iterator[Stored]:
        return iter(())


def test_a_look_takes_holds_and_clocks_first(tmp_path: Path) -> None:
    with scene(tmp_path) as s:
        archive(s, 6)
        reader, state = s.daemon.log.reader, s.state
        assert look(reader, state, Retain(), s.clock) is None
        hour = 3_600_000
        settings = Retain(keep_ms=hour, min_age_ms=hour)
        run = look(reader, state, settings, s.clock)
        assert run is not None
        assert not run.plan.trims
        s.clock.advance(hour / 1000 - 35)
        run = look(reader, state, settings, s.clock)
        assert run is not None
        (trim,) = run.plan.trims
        old = [r for r in state.runs(ORDERS, 1) if r.max_store_time < s.clock.now_ms() - hour]
        assert 0 < trim.messages == sum(r.rows for r in old) < 12
        add_hold(
            s.provider,
            KEYS,
            reader.identity.archive_id,
            LegalHold("x", "Ord*", 0, FOR_EVER_MS),
            "",
            1,
            Random(2).randbytes,
        )
        held = look(reader, state, settings, s.clock)
        assert held is not None
        assert not held.plan.trims
        reader.provider = Unlisted(s.provider)
        with pytest.raises(Unavailable, match="lists nothing"):
            look(reader, state, settings, s.clock)
        reader.provider = s.provider
        late = ManualClock(s.clock.now_ms() + 301_000)
        with pytest.raises(Refused, match="too far apart"):
            look(reader, state, settings, late)
        reader.provider = Timeless(s.provider)
        with pytest.raises(Refused, match="when its objects were written"):
            look(reader, state, settings, s.clock)
