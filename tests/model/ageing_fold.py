"""Histories of an archive that ages, and what each folds to (DESIGN.md, "Ageing").

A history is a tuple of edits, one a commit: ``(kind, what, more)``. Kinds: E OpenEpoch; A AppendRun of one record in the
object ``what``; M ReplaceRuns: records ``more`` = ((record, closing commit or 0, source object), ...) move to the object
``what``; W Rewind: live records from ``what`` on become closed parts; T TrimQueue: records up to ``what`` leave; R Retire of
the keys ``what``, with the floor ``more`` or None; D Deleted of the keys ``what``.

A key is ``(area, epoch, number)``: d data, s a shard, c a checkpoint; ``("i", seq, 0)``
is the inline data of commit ``seq``. A record is its number: the n-th that was ever appended.
"""

from functools import cache
from typing import NamedTuple


class Fold(NamedTuple):
    """What a history adds up to; ``bad``: why the fold refuses its last commit."""

    epoch: int = 0
    live: tuple = ()  # ((record, object), ...)
    closed: tuple = ()  # ((record, closing commit, object), ...)
    trimmed: frozenset = frozenset()
    known: frozenset = frozenset()  # keys of AddObject that no Deleted named
    retired: tuple = ()  # ((key, seq of its Retire), ...)
    floors: tuple = ()  # ((floor, seq of the commit that moved it), ...)
    records: int = 0  # ever appended
    bad: str = ""

    @property
    def refs(self):
        """Objects that live runs or closed parts lie in."""
        return {k for _, k in self.live} | {k for _, _, k in self.closed}

    @property
    def floor(self):
        """Number of the oldest commit that is still needed."""
        return self.floors[-1][0] if self.floors else 0


@cache
def fold(history, lax=frozenset()):
    """The fold of ``history``. ``lax`` names rules that it does not check: ``sources``, ``checkpoint``."""
    if not history:
        return Fold()
    f, seq = fold(history[:-1], lax), len(history) - 1
    kind, what, more = history[-1]
    if kind == "E":
        return f._replace(epoch=f.epoch + 1, bad="")
    if kind in "AM":
        return _refer(f, seq, kind, what, more, lax)
    if kind == "W":
        cut = tuple((r, seq, k) for r, k in f.live if r >= what)
        return f._replace(live=tuple(x for x in f.live if x[0] < what), closed=f.closed + cut)
    if kind == "T":
        live, closed = (tuple(x for x in part if x[0] > what) for part in (f.live, f.closed))
        gone = {x[0] for x in (*f.live, *f.closed)} - {x[0] for x in (*live, *closed)}
        return f._replace(live=live, closed=closed, trimmed=f.trimmed | gone)
    if kind == "R":
        floors = f.floors if more is None else (*f.floors, (more, seq))
        f = f._replace(floors=floors)
        bad = "Retire of a referenced object" if f.refs & set(what) else ""
        if any(k[0] == "c" and k[2] >= f.floor for k in what) and "checkpoint" not in lax:
            bad = "Retire of a checkpoint at or above the floor"
        if set(what) & {k for k, _ in f.retired}:
            bad = "Retire of a retired key"
        return f._replace(retired=f.retired + tuple((k, seq) for k in what), bad=bad)
    bad = "" if set(what) <= {k for k, _ in f.retired} else "Deleted of a key that was not retired"
    left = tuple(x for x in f.retired if x[0] not in what)
    return f._replace(retired=left, known=f.known - set(what), bad=bad)


def _refer(f, seq, kind, key, moves, lax):
    """AddObject, and what lies in it."""
    bad = "reference to a retired object" if key in dict(f.retired) else ""
    bad = "a key is used again" if key in f.known else bad
    if key[0] != "i" and key[1] != f.epoch:
        bad = "a key of another epoch"
    f = f._replace(known=f.known | {key}, bad=bad)
    if kind == "A":
        return f._replace(live=(*f.live, (f.records, key)), records=f.records + 1)
    live, closed = {r: (r, k) for r, k in f.live}, {(r, c): (r, c, k) for r, c, k in f.closed}
    for record, closing, source in moves:
        part, name, old = live, record, (record, source)
        if closing:
            part, name, old = closed, (record, closing), (record, closing, source)
        if part.get(name) != old and "sources" not in lax:
            f = f._replace(bad="a source of a merge is not what it was")
        part[name] = (*old[:-1], key)
    return f._replace(live=tuple(sorted(live.values())), closed=tuple(sorted(closed.values())))


def last_named(history, lax, key):
    """The commit that took the last reference to ``key``; ``None`` if nothing ever referred to it or still does."""
    for n in range(len(history), 0, -1):
        if key in fold(history[:n], lax).refs:
            return n if n < len(history) else None
    return None


def show(key):
    """A key as traces print it."""
    if key[0] == "i":
        return f"the inline data of {key[1]}"
    return f"{key[0]}/{key[1]}-{key[2]}"
