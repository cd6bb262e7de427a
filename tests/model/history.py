"""Commits, the history each one names, and the fold of that history; interned for ever.

A commit is ``(seq, proc, inc, epoch, kind, arg, prev)``. Its index in ``C`` is the commit id, and names the whole
history behind it, so "the same fold" is an equality of two integers. Kinds: E OpenEpoch, X any edit without a meaning
here, A AppendRun naming an object, T TrimQueue, R Retire, F Retire that moves the floor. ``EXTRA`` adds kinds whose
content is folded elsewhere (``broker.py``).
"""

C = [(0, -1, 0, 0, "root", None, -1)]
CID = {C[0]: 0}
CHAIN = [(0,)]
EPOCH = [0]
OWNER = [None]
REFS = [frozenset()]  # objects named by live or closed runs
RETIRED = [()]  # ((key, seq of Retire), ...)
FLOORS = [()]  # ((floor, seq of the commit that moved it), ...)
BAD = [None]  # why the fold refuses this commit
CONTENT = [None]  # what EXTRA kinds fold into
EXTRA = {}  # kind -> fold(content, arg, seq, retired) -> (content, refs, why not)


def commit(*c):
    """The id of commit ``c``, folded on first sight."""
    i = CID.get(c)
    if i is not None:
        return i
    seq, proc, inc, epoch, kind, arg, prev = c
    i = len(C)
    C.append(c)
    CID[c] = i
    refs, ret, fl, own, ep, bad = REFS[prev], RETIRED[prev], FLOORS[prev], OWNER[prev], EPOCH[prev], None
    content = CONTENT[prev]
    if kind == "E":
        if epoch != ep + 1:
            bad = "epoch"
        ep, own = epoch, (proc, inc)
    elif epoch != ep or own != (proc, inc):
        bad = "commit of a superseded epoch"
    if kind == "A":
        if arg in dict(ret):
            bad = "reference to a retired object"
        refs = refs | {arg}
    elif kind == "T":
        refs = refs - {arg}
    elif kind == "R":
        if arg in refs:
            bad = "Retire of a referenced object"
        ret = (*ret, (arg, seq))
    elif kind == "F":
        fl = (*fl, (arg, seq))
    elif kind in EXTRA:
        content, refs, why = EXTRA[kind](content, arg, seq, dict(ret))
        bad = bad or why
    CONTENT.append(content)
    CHAIN.append(CHAIN[prev] + (i,))
    EPOCH.append(ep)
    OWNER.append(own)
    REFS.append(refs)
    RETIRED.append(ret)
    FLOORS.append(fl)
    BAD.append(bad)
    return i


def seqof(c):
    """Number of commit ``c`` in the log."""
    return C[c][0]


def on_chain(f, h):
    """Whether ``f`` is in the history of ``h``."""
    return seqof(f) <= seqof(h) and CHAIN[h][seqof(f)] == f
