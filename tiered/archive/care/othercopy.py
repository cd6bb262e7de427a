"""Another copy of the archive, from which scrub and repair mend: opened when it is first asked, and known to be of this one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tiered.archive.log.reader import LogReader
from tiered.archive.read.find import find_identity
from tiered.codec.format.commit import decode_commit, decode_commit_footer
from tiered.codec.format.edits import Commit
from tiered.errors import Corrupt, Denied, Invalid, NotFound, Refused, Unavailable
from tiered.provider.base import Provider
from tiered.provider.wrap import Wrapped


def fitting_commit(
    data: bytes, key: str, archive_id: bytes, seq: int, previous_id: bytes | None, commit_id: bytes | None
) -> Commit:
    """The commit in the bytes that a copy has of it. ``Corrupt`` unless it is whole, of this archive, and fits between its
    neighbours: behind the commit ``previous_id``, and with the id ``commit_id``, as far as they are known."""
    footer, commit = decode_commit_footer(data, key=key), decode_commit(data, key=key)
    found = (len(data), footer.archive_id, footer.seq, footer.previous_id, footer.commit_id)
    if found != (
        footer.length, archive_id, seq, previous_id or footer.previous_id, commit_id or footer.commit_id,
    ):  # fmt: skip
        raise Corrupt("a commit of the copy is not the one that is missing", key=key, expected=commit_id)
    return commit


class OtherCopy:
    """``opens`` opens it. A copy that does not answer, or lets nobody in, is like one that lacks what is asked for
    (``NotFound``): what it cannot give now may lie elsewhere, and no other key waits for it. ``away``: what it said last."""

    def __init__(self, reader: LogReader, opens: Callable[[], Provider]) -> None:
        self.away: NotFound | None = None
        self._reader = reader
        self._opens = opens
        self._opened: Provider | None = None

    def whole(self) -> Provider:
        """The copy. ``Refused`` for an archive that is another one; ``NotFound`` where it is not, or does not answer."""
        if self._opened is None:
            with self.asked():
                self._opened = self._of_this_archive(_Asked(self._opens(), self))
        return self._opened

    @contextmanager
    def asked(self) -> Iterator[None]:
        """Around each request to it."""
        try:
            yield
        except Refused:
            raise
        except (Unavailable, Invalid) as error:
            how = "refuses" if isinstance(error, Denied) else "does not answer"
            self.away = NotFound(f"the copy of the archive {how}: {error.said}")
            raise self.away from error

    def _of_this_archive(self, opened: Provider) -> Provider:
        found, mine = find_identity(opened, self._reader.keys).archive_id, self._reader.identity.archive_id
        if found != mine:
            raise Refused(
                "what scrub.copy_url names is not a copy of this archive",
                hint="name a copy that was made of the archive's own keys", url=opened.url,
                expected=mine.hex(), found=found.hex(),
            )  # fmt: skip
        return opened


class _Asked(Wrapped):
    """The copy's own provider, whose every request is one of ``asked``."""

    def __init__(self, inner: Provider, copy: OtherCopy) -> None:
        super().__init__(inner)
        self._copy = copy

    def around(self) -> AbstractContextManager[None]:
        return self._copy.asked()
