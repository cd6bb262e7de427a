"""The edits about the log and its objects: ``OpenEpoch``, ``AddObject``, ``Progress``, ``PhysGap``,
``Retire``, ``Deleted``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tiered.archive.fold.context import OFFSET_LIMIT, Fold
from tiered.archive.fold.marks import add_mark
from tiered.archive.keys import (
    COMMIT_PREFIX,
    DATAKEY_PREFIX,
    IDENTITY_PATH,
    REPAIR_PREFIX,
    CheckpointKey,
    ObjectKey,
    parse,
)
from tiered.archive.state.forgotten import FORGOTTEN_QUEUES
from tiered.archive.state.keys import (
    FLOOR,
    OBJECT_PATH,
    PHYS_GAP,
    RETIRED,
    U8,
    U8_U4,
    lineage_key,
    object_key,
)
from tiered.archive.state.layout import pack_value, unpack_value
from tiered.archive.state.sinks import SINK_MAPS, SINKS
from tiered.archive.state.values import Forgotten, Head, ObjectState, pack_object
from tiered.codec.format.aliases import LITE_QUEUES
from tiered.codec.format.edits import Commit, EditBatch, EditKind
from tiered.codec.format.sections import NAME_A_KEY, SectionKind
from tiered.errors import Corrupt, Refused
from tiered.model import ObjectRef, Progress
from tiered.version import FORMAT_VERSION

ENCRYPTION = "encryption"
"""Required of writers: what they put is encrypted, the ``OpenEpoch`` itself aside."""

DICTIONARIES = "dictionaries"
"""A feature that the fold itself requires, of all later epochs too, from the first object with a dictionary on."""

SUPPORTED_FEATURES: frozenset[str] = frozenset(
    {ENCRYPTION, LITE_QUEUES, FORGOTTEN_QUEUES, SINKS, SINK_MAPS, DICTIONARIES}
)
"""Features that an ``OpenEpoch`` may require of this program."""

LASTING_FEATURES = (LITE_QUEUES, FORGOTTEN_QUEUES, SINKS, SINK_MAPS, DICTIONARIES)
"""Once an epoch required one of these, all later ones do: of what is in the state."""

KEPT_FLOORS = 4096
"""Floor moves remembered. Forgetting an old one only makes a commit removable later, never earlier."""

_NEVER_RETIRED = (COMMIT_PREFIX, REPAIR_PREFIX, DATAKEY_PREFIX, IDENTITY_PATH)


def open_epoch(head: Head | None, commit: Commit, batch: EditBatch) -> Head:
    """The head after a writer's claim. ``Refused`` if this program is too old for what the writer demands."""

    def check(ok: bool, rule: str, expected: object, found: object) -> None:
        if not ok:
            message = f"a commit breaks a rule of the archive: {rule}"
            raise Corrupt(message, rule=rule, commit=commit.seq, expected=expected, found=found)

    alone = len(commit.edits) == 1 and len(batch) == 1 and commit.inline_length == 0
    check(alone, "a commit with OpenEpoch holds nothing else", "one row", f"{len(commit.edits)} batches")
    row = batch.row(0)
    epoch = 1 if head is None else head.epoch + 1
    highest = 0 if head is None else head.highest_lineage
    check(row["epoch"] == commit.epoch == epoch, "epochs count up", epoch, f"{row['epoch']}, {commit.epoch}")
    same = row["writer_id"] == commit.writer_id and len(commit.writer_id) == 16
    check(same, "an epoch's writer id is its commit's", commit.writer_id.hex(), bytes(row["writer_id"]).hex())
    lineage = row["lineage"]
    check(1 <= lineage <= highest + 1, "lineages count up from 1", f"1 to {highest + 1}", lineage)
    features = row["required_features"]
    named = isinstance(features, list) and all(isinstance(f, str) for f in features)
    check(named, "required features are a list of names", "names", repr(features)[:80])
    broker_epoch = row["broker_epoch"]
    known = broker_epoch is None or (type(broker_epoch) is int and abs(broker_epoch) <= OFFSET_LIMIT)
    check(known, "a broker epoch is a number or none", "a number", repr(broker_epoch)[:40])
    refuse_newer(commit.seq, row["min_reader"], features)
    for feature in LASTING_FEATURES:
        had = head is not None and feature in head.required_features
        rule = "what holds something that needs a feature is never opened without it"
        check(not had or feature in features, rule, feature, ", ".join(features) or "none")
    return Head(
        archive_id=commit.archive_id,
        seq=commit.seq,
        commit_id=commit.commit_id,
        epoch=epoch,
        writer_id=commit.writer_id,
        lineage=lineage,
        highest_lineage=max(highest, lineage),
        floor=0 if head is None else head.floor,
        host=row["host"],
        source_kind=row["source_kind"],
        role=row["role"],
        broker_epoch=broker_epoch,
        min_reader=row["min_reader"],
        min_writer=row["min_writer"],
        required_features=tuple(features),
        epoch_seq=commit.seq,
        epoch_store_time_ms=row["store_time_ms"],
        progress={} if head is None else head.progress,
        forgotten=Forgotten() if head is None else head.forgotten,
    )


