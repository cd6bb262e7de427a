"""One Iceberg table, brought to what a fold shows: files that are missing are added, files that have gone are taken out.

What a table reflects stands in its newest snapshot: the commit of the archive, and a digest of the files. Each step is one
commit of the catalog that fails if another was faster; pyiceberg's own retries are off, because they would add files again on
top of whatever that other one added.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from tiered.codec.checksum import xxh3_64
from tiered.crashpoint import TablePoint, reach
from tiered.errors import Conflict, Refused
from tiered.table.columns import foreign_change
from tiered.table.names import hashed_name, table_name
from tiered.table.shown import ShownFile

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table

FORMAT = 1
ARCHIVE, TOPIC, COMMIT, DIGEST = (
    "tiered.archive-id", "tiered.topic", "tiered.commit", "tiered.files-digest",
)  # fmt: skip
_FORMAT = "tiered.format"
_FULL, _SHORT = "full", "truncate(40)"
PROPERTIES = {
    _FORMAT: str(FORMAT),
    "format-version": "2",
    "gc.enabled": "false",  # engines must not delete what the archive still has
    "commit.retry.num-retries": "0",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "write.metadata.metrics.default": "none",
    **{
        f"write.metadata.metrics.column.{name}": mode
        for name, mode in (
            ("topic", _FULL), ("queue_id", _FULL), ("queue_offset", _FULL), ("physical_offset", _FULL),
            ("store_timestamp", _FULL), ("born_timestamp", _FULL), ("commit_seq", _FULL),
            ("tags", _SHORT), ("unique_key", _SHORT),
        )
    },
}  # fmt: skip
"""Of every table; put back where somebody changed them."""
TRIES = 3
_ANEW = "drop the table in its catalog, without purging: the next round makes it anew from the archive"


@dataclass(frozen=True, slots=True)
class Reflected:
    """The commit that a table is to reflect, and what lies in the archive's place: ``files`` by location."""

    commit: int
    files: Mapping[str, ShownFile]

    def digest(self) -> str:
        """Of the locations: equal digests, equal files."""
        return f"{xxh3_64(chr(10).join(sorted(self.files)).encode()):016x}"


@dataclass(frozen=True, slots=True)
class TableState:
    """How a table is, and what a round did or would do to it. ``commit``: what it reflects, ``None`` before anything.

    ``lag_commits``: how far it is behind, 0 where no file is missing and none too many. ``partial``: files of which retention
    or a rewind took rows that engines still see. ``absent``: files that are not where the archive says.
    """

    name: str
    topic: str
    files: int
    commit: int | None
    lag_commits: int = 0
    added: int = 0
    removed: int = 0
    partial: int = 0
    absent: int = 0


