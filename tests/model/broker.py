"""The broker's commitlog, what the fold keeps of it, and how a writer compares the two ("Same broker?").

An entry is ``(id, queue, queue offset, start, end)``: a record, or the blank that ends a file (``BLANK``, the same in
every history). Two records with the same position but different ids are different bytes. Content is what commits fold
into; a mark is only its offset here, because its CRC is a function of the entries below it: equal entries, equal CRC.
"""

from functools import cache
from typing import NamedTuple

from history import EXTRA

FILE = 3  # units of a commitlog file
BLANK = -1
FOREIGN = 100  # ids of another broker's records start here


class Content(NamedTuple):
    """The fold of flushes, rewinds, gaps and trims."""

    entries: tuple = ()  # current history, in physical order, blanks included
    progress: int = 0
    marks: tuple = ()  # offsets, ascending
    closed: tuple = ()  # ids of records cut off by a Rewind
    trimmed: tuple = ()  # ids removed by retention, live or closed
    gaps: tuple = ()  # ((start, end), ...) of PhysGap
    objects: tuple = ()  # ((id, object key), ...)
    decided: int = 0  # the broker run under which the newest Rewind was decided


EMPTY = Content()


class Broker(NamedTuple):
    """The broker and its disk. ``log`` is the whole truth of this run, deleted files included."""

    log: tuple = ()
    low: int = 0  # first byte of the oldest file still there
    written: int = 0  # records ever appended, in every history
    mark: int = 1  # lock and abort: another number after every start
    up: bool = True
    crashes: int = 0  # budgets
    deletions: int = 0
    swaps: int = 0
    pasts: tuple = ()  # the log as it was before each crash
    foreign: bool = False

    @property
    def end(self):
        """End of the last entry."""
        return self.log[-1][4] if self.log else self.low


def file_of(offset):
    """First byte of the file that ends at, or holds, the byte before ``offset``."""
    return (offset - 1) // FILE * FILE


def append(broker, queue, size):
    """The broker after its next write: a record, or the blank that rolls the file."""
    at = broker.end
    if at % FILE and at % FILE + size > FILE:
        return broker._replace(log=(*broker.log, (BLANK, BLANK, 0, at, file_of(at) + FILE)))
    ident = broker.written + (FOREIGN if broker.foreign else 0)
    entry = (ident, queue, sum(1 for e in broker.log if e[1] == queue), at, at + size)
    return broker._replace(log=(*broker.log, entry), written=broker.written + 1)


def ids(entries):
    """Ids of the records among ``entries``."""
    return tuple(e[0] for e in entries if e[0] != BLANK)


def live(content):
    """Ids that a reader sees."""
    return tuple(i for i in ids(content.entries) if i not in content.trimmed)


# ---------------------------------------------------------------- fold


def references(content, closed=True):
    """Objects named by live runs and closed parts."""
    keep = {*live(content), *(i for i in content.closed if closed and i not in content.trimmed)}
    return frozenset(key for ident, key in content.objects if ident in keep)


def fold_flush(content, arg, _seq, retired):
    """P: one contiguous physical range, ``Progress`` at its end, a mark there and at each file end passed.

    ``whole``: no file of the broker was deleted yet, so queue offsets must go on without a jump.
    """
    content = content or EMPTY
    mark, added, key, whole = arg
    why = "R4 a flush copied before a Rewind lands after it" if mark < content.decided else None
    at, nexts = content.progress, {e[1]: e[2] + 1 for e in content.entries if e[0] != BLANK}
    known = {*ids(content.entries), *content.closed}
    for ident, queue, number, start, end in added:
        if start != at:
            why = why or "R1 a flush does not start at Progress"
        at = end
        if ident == BLANK:
            continue
        if ident in known:
            why = why or f"R1 record {ident} is archived twice"
        want = nexts.get(queue, 0)
        if number != want and whole:
            why = why or f"R6 queue {queue} goes on at {number}, not {want}"
        nexts[queue] = number + 1
        if ident >= FOREIGN and any(k < FOREIGN for k in known):
            why = why or "R8 a foreign broker's record enters the archive"
    if key and key in retired:
        why = why or "reference to a retired object"
    passed = tuple(o for o in range(content.progress + 1, at) if o % FILE == 0)
    content = content._replace(
        entries=content.entries + added,
        progress=at,
        marks=(*content.marks, *passed, at),
        objects=content.objects + tuple((i, key) for i in ids(added) if key),
    )
    return content, references(content), why


def fold_rewind(content, arg, closes=True, refers=True):
    """W: entries that end above the offset leave the current history and become closed parts."""
    mark, offset = arg
    kept = tuple(e for e in content.entries if e[4] <= offset)
    cut = tuple(i for i in ids(content.entries) if i not in ids(kept))
    why = "R2 Rewind to an offset that is no end of a record" if kept and kept[-1][4] != offset else None
    if offset >= content.progress:
        why = why or "R2 Rewind upwards"
    if not closes and cut:
        why = why or f"R1 record {cut[0]} is neither live nor closed"
    content = content._replace(
        entries=kept,
        progress=offset,
        marks=(*(m for m in content.marks if m < offset), offset),
        closed=content.closed + cut,
        decided=max(mark, content.decided),
    )
    return content, references(content, closed=refers), why


