"""Damage anywhere in a store: ``--once`` ends, archives every record that is whole, and names every other.

The judge is a slow parser that shares no code with the program: a record is whole if its bytes, as the damage left them, hold
together (lengths, body CRC, its own place). Header fields, topic and properties that no checksum covers can change unseen.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.kit.assemble import Assembly, assemble, memory
from tests.kit.golden import parse_record
from tests.kit.pipeline import Crafted
from tiered.clock import ManualClock
from tiered.daemon.once import PresentEnd
from tiered.errors import Corrupt, TieredError

FILE_BYTES = 4096
STEPS = 20_000
IMPATIENT = {"poll_interval_ms": 500, "corrupt_wait_ms": 5000}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Crafted:
    """About ten files of records of all sizes, the last of them half full."""
    chance = random.Random(7)
    broker = Crafted(tmp_path_factory.mktemp("sound") / "store", file_bytes=FILE_BYTES, ahead=True)
    while broker.position < 9.5 * FILE_BYTES:
        properties = {"KEYS": "k" * chance.choice((1, 20, 700))} if chance.random() < 0.7 else {}
        body = chance.randbytes(chance.choice((0, 30, 200, 1500)))
        broker.send("Orders", chance.randrange(3), body, properties=properties)
    return broker


@dataclass(frozen=True)
class Damage:
    """What befalls a store: ``kind``, a place in the log and a length, or a file and how much of it is left.

    ``row``: the place is counted back from the end of that record (negative: from the newest), where properties lie.
    """

    kind: str
    place: int
    length: int
    row: int | None = None

    def befall(self, directory: Path, records: dict[int, bytes]) -> None:
        """Do it, as far as the place is still there."""
        at = self.place
        if self.row is not None:
            begin, raw = sorted(records.items())[self.row % len(records)]
            at = max(begin, begin + len(raw) - self.place % 100)
        path = directory / f"{at // FILE_BYTES * FILE_BYTES:020d}"
        if not path.exists():
            return
        if self.kind == "missing":
            path.unlink()
            return
        data = bytearray(path.read_bytes())
        if self.kind == "short":
            path.write_bytes(data[: at % FILE_BYTES])
            return
        start = at % FILE_BYTES
        stop = min(len(data), start + self.length)
        noise = random.Random(at).randbytes(max(0, stop - start))
        data[start:stop] = bytes(len(noise)) if self.kind == "zeros" else noise
        path.write_bytes(data)


places = st.integers(0, 9 * FILE_BYTES + 2000)
lengths = st.one_of(st.integers(1, 300), st.sampled_from((512, 4096)), st.integers(300, 2 * FILE_BYTES))
kinds = st.sampled_from(("zeros", "noise", "short", "missing", "zeros", "noise"))
rows = st.one_of(st.none(), st.integers(-12, 60))
damages = st.lists(st.builds(Damage, kinds, places, lengths, rows), min_size=1, max_size=5)


def once(one: Assembly) -> TieredError | None:
    """``run --once`` without its threads; the verdict. It must end."""
    end = PresentEnd(one.source, one.clock, one.source.max_offset())
    told = 0
    for _ in range(STEPS):
        wait = one.step()
        for gap in one.gaps[told:]:
            end.gap(*gap)  # type: ignore[arg-type]
        told = len(one.gaps)
        waiting_for = one.dispatcher.waiting_for if one.dispatcher.caught_up else None
        if end.done(one.dispatcher.position, waiting_for) and not one.dispatcher.buffer:
            one.commit_all()
            return end.verdict()
        one.clock.advance(max(wait, 0.001))
    raise AssertionError(f"it did not end: at {one.dispatcher.position}, {one.source.waiting}")


def as_left(directory: Path, broker: Crafted) -> Iterator[tuple[int, bytes, bytes]]:
    """Of each record its place, what it was, and what the damage left of it."""
    files = {int(path.name): path.read_bytes() for path in directory.iterdir()}
    for at, raw in broker.records.items():
        base = at // FILE_BYTES * FILE_BYTES
        yield at, raw, files.get(base, b"")[at - base : at - base + len(raw)]


def is_whole(at: int, data: bytes) -> bool:
    """Whether these bytes are a record that lies at ``at``."""
    try:
        record = parse_record(data)
    except Exception:
        return False
    return record.physical_offset == at and record.queue_id >= 0


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages)
@example([Damage("zeros", 50, 300, 21)])  # from the middle of properties on, in a full file
@example([Damage("zeros", 4, 60, -3)])  # the same in the newest
@example([Damage("zeros", 0, 200, -3)])  # whole records before and behind
@example([Damage("zeros", 9 * FILE_BYTES, 512)])  # the newest file's beginning
@example([Damage("missing", 5 * FILE_BYTES, 0), Damage("noise", 7 * FILE_BYTES - 100, 300)])
@example([Damage("short", 3 * FILE_BYTES + 2000, 0), Damage("short", 4 * FILE_BYTES, 0)])
@example([Damage("zeros", 1, 1, -1)])  # the last byte of all
def test_once_ends_and_tells_every_record(sound: Crafted, damage: list[Damage]) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        store = Path(scratch) / "store"
        shutil.copytree(sound.store, store)
        for blow in damage:
            blow.befall(store / "commitlog", sound.records)
        if not any(path.stat().st_size == FILE_BYTES for path in (store / "commitlog").iterdir()):
            return  # how long the files were cannot be told
        clock = ManualClock()
        one = assemble(store, memory(clock), clock, source=IMPATIENT)
        verdict = once(one)
        archived = {
            int.from_bytes(raw[28:36], "big"): raw for rows in one.rows().values() for _, _, raw in rows
        }
        gaps = [(gap.start, gap.end) for gap in one.state.phys_gaps()]
        end, first = one.dispatcher.position, min(int(p.name) for p in (store / "commitlog").iterdir())
        one.close()
        assert isinstance(verdict, Corrupt) or not gaps, gaps
        for at, was, left in as_left(store / "commitlog", sound):
            inside = any(start <= at < stop for start, stop in gaps)
            if left == was:
                assert archived.get(at) == was, f"the record at {at} is whole and not archived"
            elif is_whole(at, left):
                unfinished = at >= end and left.endswith(b"\0")  # the last one: it may still be written
                assert inside or unfinished or archived.get(at) == left
            else:
                assert at not in archived
                assert inside or at >= end or at < first, f"the record at {at} is lost and no gap names it"
            assert not (inside and at in archived)
        assert set(archived) <= set(sound.records), "nothing is made up"
