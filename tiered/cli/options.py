"""Options that several verbs share, and the settings they give."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tiered.daemon.checks import check
from tiered.daemon.config import Loaded, environment, load
from tiered.errors import Invalid
from tiered.model import Past
from tiered.text.output import Output
from tiered.text.speaker import speaker
from tiered.text.values import time_ms

JsonFlag = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="TOML settings; also TIERED_CONFIG.")
]
StoreDir = Annotated[
    str | None,
    typer.Option("--store", metavar="DIR", help="The broker's store directory (source.store_dir)."),
]
DaemonState = Annotated[
    str | None, typer.Option("--state", metavar="DIR", help="The daemon's state directory (state.directory).")
]
ArchiveUrl = Annotated[
    str | None,
    typer.Option(
        "--archive", metavar="URL", help="file:///…, s3://bucket/prefix, fsspec+gs://… (archive.url)."
    ),
]
SetValues = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any setting, as section.key=value; repeatable."),
]


def _past(text: str | Past) -> Past:
    """``--as-of``: a commit's number, or a time with a date."""
    if isinstance(text, Past):
        return text
    if text.isascii() and text.isdigit():
        return Past(commit=int(text))
    moment = time_ms(text)
    if moment is None or moment < 0:
        raise typer.BadParameter(
            f"{text!r} is neither a commit's number nor a time such as 2026-01-31T12:00:00+00:00"
        )
    return Past(time_ms=moment)


AsOf = Annotated[
    Past | None,
    typer.Option(
        "--as-of",
        metavar="COMMIT|TIME",
        parser=_past,
        help="The archive as it was after this commit, or at this time (ISO 8601, the store's clock).",
    ),
]

Prefix = Annotated[
    str, typer.Option("--prefix", metavar="NAME", help="Only topics whose names begin with this.")
]
Limit = Annotated[int, typer.Option("--limit", min=0, help="At most this many rows; 0: all.")]
JsonLines = Annotated[
    bool, typer.Option("--json-lines", help="Answer in JSON, one object a line, each as soon as it is known.")
]


def flags(
    store: str | None = None, archive: str | None = None, sets: list[str] | None = None
) -> dict[str, object]:
    """Flags that were given, by dotted key. Raises ``Invalid`` for a ``--set`` without ``=``."""
    given: dict[str, object] = {}
    for pair in sets or ():
        key, equals, value = pair.partition("=")
        if not equals:
            raise Invalid("--set needs section.key=value", found=pair, hint="for example --set web.port=0")
        given[key.strip()] = value
    if store is not None:
        given["source.store_dir"] = store
    if archive is not None:
        given["archive.url"] = archive
    return given


def settings_from(
    config: Path | None = None,
    store: str | None = None,
    archive: str | None = None,
    sets: list[str] | None = None,
    *,
    out: Output,
    writer: bool = False,
) -> Loaded:
    """Load every layer and check it; ``writer`` asks for what ``tiered run`` needs. ``out`` says which secrets are exposed."""
    loaded = load(config, environment(), flags(store, archive, sets))
    for warning in loaded.exposed:
        out.note(f"note: {warning}")
    check(loaded, writer=writer)
    return loaded


def output(json_output: bool, json_lines: bool = False) -> Output:
    """The speaker of this call."""
    return speaker(json_output=json_output, json_lines=json_lines)
