"""Scenarios of the log protocol, without a broker. Name -> (expected violation, maker of the model)."""
# ruff: noqa: N802 (W stands for writer)

from log_protocol import Model


def W(wid, kinds, **k):
    """A writer: id and what it may do (X, A, T, R, F edits, K checkpoint, G delete, M remove commits)."""
    return dict(wid=wid, kinds=kinds, **k)


FOLLOWER = {"follower": True}
S = {}


def scen(name, expect, rules, procs, **k):
    """expect: the violation this scenario must show ('' = none)"""
    S[name] = (expect, lambda: Model(rules, procs, **k))


A = W(0, "X", pre=True, x=1)
Z = W(0, "", pre=True, clean=True)  # only its first put, whenever it wakes
A0 = W(0, "X", x=1)  # not yet started
B = W(1, "XKFM", take_over=True, kmin=3, clean=True)  # frees commits 1 and 2 of 5
B2 = W(1, "XKFM", take_over=True, kmin=2, clean=True)  # frees commit 1 of 4
AG, BG = W(0, "ATRG", pre=True), W(1, "ATRG", take_over=True, clean=True)
# the protocol with the proposed wording
scen("core-small", "", {}, [A0, B2], N=4, greedy=True)
scen("core", "", {}, [A, B], N=5, greedy=True)
scen("core-wait", "", {}, [A, W(1, "XKFM", kmin=3, clean=True)], N=5, greedy=True, lost=0)
scen("same-id", "", {}, [A, W(0, "XKFM", kmin=3, clean=True)], N=5, greedy=True, lost=0)
scen("three", "", {}, [Z, B2, W(2, "", take_over=True, clean=True)], N=4, lost=0, late=0, greedy=True)
scen("follower", "", {}, [Z, B2, FOLLOWER], N=4, lost=0, late=0, greedy=True)
scen("gc", "", {}, [AG, BG], N=6, lost=0, greedy=True)
scen("gc-orphans", "", {"own_epoch_orphans": True, "grace": False}, [AG, BG], N=6, lost=0, greedy=True)
scen(
    "rot",
    "",
    {},
    [W(0, "XKFM", pre=True, kmin=2), W(1, "", take_over=True)],
    N=4,
    rot=1,
    greedy=True,
    lost=0,
    late=0,
)
scen(
    "shards",
    "",
    {},
    [W(0, "K", pre=True), W(1, "XRGK", take_over=True, kmin=3)],
    N=4,
    shards=True,
    crash=1,
    lost=0,
    late=0,
    greedy=True,
)
scen("cache", "", {}, [A, B], N=5, crash=1, cache=True, lost=0, greedy=True)
scen("solo", "", {}, [W(0, "XK", kmin=2)], N=4, crash=1, lost=1, late=1, solo=True, greedy=True)
# mutations: each must fail
scen("mut-counted", "I1/I2/I4", {"counted": False}, [A, B], N=5, greedy=True)
scen("mut-fence", "I4", {"fence": False}, [A, B], N=5, greedy=True)
scen("mut-retire", "I3", {"retire": False}, [AG, BG], N=6, lost=0, greedy=True)
scen(
    "mut-floor",
    "I2",
    {"floor_newest": True},
    [W(0, "XKFM", pre=True, kmin=2), W(1, "", take_over=True)],
    N=4,
    rot=1,
    greedy=True,
    lost=0,
    late=0,
)
scen("mut-404", "I6", {"list_after_404": False}, [Z, B2], N=4, lost=0, late=0, greedy=True)
scen(
    "mut-404-read",
    "I5",
    {"list_after_404": False, "fresh_readers": False},
    [Z, B2, FOLLOWER],
    N=4,
    lost=0,
    late=0,
    greedy=True,
)
scen("mut-window", "I1/I2/I4", {"W": 3, "removal_after_floor": False}, [A, B], N=5, greedy=True)
# the design as first written: each hole, with the rules it hangs on
scen(
    "hole-proof", "I1/I2/I4", {"proof_to_end": False, "removal_after_floor": False}, [A, B], N=5, greedy=True
)
scen(
    "hole-reader",
    "I5",
    {"removal_after_floor": False, "fresh_readers": False},
    [Z, B2, FOLLOWER],
    N=4,
    lost=0,
    late=0,
    greedy=True,
)
scen(
    "hole-corrupt",
    "I8",
    {"removal_after_floor": False, "fresh_readers": False, "restart_on_mismatch": False},
    [Z, B2, W(2, "", take_over=True)],
    N=4,
    lost=0,
)
scen(
    "hole-restart", "I7", {"retry_own": False}, [W(0, "XK", kmin=2)], N=4, crash=1, lost=1, late=1, solo=True
)
scen(
    "hole-ckpt",
    "I2",
    {"usable_ckpt": False},
    [W(0, "K", pre=True), W(1, "XRGK", take_over=True, kmin=3)],
    N=4,
    shards=True,
    crash=1,
    lost=0,
    late=0,
    greedy=True,
)
# is half of a double repair enough? (proof: either half; readers: neither)
scen("half-proof-a", "", {"proof_to_end": False}, [A, B], N=5, greedy=True)
scen("half-proof-b", "", {"removal_after_floor": False}, [A, B], N=5, greedy=True)
A3, B3 = W(0, "X", pre=True, x=2), W(1, "XKFM", take_over=True, kmin=4, x=2, clean=True)
scen("window-2w-old", "I1/I2/I4", {"W": 2, "removal_after_floor": False}, [A3, B3], N=6, late=0, greedy=True)
scen("window-2w", "I1/I2/I4", {"W": 2}, [A3, B3], N=6, late=0, greedy=True)
scen("window-ok", "", {}, [A3, B3], N=6, late=0, greedy=True)
scen("half-reader-a", "I5", {"fresh_readers": False}, [Z, B2, FOLLOWER], N=4, lost=0, late=0, greedy=True)
scen(
    "half-reader-b",
    "I5",
    {"removal_after_floor": False},
    [Z, B2, FOLLOWER],
    N=4,
    lost=0,
    late=0,
    greedy=True,
)
