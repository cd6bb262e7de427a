"""Bodies by declaration: a body of JSON, Avro or Protobuf becomes an object of the fields that the order names, as JSON.

A body is read as its schema says and in no other way: bytes that are left over, fields that the schema does not have, numbers
that JSON does not have, all of that is a misfit, for what is not understood must not be left out in silence. Schemas are looked
at when a sink is added and whenever it is opened. Bodies are anybody's bytes: schemas by which few bytes could become endless
work are refused.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import uuid
from collections.abc import Callable, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

from tiered.errors import Invalid
from tiered.text.references import FILE, is_file_reference

BODY, SCHEMA, MESSAGE, FIELDS = "shape.body", "shape.schema", "shape.message", "shape.fields"
FORMATS = ("json", "avro", "protobuf")
MAX_SCHEMA_BYTES = 4 << 20
MAX_DEPTH = 64
"""Of an Avro schema: its reader goes down as deep as that without asking how deep it is."""
_EXTRA = "pip install 'rocketmq-tiered[schemas]', or make install-schemas"

Decode = Callable[[bytes], Mapping[str, Any]]


class Misfit(Exception):
    """A body is not what was declared; why."""


class BodyField(NamedTuple):
    """``path``: names from the outside in; ``name``: what it is called at the destination; ``optional``: left out where the
    body does not have it."""

    path: tuple[str, ...]
    name: str
    optional: bool = False


class BodyShape(NamedTuple):
    """How bodies are read, and which of their fields are given; none named: all."""

    decode: Decode
    fields: tuple[BodyField, ...] = ()

    def value(self, body: bytes) -> bytes:
        """The body as JSON in UTF-8. ``Misfit``."""
        try:
            found = self.decode(body)
            chosen = found if not self.fields else self._chosen(found)
            return json.dumps(
                chosen, ensure_ascii=False, separators=(",", ":"), allow_nan=False, default=_plain
            ).encode()
        except Misfit:
            raise
        except (ValueError, TypeError, RecursionError, OverflowError) as error:
            raise Misfit(f"it cannot be shown as JSON: {error}"[:200]) from error

    def _chosen(self, found: Mapping[str, Any]) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        for field in self.fields:
            value: Any = found
            for name in field.path:
                if not isinstance(value, Mapping) or name not in value:
                    if field.optional:
                        break
                    raise Misfit(f"it has no field {'.'.join(field.path)}")
                value = value[name]
            else:
                chosen[field.name] = value
        return chosen


def body_shape(options: Mapping[str, str]) -> BodyShape | None:
    """What the options say of bodies; ``None`` if they are given as they are. ``Invalid``, naming the option."""
    form = options.get(BODY)
    if form is None:
        stray = next((name for name in (SCHEMA, MESSAGE, FIELDS) if name in options), None)
        if stray is not None:
            raise Invalid(
                "this shape is of bodies that are decoded", field=f"options.{stray}", hint=f"{BODY}={'|'.join(FORMATS)}"
            )  # fmt: skip
        return None
    if form not in FORMATS:
        raise Invalid(
            "bodies are not decoded from this",
            field=f"options.{BODY}",
            found=form,
            expected=", ".join(FORMATS),
        )
    if form == "json" and SCHEMA in options:
        raise Invalid(
            "bodies of JSON have no schema here",
            field=f"options.{SCHEMA}",
            hint=f"name their fields: {FIELDS}",
        )
    if form != "protobuf" and MESSAGE in options:
        raise Invalid("only Protobuf has messages to choose from", field=f"options.{MESSAGE}", found=form)
    fields = _fields(options.get(FIELDS, ""))
    if form == "json":
        return BodyShape(_json, fields)
    schema = _schema(options)
    return BodyShape(_avro(schema) if form == "avro" else _protobuf(schema, options), fields)


def _plain(value: Any) -> str:
    """What JSON has no value for."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    raise TypeError(f"a value of {type(value).__name__}")


def _fields(text: str) -> tuple[BodyField, ...]:
    found = []
    for part in text.split(","):
        if not part.strip():
            continue
        where, equals, name = (piece.strip() for piece in part.partition("="))
        path = tuple(where.removesuffix("?").split("."))
        if not all(path) or (equals and not name):
            raise Invalid(
                "a field is a name, or names from the outside in, and may be called otherwise", field=f"options.{FIELDS}",
                found=part.strip()[:200], hint=f"{FIELDS}=id,customer.name=customer,note?",
            )  # fmt: skip
        found.append(BodyField(path, name or path[-1], where.endswith("?")))
    names = [field.name for field in found]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise Invalid(
            "two fields would have one name",
            field=f"options.{FIELDS}",
            found=twice,
            hint="call one otherwise: a=b",
        )
    return tuple(found)


def _schema(options: Mapping[str, str]) -> bytes:
    """Its bytes: ``file:PATH`` of the host that looks, else the text itself."""
    given = options.get(SCHEMA)
    if not given:
        raise Invalid(
            "bodies need a schema", field=f"options.{SCHEMA}", hint=f"{SCHEMA}=file:/etc/orders.avsc"
        )
    if not is_file_reference(given):
        return given.encode()
    try:
        with Path(given.removeprefix(FILE)).open("rb") as file:
            data = file.read(MAX_SCHEMA_BYTES + 1)
    except OSError as error:
        raise Invalid(
            "a schema cannot be read", field=f"options.{SCHEMA}", found=given, reason=error.strerror
        ) from error
    if len(data) > MAX_SCHEMA_BYTES:
        raise Invalid(
            "a schema is too large", field=f"options.{SCHEMA}", expected=f"≤ {MAX_SCHEMA_BYTES} bytes"
        )
    return data


