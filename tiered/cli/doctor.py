"""``tiered doctor``: all that a daemon needs and would meet, looked at by its own checks, with the fix for what is missing."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.identity import read_identity
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.archive.rewrite.policy import policy_from
from tiered.cli.options import ArchiveUrl, ConfigFile, JsonFlag, SetValues, StoreDir, output, settings_from
from tiered.cli.status import TURN_ON, unreferenced_bytes
from tiered.clock import SystemClock
from tiered.daemon.askbroker import ask_broker, check_told_names
from tiered.daemon.checks import UNSEEN_RESTARTS, cautions
from tiered.daemon.preview import Looked, check_state, compared, impatient, look
from tiered.errors import NotFound, TieredError
from tiered.metadata.memory import MemoryStore
from tiered.opening.lineage import BrokerComparison, Relation
from tiered.opening.othername import check_other_names
from tiered.provider.base import Provider
from tiered.provider.open import open_provider
from tiered.provider.probe import probe
from tiered.provider.resolve import create_root
from tiered.settings import Settings
from tiered.source.hold import disk_percent, try_link
from tiered.source.layout import store_layout
from tiered.source.open import open_source
from tiered.text.human import size
from tiered.text.output import Column, Output, paragraph
from tiered.text.prices import read_prices

COLUMNS = (Column("check"), Column("result"), Column("found"), Column("fix"))
MAX_SKEW_MS = 300_000

Row = tuple[str, str, str, str]


def command(
    config: ConfigFile = None,
    store: StoreDir = None,
    archive: ArchiveUrl = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Check settings, broker, hold, disk, store, clock and archive, and read what is not archived yet. Exit code 1 if anything
    would stop or weaken the daemon.
    """
    out = output(json)
    settings = settings_from(config, store, archive, sets, out=out, writer=True).settings
    rows = list(_rows(settings, out))
    out.table(COLUMNS, rows)
    return 1 if any(row[1] in ("BAD", "WEAK") for row in rows) else 0


def _rows(settings: Settings, out: Output) -> Iterator[Row]:
    yield _row("broker's store", lambda: _broker(settings))
    yield _restarts(settings)
    yield _row("hard links", lambda: _hard_links(settings))
    yield _disk(settings)
    yield _row("state directory", lambda: _writable(settings.state_directory, "state.directory"))
    clock = SystemClock()
    try:
        provider = encrypted(open_provider(settings.archive.url, settings.store, clock), settings.encryption)
    except TieredError as error:
        yield _bad("store", error)
        return
    try:
        yield from _store(provider, settings, clock)
        yield from _start(provider, settings, clock, out)
    finally:
        provider.close()


def _row(name: str, look: Callable[[], str]) -> Row:
    try:
        return (name, "good", look(), "")
    except TieredError as error:
        return _bad(name, error)


def _bad(name: str, error: TieredError) -> Row:
    return (name, "BAD", paragraph(error), error.hint or "")


def _broker(settings: Settings) -> str:
    source = open_source(settings.source, settings.hold, SystemClock())
    try:
        files = source.files()
        span = (
            f"{len(files):,} commitlog files, offsets {files[0].base:,} to {source.max_offset():,}"
            if files
            else "an empty log"
        )
        return f"{settings.source.store_dir or settings.source.commitlog_dirs}: {span}"
    finally:
        source.close()


def _restarts(settings: Settings) -> Row:
    """Whether a restart of the broker can be seen: its lock and abort files lie in the store directory."""
    if UNSEEN_RESTARTS in cautions(settings):
        found, _, fix = UNSEEN_RESTARTS.partition("; ")
        return ("broker's restarts", "WEAK", found, fix)
    return ("broker's restarts", "good", f"seen by lock and abort in {settings.source.store_dir}", "")


def _hard_links(settings: Settings) -> str:
    source = open_source(settings.source, settings.hold, SystemClock())
    try:
        for place in store_layout(settings.source, settings.hold).places:
            newest = [file for file in source.files() if os.path.dirname(file.path) == place.commitlog][-1:]
            for file in newest:
                try_link(file, place.directory)
        return f"possible: {len(source.held_files())} files held in {settings.hold_directory}"
    finally:
        source.close()


