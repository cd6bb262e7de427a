"""Of every kind of key: what is lost or damaged of it is named and comes back from a copy, and the archive is sound then."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import get_args

import pytest

from tests.kit.archiveedits import start_again
from tests.kit.assemble import KEYS
from tests.kit.encryption import encrypting
from tests.kit.fetchscene import Scene, scene
from tests.kit.keyed import send_keyed, view_of
from tests.kit.merging import AtOnceTurn
from tests.kit.scrubbing import overwrite, paths
from tiered.archive.care.look import look
from tiered.archive.care.mend import Mend
from tiered.archive.care.notes import Notebook
from tiered.archive.care.opening import put_opening
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.encryption.provider import Encrypting
from tiered.archive.keykinds import (
    Area,
    BackfillKey,
    HoldKey,
    Identity,
    ObjectKey,
    OrderKey,
    SinkKey,
    TableKey,
)
from tiered.archive.keys import parse
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.read.verify import Verifier
from tiered.archive.rewrite.holds import add_hold
from tiered.archive.rewrite.merge import MergeOptions
from tiered.archive.rewrite.mergeplan import Bounds
from tiered.archive.rewrite.policy import LegalHold
from tiered.archive.rewrite.writing import Layout
from tiered.archive.standing import BACKFILL, SINK, put_order
from tiered.clock import ManualClock
from tiered.codec.format.commit import encode_stand_in
from tiered.codec.format.keyvalue import KeyValueSnapshot, encode_piece, encode_snapshot
from tiered.errors import TieredError
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider
from tiered.table.orders import EMBEDDED, KeptTables, add_tables

NOT_FROM_A_COPY = {
    Area.SEGMENT: "no encrypted archive has any: tests/scenes/test_mend.py, level 2",
    Area.CONFIG: "nothing to compare its bytes with",
    "ProbeKey": "of a start",
    "LeaseKey": "deleted and put anew all the time",
    "PlacementKey": "published anew",
    "BeatKey": "deleted and put anew all the time",
}
MISSED = {"IdentityKey", "CommitKey", Area.DATA, Area.SHARD, Area.DATAKEY}
"""Whatever names these says that they are lost."""
LEFT = {"RepairKey", "CheckpointKey", "KeyValueKey", "BackfillKey"}
"""Made anew, given up by law, or beside a sound commit: that one of them is gone is nothing to mend."""


def kind_of(path: str) -> str | Area:
    made = parse(path)
    return made.area if isinstance(made, ObjectKey) else type(made).__name__


def all_kinds() -> set[str | Area]:
    """Every kind that ``keykinds`` has."""
    plain = {kind.__name__ for kind in get_args(Identity) if kind not in (ObjectKey, OrderKey)}
    return plain | set(Area) | {kind.__name__ for kind in (HoldKey, TableKey, SinkKey, BackfillKey)}


def fill(made: Scene) -> None:
    """One of each kind that a copy mends, in two epochs."""
    log = made.daemon.log
    archive_id, chance, ids = log.reader.identity.archive_id, random.Random(1), iter(range(1, 100))
    send_keyed(made, chance, 120, 10)
    start_again(made)
    send_keyed(made, chance, 40, 10)
    log = made.daemon.log
    add_hold(made.provider, KEYS, archive_id, LegalHold("case", "Orders", 0, 10), "", 1, chance.randbytes)
    add_tables(made.provider, KEYS, archive_id, KeptTables(EMBEDDED, {}, "queues"), 1, chance.randbytes)
    for kind in (SINK, BACKFILL):
        put_order(made.provider, KEYS, archive_id, kind, chance.randbytes(16), {"created_ms": 1})
    stood_for = log.reader.read(1)
    assert stood_for is not None
    made.provider.put(KEYS.repair(1, stood_for.commit.commit_id), encode_stand_in(stood_for.commit))
    piece, said = encode_piece(([b"k"], [b"v"]), b"s" * 16, 0)
    made.provider.put(KEYS.keyvalue(1, b"s" * 16, 0), [piece])
    whole = KeyValueSnapshot(b"s" * 16, KEYS.cluster, KEYS.broker, 1, None, 1, b"", {"n": 1}, (said,))
    made.provider.put(KEYS.keyvalue(1, b"s" * 16), [encode_snapshot(whole)])
    write_checkpoint(
        made.provider, KEYS, log.store, None, lambda: KEYS.shard(1, next(ids).to_bytes(16, "big")), shard_bytes=2000
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with scene(tmp_path_factory.mktemp("kinds"), encrypted=True) as found:
        fill(found)
        yield found


def found_wrong(made: Scene) -> set[str]:
    """Keys that ``verify`` or a walk names; what refuses them names one."""
    restart(made)
    named = set()
    for ask in (verified, walked):
        try:
            named |= ask(made)
        except TieredError as error:
            named.add(str(error.fields["key"]))
    return named


def verified(made: Scene) -> set[str]:
    return {damage.key for damage in Verifier(view_of(made)).run(deep=True).damage}


def walked(made: Scene) -> set[str]:
    found = look(made.daemon.log.reader, lambda: made.state, made.clock, deep=True)
    return {KEYS.key(path) for path in found.notes.findings}


def spoilt(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


def restart(made: Scene) -> Provider:
    """Forget all data keys that are known; what lies in the bucket."""
    encrypts = made.provider.inner
    assert isinstance(encrypts, Encrypting)
    made.provider.inner = encrypting(encrypts.inner)
    return encrypts.inner


def mend(made: Scene, copied: Provider) -> None:
    """As ``tiered scrub --once --deep --repair --copy`` does it."""
    put_opening(restart(made), KEYS, copied)
    reader = made.daemon.log.reader
    book = Notebook(None, reader.identity.archive_id)
    book.notes = look(reader, lambda: made.state, made.clock, deep=True).notes
    options = MergeOptions(1.0, 1000, Bounds(4096, 4096, 2, 1 << 20, 1000), Layout(4096, 1, 1 << 16))
    task = Mend(made.daemon.log, made.clock, options, OwnKeys(), book, lambda: encrypting(copied))
    while (done := task.run_once(AtOnceTurn(made.daemon))).more:
        assert done.trouble is None


def test_the_list_has_every_kind(made: Scene) -> None:
    kinds = {kind_of(path) for path in paths(made.provider)}
    assert kinds - {"BeatKey", "ProbeKey"} == all_kinds() - set(NOT_FROM_A_COPY)
    assert found_wrong(made) == set()


@pytest.mark.parametrize("kind", sorted(all_kinds() - set(NOT_FROM_A_COPY), key=str))
def test_what_is_lost_or_damaged_comes_back(made: Scene, kind: str | Area) -> None:
    below = restart(made)
    left = {item.path for item in made.state.objects() if not item.references}
    every = [path for path in paths(made.provider) if kind_of(path) == kind and path not in left]
    path = every[2 if kind == "CommitKey" else 0]  # something stands for number 1
    key = KEYS.key(path)
    copied = MemoryProvider("", ManualClock())
    for each in below.list(""):
        copied.put(each.key, [bytes(below.get(each.key).data)])
    assert found_wrong(made) == set()
    whole, stored = (bytes(each.get(key).data) for each in (made.provider, below))
    if kind not in LEFT:
        below.delete(key)
        named = found_wrong(made)
        assert (kind not in MISSED) or any(key.startswith(found.rstrip("…")) for found in named), named
        mend(made, copied)
        assert bytes(made.provider.get(key).data) == whole
        assert found_wrong(made) == set()
    if kind != "CommitKey":  # whose damaged edits tiered repair mends: tests/fault/test_damage.py
        overwrite(made.provider, path, spoilt(stored))
        assert key in found_wrong(made)
        mend(made, copied)
        assert found_wrong(made) == set()
