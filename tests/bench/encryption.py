"""Archiving with encryption beside archiving without, and reading every byte of both."""

from __future__ import annotations

import os
from pathlib import Path

from tests.bench.backlog import check_archive
from tests.bench.run import QUIET, TIERED, Row, generate, idle_run, once
from tests.kit.measured import Measured, measure
from tiered.archive.encryption.wrapping import new_key_text

ROUNDS = 3


def encryption(work: Path, messages: int) -> list[Row]:
    """In turn, plain and encrypted; best of ``ROUNDS`` each, the idle start taken off, wall time and CPU time apart."""
    idle = idle_run(work)
    end = generate(work / "store", messages, 64)
    (work / "key").write_text(new_key_text(os.urandom))
    keys = {"off": "", "on": str(work / "key")}
    archived: dict[str, list[Measured]] = {name: [] for name in keys}
    verified: dict[str, list[Measured]] = {name: [] for name in keys}
    for number in range(ROUNDS):
        for name, key in keys.items():
            url = f"file://{work / f'archive-{name}-{number}'}"
            setting = f"encryption.key_file={key}"
            archived[name].append(once(work / "store", url, work / "state", setting))
            check_archive(url, messages, key_file=key)
            verify = (*TIERED, "verify", "--deep", "--archive", url, *QUIET, "--set", setting)
            verified[name].append(measure(verify))
    rows = []
    for what, measured, start in (
        ("archived", archived, idle),
        ("read by verify --deep", verified, Measured(0, 0, 0)),
    ):
        wall, cpu = ({n: _least(measured[n], start, of) for n in keys} for of in ("seconds", "cpu_seconds"))
        rate = {n: end / wall[n] / 1e6 for n in keys}
        each = {n: cpu[n] / end * 1e9 for n in keys}
        target = "≥ 0.7" if measured is archived else "-"
        rows += [
            Row(f"{end / 1e9:.1f} GB {what}, encrypted", f"{rate['on']:.0f} MB/s", f"{rate['off']:.0f} MB/s (plain)",
                f"{rate['on'] / rate['off']:.2f}", target),
            Row("the same in CPU time", f"{each['on']:.2f} s/GB", f"{each['off']:.2f} s/GB (plain)",
                f"{each['off'] / each['on']:.2f}", "-"),
        ]  # fmt: skip
    return rows


def _least(measured: list[Measured], start: Measured, of: str) -> float:
    return float(min(getattr(m, of) for m in measured) - getattr(start, of))
