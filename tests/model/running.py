"""Steps of a writer that owns the newest epoch: data, runs, trims, retiring, deleting, checkpoints, removal."""
# ruff: noqa: C901, N806, PLR0915, UP031 (state letters as in README.md; a step relation reads best as one table)

from explore import Violation
from history import CHAIN, EPOCH, FLOORS, REFS, RETIRED, C, commit, seqof
from process import CKP, F_, INC, PEND, PUT, RB, upd


class Running:
    """Steps in RUN, and the put of a commit."""

    def puts(self, s, i, p):
        T, commits, _cks, net, _H, _objs, bud = s[:7]
        lost, late, crash, rot = bud
        cid, d = p[PEND], self.procs[i]
        n = seqof(cid)
        if commits[n][0]:
            yield f"put {self.show(cid)} -> 412", lambda: upd(p, pc=RB)
        else:

            def fn():
                _, st = self.put_commit(s, cid)
                return st, self.success(st, i, p, T)[1]

            yield f"put {self.show(cid)} -> Created", fn
            if lost and not d.get("clean"):

                def fn2():
                    _, st = self.put_commit(s, cid)
                    return (*st[:6], (lost - 1, late, crash, rot), *st[7:]), p

                yield f"put {self.show(cid)} done, answer lost", fn2
            if late and cid not in net and not d.get("clean"):
                yield (
                    f"put {self.show(cid)} in flight, unknown",
                    lambda: (
                        (*s[:3], tuple(sorted((*net, cid))), *s[4:6], (lost, late - 1, crash, rot), *s[7:]),
                        p,
                    ),
                )

    def run(self, s, i, p):
        T, commits, cks, _net, H, objs, _bud = s[:7]
        r, d = self.r, self.procs[i]
        f, inc = p[F_], p[INC]
        n, ep = seqof(f) + 1, EPOCH[f]
        kinds = d["kinds"]
        od = {o[0]: (o[1], o[2]) for o in objs}
        refs, ret = REFS[f], dict(RETIRED[f])
        key = (ep, i, 0)

        def start(kind, arg=None):
            e = C[[c for c in CHAIN[f] if C[c][4] == "E" and C[c][1] == i][-1]][3] if not r["fence"] else ep
            return upd(p, pc=PUT, pend=commit(n, i, inc, e, kind, arg, f))

        def now(kind, arg=None):
            """choose and put in one step: pausing between the two is the same as choosing later"""
            yield from self.puts(s, i, start(kind, arg))

        if "A" in kinds:
            if key not in od:
                yield (
                    f"puts data {key}",
                    lambda: ((*s[:5], tuple(sorted((*objs, (key, 1, T)))), *s[6:]), p),
                )
            elif (
                n <= self.N
                and not any(C[c][4] == "A" and C[c][5] == key for c in CHAIN[f])
                and key not in ret
            ):
                yield from now("A", key)
        if n <= self.N:
            if "X" in kinds and sum(1 for c in CHAIN[f] if C[c][1] == i and C[c][4] == "X") < d.get("x", 9):
                yield from now("X")
            if "T" in kinds:
                for k in refs:
                    yield from now("T", k)
            if "R" in kinds:
                named = {c[3] for c in cks if c[3]}
                for k, (st, _) in od.items():
                    ever = any(C[c][4] == "A" and C[c][5] == k for c in CHAIN[f])
                    orphan_ok = k[0] < ep or r["own_epoch_orphans"] or ever
                    if st == 1 and k not in refs and k not in ret and k not in named and orphan_ok:
                        yield f"starts Retire of {k}", lambda k=k: start("R", k)
            if "F" in kinds:
                us = [c for c in self.ckpts(s) if c[0] <= seqof(f)]
                want = us[-1][0] if us and r["floor_newest"] else us[-2][0] if len(us) > 1 else 0
                if want > (FLOORS[f][-1][0] if FLOORS[f] else 0):
                    yield "starts Retire with floor %d" % want, lambda: start("F", want)
        if "K" in kinds and seqof(f) >= d.get("kmin", 1) and not any(c[0] == seqof(f) for c in cks):
            if self.shards and (ep, i, 1) not in od:
                yield (
                    "uploads checkpoint shard",
                    lambda: ((*s[:5], tuple(sorted((*objs, ((ep, i, 1), 1, T)))), *s[6:]), upd(p, pc=CKP)),
                )
            if not self.shards or "k" in kinds:
                yield (
                    "writes checkpoint %d" % seqof(f),
                    lambda: ((*s[:2], tuple(sorted((*cks, (seqof(f), f, True, None)))), *s[3:]), p),
                )
        if "G" in kinds:

            def kill(k):
                o2 = tuple((a, 2, b) if a == k else (a, st, b) for a, st, b in objs)
                if k in REFS[H]:
                    raise Violation(f"I3 deletes {k}, which the current fold references")
                return (*s[:5], o2, *s[6:]), p

            if r["retire"]:
                for k, rs in ret.items():
                    c = commits[rs]
                    old = c[0] != CHAIN[f][rs] or T - c[1] >= (r["G"] if r["grace"] else 0)
                    if od.get(k, (0, 0))[0] == 1 and old:
                        yield f"deletes {k}", lambda k=k: kill(k)
            else:
                for k, (st, lm) in od.items():
                    if st == 1 and k not in refs and k[1] != i and T - lm >= r["G"]:
                        yield f"deletes {k} by age, no Retire", lambda k=k: kill(k)
        if "M" in kinds and FLOORS[f]:
            for k in range(1, FLOORS[f][-1][0]):
                c = commits[k]
                if not c[0]:
                    continue
                if r["removal_after_floor"]:
                    fs = next(q for v, q in FLOORS[f] if v > k)
                    fc = commits[fs]
                    old = fc[0] != CHAIN[f][fs] or T - fc[1] >= r["R"]
                else:
                    old = T - c[1] >= r["R"]
                if old:
                    yield (
                        "removes commit %d" % k,
                        lambda k=k: ((*s[:1], (*commits[:k], (0, 0), *commits[k + 1 :]), *s[2:]), p),
                    )
