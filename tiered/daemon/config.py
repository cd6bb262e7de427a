"""Settings from four layers: defaults < TOML file < environment < flags. The only reader of the environment.

Layers merge by presence, never by truth: an empty text or a zero that somebody wrote wins over a default. Every value
keeps its origin. Environment names are ``TIERED_<SECTION>_<KEY>`` (``TIERED_ARCHIVE_URL``), ``TIERED_CONFIG`` names the
file. Flags are ``--store``, ``--archive`` and ``--set section.key=value``. An unknown key is an error with a suggestion;
an unknown ``TIERED_…`` name that resembles no section is only reported, because container platforms invent such names
for a service called ``tiered``.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, fields
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tiered.errors import Invalid
from tiered.settings import STARS, Settings, SettingsSection
from tiered.text.settingvalues import convert

ENV_PREFIX = "TIERED_"
ENV_CONFIG = "TIERED_CONFIG"
ENV_FOREIGN = ("TIERED_TEST_", "TIERED_CRASH")
"""Names that belong to the test kit and the crash points, not to the settings."""

MAX_FILE_BYTES = 1 << 20

FLAG_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "source.store_dir": "--store",
        "archive.url": "--archive",
        "archive.new_lineage": "--new-lineage",
        "state.directory": "--state",
    }
)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value comes from: ``layer`` is default, file, environment or flag; ``name`` the file, variable or flag."""

    layer: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.layer} {self.name}".rstrip()