def refuse_newer(seq: int, min_reader: int, features: list[str]) -> None:
    """``Refused`` for an archive that needs a newer program."""
    hint = "install a newer version of this program"
    if min_reader > FORMAT_VERSION:
        message = "the archive needs a reader of a newer format"
        raise Refused(message, hint=hint, commit=seq, expected=f"≤ {FORMAT_VERSION}", found=min_reader)
    unknown = sorted(set(features) - SUPPORTED_FEATURES)
    if unknown:
        known = sorted(SUPPORTED_FEATURES)
        raise Refused(
            "the archive requires unknown features", hint=hint, commit=seq, expected=known, found=unknown
        )


def refuse_older_writer(head: Head) -> None:
    """``Refused`` for an archive whose last writer left what a program of this format version may not go on with."""
    if head.min_writer > FORMAT_VERSION:
        raise Refused(
            "the archive needs a writer of a newer format: this program may read it but not continue it",
            hint="install a newer version of this program",
            commit=head.epoch_seq,
            expected=f"≤ {FORMAT_VERSION}",
            found=head.min_writer,
        )


def refuse_plain_writer(head: Head) -> None:
    """``Refused`` for an archive that is encrypted, for a writer that encrypts nothing."""
    if ENCRYPTION in head.required_features:
        raise Refused(
            "the archive is encrypted, and no key is named",
            hint=NAME_A_KEY,
            commit=head.epoch_seq,
        )


def add_objects(fold: Fold, batch: EditBatch) -> None:
    """Objects that this commit's runs lie in."""
    fold.check_numbers(batch)
    inline = False
    for i in range(len(batch)):
        row = batch.row(i)
        path, object_id, length = row["key"], row["object_id"], row["length"]
        fold.check(len(object_id) == 16, "an object id is 16 bytes", expected=16, found=len(object_id))
        if path:
            # Keys are random: for a reader of one queue each commit would cost two shards.
            if fold.scope.everything:
                known = fold.draft.get(OBJECT_PATH + path.encode())
                retired = fold.draft.get(RETIRED + path.encode())
                rule = "an object key is never used again"
                fold.check(known is None, rule, expected="a new key", found=path)
                rule = "a retired key is never used again"
                fold.check(retired is None, rule, expected="a new key", found=path)
            allowed = path.startswith("segment/" if row["level"] == 2 else "data/")
            fold.check(
                allowed, "an object's key says its level", expected=f"level {row['level']}", found=path
            )
            made = parse(path)
            # Keys of earlier epochs may have been retired, deleted and forgotten.
            ours = not isinstance(made, ObjectKey) or made.epoch == fold.commit.epoch
            rule = "an object is made in its commit's epoch"
            fold.check(ours, rule, expected=f"epoch {fold.commit.epoch}", found=path)
        else:
            ours = object_id == fold.commit.commit_id
            fold.check(
                ours,
                "inline data is named by its commit",
                expected=fold.commit.commit_id.hex(),
                found=object_id.hex(),
            )
            fold.check(not inline, "a commit carries one inline object", expected=1, found=2)
            size = fold.commit.inline_length
            fold.check(length == size, "inline data has the length stated", expected=size, found=length)
            inline = True
        fold.check(length > 0, "an object has bytes", expected="1 or more", found=length)
        ref = ObjectRef(fold.commit.seq, fold.objects)
        sections = _sections(fold, row["sections"], length)
        if SectionKind.DICTIONARY in sections and DICTIONARIES not in fold.head.required_features:
            fold.head = replace(fold.head, required_features=(*fold.head.required_features, DICTIONARIES))
        state = ObjectState(ref, path, object_id, row["level"], length, sections, 0, None)
        fold.draft.put(object_key(ref), pack_object(state))
        if path:
            fold.draft.put(OBJECT_PATH + path.encode(), U8_U4.pack(ref.commit_seq, ref.index))
        fold.objects += 1


def _sections(fold: Fold, value: object, length: int) -> dict[int, tuple[int, int, int]]:
    rule = "sections are number: [position, length, crc32c] inside the object"
    if not isinstance(value, Mapping):
        fold.fail(rule, expected="a map", found=type(value).__name__)
    made: dict[int, tuple[int, int, int]] = {}
    for number, section in value.items():
        shaped = type(number) is int and isinstance(section, list | tuple) and len(section) == 3
        if not shaped or not all(type(x) is int and x >= 0 for x in section):
            fold.fail(rule, expected="three numbers", found=repr(section)[:60])
        position, size, crc = section
        inside = position + size <= length and crc < 2**32 and 0 <= number < 2**31
        fold.check(inside, rule, expected=f"inside {length} bytes", found=f"{number}: {position} + {size}")
        made[number] = (position, size, crc)
    return made


