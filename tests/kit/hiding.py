"""Rows of an Iceberg table hidden by a file of deletes, as engines do that merge on read: pyiceberg itself only reads them."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    ManifestWriterV2,
)
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles

_POSITIONS = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": "2147483546"}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": "2147483545"}),
    ]
)


class _Deletes(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def hide_rows(table: Any, path: Path, *, equality: bool = False) -> str:
    """The first row of a table's first data file is hidden by position, or by equality. The location of the file of deletes."""
    shown = next(iter(table.scan().plan_files())).file
    column = table.schema().find_field("queue_offset")
    if equality:
        field = pa.field(
            column.name, pa.int64(), not column.required, {"PARQUET:field_id": str(column.field_id)}
        )
        rows = pa.table({column.name: [0]}, schema=pa.schema([field]))
    else:
        rows = pa.table({"file_path": [shown.file_path], "pos": [0]}, schema=_POSITIONS)
    pq.write_table(rows, path)
    content = DataFileContent.EQUALITY_DELETES if equality else DataFileContent.POSITION_DELETES
    hidden = DataFile.from_args(
        content=content, file_path=f"file://{path}", file_format=FileFormat.PARQUET, partition=shown.partition,
        record_count=1, file_size_in_bytes=path.stat().st_size, column_sizes={}, value_counts={}, null_value_counts={},
        nan_value_counts={}, lower_bounds={}, upper_bounds={}, key_metadata=None, split_offsets=None, sort_order_id=None,
        equality_ids=[column.field_id] if equality else None,
    )  # fmt: skip
    hidden.spec_id = table.spec().spec_id

    class Hiding(_FastAppendFiles):
        def _manifests(self) -> list[ManifestFile]:
            number = self._snapshot_id
            with _Deletes(
                spec=table.spec(), schema=table.schema(), output_file=self.new_manifest_output(), snapshot_id=number,
                avro_compression="deflate",
            ) as written:  # fmt: skip
                written.add_entry(
                    ManifestEntry.from_args(
                        status=ManifestEntryStatus.ADDED, snapshot_id=number, sequence_number=None,
                        file_sequence_number=None, data_file=hidden,
                    )
                )  # fmt: skip
            return [written.to_manifest_file(), *super()._manifests()]

    with table.transaction() as change, Hiding(Operation.DELETE, change, table.io, uuid.uuid4()):
        pass
    return hidden.file_path
