"""``verify`` looks at what lies beside the log and its objects too, and lists each folder of objects once."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Scene, scene
from tests.kit.keyed import send_keyed, view_of
from tests.kit.scrubbing import flip
from tiered.archive.keys import HOLD_PREFIX, TABLE_PREFIX, Area
from tiered.archive.read.verify import Report, Verifier
from tiered.archive.rewrite.holds import add_hold, drop_hold
from tiered.archive.rewrite.policy import LegalHold
from tiered.table.orders import EMBEDDED, KeptTables, add_tables


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as found:
        send_keyed(found, random.Random(1), 120, 10)
        archive_id = found.daemon.log.reader.identity.archive_id
        for number, name in enumerate(("case", "old")):
            hold = LegalHold(name, "Orders", 0, 10)
            add_hold(found.provider, KEYS, archive_id, hold, "", 1, random.Random(number).randbytes)
        drop_hold(found.provider, KEYS, archive_id, "old")
        tables = KeptTables(EMBEDDED, {}, "queues")
        add_tables(found.provider, KEYS, archive_id, tables, 1, random.Random(3).randbytes)
        yield found


def verify(made: Scene, *, deep: bool = False) -> Report:
    return Verifier(view_of(made)).run(deep=deep)


def test_they_are_counted_and_sound(made: Scene) -> None:
    report = verify(made, deep=True)
    assert report.damage == []
    assert report.orders == 3


@pytest.mark.parametrize("prefix", [HOLD_PREFIX, TABLE_PREFIX])
def test_a_damaged_order_is_named(made: Scene, prefix: str) -> None:
    listed = [str(KEYS.path(stored.key)) for stored in made.provider.list(KEYS.key(prefix))]
    path = next(p for p in listed if f"{p}" + ".dropped" not in listed and not p.endswith("dropped"))
    flip(made.provider, path, 5)
    (found,) = verify(made).damage
    assert found.key == KEYS.key(path)
    assert "cannot be read" in found.what


def test_an_order_of_which_only_its_end_is_left_is_named(made: Scene) -> None:
    listed = [str(KEYS.path(stored.key)) for stored in made.provider.list(KEYS.key(HOLD_PREFIX))]
    before = Counter(len(path) for path in listed)
    dropped = max(listed, key=len)
    assert before[len(dropped)] == 1
    stem = next(path for path in listed if path != dropped and dropped.startswith(path.rsplit(".", 1)[0]))
    made.provider.delete(KEYS.key(stem))
    assert [found.key for found in verify(made).damage] == [KEYS.key(stem)]


def test_each_folder_of_objects_is_listed_once(made: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    view = view_of(made)
    asked = Counter[str]()
    listing = view.log.provider.list

    def counted(prefix: str, **bounds: object) -> object:
        asked[prefix] += 1
        return listing(prefix, **bounds)  # type: ignore[arg-type]

    monkeypatch.setattr(view.log.provider, "list", counted, raising=False)
    assert Verifier(view).run(deep=True).sound
    assert {area: asked[KEYS.prefix(area)] for area in (Area.DATA, Area.SEGMENT)} == {
        Area.DATA: 1,
        Area.SEGMENT: 1,
    }
