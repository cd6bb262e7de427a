"""The columns of a message as Spark sees them, and what each one costs to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from inspect import signature

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tiered.errors import Invalid, did_you_mean


class Cost(Enum):
    """Where a column's values lie."""

    QUEUE = "queue"  # known when the scan is planned
    COLUMNS = "columns"  # in the columns section of an object
    BLOCK = "block"  # in the records themselves


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its Spark type, other types that a chosen schema may give it, and its cost.

    ``stored``: names of the columns of the archive that it is made from.
    """

    kind: DataType
    cost: Cost
    stored: tuple[str, ...] = ()
    also: tuple[DataType, ...] = ()


_TEXT, _INT, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()

COLUMNS: dict[str, Column] = {
    "cluster": Column(_TEXT, Cost.QUEUE),
    "broker": Column(_TEXT, Cost.QUEUE),
    "topic": Column(_TEXT, Cost.QUEUE),
    "queue_id": Column(_INT, Cost.QUEUE, also=(_LONG,)),
    "queue_offset": Column(_LONG, Cost.COLUMNS),
    "store_timestamp": Column(_TIME, Cost.COLUMNS, ("store_timestamp",), (_LONG,)),
    "born_timestamp": Column(_TIME, Cost.COLUMNS, ("born_timestamp",), (_LONG,)),
    "tags": Column(_TEXT, Cost.COLUMNS, ("tag",)),
    "keys": Column(ArrayType(_TEXT), Cost.BLOCK),
    "properties": Column(MapType(_TEXT, _TEXT), Cost.BLOCK),
    "body": Column(BinaryType(), Cost.BLOCK),
    "msg_id": Column(_TEXT, Cost.BLOCK),
    "unique_key": Column(_TEXT, Cost.BLOCK),
    "born_host": Column(_TEXT, Cost.BLOCK),
    "store_host": Column(_TEXT, Cost.BLOCK),
    "sys_flag": Column(_INT, Cost.COLUMNS, ("sys_flag",), (_LONG,)),
    "flag": Column(_INT, Cost.BLOCK, also=(_LONG,)),
    "reconsume_times": Column(_INT, Cost.BLOCK, also=(_LONG,)),
    "prepared_transaction_offset": Column(_LONG, Cost.BLOCK),
    "physical_offset": Column(_LONG, Cost.COLUMNS, ("physical_offset",)),
    "body_crc": Column(_LONG, Cost.COLUMNS, ("body_crc",)),
    "body_size": Column(_INT, Cost.COLUMNS, ("body_length",), (_LONG,)),
}
"""Names and meaning as ``tiered read --format json`` has them; ``body_size`` is the size of the body as it is stored, and
timestamps may be taken as ``long``, in ms since 1970."""


RECORD = "record"
"""Where a message lies in the archive: no column of the table, but one that ``columns`` may name."""

_PLACE = StructType([StructField("commit", _LONG), StructField("object", _INT), StructField("row", _LONG)])

KNOWN: dict[str, Column] = {**COLUMNS, RECORD: Column(_PLACE, Cost.COLUMNS)}
"""All that can be read."""


def message_schema(names: Sequence[str] = tuple(COLUMNS)) -> StructType:
    """The schema of these columns."""
    return StructType([StructField(name, KNOWN[name].kind) for name in names])


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark wants batches of it; times are in UTC."""
    if "timezone" in signature(to_arrow_schema).parameters:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)  # Spark 4.1 knows no other zone


def parse_columns(value: str) -> tuple[str, ...]:
    """Names of the option ``columns``, in its order. ``Invalid`` names one that is unknown or comes twice."""
    names = tuple(part.strip() for part in value.split(",") if part.strip())
    if not names:
        raise Invalid(
            "the option columns is empty", hint="name columns, or leave the option out for all of them"
        )
    for name in names:
        _check_name(name)
        if names.count(name) > 1:
            raise Invalid("the option columns names a column twice", column=name, hint="name it once")
    return names


def check_schema(schema: StructType) -> None:
    """``Invalid`` if a schema that a user chose has a column that is not there or has another type."""
    for field in schema.fields:
        _check_name(field.name)
        column = KNOWN[field.name]
        allowed = [kind.simpleString() for kind in (column.kind, *column.also)]
        if field.dataType.simpleString() not in allowed:
            raise Invalid(
                f"the column {field.name} cannot be read as {field.dataType.simpleString()}",
                expected=" or ".join(allowed),
                hint=f"write {field.name} {allowed[0]} and cast it in the query",
            )


def _check_name(name: str) -> None:
    if name in KNOWN:
        return
    hint = did_you_mean(name.lower(), COLUMNS, "columns: ")
    raise Invalid("a message has no such column", column=name, hint=hint)


def needs_records(names: Iterable[str]) -> bool:
    """Whether any of these columns is made from the records themselves."""
    return any(KNOWN[name].cost is Cost.BLOCK for name in names)
