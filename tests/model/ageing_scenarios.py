"""Scenarios of an archive that ages. Name -> (expected violation, maker of the model)."""

from ageing import Ageing, Opener, Reader
from ageing_checkpoints import Keeper, Shelves

S = {}
SHORT = []
NOTHING = ("T", -1, None)
OPEN = ("E", None, None)


def data(number, epoch=1):
    return ("A", ("d", epoch, number), None)


def inline(seq):
    return ("A", ("i", seq, 0), None)


def writer(can, name="writer A", made=9, records=9, **k):
    """A process that may write. m merges, a appends with an object, i inline, W Rewind, T trims, R retires, G deletes,
    D Deleted, F moves the floor, X removes commits."""
    return {"kind": "w", "can": can, "name": name, "made": made, "records": records, **k}


READER = {"kind": "r", "name": "reader"}
ASOF = {"kind": "r", "name": "reader as of", "asof": True}
TWO = (OPEN, data(0), data(1))
INLINE = (OPEN, inline(1), data(0))
A, B = writer("mWTRGD", made=3), writer("RGD", "writer B")


def scen(name, expect, procs, rules=None, short=True, **k):
    """expect: the violation this scenario must show ('' = none); short: part of the short run"""
    S[name] = (expect, lambda: Ageing(procs, rules, **k))
    if short:
        SHORT.append(name)


SLEEPER = {"kind": "o", "name": "opener", "start": Opener(1)}
LAX = frozenset({"sources"})

# the rules
MOVED = {**READER, "start": Reader("open", 2)}
scen("age-merge", "", [writer("mWTRGD", made=3)], history=TWO, N=8, crash=1, solo=True)
scen("age-two", "", [writer("mTRGD", made=2), B], history=(OPEN, data(0)), N=8, late=1)
scen("age-reader", "", [writer("mTRGD", made=3, again=True), READER], history=(OPEN, data(0)), N=7)
scen("age-inline", "", [writer("mWTRGFX", made=2), ASOF], history=(OPEN, inline(1)), N=8)
scen(
    "age-freed",
    "",
    [writer("mRGD", made=2), writer("mFXRGD", "writer B", made=1, floors=2)],
    history=(OPEN, data(0)),
    N=7,
)
scen("age-sleeper", "", [writer("imTFX", made=2, records=2), MOVED, SLEEPER], history=(OPEN, inline(1)), N=8)
scen("age-flush", "", [writer("aRGD", made=2), B], history=(OPEN, data(0)), N=8, late=1, crash=1)
LONG = {"short": False}
scen("age-two-crash", "", [writer("mTRGD", made=2), B], history=(OPEN, data(0)), N=9, late=1, crash=1, **LONG)
scen(
    "age-two-long",
    "",
    [writer("mWTRGD", made=3), writer("mRGD", "writer B", made=1)],
    history=TWO,
    N=8,
    late=1,
    **LONG,
)
scen(
    "age-two-reader",
    "",
    [writer("mRGD", made=2), writer("mRGD", "writer B", made=1), READER],
    history=(OPEN, data(0)),
    N=9,
    **LONG,
)
scen("age-inline-long", "", [writer("imTRGDFX", made=2, records=2), ASOF], history=INLINE, N=8, **LONG)
# mutations: each must fail
scen("mut-age-stale", "A6", [A], {"settle": False}, history=TWO)
scen("mut-age-settle", "A2", [A], {"settle": False, "lax": LAX}, history=TWO)
scen("mut-age-put", "A1", [A], {"put_first": False}, history=TWO)
scen(
    "mut-age-grace",
    "A3",
    [writer("mRG", made=4, again=True), READER],
    {"grace": False},
    history=(OPEN, data(0)),
)
scen(
    "mut-age-listing",
    "A1",
    [writer("aG", made=3), writer("aG", "writer B")],
    {"by_retire": False},
    history=TWO,
)
scen(
    "mut-age-uncounted",
    "A1",
    [writer("mRG", made=2), writer("FX", "writer B", floors=2)],
    {"counted": False},
    history=(OPEN, data(0)),
)
scen("mut-age-orphans", "A6", [writer("aRGD", made=2)], {"own_epoch": False}, history=(OPEN, data(0)))
scen("mut-age-deleted", "A5", [A], {"deletes_first": False}, history=TWO)
scen("mut-age-inline", "A1", [writer("FX")], {"inline": False}, history=(OPEN, inline(1)))
scen("hole-age-inline", "A3", [writer("TFX"), ASOF], {"inline_grace": False}, history=(OPEN, inline(1)))
scen(
    "mut-age-identity",
    "A3",
    [writer("mFX", made=1), MOVED, SLEEPER],
    {"identity": False},
    history=(OPEN, inline(1)),
)
scen("mut-age-404", "A3", [writer("mRG", made=2), READER], {"looks": False}, history=(OPEN, data(0)))
scen(
    "hole-age-sleep",
    "A3",
    [writer("mRG", made=3, again=True), READER],
    {"proof_age": False},
    history=(OPEN, data(0)),
)


