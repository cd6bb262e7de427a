"""What the scrub found damaged is left alone: no merge and no seal reads it again and again, no collection deletes it.

Nothing is moved: objects are create-only, and readers refuse bad bytes by themselves. A key leaves the quarantine when a look
finds it sound, or when nothing needs it any more.
"""

from __future__ import annotations

from collections.abc import Collection

from tiered.archive.care.notes import Notebook
from tiered.archive.keys import CommitKey, parse
from tiered.archive.state.view import ArchiveState
from tiered.model import ObjectRef


class Quarantine:
    """The findings of one notebook, as they are when it is asked."""

    def __init__(self, notebook: Notebook) -> None:
        self._book = notebook

    def paths(self) -> Collection[str]:
        """Damaged or missing."""
        return self._book.notes.findings.keys()

    def objects(self, state: ArchiveState) -> frozenset[ObjectRef]:
        """Those of the fold: data objects, and inline data of commits."""
        found = set[ObjectRef]()
        for path in self.paths():
            made, item = parse(path), state.object_at(path)
            if isinstance(made, CommitKey):
                found.update(each.ref for each in state.objects_of(made.seq) if not each.path)
            elif item is not None:
                found.add(item.ref)
        return frozenset(found)
