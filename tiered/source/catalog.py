"""Which files can be read now: the broker's own, and held ones where the broker has none. Safe from any thread.

While a directory of the broker is away, what could be read before is read from the hold, and nothing else is believed.
"""

from __future__ import annotations

import threading

from tiered.errors import NotFound, Unavailable
from tiered.model import PhysicalOffset
from tiered.source.descriptors import Descriptors
from tiered.source.files import BrokerFiles, FileTable, LogFile
from tiered.source.hold import HardLinkHold


class Catalog:
    """Joins the broker's files and the hold's, and closes descriptors of files that are in neither."""

    def __init__(self, files: BrokerFiles, links: HardLinkHold, descriptors: Descriptors) -> None:
        self._files = files
        self._links = links
        self._descriptors = descriptors
        self._lock = threading.RLock()
        self._table: FileTable | None = None
        self._own_identity: dict[int, tuple[int, int]] = {}
        self._disowned: set[tuple[int, int]] = set()
        self._readable: set[tuple[int, int]] = set()
        self._returns = 0

    def table(self, *, force: bool = False) -> FileTable:
        """Every readable file; ``force`` looks at the directories whatever their change time says."""
        with self._lock:
            changed = self._files.refresh(force=force)
            if self._returns != self._files.returns:
                self._returns = self._files.returns
                self._links.look_again()
            if changed or self._table is None:
                self._table = self._join()
            return self._table

    def own(self, *, force: bool = False) -> FileTable:
        """The broker's own files only. ``Unavailable`` while a directory is away: nothing can be told from what is left."""
        with self._lock:
            self.table(force=force)
            away = self._files.away
            if away is not None:
                raise Unavailable(
                    "the broker's own files cannot be looked at now",
                    hint=away.hint,
                    **away.fields,
                    found=away.message,
                )
            return self._files.table

    @property
    def away(self) -> NotFound | None:
        """What is missing while a directory of the broker is away, as of the last look."""
        return self._files.away

    @property
    def returns(self) -> int:
        """How often directories that were away came back."""
        return self._files.returns

    @property
    def oldest_own(self) -> LogFile | None:
        """The broker's oldest file, as of the last look."""
        files = self._files.table.files
        return files[0] if files else None

    @property
    def file_bytes(self) -> int:
        """How long each of the broker's files is; 0 before one is known."""
        return self._files.size

    @property
    def growing(self) -> tuple[LogFile, ...]:
        """Files that the broker is creating."""
        return self._files.growing

    def hold(self) -> None:
        """Link the broker's files that are not linked, then enforce the budget."""
        with self._lock:
            before = self._table
            table = self.table()
            linked = went = False
            try:
                linked = self._links.link(self._files.table.files)
            finally:  # a full disk, where no link can be made, is just when something must be let go
                went = self._links.enforce(changed=linked or table is not before, forget=self._forget)
                if linked or went:
                    self._table = self._join()

    def release(self, up_to: PhysicalOffset) -> None:
        """Let go of links of files wholly below ``up_to``."""
        with self._lock:
            if self._links.release(up_to):
                self._table = None

    def disown(self) -> None:
        """Read no held file any more that is not the broker's own now. The links stay."""
        with self._lock:
            own = {file.identity for file in self.own(force=True).files}
            self._disowned.update(f.identity for f in self._links.files() if f.identity not in own)
            self._table = None

    def held_bytes(self) -> int:
        """Bytes that only the hold keeps alive."""
        with self._lock:
            return self._links.held_bytes()

    def held_files(self) -> tuple[LogFile, ...]:
        """Every link."""
        with self._lock:
            return self._links.files()

    def _forget(self, file: LogFile) -> None:
        self._descriptors.drop(file.identity)

    def _join(self) -> FileTable:
        """A held file that ends above the broker's newest is from a log the broker no longer has (reinstalled, or cut): it must
        not be taken for what comes next."""
        if self._files.away is not None:
            return self._join_without_a_directory()
        own, growing = self._files.table, self._files.growing
        self._own_identity.update((f.base, f.identity) for f in own.files)
        present = {f.base for f in (*own.files, *growing)}
        newest = max(present, default=None)
        chosen: dict[int, LogFile] = {}
        links = tuple(file.as_long_as(self._files.size) for file in self._links.files())
        self._disowned &= {file.identity for file in links}  # an inode that was let go may be used again
        for file in links:
            if file.base in present or (newest is not None and file.end > newest):
                continue
            if file.identity in self._disowned:
                continue
            other = chosen.get(file.base)
            if other is None or self._rank(file) > self._rank(other):
                chosen[file.base] = file
        held: list[LogFile] = []
        for base in sorted(chosen):
            overlaps = own.at(base) is not None or (held and base < held[-1].end)
            if not overlaps:
                held.append(chosen[base])
        table = FileTable((*own.files, *held))
        for base in [b for b in self._own_identity if table.at(b) is None]:
            del self._own_identity[base]
        self._readable = {file.identity for file in table.files}
        self._descriptors.retain({f.identity for f in (*table.files, *self._links.files())})
        return table

    def _join_without_a_directory(self) -> FileTable:
        """What the other directories have, and held links of exactly those files that could be read when all was there."""
        own = self._files.table
        present = {file.base for file in own.files}
        held = [f for f in self._links.files() if f.identity in self._readable and f.base not in present]
        return FileTable((*own.files, *(file.as_long_as(self._files.size) for file in held)))

    def _rank(self, file: LogFile) -> tuple[bool, int]:
        """Of several held files of one base: the one the broker had last, else the one written last."""
        return self._own_identity.get(file.base) == file.identity, file.changed_ns