def _disk(settings: Settings) -> Row:
    """The partition's usage against the budget; the broker itself stops between 85 and 90 %."""
    path = settings.source.store_dir or os.path.dirname(settings.source.commitlog_dirs.split(",")[0])
    try:
        used = disk_percent(path)
    except OSError as error:
        return (
            "disk budget",
            "BAD",
            f"{path}: {error.strerror}",
            "set source.store_dir to the broker's store",
        )
    limit = settings.hold.max_disk_percent
    said = f"{used:.0f} % of the partition used, the hold lets go at {limit} %, at most {size(settings.hold.max_bytes)}"
    if used >= limit:
        return (
            "disk budget",
            "WEAK",
            said,
            "free disk space, or raise hold.max_disk_percent: above it nothing is held",
        )
    return ("disk budget", "good", said, "")


def _writable(directory: str, key: str) -> str:
    path = Path(directory)
    probe_at = path if path.exists() else path.parent
    if not os.access(probe_at, os.W_OK | os.X_OK):
        raise NotFound(
            "the directory cannot be written", path=directory, hint=f"set {key} to a writable directory"
        )
    return directory


def _store(provider: Provider, settings: Settings, clock: SystemClock) -> Iterator[Row]:
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    try:
        create_root(provider)
        report = probe(provider, clock, prefix=keys.root)
    except TieredError as error:
        yield _bad("store", error)
        return
    yield ("store", "good", f"{provider.url} reached and written", "")
    for finding in report.findings:
        result = "good" if finding.held else ("BAD" if finding.essential else "WEAK")
        fix = "" if finding.held else f"use another store; lost: {finding.unprotected}"
        yield (finding.capability, result, finding.detail, fix)
    yield _lifecycle(provider, keys.root)
    skew = report.clock_offset_ms
    bad = abs(skew) > MAX_SKEW_MS
    yield (
        "clock", "WEAK" if bad else "good", f"the store's clock is {skew:+} ms from this host's",
        "set this host's clock (NTP)" if bad else "",
    )  # fmt: skip
    if provider.url.startswith("file:"):
        yield ("store's clock", "good", "this host's own: comparing the two clocks protects nothing here", "")


def _lifecycle(provider: Provider, root: str) -> Row:
    """Whether rules of the bucket itself would take what the archive needs."""
    name, rules = "lifecycle rules", provider.capabilities.lifecycle
    if rules is None:
        return (name, "good", "the store deletes nothing by itself", "")
    try:
        found = rules.harmful_rules(root)
    except TieredError as error:
        fix = "allow s3:GetLifecycleConfiguration, or see that no rule of the bucket expires the archive's objects"
        return (name, "unknown", paragraph(error), fix)
    if not found:
        return (name, "good", "none that takes the archive's objects", "")
    fix = "remove these rules, or narrow them to other keys: retain.* and gc.* say what of an archive goes, and when"
    return (name, "BAD", "; ".join(found), fix)


def _encryption(provider: Provider, settings: Settings, root: str) -> str:
    encryptor = provider.capabilities.encryptor
    if encryptor is None:
        return "off"
    encryptor.check(root)
    named = (
        settings.encryption.key_file or settings.encryption.key_env or "the command of encryption.key_command"
    )
    return f"the key of {named} wraps, and unwraps what this archive has"


def _collection(archive: View | None, settings: Settings) -> Row:
    """Whether what nothing refers to is deleted, and what stays where it is not."""
    off = settings.gc.off(collected=archive is None or archive.identity.collected)
    if off is None:
        return ("collection", "good", "what nothing refers to is deleted after gc.grace_ms", "")
    items = [] if archive is None else list(archive.state.objects())
    left, total = unreferenced_bytes(items), sum(item.length for item in items)
    said = f"{off}: {size(left)} of {size(total)} that nothing refers to stay stored, and every merge adds to them"
    return ("collection", "off", said, TURN_ON)


def _retention(settings: Settings) -> Row:
    """How long messages stay, and, where that is for ever, what they cost."""
    name = "retention"
    if not policy_from(settings.retain).forever:
        return (name, "good", "as section [retain] says; tiered retain --dry-run shows what it trims", "")
    table = read_prices(None)
    price = next(iter(table.stores.values()))
    month = 2**40 / price.bytes_per_gb * price.storage_gb_month
    said = (
        f"off: every message is kept for ever, but for topics with a reserve.time at the broker; each TiB at rest costs"
        f" {month:.2f} {table.currency} a month (list price of {price.name}); section [retain] sets an end"
    )
    return (name, "good", said, "")


