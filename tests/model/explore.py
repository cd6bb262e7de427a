"""Breadth-first search over every interleaving of a model; a counterexample is a shortest one.

A model has ``init() -> state``, ``succ(state)`` yielding ``(label, function -> next state)``, where the function
may raise ``Violation``, and ``goal(state)`` for ``progress``. Items 0 and 4 of a state are integers; the others
are interned, so that a visited state costs one small tuple.
"""

import itertools
import time
from collections import deque


class Violation(Exception):
    """An invariant does not hold; the first word names it."""


def explore(model, want=None, edges=None, seconds=None):
    """Visit every state, up to the first violation whose first word is ``want`` (the others are noted and passed).

    Returns (violations by first word, states, transitions, complete, seconds). ``edges`` collects predecessors.
    """
    t0 = time.time()
    tabs, rev = {}, []

    def enc(s):
        out = [s[0], s[4]]
        for x in s[1:4] + s[5:]:
            j = tabs.get(x)
            if j is None:
                j = tabs[x] = len(rev)
                rev.append(x)
            out.append(j)
        return tuple(out)

    def dec(e):
        a = [rev[j] for j in e[2:]]
        return (e[0], a[0], a[1], a[2], e[1], *a[3:])

    s0 = enc(model.init())
    parent = {s0: None}
    q = deque([s0])
    found, trans, full = {}, 0, True
    while q:
        e = q.popleft()
        for label, fn in model.succ(dec(e)):
            trans += 1
            try:
                e2 = enc(fn())
            except Violation as v:
                k = str(v).split()[0]
                if k not in found:
                    found[k] = (str(v), [*trace(model, parent, dec, e), f"{label}   *** {v}"])
                    if want is None or k == want:
                        return found, len(parent), trans, False, time.time() - t0
                continue
            if edges is not None:
                edges.setdefault(e2, set()).add(e)
            if e2 not in parent:
                parent[e2] = e
                q.append(e2)
        if seconds and time.time() - t0 > seconds:
            full = False
            break
    model.dec, model.parent = dec, parent
    return found, len(parent), trans, full, time.time() - t0


def trace(model, parent, dec, e):
    """The labels on the way to ``e``."""
    path = []
    while e is not None:
        path.append(e)
        e = parent[e]
    path.reverse()
    out = []
    for a, b in itertools.pairwise(path):
        sb = dec(b)
        for label, fn in model.succ(dec(a)):
            try:
                if fn() == sb:
                    out.append(label)
                    break
            except Violation:
                pass
    return out


def progress(model, seconds=None):
    """``explore``, and from every state some path leads to a goal; else ``I7``."""
    t0 = time.time()
    edges = {}
    found, n, trans, full, _ = explore(model, edges=edges, seconds=seconds)
    if found or not full:
        return found, n, trans, full, time.time() - t0
    goal = {e for e in model.parent if model.goal(model.dec(e))}
    todo = list(goal)
    while todo:
        for x in edges.get(todo.pop(), ()):
            if x not in goal:
                goal.add(x)
                todo.append(x)
    stuck = next((e for e in model.parent if e not in goal), None)
    if stuck is not None:
        why = f"I7 {n - len(goal)} states from which no progress is possible"
        found["I7"] = (why, [*trace(model, model.parent, model.dec, stuck), f"*** {why}"])
    return found, n, trans, full, time.time() - t0
