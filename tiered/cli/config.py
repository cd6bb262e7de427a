"""``tiered config print|check|default``: the settings as this call would use them, whether they hold, and a full file."""

from __future__ import annotations

import typer

from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, StoreDir, flags, output
from tiered.daemon.checks import cautions
from tiered.daemon.checks import check as check_all
from tiered.daemon.config import environment, load, visible, walk
from tiered.daemon.template import default_toml
from tiered.text.output import Column

app = typer.Typer(help="Show, check or generate settings.", no_args_is_help=True, add_completion=False)


@app.command("print")
def print_(
    config: ConfigFile = None,
    store: StoreDir = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Every setting with its value and where it comes from; secrets are stars."""
    loaded = load(config, environment(), flags(store, archive, sets))
    out = output(json)
    for warning in loaded.warnings:
        out.note(f"note: {warning}")
    if json:
        out.record(
            {
                key: {
                    "value": visible(field, value),
                    "origin": str(loaded.origins[key]),
                    "unit": field.metadata["unit"],
                }
                for key, field, value in walk(loaded.settings)
            }
        )
        return
    columns = (Column("key"), Column("value"), Column("unit"), Column("origin"))
    rows = [
        (key, visible(field, value), field.metadata["unit"] or "", loaded.origins[key])
        for key, field, value in walk(loaded.settings)
    ]
    out.table(columns, rows)


@app.command("check")
def check(
    config: ConfigFile = None,
    store: StoreDir = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Whether `tiered run` would accept the settings; touches neither broker nor bucket (`tiered doctor` does)."""
    loaded = load(config, environment(), flags(store, archive, sets))
    check_all(loaded, writer=True)
    settings = loaded.settings
    output(json).record(
        {
            "settings": "good",
            "file": loaded.file,
            "changed": sum(origin.layer != "default" for origin in loaded.origins.values()),
            "store": settings.source.store_dir or settings.source.commitlog_dirs,
            "archive": settings.archive.url,
            "hold": settings.hold_directory,
            "state": settings.state_directory,
            "warnings": [*loaded.warnings, *cautions(settings)],
        }
    )


@app.command("default")
def default(json: JsonFlag = False) -> None:
    """A complete, commented TOML file with every default."""
    text = default_toml()
    out = output(json)
    if json:
        out.record({"toml": text})
    else:
        out.raw(text.encode())
