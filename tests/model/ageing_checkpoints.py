"""Checkpoints that are retired while others sleep over theirs: floor, shards, manifests (DESIGN.md, "Ageing", K and C).

The same state as ``ageing.py``. A manifest in the store is ``("c", 0, seq, epoch, shards)``; the log names it by the first
three. A checkpoint has two shards: one that is new, and one that did not change since the checkpoint that lends it.
"""
# ruff: noqa: C901 (a step relation reads best as one table)

from typing import NamedTuple

from ageing import Ageing
from ageing_writer import COMMITS, FAULTS, HISTORY, NET, PROCS, STORE
from explore import Violation

RULES = {
    "own": True,  # K1, H12; mutation: False = every checkpoint that verifies counts for the floor
    "unretired": True,  # K1, K3; mutation: False = also over, and with, shards that the fold names as retired
    "second": True,  # K1; mutation: False = the floor is the newest checkpoint that counts
    "shared": True,  # K2; mutation: False = shards are retired with the checkpoint they were made for
    "hand": True,  # K2; mutation: False = shards of a checkpoint in the making are garbage
    "lent": True,  # K3; mutation: False = a checkpoint of any epoch that verifies lends its shards
    "below": True,  # K2; mutation: False = any checkpoint but the newest is retired
    "again": True,  # K4; mutation: False = an opener that meets a missing shard gives up
}


class Keeper(NamedTuple):
    """A writer that saves checkpoints and clears away old ones.

    ``build``: (seq, shards to put, all shards) of one in the making; ``own``: manifests that it put, (seq, shards);
    ``lends``: a shard of the newest checkpoint that it may name again."""

    epoch: int = 0
    seen: int = 0
    made: int = 0
    build: tuple = None
    own: tuple = ()
    lends: tuple = None
    listed: frozenset = None
    fenced: bool = False


class Loader(NamedTuple):
    """An opener that loads the newest checkpoint of its listing, with pauses."""

    phase: str = "idle"
    named: tuple = ()


