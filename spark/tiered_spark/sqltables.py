"""Tables of Spark's catalog: ``CREATE TABLE … USING rocketmq_tiered OPTIONS (…)``.

Spark asks the source for the schema of such a table once, when it is created, with the table's options among properties of
Spark's own, and hands it no option when the table is read. What it does hand back is the schema: the options travel in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import StructField, StructType

_PREFIX = "option."
_PROPERTIES = frozenset(
    ("provider", "owner", "comment", "location", "collation", "external", "is_managed_location", "table_type")
)
_METADATA = "rocketmq_tiered.options"


@dataclass(frozen=True, slots=True)
class Given:
    """The options of a frame or table; ``table``: whether they are those that a table is being created with."""

    options: dict[str, str]
    table: bool


def given(properties: Mapping[str, str]) -> Given:
    """What Spark hands to the source, without what is Spark's own.

    A table that is created has each option twice, once with a prefix, beside its owner and provider and ``TBLPROPERTIES``.
    """
    named = {name.lower(): value for name, value in properties.items()}
    if "provider" not in named or "owner" not in named:
        return Given(named, table=False)
    options = {name.removeprefix(_PREFIX): value for name, value in named.items() if name.startswith(_PREFIX)}
    return Given({name: value for name, value in options.items() if name not in _PROPERTIES}, table=True)


def remembering(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema, with the options in its first field."""
    first, *rest = schema.fields
    metadata = {**first.metadata, _METADATA: dict(options)}
    return StructType([StructField(first.name, first.dataType, first.nullable, metadata), *rest])


def remembered(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Options of a query over those that its table remembers; a query that names an archive itself has nothing of a table."""
    named = {name.lower(): value for name, value in options.items()}
    if "archive" in named:
        return named
    kept = [field.metadata[_METADATA] for field in schema.fields if _METADATA in (field.metadata or {})]
    return {**(kept[0] if kept else {}), **named}
