"""``tiered status``: one archive at a glance, with the daemon's own word when it runs on this machine."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tiered.archive.care.notes import figures_of, read_notes
from tiered.archive.encryption.provider import Encrypting
from tiered.archive.log.identity import ArchiveIdentity
from tiered.archive.read.hollow import lost_inside
from tiered.archive.read.view import View
from tiered.archive.rewrite.mergeplan import Window
from tiered.archive.rewrite.seal import SealOptions
from tiered.archive.rewrite.sealplan import Sealable
from tiered.archive.state.cached import peek_fold
from tiered.archive.state.keys import topic_key
from tiered.archive.state.values import Head, ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.cli.access import OpenedArchive, reading
from tiered.cli.figures import Figures, figures
from tiered.cli.options import (
    ArchiveUrl,
    AsOf,
    ConfigFile,
    DaemonState,
    JsonFlag,
    SetValues,
    StoreDir,
    output,
    settings_from,
)
from tiered.cli.standing import awaiting_deletion, deleted_topics, forgotten_queues, month, noted_topics
from tiered.clock import SystemClock
from tiered.daemon.portfile import WEB_PORT_FILE
from tiered.errors import Corrupt, TieredError
from tiered.settings import Settings
from tiered.text.human import Kind, size
from tiered.text.prices import PriceTable, read_prices

ASK_SECONDS = 3.0
TURN_ON = "gc.enabled = true deletes it, tiered gc --dry-run shows what"

KINDS = {"physical_gaps": Kind.RANGES, "stored_bytes": Kind.SIZE, "unreferenced_bytes": Kind.SIZE}


def command(
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    store: StoreDir = None,
    state: DaemonState = None,
    as_of: AsOf = None,
    prices: Annotated[
        Path | None,
        typer.Option(
            "--prices", metavar="FILE", help="What your store charges: a table in TOML (deploy/costs.md)."
        ),
    ] = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Epoch, head, proven offset, lag, counts and gaps of an archive, what waits for maintenance, and what a month of it costs;
    lag and deleted topics need the broker's store or a running daemon."""
    out = output(json)
    table = read_prices(prices)
    try:
        with reading(out, config, archive, sets, store=store, as_of=as_of, pieces=True) as opened:
            out.record(_told(opened, state, table, shown=1 if prices is None else None), kinds=KINDS)
    except TieredError as error:
        settings = settings_from(config, store, archive, sets, out=out).settings
        daemon = ask_daemon(Path(state or settings.state_directory or "/nonexistent"), settings)
        if daemon is not None:  # it knows what it waits for, and how far it is
            out.record(
                {"archive": settings.archive.url, "problem": error.said, "daemon": daemon}, kinds=KINDS
            )
        raise


def _told(
    opened: OpenedArchive, state: str | None, table: PriceTable, *, shown: int | None
) -> dict[str, object]:
    """All that is known of the archive; of the stores' prices the first ``shown``."""
    settings = opened.loaded.settings
    view = opened.view.state
    head = view.head()
    beside = bool(settings.source.store_dir)
    noted = noted_topics(opened.view, settings)
    found = figures(view, settings, SystemClock().now_ms(), gone=set(map(topic_key, noted)), by_topic=beside)
    told: dict[str, object] = {
        "archive": opened.view.log.provider.url,
        "cluster": settings.source.cluster,
        "broker": settings.source.broker,
        "archive_id": opened.view.identity.archive_id.hex(),
        "seq": head.seq if head else None,
        "epoch": head.epoch if head else None,
        "lineage": head.lineage if head else None,
        "writer": f"{head.writer_id.hex()} on {head.host}" if head else None,
        "proven_offset": proven_offset(view),
        **counts(view, found),
        **_inside(opened.view),
        **stored(view, found.objects),
        **waiting(found, settings, opened.view.identity),
        "wait_for_deletion": awaiting_deletion(view),
        "forgotten": forgotten_queues(view.head(), found, noted, settings),
        "cost_of_a_month": month(
            opened.view,
            found.objects,
            SystemClock().now_ms(),
            list(table.stores.values())[:shown],
            table.currency,
        ),
    }
    if beside:
        told["deleted_topics"] = deleted_topics(opened.view, settings, found)
    told["encryption"] = _encryption(opened)
    daemon = ask_daemon(Path(state or settings.state_directory or "/nonexistent"), settings)
    told["daemon"] = daemon if daemon is not None else "not running here"
    told["local_fold"] = local_fold(settings, state, head)
    if daemon is None:
        told["scrub"] = _scrubbed(settings, state, opened.view.identity)
    if daemon is None and beside:
        told["lag"] = _local_lag(settings, view)
    return told


def local_fold(settings: Settings, state: str | None, head: Head | None) -> dict[str, object] | str:
    """How far the daemon's own fold on this machine is, looked up beside a daemon that may run."""
    directory = state or settings.state_directory
    if not directory:
        return "not known here"
    try:
        with peek_fold(settings.state.metadata, f"{directory}/metadata") as view:
            found = ArchiveState(view).head()
    except TieredError as error:
        return error.message
    if found is None or head is None:
        return "empty"
    same = found.archive_id == head.archive_id
    return {"seq": found.seq, "behind": max(0, head.seq - found.seq)} if same else "of another archive"


