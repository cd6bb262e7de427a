"""``tiered hold``: legal holds on an archive; what one covers is never trimmed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from tiered.archive.checkpoint.pieces import in_pieces
from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.find import find_identity
from tiered.archive.rewrite.holds import FOR_EVER_MS, StoredHold, add_hold, drop_hold, read_holds
from tiered.archive.rewrite.policy import LegalHold
from tiered.archive.state.listing import list_topics
from tiered.cli.access import archive_settings, reading
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, output
from tiered.clock import SystemClock
from tiered.errors import Invalid, TieredError
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.text.human import Kind
from tiered.text.output import Column, Output
from tiered.text.values import moment_ms

COLUMNS = (
    Column("name"),
    Column("pattern", "topics"),
    Column("from", kind=Kind.TIME),
    Column("to", kind=Kind.TIME),
    Column("in_force", "in force"),
    Column("created", kind=Kind.TIME, less=1),
    Column("reason", flexible=True),
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="What the hold is called.")]

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Legal holds: messages of topics and times that retention must not take. They are kept in the bucket, for every host."""


@app.command("list")
def list_command(
    config: ConfigFile = None, archive: ArchiveUrl = None, sets: SetValues = None, json: JsonFlag = False
) -> None:
    """All holds, those that were dropped too."""
    out = output(json)
    with _bucket(out, config, archive, sets) as (provider, keys, archive_id):
        out.table(COLUMNS, map(_row, read_holds(provider, keys, archive_id)))


@app.command("add")
def add_command(
    name: Name,
    topic: Annotated[
        str, typer.Option("--topic", metavar="PATTERN", help="Topics: a name, or with * and ?.")
    ],
    start: Annotated[str, typer.Option("--from", metavar="TIME", help="First store time held.")] = "0",
    end: Annotated[
        str, typer.Option("--to", metavar="TIME", help="First store time behind it; no end.")
    ] = "",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; kept with the hold.")] = "",
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Hold messages of topics by store time. Every run of retention that begins from now on leaves them, and all that lies
    behind them in their queues; what was trimmed before does not come back."""
    out = output(json)
    end_ms = moment_ms("--to", end) if end else FOR_EVER_MS
    hold = LegalHold(name, topic, moment_ms("--from", start), end_ms)
    if hold.start_ms >= end_ms:
        raise Invalid(
            "--to is not after --from",
            found=f"{start} to {end}",
            hint="--to is the first store time that is not held",
        )
    with _bucket(out, config, archive, sets) as (provider, keys, archive_id):
        now_ms = SystemClock().now_ms()
        made = add_hold(provider, keys, archive_id, hold, reason, now_ms, os.urandom)
        out.table(COLUMNS, [_row(made)])
    try:
        with reading(out, config, archive, sets, pieces=True) as opened:
            topics = in_pieces(opened.view.state.view, list_topics)
            fits = sum(hold.covers(found.topic) for found in topics)
    except TieredError as error:  # the hold is in force, whatever else cannot be read
        out.note(f"which topics it fits could not be looked up: {error}")
        return
    lists = "" if fits else "; tiered topics --system lists the names"
    out.note(f"archived topics that {topic} fits now: {fits or 'none'}{lists}")


@app.command("drop")
def drop_command(
    name: Name,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Drop a hold: the next run of retention no longer sees it. It stays listed."""
    out = output(json)
    with _bucket(out, config, archive, sets) as (provider, keys, archive_id):
        drop_hold(provider, keys, archive_id, name)
        out.table(COLUMNS, map(_row, read_holds(provider, keys, archive_id)))


@contextmanager
def _bucket(
    out: Output, config: ConfigFile, archive: str | None, sets: list[str] | None
) -> Iterator[tuple[Provider, ArchiveKeys, bytes]]:
    settings = archive_settings(out, config, archive, sets).settings
    provider = open_provider(settings.archive.url, settings.store, SystemClock())
    provider = encrypted(provider, settings.encryption)
    try:
        keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
        yield provider, keys, find_identity(provider, keys).archive_id
    finally:
        provider.close()


def _row(stored: StoredHold) -> tuple[object, ...]:
    hold = stored.hold
    end_ms = None if hold.end_ms == FOR_EVER_MS else hold.end_ms
    return (
        hold.name, hold.pattern, hold.start_ms, end_ms, not stored.dropped, stored.created_ms, stored.reason,
    )  # fmt: skip
