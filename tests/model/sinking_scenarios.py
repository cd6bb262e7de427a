"""Scenarios of sinks. Name -> (expected violation, maker of the model)."""

from sinking import Sinking

S = {}
SHORT = []

ONCE, AGAIN = (True, True), (False, True)  # keeps its position, or not; both required


def scen(name, expect, sinks, rules=None, short=True, **k):
    """expect: the violation this scenario must show ('' = none); short: part of the short run"""
    S[name] = (expect, lambda: Sinking(sinks, rules=rules, **k))
    if short:
        SHORT.append(name)


scen("sink-once", "", [ONCE], N=9, budgets=(2, 1, 1, 1))
scen("sink-again", "", [AGAIN], N=9, budgets=(2, 1, 1, 1))
scen("sink-crash", "", [ONCE], N=9, budgets=(2, 1, 0, 2), solo=True)
scen("sink-two", "", [ONCE], N=7, budgets=(2, 1, 1, 0), writers=2)
scen("sink-both", "", [ONCE, AGAIN], N=8, budgets=(2, 0, 1, 0))
# mutations: each must fail
scen("mut-sink-flush", "K1", [ONCE], {"flush": False})
scen("mut-sink-back", "A6", [ONCE], {"back": False})
scen("mut-sink-account", "K1", [ONCE], {"account": False})
scen("mut-sink-tell", "K4", [ONCE], {"tell": False})
scen("mut-sink-reopen", "K1", [ONCE], {"reopen": False})
scen("mut-sink-heard", "K2", [ONCE], {"heard": False})
scen("mut-sink-own", "K2", [ONCE], {"own": False})
scen("mut-sink-map", "A6", [ONCE], {"map": False})
scen("mut-sink-least", "K3", [ONCE, AGAIN], {"least": False}, budgets=(1, 0, 1, 0))
scen("mut-sink-given", "K3", [ONCE], {"given": False})
scen("mut-sink-look", "K3", [ONCE], {"look": False}, N=12)
scen("mut-sink-fence", "A6", [AGAIN], {"fence": False}, writers=2)
scen("mut-sink-shut", "K2", [ONCE], {"shut": False}, writers=2)
