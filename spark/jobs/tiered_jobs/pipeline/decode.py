"""Bodies to values, by declaration: each row gets a value, or the reason why it has none."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from tiered.errors import Invalid
from tiered_jobs.pipeline.declarations import Declaration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

Decoder = Callable[["DataFrame"], "DataFrame"]
"""Takes rows with ``body``, adds ``value`` and ``reason``; one of them is null."""

_WHOLE = "__whole"  # where Spark puts a text that it could not read as the schema says


def decoder(spark: SparkSession, declared: Declaration) -> Decoder:
    """What decodes bodies so; tried on no row at all, so that a wrong declaration is an error before anything is written."""
    made = {"json": _json, "avro": _avro, "protobuf": _protobuf, "text": _text}[declared.format](
        spark, declared
    )
    empty = spark.createDataFrame([], "body binary")
    try:
        _ = made(empty).schema
    except Exception as error:
        raise _refused(declared, error) from error
    return made


def _refused(declared: Declaration, error: Exception) -> Invalid:
    if isinstance(error, Invalid):
        return error
    text = str(error)
    if "NOT_LOADED" in text:
        name = f"spark-{declared.format}"
        return declared.wrong(
            "format", f"Spark's package for {declared.format} is not in this session",
            hint=f"add --conf spark.jars.packages=org.apache.spark:{name}_2.13:VERSION of your Spark, or format = \"json\"",
            found=declared.format,
        )  # fmt: skip
    key = next(iter(declared.values), "format")
    return declared.wrong(
        key, f"Spark does not take this: {text.splitlines()[0]}", hint="see spark/jobs/pipeline.md"
    )


def _text(spark: SparkSession, declared: Declaration) -> Decoder:
    from pyspark.sql import functions as sf

    def decode(rows: DataFrame) -> DataFrame:
        text = sf.col("body").cast("string")
        good = sf.is_valid_utf8(text)
        return rows.withColumns(
            {"value": sf.when(good, text), "reason": sf.when(~good | text.isNull(), sf.lit("not UTF-8"))}
        )

    return decode


def _json(spark: SparkSession, declared: Declaration) -> Decoder:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType

    schema = _schema(spark, declared)
    reading = type(schema)([*schema.fields]).add(_WHOLE, StringType())
    how = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _WHOLE}

    def decode(rows: DataFrame) -> DataFrame:
        text = sf.col("body").cast("string")
        parsed = rows.withColumn("__parsed", sf.from_json(text, reading, how))
        found = sf.col("__parsed")
        fields = [found.getField(field.name).alias(field.name) for field in schema.fields]
        missing = [f.name for f in schema.fields if not f.nullable]
        reason = sf.when(text.isNull() | (sf.trim(text) == ""), "empty").when(
            ~sf.is_valid_utf8(text), "not UTF-8"
        )
        reason = reason.when(found.isNull() | found.getField(_WHOLE).isNotNull(), _why(text, found, schema))
        for name in missing:
            reason = reason.when(found.getField(name).isNull(), f"the field {name} is missing")
        told = parsed.withColumn("reason", reason)
        return told.withColumn("value", sf.when(sf.col("reason").isNull(), sf.struct(*fields))).drop(
            "__parsed"
        )

    return decode


def _why(text: Column, parsed: Column, schema: StructType) -> Column:
    """Of a text that is not of the schema; looked at for such rows only."""
    from pyspark.sql import functions as sf

    whole = sf.try_parse_json(text)
    misfits = [
        sf.when(
            parsed.getField(name).isNull() & sf.try_variant_get(whole, f"$['{name}']", "string").isNotNull(),
            sf.lit(name),
        )
        for name in schema.fieldNames()
        if "'" not in name
    ]
    return (
        sf.when(whole.isNull(), "not JSON")
        .when(~sf.schema_of_variant(whole).startswith("OBJECT"), "not a JSON object")
        .otherwise(sf.rtrim(sf.concat(sf.lit("does not fit the schema: "), sf.concat_ws(", ", *misfits))))
    )


def _schema(spark: SparkSession, declared: Declaration) -> StructType:
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(declared.values["schema"])
    except Exception as error:
        raise declared.wrong(
            "schema",
            "this is not a list of columns",
            hint='write such as schema = "id long not null, amount double"',
        ) from error
    if not isinstance(schema, StructType) or not schema.fields:
        raise declared.wrong(
            "schema", "there is no column", hint='write such as schema = "id long, amount double"'
        )
    return schema


def _avro(spark: SparkSession, declared: Declaration) -> Decoder:
    from pyspark.sql import functions as sf
    from pyspark.sql.avro.functions import from_avro

    schema = declared.content("schema_file").decode("utf-8", "replace")

    def decode(rows: DataFrame) -> DataFrame:
        return _or_reason(
            rows, from_avro(sf.col("body"), schema, {"mode": "PERMISSIVE"}), "not Avro of the schema"
        )

    return decode


def _protobuf(spark: SparkSession, declared: Declaration) -> Decoder:
    from pyspark.sql import functions as sf
    from pyspark.sql.protobuf.functions import from_protobuf

    descriptor, message = declared.content("descriptor"), declared.values["message"]

    def decode(rows: DataFrame) -> DataFrame:
        value = from_protobuf(
            sf.col("body"), message, options={"mode": "PERMISSIVE"}, binaryDescriptorSet=descriptor
        )
        return _or_reason(rows, value, "not Protobuf of the message")

    return decode


def _or_reason(rows: DataFrame, value: Column, reason: str) -> DataFrame:
    """Spark gives a record of nulls for bytes that it cannot read, so one whose every field is null is taken for bad."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    decoded = rows.withColumn("value", value)
    kind, found = decoded.schema["value"].dataType, sf.col("value")
    good = found.isNotNull()
    if isinstance(kind, StructType) and kind.fields:
        good = reduce(or_, (found.getField(name).isNotNull() for name in kind.fieldNames()))
    told = decoded.withColumn("reason", sf.when(~good, reason))
    return told.withColumn("value", sf.when(sf.col("reason").isNull(), found))
