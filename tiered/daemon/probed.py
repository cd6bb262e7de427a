"""What a start knows of its store from earlier starts: which promises the probe could not refute, for which address, and when.

The probe costs about 270 requests, so that it runs once for each address, way of reaching it and version of the program, and
again after ``archive.probe_interval_ms``. What it found is a file of the state directory.
"""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tiered import durable
from tiered.clock import Clock
from tiered.metrics import Metrics
from tiered.provider.base import Provider
from tiered.provider.probe import Finding, ProbeReport, probe, require_promises
from tiered.settings import Settings
from tiered.version import __version__

log = logging.getLogger("tiered.daemon")

PROBED_FILE = "probed"
MAX_STORES = 16
"""Stores remembered, the last ones probed."""
_OF_A_STORE = (
    "engine",
    "region",
    "endpoint",
    "path_style",
    "sse",
    "sse_kms_key_id",
    "storage_class",
    "checksum",
)


@dataclass(frozen=True, slots=True)
class _Known:
    """The findings of an earlier probe, this host's time of it, and what the store's answers had in common (``Manners``)."""

    findings: tuple[Finding, ...]
    probed_ms: int
    shown: tuple[str, ...]


def expect_as_probed(provider: Provider, settings: Settings, state: Path) -> None:
    """Have the first answer of this process measured by what the store's answers showed when it was probed."""
    known = _load(state / PROBED_FILE).get(_mark(settings))
    if known is not None and provider.capabilities.manners is not None:
        provider.capabilities.manners.expect(known.shown)


def probe_once(
    provider: Provider, settings: Settings, clock: Clock, metrics: Metrics, state: Path, root: str
) -> tuple[str, ...]:
    """Probe the store below ``root``, unless it is known; the sentences on what is not protected.

    A refuted store raises ``Refused`` unless ``archive.accept_weak_store`` is set. It is remembered only if it was accepted.
    """
    path, mark = state / PROBED_FILE, _mark(settings)
    now_ms = clock.now_ms()
    stores = _load(path)
    known = stores.get(mark)
    fresh = known is None or not 0 <= now_ms - known.probed_ms < settings.archive.probe_interval_ms
    if known is None or fresh:
        findings, manners = probe(provider, clock, prefix=root).findings, provider.capabilities.manners
        known = _Known(findings, now_ms, () if manners is None else tuple(manners.shown))
    for finding in known.findings:
        metrics.refuted.labels(finding.capability).set(0 if finding.held else 1)
    report = ProbeReport(provider.url, known.findings, 0, 0.0)
    weak = require_promises(report, accept_weak=settings.archive.accept_weak_store)
    for sentence in weak:
        log.warning("the store is weaker than the archive needs", extra={"lost": sentence})
    if fresh:
        _save(path, {**stores, mark: known})
    return weak


def _mark(settings: Settings) -> str:
    """Names what was probed: the address with all that decides who answers there and how, and the program. No secret is in it,
    and none can be read from it."""
    told = {name: getattr(settings.store, name) for name in _OF_A_STORE}
    text = json.dumps([settings.archive.url, told, __version__], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _load(path: Path) -> dict[str, _Known]:
    """What is remembered; nothing if the file cannot be understood: then the store is probed."""
    with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        stores: dict[str, Any] = json.loads(path.read_text())
        return {
            mark: _Known(
                tuple(Finding(**finding) for finding in known["findings"]),
                int(known["probed_ms"]),
                tuple(map(str, known["shown"])),
            )
            for mark, known in stores.items()
        }
    return {}


def _save(path: Path, stores: dict[str, _Known]) -> None:
    newest = sorted(stores.items(), key=lambda item: item[1].probed_ms)[-MAX_STORES:]
    data = json.dumps({mark: asdict(known) for mark, known in newest}).encode()
    try:
        durable.replace(path, data)
    except OSError as error:  # it only saves the next start a probe
        log.warning("the probe's outcome cannot be kept", extra={"path": str(path), "error": error.strerror})
