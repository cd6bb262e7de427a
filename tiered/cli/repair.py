"""``tiered repair``: put something sound beside commits that are damaged or lost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from tiered.archive.care.othercopy import OtherCopy
from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.localfiles import record_distrust
from tiered.archive.log.reader import LogReader
from tiered.archive.read.find import find_identity
from tiered.archive.state.cached import open_fold
from tiered.cli.access import archive_settings, put_again
from tiered.cli.options import ArchiveUrl, ConfigFile, DaemonState, JsonFlag, SetValues, StoreDir, output
from tiered.clock import SystemClock
from tiered.errors import Corrupt, NotFound, Refused, TieredError, Unavailable
from tiered.filter.topicpolicy import TopicPolicy
from tiered.metadata.base import MetadataStore
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.repair.fromlog import BrokerLog
from tiered.repair.mend import Mender
from tiered.repair.step import Lost, Step
from tiered.settings import Settings
from tiered.source.open import open_source
from tiered.text.human import Kind
from tiered.text.output import Column, Output

COLUMNS = (
    Column("commit", kind=Kind.COUNT),
    Column("damage"),
    Column("mended_from", "mended from"),
    Column("exact", less=1),
    Column("puts", less=2),
    Column("advice", flexible=True),
)
LOST = (
    Column("commit", kind=Kind.COUNT),
    Column("queue"),
    Column("generation", kind=Kind.COUNT, less=1),
    Column("start", "from", kind=Kind.COUNT),
    Column("end", "to", kind=Kind.COUNT),
    Column("bytes", "at most", kind=Kind.SIZE),
)
"""Of what is lost: queue offsets, and first the physical offsets among which it lay."""


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    state: DaemonState = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Write the repairs; without this nothing is written.")
    ] = False,
    copy: Annotated[
        str | None,
        typer.Option("--copy", metavar="URL", help="Another copy of the archive (default: scrub.copy_url)."),
    ] = None,
    store: StoreDir = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Find commits that are damaged or lost and mend them: from another copy of the archive, the broker's commitlog
    (source.store_dir, or what the hold keeps of it), their own objects, the local state or a later checkpoint.

    Where nothing is left of what a commit held, that becomes a recorded gap and all else stays as it is; it is shown first.
    Nothing is deleted, and no commit written over: what stands for one is put beside it. Stop the daemon first. Exit code 1
    while damage is left.
    """
    out = output(json)
    settings = archive_settings(out, config, archive, sets, store).settings
    directory = Path(state or settings.state_directory) if state or settings.state_directory else None
    provider = open_provider(settings.archive.url, settings.store, SystemClock())
    provider = encrypted(provider, settings.encryption)
    try:
        keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
        other = copy or settings.scrub.copy_url
        if put_again(out, settings, copy, apply=apply) and not apply:
            out.note("the log cannot be read before that; --apply does it")
            return TieredError.exit_code
        identity = find_identity(provider, keys)
        with (
            _local(settings, directory, out, apply=apply) as local,
            _other(
                other, settings, LogReader(provider, keys, identity), out, asked=copy is not None
            ) as whole,
        ):
            mender = Mender(
                provider,
                keys,
                identity,
                local,
                os.urandom,
                table_cache_bytes=settings.repair_table_cache_bytes,
                copy=whole,
                log=_broker_log(settings),
            )
            with out.progress("reading the log", 0) as advance:
                steps = mender.plan(advance)
            if apply:
                mender.mend(steps)
                if directory is not None and local is not None and any(s.fold_again for s in steps):
                    record_distrust(directory)
    finally:
        provider.close()
    _tell(out, steps, apply=apply, json=json)
    return 0 if (apply and all(map(_mended, steps))) or not steps else TieredError.exit_code


def _broker_log(settings: Settings) -> BrokerLog | None:
    """The commitlog beside this process, if the settings name one."""
    if not settings.commitlog_directories:
        return None
    return BrokerLog(
        open_source(settings.source, settings.hold, SystemClock()),
        settings.dispatch,
        settings.source.max_record_bytes,
        TopicPolicy(settings.source.exclude_topics).is_excluded,
    )


@contextlib.contextmanager
def _other(
    url: str, settings: Settings, reader: LogReader, out: Output, *, asked: bool
) -> Iterator[Provider | None]:
    """The copy that is named, if one is, and known to be one of this archive. One that only a setting names and that is not
    there, or does not answer, is done without: what it has may lie elsewhere."""
    if not url:
        yield None
        return
    opened = encrypted(open_provider(url, settings.store, SystemClock()), settings.encryption)
    try:
        try:
            copy = OtherCopy(reader, lambda: opened).whole()
        except (Corrupt, NotFound) as error:
            if asked:
                raise
            out.note(f"scrub.copy_url is not looked at: {error}")
            copy = None
        yield copy
    finally:
        opened.close()


@contextlib.contextmanager
def _local(
    settings: Settings, directory: Path | None, out: Output, *, apply: bool
) -> Iterator[MetadataStore | None]:
    """The daemon's own fold, if it is on this machine and the daemon is stopped."""
    where = None if directory is None else directory / "metadata"
    kind = settings.state.metadata
    if where is None or kind == "memory" or not (where / kind).exists():
        yield None
        return
    try:
        store = open_fold(kind, where, settings.state.cache_bytes)
    except Unavailable as error:
        if apply:
            raise Refused(
                "the daemon of this archive is running",
                hint="stop it, repair, start it again",
                path=str(directory),
            ) from error
        out.note("the daemon is running: its local state is not looked at; stop it before --apply")
        yield None
        return
    try:
        yield store
    finally:
        store.close()


def _lost(lost: Lost) -> dict[str, object]:
    queue = "(physical offsets)" if lost.queue is None else str(lost.queue)
    return {
        "queue": queue,
        "generation": lost.generation,
        "start": lost.start,
        "end": lost.end,
        "bytes": lost.bytes,
    }


def _mended(step: Step) -> bool:
    """Whether something was put for it, or it is the local fold alone that is made anew."""
    return step.put is not None or step.fold_again


def _title(steps: list[Step], *, apply: bool) -> str:
    if not apply:
        return "what a repair would do"
    mended = sum(map(_mended, steps))
    if mended == len(steps):
        return "repaired"
    return f"repaired: {mended} of {len(steps)}" if mended else "nothing could be repaired"


def _tell(out: Output, steps: list[Step], *, apply: bool, json: bool) -> None:
    if not steps and not json:
        out.note(
            "every commit can be read: nothing to repair. Damaged data objects are found by tiered verify --deep"
        )
        return
    lost = [[_lost(x) for x in s.lost] for s in steps]
    out.table(
        (*COLUMNS, Column("lost")) if json else COLUMNS,
        (
            (
                s.seq,
                s.damage,
                s.source or "nothing",
                s.exact,
                s.put if s.put is not None else "nothing",
                s.advice,
                *([gone] if json else ()),
            )
            for s, gone in zip(steps, lost, strict=True)
        ),
        title=_title(steps, apply=apply),
    )
    rows = [(s.seq, *x.values()) for s, gone in zip(steps, lost, strict=True) for x in gone]
    if rows and not json:
        out.table(LOST, rows, title="lost, a recorded gap now" if apply else "lost: would be a recorded gap")
    if not json and not apply:
        out.note("nothing was written; --apply does it")
    elif not json and any(map(_mended, steps)):
        out.note("tiered verify checks the whole; start the daemon again")
    elif not json:
        out.note(
            "nothing was written: restore these keys from the bucket's versions, or from a copy of the archive"
        )
