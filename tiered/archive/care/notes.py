"""What is known between two looks: how far each walk came, and what was found. Kept in the state directory; else begun anew.

The file is JSON and its checksum, replaced at once or not at all. It is as long as ``MOST_FINDINGS`` allows, however large the
archive is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

from tiered import durable
from tiered.codec.summedline import decode_line, encode_line
from tiered.crashpoint import ScrubPoint, reach
from tiered.errors import of_local_disk
from tiered.text.human import duration

NOTES_FILE = "scrub.json"
MOST_FINDINGS = 1000
"""Damaged or missing keys that are listed; more are counted."""

_FORMAT = 1
_UNLISTED, _UNLISTED_BEFORE = "unlisted", "unlisted_before"
_MOST_DETAIL = 400


@dataclass(frozen=True, slots=True)
class DamagedKey:
    """A key that is damaged or missing: ``path`` below the broker's root, ``position`` in it where that is known, times in ms
    by this host's clock. ``walk``: number of the walk over the listing that saw it last."""

    path: str
    what: str
    detail: str
    position: int | None
    first_seen_ms: int
    last_seen_ms: int
    walk: int = 0


@dataclass(frozen=True, slots=True)
class Pass:
    """One kind of walk. ``after``: the last path looked at; ``None`` between two walks. Times in ms by this host's clock,
    ``None`` for never. ``date_ms`` and ``seq``: the store's clock and the newest commit when it began.

    ``whole``: what the last one that came to its end saw and when that had begun: objects and bytes.
    """

    number: int = 0
    after: str | None = None
    began_ms: int | None = None
    ended_ms: int | None = None
    date_ms: int | None = None
    seq: int = -1
    objects: int = 0
    bytes: int = 0
    notes: dict[str, int] = field(default_factory=dict)
    whole_began_ms: int | None = None
    whole_date_ms: int | None = None
    whole_seq: int = -1
    whole_objects: int = 0
    whole_bytes: int = 0

    @property
    def under_way(self) -> bool:
        """Whether it stands between its beginning and its end."""
        return self.after is not None

    @property
    def unlisted(self) -> int:
        """Damaged or missing keys that this walk, or the one before it, met when no more were listed."""
        return max(self.notes.get(_UNLISTED, 0), self.notes.get(_UNLISTED_BEFORE, 0))

    def met_unlisted(self) -> Pass:
        """One more of them."""
        return replace(self, notes={**self.notes, _UNLISTED: self.notes.get(_UNLISTED, 0) + 1})

    def begun(self, now_ms: int, date_ms: int, seq: int) -> Pass:
        """At its beginning."""
        notes = {_UNLISTED_BEFORE: self.unlisted} if self.unlisted else {}
        return replace(
            self, number=self.number + 1, after="", began_ms=now_ms, date_ms=date_ms, seq=seq, objects=0, bytes=0, notes=notes,
        )  # fmt: skip

    def ended(self, now_ms: int) -> Pass:
        """At its end."""
        notes = {why: count for why, count in self.notes.items() if why != _UNLISTED_BEFORE}
        return replace(
            self, after=None, ended_ms=now_ms, notes=notes, whole_began_ms=self.began_ms, whole_date_ms=self.date_ms,
            whole_seq=self.seq, whole_objects=self.objects, whole_bytes=self.bytes,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Notes:
    """Of one archive. ``more``: findings that there was no room to list. ``last``: the kind of walk that had the
    last turn, "" for none: where both have more to do they take turns, over restarts too."""

    archive_id: bytes
    listing: Pass = field(default_factory=Pass)
    reading: Pass = field(default_factory=Pass)
    findings: Mapping[str, DamagedKey] = field(default_factory=dict)
    more: int = 0
    last: str = ""

    def damaged(self, found: DamagedKey) -> Notes:
        """With a finding; one that is listed keeps when it was seen first."""
        known = self.findings.get(found.path)
        if known is None and len(self.findings) >= MOST_FINDINGS:
            return replace(self, more=self.more + 1)
        first_ms = found.first_seen_ms if known is None else known.first_seen_ms
        made = replace(
            found, first_seen_ms=first_ms, detail=found.detail[:_MOST_DETAIL], walk=self.listing.number
        )
        return replace(self, findings={**self.findings, found.path: made})

    def sound(self, path: str) -> Notes:
        """Without one that was found sound."""
        if path not in self.findings:
            return self
        return replace(self, findings={p: f for p, f in self.findings.items() if p != path})

    def listed(self, now_ms: int) -> Notes:
        """At the end of a walk over the listing, which looks at every finding again: those it did not see are mended, or no
        longer needed."""
        number = self.listing.number
        kept = {path: found for path, found in self.findings.items() if found.walk >= number}
        return replace(self, listing=self.listing.ended(now_ms), findings=kept).counted()

    def counted(self) -> Notes:
        """With ``more`` as the two walks say: what both met counts once."""
        return replace(self, more=max(self.listing.unlisted, self.reading.unlisted))

    @property
    def read_again(self) -> bool:
        """Whether there is room for what the last walk over all bytes met and could not list."""
        at = self.reading
        return bool(at.unlisted) and not at.under_way and len(self.findings) <= MOST_FINDINGS // 2

    def unchecked_seconds(self, now_ms: int, created_ms: int) -> float:
        """The age of the oldest unchecked byte, at most: since when there may be one that nobody compared. While no walk over
        all bytes has come to its end, that is the archive's age."""
        began_ms = self.reading.whole_began_ms
        return max(0, now_ms - (created_ms if began_ms is None else began_ms)) / 1000

    def progress(self) -> float:
        """Part of all bytes that the walk over them has behind it, 0 to 1; 1 between two walks."""
        if not self.reading.under_way:
            return 0.0 if self.reading.whole_began_ms is None else 1.0
        total = self.listing.whole_bytes
        return min(1.0, self.reading.bytes / total) if total else 0.0


class Notebook:
    """Where notes are kept. ``directory``: the daemon's own, or ``None`` for notes in memory."""

    def __init__(self, directory: Path | None, archive_id: bytes) -> None:
        self._path = None if directory is None else directory / NOTES_FILE
        self.notes = read_notes(directory, archive_id) or Notes(archive_id)
        """As they were said last; replaced whole, so that any thread may read them."""

    def keep(self) -> None:
        """Write them down. ``Unavailable`` if the disk is full, ``Invalid`` if it may not be written."""
        if self._path is None:
            return
        reach(ScrubPoint.BEFORE_NOTES)
        try:
            durable.replace(self._path, _encode(self.notes))
        except OSError as error:
            hint = "set state.directory to a writable directory"
            raise of_local_disk(
                "cannot write what the scrub found", error, hint=hint, path=str(self._path)
            ) from error
        reach(ScrubPoint.AFTER_NOTES)


def read_notes(directory: Path | None, archive_id: bytes | None = None) -> Notes | None:
    """What a daemon wrote down; ``None`` if there is nothing, or nothing that can be believed, or of another archive."""
    if directory is None:
        return None
    try:
        return _decode((directory / NOTES_FILE).read_bytes(), archive_id)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _encode(notes: Notes) -> bytes:
    fields: dict[str, Any] = {
        "format": _FORMAT, "archive_id": notes.archive_id.hex(), "listing": asdict(notes.listing),
        "reading": asdict(notes.reading), "more": notes.more, "last": notes.last,
        "findings": [asdict(found) for found in notes.findings.values()],
    }  # fmt: skip
    return encode_line(fields)


def _decode(data: bytes, archive_id: bytes | None) -> Notes | None:
    fields = decode_line(data)
    kept_id = bytes.fromhex(fields["archive_id"])
    if fields["format"] != _FORMAT or archive_id not in (None, kept_id):
        return None
    findings = [DamagedKey(**found) for found in fields["findings"]]
    return Notes(
        kept_id, Pass(**fields["listing"]), Pass(**fields["reading"]), {f.path: f for f in findings}, fields["more"],
        fields.get("last", ""),
    )  # fmt: skip


def figures_of(notes: Notes, now_ms: int, created_ms: int) -> dict[str, int]:
    """What is known, as numbers. Times in ms are 0 for never: when the last walk that came to its end began, and that end."""
    return {
        "damaged_keys": len(notes.findings) + notes.more,
        "oldest_unchecked_seconds": int(notes.unchecked_seconds(now_ms, created_ms)),
        "progress_percent": int(100 * notes.progress()),
        "listed_objects": notes.listing.whole_objects,
        "listed_bytes": notes.listing.whole_bytes,
        "last_listed_ms": notes.listing.whole_began_ms or 0,
        "last_listed_end_ms": notes.listing.ended_ms or 0,
        "last_read_ms": notes.reading.whole_began_ms or 0,
        "last_read_end_ms": notes.reading.ended_ms or 0,
        "skipped_keys": notes.reading.notes.get("skipped", 0),
    }


def said_of_notes(figures: dict[str, int]) -> str:
    """``figures_of`` for people."""
    return (
        f"{figures['damaged_keys']} keys damaged or missing; {figures['progress_percent']} % of a walk over all bytes done; "
        f"no byte unchecked for longer than {duration(1000 * figures['oldest_unchecked_seconds'])}"
    )


SHOWN_FINDINGS = 20
"""So many are in ``/status``; ``tiered scrub`` shows all."""


def shown(notes: Notes, root: str, most: int = SHOWN_FINDINGS) -> list[dict[str, object]]:
    """What is damaged or missing, for programs. ``root``: what stands before every path of the archive."""
    return [
        {
            "what": found.what, "key": root + found.path, "position": found.position, "detail": found.detail,
            "first_seen_ms": found.first_seen_ms, "last_seen_ms": found.last_seen_ms,
        }
        for found in islice(notes.findings.values(), most)
    ]  # fmt: skip