def shelf(name, expect, procs, rules=None, short=True, history=(OPEN, NOTHING, NOTHING), **k):
    """A scenario of checkpoints."""
    S[name] = (expect, lambda: Shelves(procs, rules, history=history, **k))
    if short:
        SHORT.append(name)


def keeper(can="KFRGDX", name="writer A", made=4, commits=4, **k):
    """A process that may save checkpoints."""
    return {"kind": "w", "can": can, "name": name, "made": made, "commits": commits, **k}


LOADER = {"kind": "r", "name": "opener"}
SLEEPY, B_SHELF = keeper("K", made=2), keeper(name="writer B", made=4, commits=4)
# a writer of epoch 1 sleeps over its checkpoint of commit 2; epoch 2 retired the shards; epoch 3 is about to begin
LATE = (("s", 1, 0), ("s", 1, 1))
RETIRED = (OPEN, NOTHING, NOTHING, OPEN, ("R", LATE, None))
FORGOTTEN = (*RETIRED, ("D", LATE, None))  # and deleted them; a delete is still in flight
ASLEEP = {**SLEEPY, "start": Keeper(epoch=1, seen=3, made=2, build=(2, (), LATE))}
THIRD = keeper(name="writer B", made=3, commits=3)
shelf("age-shelf", "", [keeper(commits=4), LOADER], N=9)
shelf("age-shelf-crash", "", [keeper(made=3, commits=3)], N=9, crash=1, solo=True)
shelf("age-shelf-late", "", [SLEEPY, keeper(name="writer B", made=3, commits=3)], N=8)
shelf("mut-age-own", "A4", [SLEEPY, B_SHELF], {"own": False}, N=9)
shelf("mut-age-second", "A4", [keeper()], {"second": False}, N=9)
shelf("mut-age-shared", "A4", [keeper()], {"shared": False}, N=9)
shelf("mut-age-hand", "A4", [keeper()], {"hand": False, "unretired": False}, N=9)
shelf("mut-age-below", "A6", [keeper()], {"below": False}, N=9)
shelf("mut-age-below-lax", "A4", [keeper()], {"below": False, "lax": frozenset({"checkpoint"})}, N=9)
shelf("mut-age-again", "A3", [keeper(), LOADER], {"again": False}, N=9)
shelf("half-age-lent", "", [ASLEEP, THIRD], {"lent": False}, history=RETIRED, store=LATE, N=9)
shelf(
    "mut-age-lent",
    "A4",
    [ASLEEP, THIRD],
    {"lent": False, "unretired": False},
    history=RETIRED,
    store=LATE,
    N=9,
)
shelf("age-shelf-forgets", "", [ASLEEP, THIRD], history=FORGOTTEN, net=LATE[1:], resend=1, N=10, **LONG)
shelf(
    "hole-age-lent", "A4", [ASLEEP, THIRD], {"lent": False}, history=FORGOTTEN, net=LATE[1:], resend=1, N=10
)
shelf("half-age-hand", "", [keeper(made=3, commits=3)], {"hand": False}, N=8)
