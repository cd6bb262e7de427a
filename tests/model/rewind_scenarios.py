"""Scenarios of ``Rewind``. Name -> (expected violation, maker of the model)."""

from rewind import RewindModel

S = {}
SHORT = []
R4 = [(0, 1), (1, 1), (0, 1), (1, 1)]  # (queue, size) of each record the broker ever writes
R5 = [*R4, (0, 1)]
R3 = R4[:3]
APART = [(0, 1), (1, 1), (2, 1), (3, 1)]  # every record in a queue of its own
ROLL = [(0, 1), (1, 1), (0, 2), (1, 1)]  # the third does not fit: a blank ends the file


def writer(wid=0, kinds="", **k):
    """A writer; it never waits, because there is no clock."""
    return {"wid": wid, "kinds": kinds, "take_over": True, **k}


WRITTEN = {"record_proof": False, "reach": False}
A, B = writer(), writer(1, clean=True)


def scen(name, expect, shapes, procs=(A,), short=True, **k):
    """expect: the violation this scenario must show ('' = none); short: part of the short run"""
    kw = {"N": 6, "lost": 0, "late": 0, "crash": 0, "solo": len(procs) == 1, **k}
    S[name] = (expect, lambda: RewindModel(list(procs), shapes, **kw))
    if short:
        SHORT.append(name)


# the rules as proposed
scen("rewind", "", R4, lost=1, late=1)
scen("rewind-crash", "", R3, lost=1, late=1, crash=1)
scen("rewind-long", "", R5, lost=1, late=1, crash=1, N=7, short=False)
scen("rewind-roll", "", ROLL, crash=1)
scen("rewind-roll-late", "", ROLL, late=1, crash=1, short=False)
scen("rewind-twice", "", R4, crashes=2, N=7)
scen("rewind-twice-late", "", R4, crashes=2, N=7, late=1, crash=1, short=False)
scen("rewind-old-files", "", R5, deletions=1, crash=1)
scen("rewind-foreign", "", R4, swaps=1, late=1)
scen("rewind-takeover", "", R3, [A, B], late=1, N=6)
scen("rewind-takeover-long", "", R4, [A, B], lost=1, late=1, short=False)
scen("rewind-gc", "", R3, [writer(kinds="t")], objects=True, durable=1, N=7, late=1)
scen("rewind-gc-crash", "", R3, [writer(kinds="t")], objects=True, durable=1, N=7, crash=1, short=False)
scen(
    "rewind-gc-two",
    "",
    R4[:2],
    [writer(kinds="t"), writer(1, "t", clean=True)],
    objects=True,
    durable=1,
    short=False,
)
# mutations: each must fail
scen("mut-rw-skip", "R2", R4, how={"skip": True})
scen("mut-rw-sizes", "R2", R4, how={"sizes": True})
scen("mut-rw-backward", "R2", APART, how={"backward": True}, rules={"recheck": False, "mixtures": False})
scen("mut-rw-to-mark", "R1", R4, how={"to_mark": True})
scen("mut-rw-cut-only", "R2", ROLL, how={"cut_only": True})
scen("mut-rw-unknown", "R7", R5, how={"unknown_differs": True})
scen("mut-rw-unknown-old", "R7", R5, how={"unknown_differs": True}, deletions=1, crashes=0, crash=1)
scen("mut-rw-empty-mark", "R2", ROLL, how={"empty_mark": True})
scen("mut-rw-empty-foreign", "R8", [*ROLL, (0, 1)], how={"empty_mark": True}, swaps=1)
scen("mut-rw-look-last", "R2", R4, rules={"look_first": False})
scen("mut-rw-held", "R2", R4, rules={"own_dir": False})
scen("mut-rw-keep-links", "R2", R4, rules={"relink": False})
scen("mut-rw-no-recheck", "R6", R4, rules={"recheck": False})
scen("mut-rw-mixed-twice", "R1", APART, rules={"recheck": False, "mixtures": False})
scen("mut-rw-old-copy", "R4", R4, rules={"drop_plan": False})
scen("mut-rw-give-up", "I7", R4, rules={"one_in_flight": False}, late=1)
scen("mut-rw-early", "R2", R4, rules={"verdict_last": False}, late=1, crash=1)
scen("mut-rw-unref", "R3", R4, [writer(kinds="t")], objects=True, durable=1, N=8, rules={"rewind": "w"})
scen("mut-rw-forget", "R1", R4, rules={"rewind": "v"})
# the design as first written: safe (nothing wrong becomes live), but the archive's own broker can be refused
scen("written-rw", "", R5, how=WRITTEN, rules={"refusals": False}, deletions=1)
scen("hole-rw-no-mark", "R7", R4, how={"record_proof": False})
scen("hole-rw-minimum", "R7", R5, how={"reach": False}, deletions=1, crashes=0, crash=1)
# no comparison can see what is no longer there
scen("limit-rw-foreign", "R8", R5, how=WRITTEN, swaps=1, deletions=1, crashes=0)
scen("limit-rw-deleted", "R2", R5, deletions=1, rules={"visible": False})