def _wrong_schema(reason: object, hint: str) -> Invalid:
    return Invalid("a schema cannot be used", field=f"options.{SCHEMA}", reason=str(reason)[:200], hint=hint)


def _missing(error: ImportError) -> Invalid:
    return Invalid("bodies of this kind need a package", missing=error.name or str(error), hint=_EXTRA)


# ---- JSON


def _constant(name: str) -> None:
    raise Misfit(f"{name} is no JSON")


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        raise Misfit(f"it is no JSON: {error}"[:200]) from error
    if not isinstance(found, dict):
        raise Misfit(f"it is JSON, and no object: {type(found).__name__}")
    return found


# ---- Avro


def _avro(schema: bytes) -> Decode:
    try:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType, expand_schema, parse_schema
    except ImportError as error:
        raise _missing(error) from error
    hint = "the schema of a record, as JSON"
    try:
        declared = json.loads(schema)
        _look_at_depth(declared)
        whole = expand_schema(declared)
        if not isinstance(whole, dict) or whole.get("type") not in ("record", "error"):
            raise _wrong_schema("it is not of a record", hint)
        _least_bytes(whole)
        parsed = parse_schema(declared)
    except (ValueError, KeyError, TypeError, RecursionError, SchemaParseException, UnknownType) as error:
        raise _wrong_schema(f"{type(error).__name__}: {error}", hint) from error

    def decode(body: bytes) -> Mapping[str, Any]:
        source = BytesIO(body)
        try:
            found: Any = fastavro.schemaless_reader(source, parsed, None)
        except Exception as error:  # its readers raise what comes of bytes that are something else
            raise Misfit(f"it is not of this Avro schema: {type(error).__name__} {error}"[:200]) from error
        if source.tell() != len(body):
            raise Misfit(f"{len(body) - source.tell()} bytes lie behind what the Avro schema has")
        record: Mapping[str, Any] = found
        return record

    return decode


def _look_at_depth(declared: Any, depth: int = 0) -> None:
    if depth > MAX_DEPTH:
        raise ValueError(f"it is deeper than {MAX_DEPTH}")
    for inner in (
        declared.values() if isinstance(declared, dict) else declared if isinstance(declared, list) else ()
    ):
        _look_at_depth(inner, depth + 1)


def _least_bytes(schema: Any, depth: int = 0) -> int:
    """How few bytes a value of an expanded schema may take. ``ValueError`` where a few could become without end: types that
    contain themselves, and arrays of what takes no bytes."""
    if depth > MAX_DEPTH:
        raise ValueError(f"it is deeper than {MAX_DEPTH}")
    if isinstance(schema, list):
        return 1 + min((_least_bytes(branch, depth + 1) for branch in schema), default=0)
    if isinstance(schema, dict):
        kind = schema["type"]
        if kind in ("record", "error"):
            return sum(_least_bytes(field["type"], depth + 1) for field in schema["fields"])
        if kind == "array":
            if _least_bytes(schema["items"], depth + 1) == 0:
                raise ValueError("an array of what takes no bytes")
            return 1
        if kind == "map":
            _least_bytes(schema["values"], depth + 1)
            return 1
        if kind == "fixed":
            return int(schema["size"])
        return 1 if kind == "enum" else _least_bytes(kind, depth + 1)
    if schema not in ("null", "boolean", "int", "long", "float", "double", "bytes", "string"):
        raise ValueError(f"a type that contains itself: {schema}")
    return 0 if schema == "null" else 1


# ---- Protobuf


def _protobuf(schema: bytes, options: Mapping[str, str]) -> Decode:
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise _missing(error) from error
    name = options.get(MESSAGE)
    if not name:
        raise Invalid(
            "Protobuf needs a message's name", field=f"options.{MESSAGE}", hint=f"{MESSAGE}=shop.Order"
        )
    hint = "a set of descriptors: protoc --include_imports --descriptor_set_out=orders.desc orders.proto"
    pool = descriptor_pool.DescriptorPool()
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(schema)
        for file in files.file:
            pool.Add(file)
        declared = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except DecodeError as error:
        raise _wrong_schema(error, hint) from error
    except KeyError as error:
        known = [f"{file.package}.{m.name}".strip(".") for file in files.file for m in file.message_type]
        raise Invalid(
            "the descriptors have no such message", field=f"options.{MESSAGE}", found=name,
            expected=", ".join(known[:20]) or "none at all", hint=hint,
        ) from error  # fmt: skip
    except TypeError as error:
        raise _wrong_schema(error, hint) from error

    def decode(body: bytes) -> Mapping[str, Any]:
        found = declared()
        try:
            found.ParseFromString(body)
        except DecodeError as error:
            raise Misfit(f"it is no {name}: {error}"[:200]) from error
        if not found.IsInitialized():
            raise Misfit(f"it is no {name}: required fields are missing")
        size = found.ByteSize()
        found.DiscardUnknownFields()
        if found.ByteSize() != size:
            raise Misfit(f"it has fields that {name} does not have")
        value: Mapping[str, Any] = json_format.MessageToDict(
            found,
            preserving_proto_field_name=True,
            descriptor_pool=pool,
            always_print_fields_with_no_presence=True,
        )
        return value

    return decode