class Shelves(Ageing):
    """``Ageing`` with ``Keeper`` and ``Loader`` in the places of ``Writer`` and ``Reader``."""

    def __init__(self, procs, rules=None, store=(), net=(), **k):
        super().__init__(procs, {**RULES, **(rules or {})}, **k)
        self.store, self.net = frozenset(store), frozenset(net)

    def init(self):
        start = [d.get("start") or (Keeper() if d["kind"] == "w" else Loader()) for d in self.procs]
        if start[0] == Keeper():
            start[0] = Keeper(epoch=1, seen=len(self.first))
        return (
            0,
            self.first,
            ((1, self.cap),) * len(self.first),
            self.store,
            0,
            self.net,
            self.faults,
            *start,
        )

    def usable(self, store):
        """Manifests whose shards are all there, newest first."""
        return sorted((c for c in store if c[0] == "c" and set(c[4]) <= store), key=lambda c: -c[2])

    def check(self, s):
        """A4: two usable checkpoints stand for every commit that is removed, so that one may rot."""
        gone = max((n for n, (kept, _) in enumerate(s[COMMITS]) if kept != 1), default=-1)
        found = sum(c[2] >= gone for c in self.usable(s[STORE])) if gone >= 0 else 2
        if found < 2:
            raise Violation(f"A4 commit {gone} is removed, and {found} usable checkpoints stand for it")
        return s

    def goal(self, s):
        """A5: no checkpoint below the floor, no shard that none names, nothing that waits; or the bounds are reached."""
        f = self.fold(s[HISTORY])
        manifests = [c for c in s[STORE] if c[0] == "c"]
        named = {x for c in manifests for x in c[4]}
        left = any(c[2] < f.floor for c in manifests) or any(x[0] == "s" and x not in named for x in s[STORE])
        return len(s[HISTORY]) >= self.N or not (left or f.retired)

    def delete(self, s, i, w, key, **k):
        store = frozenset(x for x in s[STORE] if x[:3] != key)
        return self.check(self.put(s, i, w, **{"store": store, **k}))

    def succ(self, s):
        yield "tick", lambda: self.tick(s)
        for key in sorted(s[NET]):
            yield (
                f"late delete of {key} arrives",
                lambda key=key: self.delete(s, None, None, key, net=s[NET] - {key}),
            )
        for i, d in enumerate(self.procs):
            steps = self.keeper if d["kind"] == "w" else self.loader
            for label, fn in steps(s, i, s[PROCS + i], d):
                yield f"{d['name']}: {label}", fn

    def keeper(self, s, i, w, d):
        history, store = s[HISTORY], s[STORE]
        top, room = self.fold(history), len(history) < self.N
        late, crash, resend = s[FAULTS]
        if w.fenced:
            return
        if not w.epoch:
            if room:
                yield (
                    f"opens epoch {top.epoch + 1}",
                    lambda: self.land(s, i, self.opened(s, top), ("E", None, None)),
                )
            return
        if crash:
            yield "crashes", lambda: self.put(s, i, Keeper(), faults=(late, crash - 1, resend))
        f = self.fold(history[: w.seen])
        if w.build:
            yield from self.building(s, i, w)
        if "G" in d["can"]:
            faults = (late - 1, crash, resend)
            for key in sorted(
                {k for k, r in f.retired if self.over(s, r, self.r["G"])} & {x[:3] for x in store}
            ):
                yield f"deletes {key}", lambda key=key: self.delete(s, i, w, key)
                if late:
                    yield (
                        f"deletes {key}: no answer, in flight",
                        lambda key=key: self.put(s, i, w, net=s[NET] | {key}, faults=faults),
                    )
        if "X" in d["can"]:
            yield from self.remove(s, i, w, f)
        if top.epoch != w.epoch:
            yield (
                "puts its next commit: 412, fenced",
                lambda: self.put(s, i, Keeper(w.epoch, w.seen, fenced=True)),
            )
            return
        if "K" in d["can"] and not w.build and not any(c[2] == w.seen - 1 for c in store if c[0] == "c"):
            yield from self.begin(s, i, w, f, d)
        if "R" in d["can"] and w.listed is None:
            found = self.unneeded(s, w, f)
            if found:
                yield "lists what no checkpoint needs", lambda: self.put(s, i, w._replace(listed=found))
        if room:
            yield from self.log(s, i, w, f, d)

    def opened(self, s, top):
        """K3: what the newest checkpoint lends to the epoch that begins now."""
        w = Keeper(epoch=top.epoch + 1)
        for c in self.usable(s[STORE])[:1]:
            if c[3] == top.epoch or not self.r["lent"]:
                return w._replace(lends=c[4][1])
        return w

    def begin(self, s, i, w, f, d):
        if w.made >= d["made"]:
            return
        lent = None if self.r["unretired"] and w.lends in dict(f.retired) else w.lends
        new = (("s", w.epoch, w.made),) + (() if lent else (("s", w.epoch, w.made + 1),))
        shards = (new[0], lent or new[1])
        yield (
            f"begins checkpoint {w.seen - 1} of {shards}",
            lambda: self.put(s, i, w._replace(build=(w.seen - 1, new, shards), made=w.made + len(new))),
        )

    def building(self, s, i, w):
        """Shards first, the manifest last; nobody stops a superseded writer at this (H4)."""
        seq, left, shards = w.build
        if left:
            after = w._replace(build=(seq, (), shards))
            yield f"puts shards {left}", lambda: self.put(s, i, after, store=s[STORE] | set(left))
            return
        resend = s[FAULTS][2]
        if resend and not set(shards) <= s[STORE]:
            faults = (*s[FAULTS][:2], resend - 1)
            ours = {x for x in shards if x[1] == w.epoch}
            yield (
                "puts its shards again, no answer having come",
                lambda: self.put(s, i, w, store=s[STORE] | ours, faults=faults),
            )
        after = w._replace(build=None)
        if not any(c[0] == "c" and c[2] == seq for c in s[STORE]):
            after = after._replace(own=(*w.own, (seq, shards)), lends=shards[1])
            manifest = ("c", 0, seq, w.epoch, shards)
            yield f"puts manifest {seq}", lambda: self.put(s, i, after, store=s[STORE] | {manifest})
        else:
            yield f"finds another manifest {seq}", lambda: self.put(s, i, after)

    def log(self, s, i, w, f, d):
        done = [e[0] for e in s[HISTORY]]
        if done.count("T") < d["commits"]:
            yield "commits something", lambda: self.land(s, i, w, ("T", -1, None))
        if "F" in d["can"]:
            floor = self.floor(s, w, f)
            if floor > f.floor:
                yield f"moves the floor to {floor}", lambda: self.land(s, i, w, ("R", (), floor))
        if w.listed is not None:
            kept = {x for seq, shards in w.own if seq >= f.floor for x in shards}
            kept |= set(w.build[2]) if w.build and self.r["hand"] else set()
            names = w.listed - (kept if self.r["shared"] else set())
            after, edit = w._replace(listed=None), ("R", tuple(sorted(names)), None)
            if names:
                yield f"Retire of {edit[1]}", lambda: self.land(s, i, after, edit)
            else:
                yield "finds nothing left to retire", lambda: self.put(s, i, after)
        there = {x[:3] for x in s[STORE]}
        gone = tuple(sorted(k for k, r in f.retired if k not in there and self.over(s, r, self.r["G"])))
        if gone and "D" in d["can"]:
            yield f"Deleted {gone}", lambda: self.land(s, i, w, ("D", gone, None))

    def floor(self, s, w, f):
        """K1: the second-newest checkpoint that counts."""
        counting = [c for c in self.usable(s[STORE]) if not self.r["own"] or (c[2], c[4]) in w.own]
        if self.r["unretired"]:
            counting = [c for c in counting if not set(c[4]) & set(dict(f.retired))]
        at = 1 if self.r["second"] else 0
        return counting[at][2] if len(counting) > at else 0

    def unneeded(self, s, w, f):
        """K2: checkpoints below the floor, and shards that no other one names."""
        manifests = [x for x in s[STORE] if x[0] == "c"]
        top = max((c[2] for c in manifests), default=0)
        old = {c[:3] for c in manifests if c[2] < (f.floor if self.r["below"] else top)}
        named = {x for c in manifests if c[2] >= f.floor for x in (c[4] if self.r["shared"] else c[4][:1])}
        if w.build and self.r["hand"]:
            named |= set(w.build[2])
        shards = {x for x in s[STORE] if x[0] == "s" and x not in named and (x[1] <= w.epoch)}
        return frozenset((old | shards) - set(dict(f.retired)))

    def loader(self, s, i, p, d):
        if p.phase == "idle":
            named = tuple(sorted(c for c in s[STORE] if c[0] == "c"))
            yield f"lists checkpoints: {[c[2] for c in named]}", lambda: self.put(s, i, Loader("load", named))
        elif p.phase == "load":

            def load():
                found = [c for c in reversed(p.named) if set(c[4]) <= s[STORE]]
                if not found and p.named and not self.r["again"]:
                    raise Violation("A3 the archive is called damaged: a checkpoint's shard is not there")
                first = found[0][2] + 1 if found else 0
                if all(kept == 1 for kept, _ in s[COMMITS][first:]):
                    return self.put(s, i, Loader("done"))
                if not any(c[0] == "c" and c[2] >= first for c in s[STORE]):
                    raise Violation(f"A3 the archive is called damaged: commit {first} is gone")
                return self.put(s, i, Loader())

            yield "loads the newest, and reads on", load