class IcebergTable:
    """One table of a catalog. ``topic``: the one that it shows; ``None``: all. ``location``: what stands before each path."""

    def __init__(
        self, catalog: Catalog, namespace: str, name: str, archive_id: bytes, topic: str | None, location: str
    ) -> None:
        self._catalog = catalog
        self._namespace = tuple(namespace.split("."))
        self._identifier = (*self._namespace, name)
        self._archive_id = archive_id
        self._topic = topic
        self._location = location
        self.name = f"{namespace}.{name}"

    def _settle_name(self) -> None:
        """Take the topic's second name where the first was given to its twin: by a catalog that keeps names in lower case, or
        because the topic is called as the table of another one. Whose a table is stands in the table, so that a name once taken
        stays, whichever of the two is there first in a later round."""
        topic = self._topic
        if topic is None or not self._catalog.table_exists(self._identifier):
            return
        found = self._catalog.load_table(self._identifier).properties
        other = found.get(TOPIC, "")
        twins = other.lower() == topic.lower() or table_name(other) == table_name(topic)
        if found.get(ARCHIVE) == self._archive_id.hex() and other != topic and twins:
            name = hashed_name(topic)
            self._identifier = (*self._namespace, name)
            self.name = ".".join(self._identifier)

    def look(self, wanted: Reflected) -> TableState:
        """What a round would do; nothing is changed, and a table that is not there is not made."""
        self._settle_name()
        if not self._catalog.table_exists(self._identifier):
            lag = wanted.commit + 1 if wanted.files else 0
            return TableState(self.name, self._topic or "", 0, None, lag, added=len(wanted.files))
        state, _, _ = self._compared(self._mine(self._catalog.load_table(self._identifier)), wanted)
        return replace(state, added=0, removed=0) if self._ahead(state, wanted) else state

    def bring(self, wanted: Reflected, *, batch_files: int, expire_ms: int) -> TableState:
        """Have it show these files and no others, ``batch_files`` added in a commit; snapshots before ``expire_ms`` go.

        ``Refused`` for a table of somebody else, or one that another program writes or changes; ``Conflict`` if others were
        faster again and again.
        """
        from pyiceberg.exceptions import CommitFailedException

        added = removed = 0
        self._settle_name()
        for _ in range(TRIES):
            table = self._mine(self._load_or_create())
            state, missing, gone = self._compared(table, wanted)
            if self._ahead(state, wanted):
                return replace(state, added=added, removed=removed)
            absent = self._absent(table, missing)
            missing = [location for location in missing if location not in absent]
            try:
                while missing or gone or (state.lag_commits and not absent):
                    batch, missing = missing[:batch_files], missing[batch_files:]
                    self._commit(table, batch, gone, wanted, complete=not missing and not absent)
                    added, removed, gone = added + len(batch), removed + len(gone), []
                    state = replace(state, lag_commits=0)
                _expire(table, expire_ms)
            except CommitFailedException:
                continue
            done, still, _ = self._compared(table, wanted)
            return replace(done, added=added, removed=removed, absent=len(still))
        raise Conflict(
            "somebody else changes a table all the time", table=self.name,
            hint="one writer of the archive keeps its tables; engines only read them",
        )  # fmt: skip

    def _mine(self, table: Table) -> Table:
        """``Refused`` unless the table is this archive's, of this topic, of a format that this program knows, and of columns
        that nobody else changed: a look must not say that it is up to date, nor a round put empty columns beside those."""
        found = table.properties
        whole = {ARCHIVE: self._archive_id.hex(), TOPIC: self._topic or ""}
        if any(found.get(name, "") != value for name, value in whole.items()):
            raise Refused(
                "a table of this name belongs to somebody else", table=self.name,
                expected=f"archive {whole[ARCHIVE]}, topic {self._topic or 'all'}",
                found=f"archive {found.get(ARCHIVE, 'none')}, topic {found.get(TOPIC) or 'all'}",
                hint="keep tables in another --namespace; nothing was changed",
            )  # fmt: skip
        if not found.get(_FORMAT, "").isdecimal() or int(found[_FORMAT]) > FORMAT:
            raise Refused(
                "a table is kept by a newer program", table=self.name, expected=f"{_FORMAT} ≤ {FORMAT}",
                found=found.get(_FORMAT), hint="install that program's version or a later one",
            )  # fmt: skip
        changed = foreign_change(table, [field.name for field in _schema().fields])
        if changed is not None:
            raise Refused(
                "another program changed the columns of a table of the archive", table=self.name, found=changed,
                expected="the columns of sealed files, as they were made",
                hint=f"{_ANEW}; or, if a newer version of this program keeps it, install that one",
            )  # fmt: skip
        return table

    def _load_or_create(self) -> Table:
        from pyiceberg.exceptions import NoSuchTableError, TableAlreadyExistsError

        try:
            table = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            try:
                return self._create()
            except TableAlreadyExistsError:
                table = self._catalog.load_table(self._identifier)
        return self._repaired(self._mine(table))

    def _create(self) -> Table:
        from pyiceberg.partitioning import PartitionField, PartitionSpec
        from pyiceberg.schema import assign_fresh_schema_ids
        from pyiceberg.transforms import DayTransform

        for depth in range(1, len(self._namespace) + 1):
            self._catalog.create_namespace_if_not_exists(self._namespace[:depth])
        schema = assign_fresh_schema_ids(_schema())
        time = schema.find_field("store_timestamp").field_id
        spec = PartitionSpec(PartitionField(time, 1000, DayTransform(), "store_timestamp_day"))
        own = {ARCHIVE: self._archive_id.hex(), **({TOPIC: self._topic} if self._topic else {})}
        mapping = {"schema.name-mapping.default": schema.name_mapping.model_dump_json()}
        return self._catalog.create_table(
            self._identifier, schema, partition_spec=spec, properties={**PROPERTIES, **own, **mapping}
        )

    def _repaired(self, table: Table) -> Table:
        """Properties as they were, columns that this program's files have more than those before."""
        changed = {
            k: v for k, v in PROPERTIES.items() if k != "format-version" and table.properties.get(k) != v
        }
        columns = {field.name for field in table.schema().fields}
        new = [field.name for field in _schema().fields if field.name not in columns]
        if changed or new:
            with table.transaction() as change:
                if changed:
                    change.set_properties(changed)
                if new:
                    with change.update_schema() as update:
                        update.union_by_name(_schema())
        return table

    def _compared(self, table: Table, wanted: Reflected) -> tuple[TableState, list[str], list[DataFile]]:
        """How it is, locations that it lacks, and files that it has too many; a file that it has twice is both."""
        snapshot = table.current_snapshot()
        summary: Mapping[str, str] = (
            {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
        )
        commit = int(summary[COMMIT]) if COMMIT in summary else None
        state = TableState(self.name, self._topic or "", len(wanted.files), commit)
        present, doubled, deletes = _files(table)
        elsewhere = (location for location in present if not location.startswith(self._location))
        foreign = next(chain(deletes, elsewhere), None)
        if foreign is not None:
            raise Refused(
                "another program writes to a table of the archive", table=self.name, found=foreign[:300],
                expected=f"files below {self._location}, and none that hide rows", hint=_ANEW,
            )  # fmt: skip
        missing = sorted((wanted.files.keys() - present.keys()) | (doubled & wanted.files.keys()))
        gone = [
            file for location, file in present.items() if location not in wanted.files or location in doubled
        ]
        partial = sum(
            file.record_count > wanted.files[location].rows
            for location, file in present.items() if location in wanted.files
        )  # fmt: skip
        late = bool(missing or gone) or summary.get(DIGEST) != wanted.digest()
        lag = max(0, wanted.commit - (-1 if commit is None else commit)) if late else 0
        found = replace(
            state, files=len(present), lag_commits=lag, added=len(missing), removed=len(gone), partial=partial
        )
        return found, missing, gone

    def _ahead(self, state: TableState, wanted: Reflected) -> bool:
        """Whether it reflects more than this process knows: then it is left alone."""
        return state.commit is not None and state.commit > wanted.commit

    def _absent(self, table: Table, locations: Sequence[str]) -> set[str]:
        return {location for location in locations if not table.io.new_input(location).exists()}

    def _commit(
        self,
        table: Table,
        missing: Sequence[str],
        gone: Sequence[DataFile],
        wanted: Reflected,
        *,
        complete: bool,
    ) -> None:
        """One commit of the catalog. Only the last of a round says what is reflected: until then it is what it was."""
        before = _summary(table)
        said = {COMMIT: before[COMMIT]} if COMMIT in before else {}
        if complete:
            said = {COMMIT: str(wanted.commit), DIGEST: wanted.digest()}
        reach(TablePoint.BEFORE_TABLE)
        with table.transaction() as change:
            if gone or not missing:
                with change.update_snapshot(snapshot_properties=said).overwrite() as update:
                    for file in gone:
                        update.delete_data_file(file)
            if missing:
                change.add_files(list(missing), snapshot_properties=said, check_duplicate_files=False)
        reach(TablePoint.AFTER_TABLE)


def owned_topic(catalog: Catalog, identifier: tuple[str, ...], archive_id: bytes) -> str | None:
    """The topic that a table shows, ``None`` for one of all topics or that is not this archive's."""
    found = catalog.load_table(identifier).properties
    return found.get(TOPIC) if found.get(ARCHIVE) == archive_id.hex() else None


def _summary(table: Table) -> Mapping[str, str]:
    """What the newest snapshot says of itself."""
    snapshot = table.current_snapshot()
    if snapshot is None or snapshot.summary is None:
        return {}
    found: Mapping[str, str] = snapshot.summary.additional_properties
    return found


def _files(table: Table) -> tuple[dict[str, DataFile], set[str], list[str]]:
    """Files of the newest snapshot by location, the locations that it has more than once, and those of files that hide rows of
    others, which this program never writes."""
    from pyiceberg.manifest import DataFileContent

    snapshot = table.current_snapshot()
    present: dict[str, DataFile] = {}
    doubled: set[str] = set()
    deletes: list[str] = []
    for manifest in [] if snapshot is None else snapshot.manifests(table.io):
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            file = entry.data_file
            if file.content is not DataFileContent.DATA:
                deletes.append(file.file_path)
                continue
            if file.file_path in present:
                doubled.add(file.file_path)
            present[file.file_path] = file
    return present, doubled, deletes


def _expire(table: Table, before_ms: int) -> None:
    """Forget snapshots before a time: what they name may be deleted by now. Their manifests go with them."""
    head = table.current_snapshot()
    old = [
        s
        for s in table.snapshots()
        if s.timestamp_ms < before_ms and (head is None or s.snapshot_id != head.snapshot_id)
    ]
    if not old:
        return
    named = {m.manifest_path for s in old for m in s.manifests(table.io)} | {s.manifest_list for s in old}
    table.maintenance.expire_snapshots().older_than(datetime.fromtimestamp(before_ms / 1000, UTC)).commit()
    kept = table.refresh().snapshots()
    still = {m.manifest_path for s in kept for m in s.manifests(table.io)} | {s.manifest_list for s in kept}
    for path in sorted(named - still):
        table.io.delete(path)


def _schema() -> Any:
    """Columns of a sealed file."""
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids

    from tiered.codec.arrow.messagerows import MESSAGE_SCHEMA

    return _pyarrow_to_schema_without_ids(MESSAGE_SCHEMA)