def _encryption(opened: OpenedArchive) -> dict[str, object] | str:
    """The newest data key and what it is wrapped by; `tiered key list` has all of them."""
    provider, keys = opened.view.log.provider, opened.view.keys
    if not isinstance(provider, Encrypting):
        return "off"
    try:
        wrapped = provider.data_keys(keys.root).newest_wrapped()
    except Corrupt as error:  # by another wrapping the archive was opened
        return error.said
    if not wrapped:
        return "from the next start of the daemon on"
    newest = wrapped[-1]
    return {
        "epoch": newest.epoch,
        "data_key": newest.key_id.hex(),
        "wrapped_by": [w.wrapping_key for w in wrapped],
    }


def proven_offset(view: ArchiveState) -> int | None:
    """Physical offset below which everything of the current lineage is archived."""
    head = view.head()
    if head is None or head.lineage not in head.progress:
        return None
    return head.progress[head.lineage].physical_offset


def counts(view: ArchiveState, found: Figures) -> dict[str, object]:
    """Totals over all queues."""
    queues = found.queues
    return {
        "queues": queues.queues,
        "messages": queues.messages,
        "bytes": queues.bytes,
        "runs": queues.runs,
        "gaps": found.gaps,
        "physical_gaps": [
            {"lineage": g.lineage, "start": g.start, "end": g.end, "reason": g.reason}
            for g in view.phys_gaps()
        ],
        "closed_parts": found.closed_parts,
        **({"lite_queues": asdict(found.lite)} if found.lite is not None else {}),
    }


def _inside(archive: View) -> dict[str, object]:
    """What is lost with commits that something stands for, if anything is: tiered gaps has its queues."""
    lost = list(lost_inside(archive, closed=True))
    if not lost:
        return {}
    commits, messages = sorted({gap.commit_seq for gap in lost}), sum(gap.end - gap.start for gap in lost)
    return {"lost_inside_commits": {"messages": messages, "commits": commits, "reason": lost[0].reason}}


def stored(view: ArchiveState, objects: Sequence[ObjectState]) -> dict[str, object]:
    """Objects by level, data that travels in commits among them, and what of them waits for deletion, as the fold knows it."""
    levels: dict[int, list[int]] = {}
    unneeded = total = 0
    for item in objects:
        level = levels.setdefault(item.level, [0, 0])
        level[0] += 1
        level[1] += item.length
        total += item.length
        if not item.references:
            unneeded += 1
    return {
        "stored_bytes": total,
        "levels": [
            {"level": level, "objects": count, "bytes": length}
            for level, (count, length) in sorted(levels.items())
        ],
        "unreferenced_objects": unneeded,
        "unreferenced_bytes": unreferenced_bytes(objects),
        "named_for_deletion": sum(1 for _ in view.retirements()),
    }


def unreferenced_bytes(objects: Sequence[ObjectState]) -> int:
    """Of what the fold knows: what nothing refers to. Collection deletes it."""
    return sum(item.length for item in objects if not item.references)


def waiting(found: Figures, settings: Settings, identity: ArchiveIdentity) -> dict[str, object]:
    """What maintenance would merge and seal at this moment; why nothing is sealed, or collected, if nothing is."""
    off, kept = settings.gc.off(collected=identity.collected), size(unreferenced_bytes(found.objects))
    told: dict[str, object] = {
        "collection": "on"
        if off is None
        else f"off: {off}; {kept} that nothing refers to stay stored; {TURN_ON}",
        "sealing": SealOptions.of(settings).off or "on",
    }
    rows: Sequence[Window | Sealable]
    for name, rows in (("merging", found.merging), ("sealing", found.sealing)):
        told[f"wait_for_{name}"] = {
            "runs": sum(row.runs for row in rows),
            "messages": sum(row.messages for row in rows),
            "bytes": sum(row.record_bytes for row in rows),
        }
    return told


def ask_daemon(state: Path, settings: Settings) -> dict[str, object] | None:
    """``/status`` of the daemon whose state directory this is; ``None`` if it does not answer."""
    try:
        port = int((state / WEB_PORT_FILE).read_text())
        from urllib.request import urlopen  # takes its time to come

        url = f"http://{settings.web.host}:{port}/status"
        with urlopen(url, timeout=ASK_SECONDS) as answer:
            return dict(json_module.load(answer))
    except (OSError, ValueError):
        return None


def _scrubbed(settings: Settings, state: str | None, identity: ArchiveIdentity) -> dict[str, int] | str:
    """What a daemon's walks over the bucket found, as it wrote it down here."""
    where = state or settings.state_directory
    notes = read_notes(Path(where), identity.archive_id) if where else None
    if notes is None:
        return "nothing is noted here"
    return figures_of(notes, SystemClock().now_ms(), identity.created_ms)


def _local_lag(settings: Settings, view: ArchiveState) -> dict[str, object]:
    """Bytes between the broker's end and what is proven, looked up in the broker's own files."""
    from tiered.source.open import open_source

    source = open_source(settings.source, settings.hold, SystemClock())
    end = source.max_offset()
    source.close()
    return {"bytes": max(0, end - (proven_offset(view) or 0)), "local_end": end}
