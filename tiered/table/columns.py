"""Whether the columns of a table are still those that this program gave it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table import Table


def foreign_change(table: Table, ours: Collection[str]) -> str | None:
    """What somebody else did to the columns, ``None`` for nothing that engines see. ``ours``: names that sealed files have.

    Fewer columns than ``ours`` may be of an older program; but a column that the table has had once stays, under its number:
    one that was dropped or renamed and then given again has another, and engines find nothing of the files in it.
    """
    now = {field.name: field for field in table.schema().fields}
    strange = sorted(now.keys() - set(ours))
    if strange:
        return f"column {strange[0][:100]!r}, which no sealed file has"
    for schema in table.schemas().values():
        for was in schema.fields:
            field = now.get(was.name)
            if was.name not in ours:
                continue
            if field is None:
                return f"no column {was.name!r}, which the table had"
            if field.field_id != was.field_id:
                return f"column {was.name!r} made anew, which is empty"
            if field.field_type != was.field_type:
                return f"column {was.name!r} of another type than the table had"
    return None