DEFAULT = Origin("default")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Valid settings, the origin of each value by dotted key, the file read, and what is to be warned of: secrets that are
    ``exposed``, and names that were ignored."""

    settings: Settings
    origins: Mapping[str, Origin]
    file: str | None = None
    warnings: tuple[str, ...] = ()
    exposed: tuple[str, ...] = ()

    def secrets(self) -> tuple[str, ...]:
        """Values that must not appear in logs, pages or errors: secret settings, and secrets inside URLs."""
        found: list[str] = []
        for _, field, value in walk(self.settings):
            if isinstance(value, str) and value:
                found += [value] if field.metadata.get("secret") else _secrets_in_url(value)
        return tuple(found)


def environment() -> dict[str, str]:
    """The process environment, as a value."""
    return dict(os.environ)  # noqa: TID251  (this is the door)


@cache
def section_types() -> dict[str, type[SettingsSection]]:
    """SettingsSection name → class, in the order of ``Settings``."""
    return {f.name: f.default_factory for f in fields(Settings)}  # type: ignore[misc]


@cache
def keys() -> dict[str, Field[Any]]:
    """Dotted key → its declaration, in order."""
    return {f"{name}.{f.name}": f for name, kind in section_types().items() for f in fields(kind)}  # type: ignore[arg-type]


def walk(settings: Settings) -> Iterable[tuple[str, Field[Any], Any]]:
    """Every setting as (dotted key, declaration, value), in order."""
    for key, field in keys().items():
        section, name = key.split(".")
        yield key, field, getattr(getattr(settings, section), name)


def differing(one: Settings, other: Settings) -> list[str]:
    """Dotted keys of the settings whose values are not the same."""
    before = {key: value for key, _, value in walk(one)}
    return [key for key, _, value in walk(other) if value != before[key]]


def visible(field: Field[Any], value: Any) -> object:
    """``value`` for people and JSON: stars for secrets, also for those inside a URL; a list for a tuple."""
    if field.metadata.get("secret") and value:
        return STARS
    if isinstance(value, str):
        for secret in _secrets_in_url(value):
            value = value.replace(secret, STARS)
    return list(value) if isinstance(value, tuple) else value


def _secrets_in_url(text: str) -> list[str]:
    """Password and secret-looking query values of a URL, as written in it."""
    if "://" not in text:
        return []
    rest, _, query = text.partition("://")[2].partition("?")
    user, at, _ = rest.partition("/")[0].rpartition("@")
    found = [user.partition(":")[2]] if at else []
    for pair in query.partition("#")[0].split("&"):
        name, _, value = pair.partition("=")
        if any(word in name.lower() for word in ("secret", "password", "token", "access_key", "signature")):
            found.append(value)
    return [secret for secret in found if secret]


def env_name(key: str) -> str:
    """``archive.url`` → ``TIERED_ARCHIVE_URL``."""
    return ENV_PREFIX + key.replace(".", "_").upper()


def flag_name(key: str) -> str:
    """The flag that sets ``key``."""
    return FLAG_NAMES.get(key, f"--set {key}=…")


def where_to_set(key: str, loaded: Loaded | None = None) -> str:
    """One sentence that lists the places where ``key`` can be set, for hints."""
    section, name = key.split(".")
    file = loaded.file if loaded is not None and loaded.file else "the config file"
    return f"set it with {flag_name(key)}, {env_name(key)}, or `{name} = …` under [{section}] in {file}"


def load(
    file: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """Merge the layers. ``env`` is usually ``environment()``; ``flags`` maps dotted keys to values that were given.

    Raises ``Invalid`` naming file, variable or flag, key, value and bound. The result is valid value by value; what a
    command needs beyond that is checked by ``tiered.daemon.checks``.
    """
    env = env or {}
    path = str(file) if file is not None else env.get(ENV_CONFIG)
    raw: dict[str, tuple[object, Origin]] = {}
    if path is not None:
        raw.update(_from_file(Path(path)))
    from_env, ignored = _from_environment(env)
    raw.update(from_env)
    raw.update(_from_flags(flags or {}))
    declared = keys()
    values: dict[str, dict[str, Any]] = {name: {} for name in section_types()}
    for key, (text, origin) in raw.items():
        section, name = key.split(".")
        values[section][name] = convert(key, declared[key], text, where=str(origin))
    origins = {key: raw[key][1] if key in raw else DEFAULT for key in declared}
    exposed = tuple(
        f"{key} on the command line can be read by every user of this machine, in its list of processes: "
        f"set {env_name(key)} or write it into a file"
        for key, origin in origins.items()
        if origin.layer == "flag" and declared[key].metadata.get("secret") and raw[key][0]
    )
    sections = {name: _make(kind, values[name], origins, name) for name, kind in section_types().items()}
    return Loaded(Settings(**sections), MappingProxyType(origins), path, (*exposed, *ignored), exposed)  # type: ignore[arg-type]


def _make(
    kind: type[SettingsSection], values: dict[str, Any], origins: Mapping[str, Origin], section: str
) -> SettingsSection:
    """Make a section; on a broken bound, say where the value was written."""
    try:
        return kind(**values)
    except Invalid as error:
        for name in values:
            if error.message.startswith(f"{section}.{name} "):
                error.fields["where"] = origins[f"{section}.{name}"]
        raise


def _from_file(path: Path) -> dict[str, tuple[object, Origin]]:
    hint = "`tiered config default` prints a complete file"
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise Invalid("the config file does not exist", file=path, hint=hint) from None
    except OSError as error:
        raise Invalid("the config file cannot be read", file=path, found=error.strerror, hint=hint) from None
    if len(data) > MAX_FILE_BYTES:
        raise Invalid(
            "the config file is too large", file=path, expected=f"at most {MAX_FILE_BYTES} bytes", hint=hint
        )
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # bad TOML, bad UTF-8, a number beyond reason
        raise Invalid("the config file is not valid TOML", file=path, found=error, hint=hint) from None
    origin = Origin("file", str(path))
    found: dict[str, tuple[object, Origin]] = {}
    for section, table in document.items():
        kind = section_types().get(section)
        if kind is None:
            raise _unknown("section", section, section_types(), str(origin))
        if not isinstance(table, dict):
            raise Invalid(
                f"[{section}] must be a table of keys", file=path, found=type(table).__name__, hint=hint
            )
        for name, value in table.items():
            if f"{section}.{name}" not in keys():
                raise _unknown("key", f"{section}.{name}", keys(), str(origin))
            found[f"{section}.{name}"] = (value, origin)
    return found


def _from_environment(env: Mapping[str, str]) -> tuple[dict[str, tuple[object, Origin]], tuple[str, ...]]:
    names = {env_name(key): key for key in keys()}
    found: dict[str, tuple[object, Origin]] = {}
    ignored: list[str] = []
    for name in sorted(env):
        if not name.startswith(ENV_PREFIX) or name == ENV_CONFIG or name.startswith(ENV_FOREIGN):
            continue
        if name in names:
            found[names[name]] = (env[name], Origin("environment", name))
            continue
        section = name.removeprefix(ENV_PREFIX).split("_")[0].lower()
        if section in section_types() or get_close_matches(name, names, n=1, cutoff=0.85):
            raise _unknown("name", name, names, "environment")
        ignored.append(f"{name} in the environment is not a setting and was ignored")
    return found, tuple(ignored)


def _from_flags(flags: Mapping[str, object]) -> dict[str, tuple[object, Origin]]:
    found: dict[str, tuple[object, Origin]] = {}
    for key, value in flags.items():
        if key not in keys():
            raise _unknown("key", key, keys(), "flag --set")
        found[key] = (value, Origin("flag", FLAG_NAMES.get(key, f"--set {key}")))
    return found


def _unknown(what: str, name: str, known: Iterable[str], where: str) -> Invalid:
    near = get_close_matches(name, list(known), n=1, cutoff=0.6)
    if not near and "." in name:
        near = [key for key in known if key.split(".")[-1] == name.split(".")[-1]][:1]
    hint = f"did you mean {near[0]}?" if near else "`tiered config default` lists every section and key"
    return Invalid(f"unknown {what} {name}", where=where, hint=hint)
