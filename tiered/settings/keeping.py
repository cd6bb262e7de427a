"""Sections of what becomes of the archive as it ages: retention."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.settings.option import ONE_DAY_MS, SettingsSection, ms, option, size


@dataclass(frozen=True, slots=True)
class Retain(SettingsSection):
    """Retention: how long messages stay readable in the archive. Nothing set: for ever."""

    keep_ms: int = ms(
        0,
        "messages stay at least this long after the broker stored them; shorter is cheaper; 0: for ever",
        0,
        36_500 * ONE_DAY_MS,
        rocketmq="tieredStoreFileReservedTime",
    )
    keep_bytes: int = size(
        0,
        "the newest bytes of each topic that stay, as records before compression; smaller is cheaper; 0: all",
        0,
        1 << 60,
    )
    topics: tuple[str, ...] = option(
        (),
        "rules of single topics, instead of the two above: Orders*=30d, Trace=7d 100GiB, Audit=forever; the first pattern that"
        " fits decides",
    )
    min_age_ms: int = ms(
        ONE_DAY_MS,
        "what the store has held for less than this is never trimmed, whatever a rule says; longer outlives more mistakes",
        3_600_000,
        3650 * ONE_DAY_MS,
    )
    max_trim_percent: int = option(
        10,
        "share of the archive that one run may trim; a run that would trim more is refused until it is confirmed with a figure",
        low=0,
        high=100,
        unit="%",
    )
