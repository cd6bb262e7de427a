"""How bodies are to be read: a TOML file with a table for each pattern of topics.

[topics."orders*"]
format = "json"
schema = "id long not null, amount double"
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tiered.errors import Invalid, did_you_mean
from tiered.text.values import parse_duration

WITHIN = "1h"

_KEYS = {
    "json": ("schema",),
    "avro": ("schema_file",),
    "protobuf": ("descriptor", "message"),
    "text": (),
}
"""Format → keys that it needs."""

_SHARED = ("format", "table", "duplicates_within")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Declaration:
    """One table of the file. ``values`` are its format's own keys; ``within_ms``: how far apart in store time two messages
    with one unique key are known to be the same.
    """

    file: str
    topics: str
    table: str
    format: str
    within_ms: int
    values: Mapping[str, str]

    def wrong(self, key: str, message: str, *, hint: str, found: object = None) -> Invalid:
        """An error about one key."""
        value = self.values.get(key, found) if found is None else found
        return Invalid(message, file=self.file, topics=self.topics, key=key, found=value, hint=hint)

    def content(self, key: str) -> bytes:
        """The file that a key names, from the folder of the declarations."""
        path = Path(self.file).parent / self.values[key]
        try:
            return path.read_bytes()
        except OSError as error:
            hint = f"{key} is taken from the folder of {self.file}"
            raise self.wrong(key, f"the file cannot be read: {error.strerror}", hint=hint) from error


def read_declarations(file: str) -> list[Declaration]:
    """In the file's order: of patterns that match a topic, the first takes it. ``Invalid`` names file, topics, key, value."""
    try:
        document = tomllib.loads(Path(file).read_text("utf-8"))
    except OSError as error:
        raise Invalid(
            f"the file cannot be read: {error.strerror}", flag="--declarations", file=file
        ) from error
    except ValueError as error:  # not UTF-8, or not TOML
        raise Invalid(
            f"this is not TOML: {error}", file=file, hint="config/pipeline-example.toml shows one"
        ) from error
    topics = document.pop("topics", None)
    if document or not isinstance(topics, dict) or not topics:
        raise Invalid(
            "declarations are tables below [topics]", file=file, found=", ".join(document) or "none",
            hint='such as [topics."orders*"] with format = "json" and a schema',
        )  # fmt: skip
    made = [_declaration(file, pattern, given) for pattern, given in topics.items()]
    names: dict[str, str] = {}
    for one in made:
        if one.table in names:
            raise one.wrong(
                "table", f"two declarations fill one table, the other one is for {names[one.table]}",
                hint='give one of them a name of its own, such as table = "orders"', found=one.table,
            )  # fmt: skip
        names[one.table] = one.topics
    return made


def _declaration(file: str, pattern: str, given: object) -> Declaration:
    def wrong(key: str, message: str, found: object, hint: str) -> Invalid:
        return Invalid(message, file=file, topics=pattern, key=key, found=found, hint=hint)

    if not isinstance(given, dict):
        raise wrong("", "this is not a table", given, f'write [topics."{pattern}"] and its keys below it')
    format_ = given.get("format")
    if format_ not in _KEYS:
        hint = did_you_mean(str(format_).lower(), _KEYS, "formats: ")
        raise wrong("format", "unknown format", format_, hint)
    allowed = (*_SHARED, *_KEYS[format_])
    for key, value in given.items():
        if key not in allowed:
            hint = did_you_mean(key, allowed, f"keys of {format_}: ")
            raise wrong(key, "unknown key", value, hint)
        if not isinstance(value, str) or not value.strip():
            raise wrong(key, "the value must be a string", repr(value), f'write {key} = "…"')
    for key in _KEYS[format_]:
        if key not in given:
            raise wrong(key, f"{format_} needs this key", None, f'write {key} = "…"')
    table = given.get("table") or re.sub(r"[^A-Za-z0-9_-]", "", pattern).lstrip("_-0123456789")
    if not _NAME.fullmatch(table):
        hint = "write table = a name of letters, digits, - and _, with a letter first"
        raise wrong("table", "the table's name is not usable, or cannot be made from the topics", table, hint)
    within_ms = parse_duration(given.get("duplicates_within", WITHIN), least=0)
    if within_ms is None:
        raise wrong(
            "duplicates_within",
            "this is not a duration",
            given["duplicates_within"],
            'write such as "90s", "1h" or "2d"',
        )
    values = {key: given[key] for key in _KEYS[format_]}
    return Declaration(file, pattern, table, format_, within_ms, values)