def fold_gap(content, arg):
    """Y: PhysGap from Progress to the offset."""
    content = content or EMPTY
    content = content._replace(progress=arg[1], gaps=(*content.gaps, (content.progress, arg[1])))
    return content, references(content), None


def fold_trim(content, offset):
    """t: retention up to a physical offset (every queue at once); cuts closed parts too, oldest first."""
    gone = tuple(i for i in ids(e for e in content.entries if e[4] <= offset) if i not in content.trimmed)
    content = content._replace(trimmed=content.trimmed + gone)
    return content, references(content), None


EXTRA.update(
    P=fold_flush,
    W=lambda content, arg, *_: fold_rewind(content, arg),
    w=lambda content, arg, *_: fold_rewind(content, arg, refers=False),  # mutation
    v=lambda content, arg, *_: fold_rewind(content, arg, closes=False),  # mutation
    Y=lambda content, arg, *_: fold_gap(content, arg),
    t=lambda content, arg, *_: fold_trim(content, arg),
)


# ---------------------------------------------------------------- the same broker?


class How(NamedTuple):
    """How a writer compares; a scenario may switch each."""

    sizes: bool = False  # mutation: a record of the same position and size counts as the same
    backward: bool = False  # mutation: "the last identical record" is searched from the end
    to_mark: bool = False  # mutation: Rewind to the mark that matched, no record compared
    cut_only: bool = False  # mutation: no Rewind unless it cuts a record
    skip: bool = False  # mutation: no Rewind at all
    unknown_differs: bool = (
        False  # mutation: a mark whose bytes are not all local is a mismatch, a mismatch refuses
    )
    empty_mark: bool = (
        False  # mutation: a mark at a file's end is taken from the next file's first byte: no byte, equal
    )
    record_proof: bool = (
        True  # False = the design as first written: without a matching mark, nothing is shared
    )
    reach: bool = True  # False = as written: local minimum *above* Progress; True: at or above


def same_entry(a, b, how):
    """Whether archived entry ``a`` and local entry ``b`` are the same bytes, as this comparison sees it."""
    return a == b or (how.sizes and a[3:] == b[3:] and BLANK not in (a[0], b[0]))


def shared_mark(content, local, low, end, how):
    """(the newest mark whose bytes are all local and equal, or None; whether a mark was taken for a mismatch)."""
    differs = False
    for offset in reversed(content.marks):
        first = offset if how.empty_mark and offset % FILE == 0 else file_of(offset)
        if first < low or offset > end:
            differs = differs or how.unknown_differs
            continue
        ours = [e for e in content.entries if first <= e[3] < offset]
        theirs = [e for e in local if first <= e[3] < offset]
        if ours == theirs and (ours or how.empty_mark):
            return offset, differs
        differs = True
    return None, differs


def walk(content, local, base, how):
    """Compare from ``base``: (end of the last identical record, end of the last identical entry)."""
    by_start = {e[3]: e for e in local}
    record = at = base
    for entry in content.entries:
        if entry[3] < base:
            continue
        other = by_start.get(entry[3])
        if entry[3] != at or other is None or not same_entry(entry, other, how):
            break
        at = entry[4]
        record = record if entry[0] == BLANK else at
    return record, at


@cache
def compare(content, log, low, how):
    """SAME (None), an offset to rewind to, or "refuse"."""
    content = content or EMPTY
    local = tuple(e for e in log if e[3] >= low)
    end = log[-1][4] if log else low
    if content.progress == 0 or how.skip:
        return None
    base, differs = shared_mark(content, local, low, end, how)
    if base is None:
        if low > content.progress or (how.reach and low == content.progress):
            return "refuse" if differs else None
        first = next((e for e in content.entries if e[3] >= low), None)
        if not how.record_proof or (differs and how.unknown_differs) or first not in local:
            return "refuse"
        base = first[3]
    record, at = walk(content, local, base, how)
    if how.backward:
        record = max((e[4] for e in content.entries if e in local and e[0] != BLANK), default=base)
        at = max(at, record)
    if at == content.progress:
        return None
    if how.to_mark:
        return base
    if how.cut_only and not any(e[3] >= record and e[0] != BLANK for e in content.entries):
        return None
    return record


@cache
def agrees(content, log, low):
    """Whether the current history from ``low`` on is the broker's own up to Progress, gaps apart."""
    content = content or EMPTY
    want = tuple(
        e
        for e in log
        if low <= e[3] and e[4] <= content.progress and not any(a <= e[3] < b for a, b in content.gaps)
    )
    return want == tuple(e for e in content.entries if e[3] >= low)
