"""Columns that are proven to give their records back, byte for byte, before anything is stored."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from tiered.codec.arrow.assemble import assemble
from tiered.codec.arrow.messagerows import RECORD, StoredRows, message_columns
from tiered.errors import Refused


@dataclass(frozen=True, slots=True)
class ProvenRows:
    """Columns of ``MESSAGE_SCHEMA`` from which ``assemble`` makes the very records they were made of; in ``verbatim`` rows
    it takes the column ``record``."""

    columns: pa.RecordBatch
    verbatim: int


def prove(rows: StoredRows) -> ProvenRows:
    """The columns of some records. Every record is assembled from the arrays that are returned, and compared with its source.

    A record that would differ is kept whole beside its columns. ``Refused`` if one differs even then: a program error, and
    nothing may be stored.
    """
    source = rows.records()
    columns = message_columns(rows)
    made = assemble(columns)
    if made.equals(source):
        return ProvenRows(columns, 0)
    same = pc.fill_null(pc.equal(made, source), False)
    verbatim = pc.if_else(same, pa.scalar(None, pa.binary()), source)
    columns = columns.set_column(
        columns.schema.get_field_index(RECORD), columns.schema.field(RECORD), verbatim
    )
    if not assemble(columns).equals(source):
        raise Refused(
            "records put together from their columns are not the records",
            hint="report this with the topic's newest messages; their present form stays readable",
            topic=rows.topic,
            found=f"a difference in {len(rows)} records",
        )
    return ProvenRows(columns, len(source) - verbatim.null_count)
