"""Scenarios of queues that come and go. Name -> (expected violation, maker of the model)."""

from forgetting import Forgetting

S = {}
SHORT = []

A, B = {"kind": "w", "name": "writer A"}, {"kind": "w", "name": "writer B"}
FOLLOWER = {"kind": "f", "name": "follower"}
HOLDER = {"kind": "h", "name": "who names it"}


def scen(name, expect, procs, rules=None, short=True, **k):
    """expect: the violation this scenario must show ('' = none); short: part of the short run"""
    S[name] = (expect, lambda: Forgetting(procs, rules, **k))
    if short:
        SHORT.append(name)


SMALL = (2, 2, 1, 2, 0)
scen("gone", "", [A, FOLLOWER, HOLDER], N=7, budgets=SMALL)
scen("gone-crash", "", [A], N=8, budgets=(2, 2, 1, 3, 1), solo=True)
scen("gone-two", "", [A, B], N=8, budgets=SMALL)
scen("gone-long", "", [A, B, FOLLOWER], N=9, budgets=(3, 2, 1, 3, 0), short=False)
# mutations: each must fail
scen("mut-gone-number", "G1", [A], {"number": False}, budgets=SMALL)
scen("mut-gone-held", "G3", [A, HOLDER], {"number": False, "births": False}, budgets=SMALL)
scen("mut-gone-look", "A6", [A], {"look": False}, budgets=SMALL)
scen("mut-gone-look-lax", "G2", [A], {"look": False, "lax": True}, budgets=SMALL)
scen("mut-gone-highest", "G1", [A], {"highest": False}, N=12, budgets=(3, 3, 0, 2, 0))
scen("mut-gone-closed", "G2", [A], {"closed": False}, budgets=SMALL)
scen("mut-gone-carried", "G4", [A, FOLLOWER], {"carried": False}, budgets=SMALL)
scen("mut-gone-fence", "A6", [A, B], {"fence": False}, budgets=SMALL)
scen("mut-gone-fence-lax", "G2", [A, B], {"fence": False, "lax": True}, budgets=SMALL)
