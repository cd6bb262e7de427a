"""The writer's word: what a beat says of the log, so that its newest commits cannot be lost in silence.

Later commits and checkpoints name what lies before them; nothing names the newest commits but what their writer put beside the
log after them. A word is believed only where the commits that it speaks of are not there, and only of the history in which it
was said: an epoch's number is used again where a bucket lost all of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from tiered.archive.keys import BEAT_PREFIX, BeatKey, parse
from tiered.archive.log.marks import Mark
from tiered.archive.state.values import Head
from tiered.codec.format.edits import Commit, EditKind
from tiered.codec.summedline import decode_line, encode_line
from tiered.errors import Corrupt, NotFound
from tiered.model import Progress
from tiered.version import FORMAT_VERSION

if TYPE_CHECKING:
    from tiered.archive.log.reader import LogReader

MOST_BEATS = 1000
"""Beats that are listed: one page. There is one, and few where they are not deleted."""
_MAX_BYTES = 4096
_ID_BYTES = 16
_MOST = 1 << 63


@dataclass(frozen=True, slots=True)
class Word:
    """That commit ``seq``, and all before it, were in the log, and how far the broker's log was archived then. ``epoch_seq``,
    ``opened_ms`` and ``writer_id`` tell the epoch from another one with its number."""

    key: str = field(compare=False)
    epoch: int
    seq: int
    commit_id: bytes
    writer_id: bytes
    epoch_seq: int
    opened_ms: int
    progress: Progress | None

    def following(self, archive_id: bytes) -> Commit:
        """What a next commit would say of those before it: one that moves the log no further."""
        edits = [] if self.progress is None else [Mark.of(self.progress).progress(self.progress.lineage)]
        return Commit(
            seq=self.seq + 1, epoch=self.epoch, archive_id=archive_id, commit_id=bytes(_ID_BYTES),
            previous_id=self.commit_id, writer_id=self.writer_id, edits=edits, inline_length=0,
        )  # fmt: skip


def encode_word(head: Head, written_ms: int) -> bytes:
    """What a beat says behind ``head``, which is proven."""
    reached = head.progress.get(head.lineage)
    at = {} if reached is None else asdict(reached)
    return encode_line(
        {
            "format": FORMAT_VERSION, "host": head.host, "written_ms": written_ms, "archive_id": head.archive_id.hex(),
            "seq": head.seq, "commit_id": head.commit_id.hex(), "writer_id": head.writer_id.hex(),
            "epoch_seq": head.epoch_seq, "opened_ms": head.epoch_store_time_ms, **at,
        }
    )  # fmt: skip


def word_behind(reader: LogReader, last: int) -> Word | None:
    """What the last writer said of commits behind ``last``, the last that is there (-1: none is); ``None`` if it said nothing,
    or said it in another history. One listing, and a request for the beat that it names."""
    word = _last_word(reader)
    return word if word is not None and word.seq > last and _is_of_this_log(reader, word, last) else None


def remove_words(reader: LogReader, epoch: int) -> None:
    """Remove what was said in ``epoch`` or later ones: their commits were lost, and their numbers are used again."""
    after = reader.keys.beat(epoch, 0)
    for stored in list(
        reader.provider.list(reader.keys.key(BEAT_PREFIX), start_after=after, limit=MOST_BEATS)
    ):
        reader.provider.delete(stored.key)


def _last_word(reader: LogReader) -> Word | None:
    for _ in range(2):  # a living writer removes one beat when it puts the next
        keys = [s.key for s in reader.provider.list(reader.keys.key(BEAT_PREFIX), limit=MOST_BEATS)]
        if not keys:
            return None
        with suppress(NotFound):
            return _read(reader, keys[-1])
    return None


def _read(reader: LogReader, key: str) -> Word | None:
    """What a beat says; ``None`` of one that an older program put, or that cannot be read: beats prove nothing."""
    made = parse(reader.keys.path(key) or "")
    with suppress(ValueError, KeyError, TypeError):
        fields = decode_line(bytes(reader.provider.get(key, 0, _MAX_BYTES).data))
        if isinstance(made, BeatKey) and _id(fields, "archive_id") == reader.identity.archive_id:
            return Word(
                key, made.epoch, _number(fields, "seq"), _id(fields, "commit_id"), _id(fields, "writer_id"),
                _number(fields, "epoch_seq"), _number(fields, "opened_ms"), _progress(fields),
            )  # fmt: skip
    return None


def _is_of_this_log(reader: LogReader, word: Word, last: int) -> bool:
    """Whether the log up to ``last`` is one that ``word`` may have been said of."""
    if last < 0:
        return True
    with suppress(Corrupt):  # which the log's readers meet
        newest = reader.read(last)
        if newest is not None and newest.commit.epoch != word.epoch:
            return newest.commit.epoch < word.epoch
        if newest is not None and word.epoch_seq > last:  # that opening is lost: the epoch has another
            return False
        opening = reader.read(word.epoch_seq)
        if opening is not None:
            times = [e.row(0)["store_time_ms"] for e in opening.commit.edits if e.kind is EditKind.OPEN_EPOCH]
            return opening.commit.writer_id == word.writer_id and times == [word.opened_ms]
    return True


def _progress(fields: Mapping[str, Any]) -> Progress | None:
    if "physical_offset" not in fields:
        return None
    return Progress(
        *(_number(fields, name) for name in ("lineage", "physical_offset", "mark_crc", "crc_from"))
    )


def _number(fields: Mapping[str, Any], name: str) -> int:
    value = fields[name]
    if not isinstance(value, int) or not 0 <= value < _MOST:
        raise ValueError(name)
    return value


def _id(fields: Mapping[str, Any], name: str) -> bytes:
    value = bytes.fromhex(fields[name])
    if len(value) != _ID_BYTES:
        raise ValueError(name)
    return value
