"""``tiered key``: the keys of an encrypted archive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from tiered.archive.encryption.datakeys import DataKeys, WrappedKey
from tiered.archive.encryption.wrapping import new_key_text, wrapping_key
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.find import find_identity
from tiered.cli.access import archive_settings
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.clock import SystemClock
from tiered.codec.format.sections import NAME_A_KEY
from tiered.errors import Invalid
from tiered.provider.open import open_provider
from tiered.text.output import Column, Output

COLUMNS = (
    Column("epoch"),
    Column("data_key", "data key", flexible=True),
    Column("wrapping_key", "wrapped by"),
)

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Keys of an encrypted archive. Each epoch has a data key, which lies in the bucket, wrapped by a key that never does."""


@app.command("new")
def new_command(json: JsonFlag = False) -> None:
    """Print a fresh wrapping key, for the file or variable that encryption.key_file or key_env names. Keep a copy of it."""
    output(json).lines([new_key_text(os.urandom)])


@app.command("list")
def list_command(
    config: ConfigFile = None, archive: ArchiveUrl = None, sets: SetValues = None, json: JsonFlag = False
) -> None:
    """Every epoch's data key, and by which wrapping keys it can be opened. Older epochs are plain."""
    out = output(json)
    with _data_keys(out, config, archive, sets) as keys:
        out.table(COLUMNS, map(_row, keys.wrapped()))


@app.command("rewrap")
def rewrap_command(
    config: ConfigFile = None, archive: ArchiveUrl = None, sets: SetValues = None, json: JsonFlag = False
) -> None:
    """Wrap every data key with the newest wrapping key too; no data is written again. A daemon may run.

    To change a wrapping key: put the new one before the old in its file, restart the daemon, rewrap, then drop the old one
    everywhere. Wrappings by the old key stay in the bucket.
    """
    out = output(json)
    with _data_keys(out, config, archive, sets) as keys:
        out.table(COLUMNS, map(_row, keys.wrap_again(os.urandom)))


@contextmanager
def _data_keys(out: Output, config: ConfigFile, archive: ArchiveUrl, sets: SetValues) -> Iterator[DataKeys]:
    settings = archive_settings(out, config, archive, sets).settings
    if not settings.encryption.on:
        raise Invalid("no key is named", hint=NAME_A_KEY)
    provider = open_provider(settings.archive.url, settings.store, SystemClock())
    try:
        keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
        find_identity(provider, keys)
        yield DataKeys(provider, keys.root, wrapping_key(settings.encryption))
    finally:
        provider.close()


def _row(wrapped: WrappedKey) -> tuple[object, ...]:
    return (wrapped.epoch, wrapped.key_id.hex(), wrapped.wrapping_key)
