"""A walk over an archive's keys in their order: the bucket's listing beside what the fold names, and bytes where asked for.

The fold is asked before each page of the listing, so that what it names must be listed. What is not listed, or is damaged,
counts only if the store still says so when it is asked for that very key, and the fold as it is then still needs it: listings
may lag, and a writer may be at work.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain

from tiered.archive.care.loose import LooseChecks
from tiered.archive.care.opening import check_keys
from tiered.archive.keys import Area, CommitKey, IdentityKey, ObjectKey, build, parse
from tiered.archive.log.reader import LogReader
from tiered.archive.log.standin import stand_in
from tiered.archive.read.besides import is_needed, needs_path
from tiered.archive.read.content import ContentCheck
from tiered.archive.read.held import Range, all_of
from tiered.archive.read.runs import is_segment
from tiered.archive.state.values import Head, ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.codec.checksum import crc32c
from tiered.codec.format.commit import COMMIT_FOOTER_BYTES, decode_commit, decode_commit_footer
from tiered.errors import Corrupt, NotFound, Refused, TieredError, damage_hint
from tiered.provider.base import Stored

PAGE_KEYS = 1000
"""Keys of one listing; so many are in memory."""
UNREADABLE = "an object cannot be read, while the store gives others"
MESSAGES_GONE = "the messages inside a commit are gone, and a repair stands for the rest of it"

Wanted = Callable[[str, Stored, int | None], bool]
"""Whether all bytes of a path are to be read. The number is that of the commit that added it, ``None`` if no commit did."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What one step of a walk saw. ``done``: nothing of this path is left to look at. ``bytes``: read; ``length``: stored.

    ``note``: why it was not compared with anything: ``unknown``, ``foreign``, ``unneeded``, ``skipped``, ``late`` to be listed.
    """

    path: str
    bytes: int = 0
    length: int = 0
    done: bool = True
    read: bool = False
    note: str | None = None
    damage: Corrupt | NotFound | None = None


class Walk:
    """``state``: the fold as it is now. ``spend`` hears of bytes before they are asked for; ``wanted`` says what is read, and
    ``ahead`` how many requests of one object are under way at once; ``spend`` is then called by several threads. ``damaged``:
    paths that are known to be; checkpoints among them are not asked what they name."""

    def __init__(
        self,
        reader: LogReader,
        state: Callable[[], ArchiveState],
        spend: Callable[[int], None],
        wanted: Wanted,
        *,
        ahead: int = 1,
        damaged: Callable[[], Container[str]] = tuple,
    ) -> None:
        self._reader = reader
        self._keys = reader.keys
        self._state = state
        self._wanted = wanted
        self._contents = ContentCheck(
            reader.provider, reader.keys, reader.identity.archive_id, records=False, spend=spend, ahead=ahead
        )
        self._loose = LooseChecks(reader, spend, damaged)
        self._reads_segments = find_spec("pyarrow") is not None
        self._before: tuple[int, bytes] | None = None  # the commit that was read last, and its id
        self.at: str | None = None
        """The path that is looked at; ``None`` between two pages."""

    def steps(self, after: str) -> Iterator[Seen]:
        """Look at everything behind the path ``after``; "" for all."""
        try:
            if not after:
                check_keys(self._reader, self._state().head())
            yield from self._pages(after)
        finally:
            self._contents.end()

    def _pages(self, after: str) -> Iterator[Seen]:
        while True:
            fold = self._state()
            head = fold.head()  # what is added while the page is listed and looked at need not be on it
            start, self.at = self._keys.key(after) if after else None, None
            page = list(self._reader.provider.list(self._keys.root, start_after=start, limit=PAGE_KEYS))
            end = str(self._keys.path(page[-1].key)) if len(page) == PAGE_KEYS else None
            yield from self._page(page, self._expected(fold, head, after, end))
            if end is None:
                return
            after = end

    def _page(self, page: list[Stored], expected: Iterator[str]) -> Iterator[Seen]:
        self._contents.expect(chain.from_iterable(map(self._first_range, page)))
        want = next(expected, None)
        for stored in page:
            path = str(self._keys.path(stored.key))
            while want is not None and want.encode() < path.encode():
                yield self._missing(want)
                want = next(expected, None)
            if want == path:
                want = next(expected, None)
            self.at = path
            yield from self._one(path, stored)
        while want is not None:
            yield self._missing(want)
            want = next(expected, None)

    def _expected(self, fold: ArchiveState, head: Head | None, after: str, end: str | None) -> Iterator[str]:
        """Paths behind ``after`` up to ``end`` that commits up to ``head`` say must be there, ascending."""
        if head is None:
            return iter(())
        every = range(head.seq + 1)
        low = bisect_right(every, after, key=_commit_path)
        high = len(every) if end is None else bisect_right(every, end, key=_commit_path)
        paths = chain(
            (build(IdentityKey()),),
            map(_commit_path, fold.inline_needed(low, min(high, head.floor))),
            map(_commit_path, every[max(low, head.floor) : high]),
            fold.needed_paths(f"{Area.DATA.value}/", after, head.seq),
            fold.needed_paths(f"{Area.SEGMENT.value}/", after, head.seq),
            self._loose.shard_paths(fold, end),
        )
        return (path for path in paths if after < path and (end is None or path <= end))

    def _missing(self, path: str) -> Seen:
        """A path that was not listed: damage only if it is not there, and still needed."""
        self.at = path
        try:
            stored = self._reader.provider.head(self._keys.key(path))
            return Seen(path, length=stored.length, note="late")
        except NotFound:
            pass
        made, what = parse(path), "an object of the archive is not there"
        if isinstance(made, CommitKey):
            what = "a commit is missing from the log"
            if stand_in(self._reader, made.seq) is not None:
                if not self._holds_messages(made.seq):
                    return Seen(path)
                what = MESSAGES_GONE
        if not self._needed(path):
            return Seen(path, note="unneeded")
        key = self._keys.key(path)
        return Seen(path, damage=NotFound(what, hint=damage_hint({"key": key}), key=key))

    def _needed(self, path: str) -> bool:
        """Whether the fold, as it is now, still needs a path."""
        return needs_path(self._state(), path)

    def _one(self, path: str, stored: Stored) -> Iterator[Seen]:
        """A path that was listed."""
        match parse(path):
            case CommitKey(seq):
                yield self._commit(path, stored, seq)
            case ObjectKey(Area.DATA | Area.SEGMENT):
                yield from self._object(path, stored)
            case made:
                yield self._loose_one(path, stored, made)

    def _object(self, path: str, stored: Stored) -> Iterator[Seen]:
        item = self._state().object_at(path)
        if item is None:
            yield self._loose_one(path, stored, parse(path))
            return
        if not is_needed(item):
            yield Seen(path, length=stored.length, note="unneeded")
            return
        if stored.length != item.length:
            error = Corrupt(
                "an object is not as long as the fold says",
                key=stored.key, expected=item.length, found=stored.length,
            )  # fmt: skip
            yield self._verdict(path, stored, error)
            return
        if not self._wanted(path, stored, item.ref.commit_seq):
            yield Seen(path, length=stored.length)
            return
        if not self._is_readable(item):
            yield Seen(path, length=stored.length, note="skipped")
            return
        yield from self._contents_of(item, path, stored)

    def _is_readable(self, item: ObjectState) -> bool:
        return self._reads_segments or not is_segment(item)

    def _first_range(self, stored: Stored) -> Iterator[Range]:
        """What will be asked for first of a path that was listed, if it will be read for the fold's sake."""
        path = str(self._keys.path(stored.key))
        match parse(path):
            case CommitKey(seq):
                if self._wanted(path, stored, seq):
                    yield all_of(stored.key, stored.length)
            case ObjectKey(Area.DATA | Area.SEGMENT):
                item = self._state().object_at(path)
                if item is None or not is_needed(item) or stored.length != item.length:
                    return
                if self._wanted(path, stored, item.ref.commit_seq) and self._is_readable(item):
                    yield self._contents.first_range(item)

    def _contents_of(self, item: ObjectState, path: str, stored: Stored) -> Iterator[Seen]:
        first: Corrupt | NotFound | None = None
        for looked in self._contents.steps(item):
            first = first or looked.damage
            if looked.bytes:
                yield Seen(path, looked.bytes, done=False)
        yield self._verdict(path, stored, first, read=True)

    def _verdict(
        self,
        path: str,
        stored: Stored,
        damage: Corrupt | NotFound | None,
        *,
        read: bool = False,
        read_bytes: int = 0,
    ) -> Seen:
        if damage is not None and not self._needed(path):
            return Seen(path, read_bytes, stored.length, note="unneeded")
        return Seen(path, read_bytes, stored.length, read=read, damage=damage)

    def _commit(self, path: str, stored: Stored, seq: int) -> Seen:
        """A commit: all its bytes by its own footer, its place in the chain, and its inline data where runs lie in it."""
        if not self._wanted(path, stored, seq):
            if stored.length >= COMMIT_FOOTER_BYTES:
                return Seen(path, length=stored.length)
            mended = stand_in(self._reader, seq) is not None
            if mended and not self._holds_messages(seq):
                return Seen(path, length=stored.length)
            short = Corrupt(
                MESSAGES_GONE if mended else "a commit is too short",
                key=stored.key, expected=COMMIT_FOOTER_BYTES, found=stored.length,
            )  # fmt: skip
            return self._verdict(path, stored, short)
        damage: Corrupt | NotFound | None = None
        inline_sound = False
        try:
            inline_sound = self._commit_bytes(stored, seq)
        except (Corrupt, NotFound) as error:
            found = stand_in(self._reader, seq)
            self._before = None if found is None else (seq, found.commit.commit_id)
            damage = None if found is not None else error
        if not inline_sound and damage is None:
            damage = self._inline_damage(seq)
        return self._verdict(path, stored, damage, read=True, read_bytes=stored.length)

    def _commit_bytes(self, stored: Stored, seq: int) -> bool:
        """Compare everything but the inline data; whether that is what the footer says. ``Corrupt``."""
        data, key = self._contents.read(all_of(stored.key, stored.length)), stored.key
        footer = decode_commit_footer(data, key=key)
        if len(data) != footer.length:
            raise Corrupt(
                "a commit is not as long as its footer says", key=key, expected=footer.length, found=len(data)
            )
        if (footer.seq, footer.archive_id) != (seq, self._reader.identity.archive_id):
            raise Corrupt("a commit is stored under another's key", key=key, expected=seq, found=footer.seq)
        before, self._before = self._before, (seq, footer.commit_id)
        if before is not None and before[0] == seq - 1 and before[1] != footer.previous_id:
            raise Corrupt("a commit does not name the one before it", key=key, expected=before[1].hex())
        decode_commit(data[footer.inline_length :], key=key)
        return crc32c(data[: footer.inline_length]) == footer.inline_crc32c

    def _holds_messages(self, seq: int) -> bool:
        """Whether runs lie in the data inside a commit: what stands for the commit does not have it."""
        return next(self._state().inline_needed(seq, seq + 1), None) is not None

    def _inline_damage(self, seq: int) -> Corrupt | NotFound | None:
        """What is wrong with data inside a commit that runs lie in."""
        for item in self._state().objects_of(seq):
            if not item.path and is_needed(item):
                for looked in self._contents.steps(item):
                    if looked.damage is not None:
                        return looked.damage
        return None

    def _loose_one(self, path: str, stored: Stored, made: object) -> Seen:
        """What no run lies in: identity, checkpoints, shards, holds, repairs, and what no commit names."""
        if not self._loose.knows(made):
            return Seen(path, length=stored.length, note="foreign" if made is None else "skipped")
        named = (Area.SHARD, Area.DATAKEY)
        note = "unknown" if isinstance(made, ObjectKey) and made.area not in named else None
        is_key = isinstance(made, ObjectKey) and made.area is Area.DATAKEY  # small, and all depends on it
        if not is_key and not self._wanted(path, stored, None):
            return Seen(path, length=stored.length, note=note)
        try:
            self._loose.check(made, path, stored, self._state())
        except (Corrupt, NotFound) as error:
            return self._loose_verdict(path, stored, error, note)
        return Seen(path, stored.length, stored.length, read=True, note=note)

    def _loose_verdict(self, path: str, stored: Stored, error: Corrupt | NotFound, note: str | None) -> Seen:
        if isinstance(error, NotFound) or self._state().is_retired(path):  # deleted meanwhile, by law
            return Seen(path, stored.length, stored.length, note="unneeded")
        return Seen(path, stored.length, stored.length, read=True, note=note, damage=error)


def unreadable(reader: LogReader, path: str, error: TieredError) -> Corrupt | None:
    """What to list of a path that the store does not give, while it gives others; ``None`` if the error is of something else.
    The store's own error if it gives nothing."""
    key = reader.keys.key(path)
    if error.fields.get("key") != key or isinstance(error, Refused):
        return None
    reader.provider.get(reader.keys.identity, 0, 1)
    return Corrupt(UNREADABLE, key=key, found=error.said)


def _commit_path(seq: int) -> str:
    return build(CommitKey(seq))


def said_of(error: TieredError) -> str:
    """The fields of an error, for a list whose other columns tell the rest."""
    return ", ".join(
        f"{name}={value}" for name, value in error.fields.items() if name not in ("key", "position")
    )
