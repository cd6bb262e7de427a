"""The log protocol: store, clock, writers, followers, faults (DESIGN.md, "Commits" to "Reading the log")."""
# ruff: noqa: N803, N806, UP031 (state letters as in README.md; a step relation reads best as one table)

from explore import Violation
from history import BAD, CHAIN, EPOCH, REFS, C, commit, seqof
from opening import Opening
from process import (
    CACHE,
    FENCED,
    FOLLOW,
    INC,
    LAST,
    LIST,
    NONE,
    NOW,
    OPEN,
    PC_,
    PEND,
    PROOF,
    PUT,
    READ,
    REFUSED,
    RULES,
    RUN,
    TB,
    TT,
    upd,
)
from running import Running


class Model(Opening, Running):
    """Writers, followers and the store.

    A state is (now, commits, checkpoints, puts in flight, head, objects, fault budgets, process...).
    """

    def __init__(
        self,
        rules,
        procs,
        N=5,
        lost=1,
        late=1,
        crash=0,
        rot=0,
        shards=False,
        solo=False,
        cache=False,
        greedy=False,
    ):
        self.r = dict(RULES)
        self.r.update(rules)
        self.procs = procs  # list of dict(wid, kinds, take_over) or dict(follower=True)
        self.N, self.lost, self.late, self.crash, self.rot = N, lost, late, crash, rot
        self.shards, self.solo, self.cache, self.greedy = shards, solo, cache, greedy

    ticks = True

    def init(self):
        ps = []
        for d in self.procs:
            m = FOLLOW if d.get("follower") else OPEN
            ps.append((LIST, 0, 0, NONE, 0, 0, m, NONE, 0, 0))
        commits = ((0, 0),) * (self.N + 1)
        for i, d in enumerate(self.procs):
            if d.get("pre"):  # starts with its first OpenEpoch chosen and not yet sent
                ps[i] = upd(ps[i], pc=PUT, pend=commit(1, i, 0, 1, "E", None, 0))
        return (NOW, commits, (), (), 0, (), (self.lost, self.late, self.crash, self.rot), *tuple(ps))

    # ---- helpers over the shared state
    def ckpts(self, s):
        """usable checkpoints, ascending: (seq, cid)"""
        objs = {o[0]: o[1] for o in s[5]}
        out = []
        for seq, cid, ok, shard in s[2]:
            good = ok and (shard is None or objs.get(shard) == 1)
            if good or not self.r["usable_ckpt"]:
                out.append((seq, cid, good))
        return out

    def put_commit(self, s, cid):
        """execute a create-only put at the store; returns (created, state)"""
        n = seqof(cid)
        T, commits, cks, net, H, objs, bud = s[:7]
        if commits[n][0]:
            return False, s
        commits = (*commits[:n], (cid, T), *commits[n + 1 :])
        if n > seqof(H):
            if n != seqof(H) + 1 or C[cid][6] != H:
                raise Violation("I1 fork: commit %d does not follow the head" % n)
            if BAD[cid] and "superseded" in BAD[cid]:
                raise Violation("I4 a superseded writer commits at %d" % n)
            if BAD[cid]:
                raise Violation("I1 log holds a commit the fold refuses: " + BAD[cid])
            H = cid
            self.check_objs(H, objs)
        return True, (T, commits, cks, net, H, objs, bud, *s[7:])

    def check_objs(self, H, objs):
        for key, st, _lm in objs:
            if st == 2 and key in REFS[H]:
                raise Violation(f"I3 object {key} is referenced and deleted")

    def count(self, s, i, p, t):
        """process i's commit p.pend counts, success dated t"""
        cid, H = p[PEND], s[4]
        n = seqof(cid)
        if not (n <= seqof(H) and CHAIN[H][n] == cid):
            later = EPOCH[CHAIN[H][min(n, seqof(H))]] > C[cid][3]
            raise Violation(
                "I1/I2/I4 counted success for commit %d that is not in the history%s"
                % (n, " (a later epoch is)" if later else "")
            )
        return upd(
            p,
            pc=RUN,
            f=cid,
            last=t if NOW - t <= self.r["W"] else NONE,
            pend=0,
            t=0,
            mode=OPEN,
            tb=0,
            cache=cid if self.cache else 0,
            flag=0,
        )

    def success(self, s, i, p, t):
        if not self.r["counted"] or (p[LAST] != NONE and 0 <= t - p[LAST] <= self.r["W"]):
            return "counts", self.count(s, i, p, t)
        if self.r["proof_to_end"]:  # the head: nothing behind it, and no checkpoint that stands for it
            return "must prove", upd(p, pc=READ, mode=PROOF, t=t, tb=NONE, f=p[PEND])
        return "must prove", upd(p, pc=LIST, mode=PROOF, t=t, tb=NONE, f=0)

    def fenced(self, i, p, s, why):
        if self.solo:
            raise Violation(f"I7 the only daemon is fenced by its own past ({why})")
        return (FENCED, p[INC], 0, NONE, 0, 0, OPEN, NONE, 0, 0, *self.reborn(p))

    def tick(self, s):
        """now is always NOW: every date moves one back, and stops where its age no longer matters. So time is unbounded."""
        r = self.r
        low = NOW - max(r["R"], r["TW"], r["G"])
        fresh = NOW - r["R"] // 2 - 1
        commits = tuple((c, max(d - 1, low)) if c else (0, 0) for c, d in s[1])
        objs = s[5] if r["retire"] else tuple((k, st, max(d - 1, NOW - r["G"])) for k, st, d in s[5])
        ps = []
        for p in s[7:]:
            last = p[LAST] if p[LAST] == NONE or NOW - p[LAST] < r["W"] else NONE
            ps.append(
                upd(
                    p,
                    last=last if last == NONE else last - 1,
                    t=max(p[TT] - 1, min(fresh, NOW - r["W"] - 1)) if p[TT] else 0,
                    tb=p[TB] if p[TB] in (0, NONE) else max(p[TB] - 1, fresh),
                )
            )
        return (NOW, commits, *s[2:5], objs, s[6], *tuple(ps))

    def reborn(self, p):
        """what a larger model keeps of process p over a crash or fence"""
        return ()

    def goal(self, s):
        """states that progress must be able to reach"""
        return all(p[PC_] == RUN for p in s[7:]) or seqof(s[4]) >= self.N

    # ---- successors
    def succ(self, s):
        _T, commits, cks, net, _H, _objs, bud = s[:7]
        lost, late, crash, rot = bud
        base = 7
        if self.ticks:
            yield "tick", lambda: self.tick(s)
        for cid in net:
            if not commits[seqof(cid)][0]:

                def f(cid=cid):
                    _, s2 = self.put_commit(s, cid)
                    return (*s2[:3], tuple(x for x in net if x != cid), *s2[4:])

                yield f"late delivery of put {self.show(cid)}", f
        if rot and cks:

            def f():
                c = cks[-1]
                return (
                    *s[:2],
                    (*cks[:-1], (c[0], c[1], False, c[3])),
                    *s[3:6],
                    (lost, late, crash, rot - 1),
                    *s[7:],
                )

            if cks[-1][2]:
                yield "checkpoint %d rots" % cks[-1][0], f
        for i in range(len(self.procs)):
            for label, fn in self.psucc(s, i, s[base + i]):

                def f(fn=fn, i=i):
                    r = fn()
                    if len(r) == 2 and isinstance(r[0], tuple) and len(r[0]) >= 7:  # (state, proc)
                        st, p = r
                        return (*st[: base + i], p, *st[base + i + 1 :])
                    return (*s[: base + i], r, *s[base + i + 1 :])

                yield f"{self.name(i)}: {label}", f
            p = s[base + i]
            if crash and p[PC_] not in (LIST, FENCED, REFUSED) and not self.procs[i].get("follower"):
                q = (LIST, p[INC] + 1, 0, NONE, 0, 0, OPEN, p[LAST] if self.cache else NONE, p[CACHE], 0)
                q += self.reborn(p)
                yield (
                    f"{self.name(i)}: crash and restart",
                    (
                        lambda q=q, i=i: (
                            (*s[:6], (lost, late, crash - 1, rot), *s[7 : base + i], q, *s[base + i + 1 :])
                        )
                    ),
                )

    def name(self, i):
        return "follower" if self.procs[i].get("follower") else "writer " + "ABCD"[i]

    def show(self, cid):
        c = C[cid]
        who = "root" if c[1] < 0 else "ABCD"[c[1]] + "'" * c[2]
        return "%d:%s/%s%s" % (c[0], who, c[4], "" if c[5] is None else str(c[5]))
