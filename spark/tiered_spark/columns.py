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


class ColumnCost(Enum):
    """Where a column's values lie."""

    QUEUE = "queue"  # known when the scan is planned
    COLUMNS = "columns"  # in the columns section of an object
    BLOCK = "block"  # in the records themselves


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """A column: its Spark type, other types that a chosen schema may give it, and its cost.

    ``stored``: names of the columns of the archive that it is made from.
    """

    kind: DataType
    cost: ColumnCost
    stored: tuple[str, ...] = ()
    also: tuple[DataType, ...] = ()


_TEXT, _INT, _LONG, _TIME = StringType(), IntegerType(), LongType(), TimestampType()

COLUMNS: dict[str, MessageColumn] = {
    "cluster": MessageColumn(_TEXT, ColumnCost.QUEUE),
    "broker": MessageColumn(_TEXT, ColumnCost.QUEUE),
    "topic": MessageColumn(_TEXT, ColumnCost.QUEUE),
    "queue_id": MessageColumn(_INT, ColumnCost.QUEUE, also=(_LONG,)),
    "queue_offset": MessageColumn(_LONG, ColumnCost.COLUMNS),
    "store_timestamp": MessageColumn(_TIME, ColumnCost.COLUMNS, ("store_timestamp",), (_LONG,)),
    "born_timestamp": MessageColumn(_TIME, ColumnCost.COLUMNS, ("born_timestamp",), (_LONG,)),
    "tags": MessageColumn(_TEXT, ColumnCost.COLUMNS, ("tag",)),
    "keys": MessageColumn(ArrayType(_TEXT), ColumnCost.BLOCK),
    "properties": MessageColumn(MapType(_TEXT, _TEXT), ColumnCost.BLOCK),
    "body": MessageColumn(BinaryType(), ColumnCost.BLOCK),
    "msg_id": MessageColumn(_TEXT, ColumnCost.BLOCK),
    "unique_key": MessageColumn(_TEXT, ColumnCost.BLOCK),
    "born_host": MessageColumn(_TEXT, ColumnCost.BLOCK),
    "store_host": MessageColumn(_TEXT, ColumnCost.BLOCK),
    "sys_flag": MessageColumn(_INT, ColumnCost.COLUMNS, ("sys_flag",), (_LONG,)),
    "flag": MessageColumn(_INT, ColumnCost.BLOCK, also=(_LONG,)),
    "reconsume_times": MessageColumn(_INT, ColumnCost.BLOCK, also=(_LONG,)),
    "prepared_transaction_offset": MessageColumn(_LONG, ColumnCost.BLOCK),
    "physical_offset": MessageColumn(_LONG, ColumnCost.COLUMNS, ("physical_offset",)),
    "body_crc": MessageColumn(_LONG, ColumnCost.COLUMNS, ("body_crc",)),
    "body_size": MessageColumn(_INT, ColumnCost.COLUMNS, ("body_length",), (_LONG,)),
}
"""Names and meaning as ``tiered read --format json`` has them; ``body_size`` is the size of the body as it is stored, and
timestamps may be taken as ``long``, in ms since 1970."""


RECORD = "record"
"""Where a message lies in the archive: no column of the table, but one that ``columns`` may name."""

_PLACE = StructType([StructField("commit", _LONG), StructField("object", _INT), StructField("row", _LONG)])

KNOWN: dict[str, MessageColumn] = {**COLUMNS, RECORD: MessageColumn(_PLACE, ColumnCost.COLUMNS)}
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
        if not field.nullable:  # Spark would drop what a query asks about nulls, and there are some
            raise Invalid(
                f"the column {field.name} may be null", found=f"{field.name} … NOT NULL",
                hint="leave NOT NULL out of the schema, and filter in the query",
            )  # fmt: skip
        allowed = [kind.simpleString() for kind in (column.kind, *column.also)]
        if field.dataType.simpleString() not in allowed:
            raise Invalid(
                f"the column {field.name} cannot be read as {field.dataType.simpleString()}",
                expected=" or ".join(allowed),
                hint=f"write {field.name} {allowed[0]} and cast it in the query",
            )


def check_both(columns: str, schema: StructType) -> None:
    """``Invalid`` if the option ``columns`` (empty: not given) and the schema of a query do not name the same columns."""
    if columns and sorted(parse_columns(columns)) != sorted(schema.names):
        raise Invalid(
            "the option columns and the schema name other columns", option="columns", found=columns,
            schema=",".join(schema.names), hint="leave one of them out",
        )  # fmt: skip


def _check_name(name: str) -> None:
    if name in KNOWN:
        return
    hint = did_you_mean(name.lower(), COLUMNS, "columns: ")
    raise Invalid("a message has no such column", column=name, hint=hint)


def needs_records(names: Iterable[str]) -> bool:
    """Whether any of these columns is made from the records themselves."""
    return any(KNOWN[name].cost is ColumnCost.BLOCK for name in names)