def progress(fold: Fold, batch: EditBatch) -> None:
    """How far the lineage is archived, each with a mark."""
    fold.check_numbers(batch)
    for i in range(len(batch)):
        row = batch.row(i)
        check_lineage(fold, row["lineage"])
        old = fold.head.progress.get(row["lineage"])
        lowest = 0 if old is None else old.physical_offset
        offset = row["physical_offset"]
        fold.check(
            offset >= lowest, "progress never goes back but by Rewind", expected=f"≥ {lowest}", found=offset
        )
        made = Progress(row["lineage"], offset, row["mark_crc"], row["crc_from"])
        add_mark(fold, made)
        fold.set_progress(made)


def check_lineage(fold: Fold, lineage: int) -> None:
    """Only the epoch's own lineage is written."""
    ours = fold.head.lineage
    fold.check(lineage == ours, "an epoch writes its own lineage", expected=ours, found=lineage)


def phys_gaps(fold: Fold, batch: EditBatch) -> None:
    """Physical ranges lost before they could be archived, ascending."""
    fold.check_numbers(batch)
    for i in range(len(batch)):
        row = batch.row(i)
        lineage, start, end = row["lineage"], row["start"], row["end"]
        check_lineage(fold, lineage)
        fold.check(end > start, "a physical gap has bytes", expected=f"> {start}", found=end)
        lowest = fold.settled
        for _, value in fold.draft.iterate(lineage_key(PHYS_GAP, lineage), reverse=True)[:1]:
            lowest = max(lowest, unpack_value(value)[0])
        rule = "a physical gap lies above what was archived"
        fold.check(start >= lowest, rule, expected=f"≥ {lowest}", found=start)
        value = pack_value([end, row["reason"], fold.commit.seq])
        fold.draft.put(lineage_key(PHYS_GAP, lineage, start), value)


def retire(fold: Fold, batch: EditBatch) -> None:
    """Paths that will be deleted, and the log's new floor."""
    fold.settle_references()
    for i in range(len(batch)):
        row = batch.row(i)
        if row["floor"] is not None:
            _move_floor(fold, row["floor"])
        for path in _paths(fold, "Retire", row["keys"]):
            named = next((n for n in _NEVER_RETIRED if path.startswith(n)), None)
            fold.check(
                named is None and path != "",
                "commits, what stands for them, data keys and the identity are never retired",
                expected="another key",
                found=path,
            )
            saved, floor = parse(path), fold.head.floor
            unneeded = not isinstance(saved, CheckpointKey) or saved.seq < floor
            rule = "only a checkpoint below the floor is retired"
            fold.check(unneeded, rule, expected=f"below {floor}", found=path)
            key = RETIRED + path.encode()
            fold.check(
                fold.draft.get(key) is None, "a key is retired once", expected="a key in use", found=path
            )
            where = fold.draft.get(OBJECT_PATH + path.encode())
            if where is not None:
                state = fold.load_object(ObjectRef(*U8_U4.unpack(where)))
                rule = "an object that runs lie in is not retired"
                fold.check(
                    state.references == 0 or not fold.scope.everything,
                    rule,
                    expected=0,
                    found=f"{state.references} runs in {path}",
                )
                fold.draft.put(object_key(state.ref), pack_object(replace(state, retired_by=fold.commit.seq)))
            fold.draft.put(key, U8.pack(fold.commit.seq))


def _move_floor(fold: Fold, floor: object) -> None:
    old = fold.head.floor
    if type(floor) is not int or not old <= floor <= fold.commit.seq:
        expected = f"{old} to {fold.commit.seq}"
        fold.fail(
            "the floor never goes down, nor above its commit", expected=expected, found=repr(floor)[:40]
        )
    if floor == old:
        return
    fold.head = replace(fold.head, floor=floor)
    fold.draft.put(FLOOR + U8.pack(floor), U8.pack(fold.commit.seq))
    for key, _ in fold.draft.iterate(FLOOR, reverse=True)[KEPT_FLOORS:]:
        fold.draft.put(key, None)
    fold.forget_inline(old, floor)


def deleted(fold: Fold, batch: EditBatch) -> None:
    """Retired paths that are gone now: they leave the state."""
    for i in range(len(batch)):
        for path in _paths(fold, "Deleted", batch.row(i)["keys"]):
            key = RETIRED + path.encode()
            named = fold.draft.get(key)
            rule = "only retired keys are deleted"
            fold.check(named is not None, rule, expected="a retired key", found=path)
            rule = "a key is deleted by a later commit than retired"
            fold.check(named != U8.pack(fold.commit.seq), rule, expected="an earlier Retire", found=path)
            fold.draft.put(key, None)
            where = fold.draft.get(OBJECT_PATH + path.encode())
            if where is not None:
                fold.draft.put(object_key(ObjectRef(*U8_U4.unpack(where))), None)
                fold.draft.put(OBJECT_PATH + path.encode(), None)


def _paths(fold: Fold, what: str, value: object) -> list[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(p, str) for p in value):
        fold.fail(f"{what} names keys", expected="a list of text", found=repr(value)[:60])
    return list(value)


HANDLERS = {
    EditKind.ADD_OBJECT: add_objects,
    EditKind.PROGRESS: progress,
    EditKind.PHYS_GAP: phys_gaps,
    EditKind.RETIRE: retire,
    EditKind.DELETED: deleted,
}