def _key_file(path: str) -> Iterator[Row]:
    """Whether others on this host may read the file that the archive's key is in."""
    if path and Path(path).exists() and Path(path).stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield ("key file", "WEAK", f"{path} is open to others than its owner", f"chmod 600 {path}")


def _start(provider: Provider, settings: Settings, clock: SystemClock, out: Output) -> Iterator[Row]:
    """The archive, and what a daemon would find when it starts on it here."""
    keys = ArchiveKeys(settings.source.cluster, settings.source.broker)
    try:
        archive = _archive(provider, keys, settings, out)
    except TieredError as error:
        yield _bad("archive", error)
        return
    identity = archive.identity if archive is not None else None
    found = (
        f"{identity.archive_id.hex()} of {identity.cluster}/{identity.broker}"
        if identity is not None
        else "none yet: the first tiered run creates it"
    )
    yield ("archive", "good", found, "")
    yield _collection(archive, settings)
    yield _retention(settings)
    yield _row("encryption", lambda: _encryption(provider, settings, keys.root))
    yield from _key_file(settings.encryption.key_file)

    def state() -> str:
        archive_id = identity.archive_id if identity is not None else None
        check_state(Path(settings.state_directory), provider, keys.root, archive_id)
        return "not fenced, and of this archive"

    yield _row("writer", state)
    quick = impatient(settings)
    try:
        ask = ask_broker(quick.replay, clock)
        source = open_source(quick.source, quick.hold, clock, ask_broker=ask)
    except TieredError:
        return  # said above
    try:
        if archive is None:
            check_told_names(settings, clock)
            check_other_names(source, provider, keys)
        outcome = compared(source, archive, quick)
        yield _same_broker(outcome, source.min_offset())
        with out.progress("reading what is not archived", 0) as advance:
            yield _unarchived(look(source, outcome, quick, clock, advance))
    except TieredError as error:
        yield _bad("same broker", error)
    finally:
        source.close()


def _archive(provider: Provider, keys: ArchiveKeys, settings: Settings, out: Output) -> View | None:
    try:
        read_identity(provider, keys)
    except NotFound:
        return None
    with out.progress("reading the log", 0) as advance:
        cache_bytes = settings.fetch.table_cache_bytes
        reader = ArchiveReader(provider, keys, MemoryStore(), table_cache_bytes=cache_bytes, progress=advance)
        return reader.at()


def _same_broker(outcome: BrokerComparison, local_min: int | None) -> Row:
    said = {
        Relation.FRESH: "nothing is archived yet",
        Relation.SAME: f"archived up to {outcome.offset:,}",
        Relation.REWIND: f"the archive goes back to {outcome.offset:,}: {outcome.reason}",
        Relation.NEW: outcome.reason,
    }
    if outcome.relation is not Relation.BEHIND:
        return ("same broker", "good", said[outcome.relation], "")
    return (
        "same broker",
        "WEAK",
        f"the broker deleted [{outcome.offset:,}, {local_min or 0:,}) before it was archived: run records a gap",
        "it cannot be recovered; a larger hold (hold.max_bytes) or more disk keeps files until they are archived",
    )


def _unarchived(looked: Looked) -> Row:
    """What reading on from the archive's end found."""
    name = "not archived yet"
    if looked.gaps:
        start, end, reason = looked.gaps[0]
        more = f", and {len(looked.gaps) - 1} more" if len(looked.gaps) > 1 else ""
        deleted = not any(reason.startswith("corrupt") for _, _, reason in looked.gaps)
        return (
            name,
            "WEAK" if deleted else "BAD",
            f"[{start:,}, {end:,}) cannot be read: {reason}{more}; run records it as a gap and archives the rest",
            "if another copy of the broker's store has these bytes, keep that copy",
        )
    if looked.problem is not None:
        return _bad(name, looked.problem)
    part = " of more" if looked.partly else ""
    said = f"[{looked.start:,}, {looked.end:,}): {size(looked.end - looked.start)}{part} read, every record whole"
    return (name, "good", said if looked.end > looked.start else f"nothing beyond {looked.end:,}", "")
