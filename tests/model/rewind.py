"""The log protocol with a broker that loses its tail: flush, "Same broker?", ``Rewind`` (DESIGN.md, "Same broker?").

A writer of this model has four more fields: the broker run its history was compared with (``chk``), the run it looked up
before a comparison that is not done (``look``), a flush copied and not yet put (``plan``), and the entries of files
the broker destroyed, which its hard links still show (``held``). No clock: nothing here removes a commit, so every
success counts.
"""
# ruff: noqa: N806, UP031 (as in log_protocol.py)

from broker import BLANK, EMPTY, FILE, Broker, How, agrees, append, compare, ids, references
from explore import Violation
from history import BAD, CONTENT, EPOCH, REFS, RETIRED, C, commit, seqof
from log_protocol import Model
from process import CHK, CLAIM, F_, HELD, INC, LOOK, PC_, PEND, PLAN, PUT, REFUSED, RUN, upd

NO = 0  # no broker run: runs count from 1
LATER = -1  # mutation: compared, the lock still to be looked at

RULES = {
    "recheck": True,  # mutation: False = a flush is put although lock or abort changed since the comparison
    "drop_plan": True,  # mutation: False = what was copied before a restart is put after it
    "look_first": True,  # mutation: False = lock and abort are looked at after the comparison
    "own_dir": True,  # mutation: False = compare with held links
    "relink": True,  # mutation: False = held links survive a restart of the broker
    "one_in_flight": True,  # mutation: False = a put of unknown outcome is given up when the broker restarts
    "verdict_last": True,  # mutation: False = compare before OpenEpoch, keep the verdict while opening is retried
    "rewind": "W",  # mutations: w = closed parts are not referenced, v = they are forgotten
    "refusals": True,  # False = a refusal of the right broker is not a violation
    "mixtures": True,  # False = a mixture that a later Rewind repairs is not a violation
    "visible": True,  # False = R2 also for what the broker rewrote and then deleted before anybody compared it
}


class RewindModel(Model):
    """``Model`` with a ``Broker`` as last item of the state. ``shapes``: (queue, size) of each record ever written."""

    ticks = False

    def __init__(
        self,
        procs,
        shapes,
        rules=None,
        how=None,
        crashes=1,
        deletions=0,
        swaps=0,
        durable=0,
        objects=False,
        **k,
    ):
        super().__init__({**RULES, "counted": False, **(rules or {})}, procs, greedy=True, **k)
        self.shapes, self.durable, self.objects = shapes, durable, objects
        self.how = How(**(how or {}))
        self.broker = Broker(crashes=crashes, deletions=deletions, swaps=swaps)

    def init(self):
        """No commit, an empty broker, every writer about to list."""
        s = super().init()
        return (*s[:7], *((*p, NO, NO, (), ()) for p in s[7:]), self.broker)

    def reborn(self, p):
        """hard links outlive a process"""
        return NO, NO, (), p[HELD]

    # ---- invariants
    def put_commit(self, s, cid):
        n, H = seqof(cid), s[4]
        if not s[1][n][0] and C[cid][6] == H and BAD[cid] and BAD[cid].startswith("R"):
            raise Violation(BAD[cid])
        return super().put_commit(s, cid)

    def check(self, s):
        """R2: once a writer has compared under the broker's present run, the archive's history is the broker's."""
        b, H = s[-1], s[4]
        low = b.low if self.r["visible"] else 0
        if b.up and not b.foreign:
            for p in s[7:-1]:
                if p[PC_] == RUN and p[CHK] == b.mark and p[F_] == H and not agrees(CONTENT[H], b.log, low):
                    raise Violation(
                        "R2 compared, yet the history %s is not the broker's %s"
                        % (ids((CONTENT[H] or EMPTY).entries), ids(b.log))
                    )
        return s

    def goal(self, s):
        """everything the broker has is archived, or the log's bound is reached, or a writer has refused"""
        b, H = s[-1], s[4]
        c = CONTENT[H] or EMPTY
        ps = s[7:-1]
        if seqof(H) >= self.N or any(p[PC_] == REFUSED for p in ps):
            return True
        settled = any(p[PC_] == RUN and p[CHK] == b.mark and p[F_] == H for p in ps)
        return b.up and settled and c.progress == b.end and agrees(c, b.log, b.low)

    # ---- steps
    def succ(self, s):
        for label, fn in super().succ(s):
            yield label, lambda fn=fn: self.check(fn())
        for label, b, held in self.broker_steps(s[-1]):

            def fn(b=b, held=held):
                ps = tuple(upd(p, held=held) if held else p for p in s[7:-1])
                return self.check((*s[:7], *ps, b))

            yield f"broker: {label}", fn

    def broker_steps(self, b):
        """(label, broker after, entries that only hard links still show)"""
        if not b.up:
            yield "starts, run %d" % (b.mark + 1), b._replace(up=True, mark=b.mark + 1), ()
            return
        if b.written < len(self.shapes):
            after = append(b, *self.shapes[b.written])
            yield "writes %s" % (after.log[-1],), after, ()
        if b.crashes:
            for keep in range(self.durable, len(b.log) + 1):
                log = b.log[:keep]
                end = log[-1][4] if log else 0
                if end < b.low:
                    continue
                held = tuple(e for e in b.log if e[3] >= -(-end // FILE) * FILE)
                after = b._replace(log=log, up=False, crashes=b.crashes - 1, pasts=(*b.pasts, b.log))
                yield "crashes, keeps %s" % (ids(log),), after, held
        if b.deletions and b.low + FILE < b.end:
            yield "deletes file %d" % b.low, b._replace(low=b.low + FILE, deletions=b.deletions - 1), ()
        if b.swaps:
            new = Broker(mark=b.mark + 1, written=b.written, deletions=b.deletions, foreign=True)
            yield "is replaced by another on an empty disk", new, ()

    def psucc(self, s, i, p):
        b = s[-1]
        for label, fn in super().psucc(s, i, p):
            if p[PC_] == CLAIM and not self.r["verdict_last"] and p[CHK] == NO and self.verdict(s, p) is None:
                yield f"compared: same; {label}", lambda fn=fn: upd(fn(), chk=b.mark, held=())
            else:
                yield label, fn
        flying = p[PC_] == PUT and C[p[PEND]][4] == "P" and p[PEND] in s[3]
        if flying and not self.r["one_in_flight"] and p[CHK] != b.mark:
            yield "sees a restart, gives the put up", lambda: upd(p, pc=RUN, pend=0, chk=NO, look=NO, plan=())

    def verdict(self, s, p):
        b = s[-1]
        log = b.log
        if not self.r["own_dir"] and p[HELD]:
            log = tuple(e for e in log if e[3] < p[HELD][0][3]) + p[HELD]
        return compare(CONTENT[p[F_]], log, b.low, self.how)

    def run(self, s, i, p):
        b, room = s[-1], seqof(p[F_]) < self.N
        if p[CHK] == NO and p[LOOK] == NO and self.r["look_first"]:
            yield "looks at lock and abort", lambda: upd(p, look=b.mark)
        elif p[CHK] == NO:
            yield from self.same_broker(s, i, p, room)
        elif p[CHK] == LATER:
            yield "looks at lock and abort", lambda: upd(p, chk=b.mark)
        else:
            if p[CHK] != b.mark:
                plan = () if self.r["drop_plan"] else p[PLAN]
                yield "sees that the broker was restarted", lambda: upd(p, chk=NO, look=NO, plan=plan)
            if room:
                yield from self.flush(s, i, p)
        if "t" in self.procs[i]["kinds"] and room:
            yield from self.retention(s, i, p)

    def stage(self, p, i, kind, arg, **k):
        """p about to put its next commit"""
        cid = commit(seqof(p[F_]) + 1, i, p[INC], EPOCH[p[F_]], kind, arg, p[F_])
        return upd(p, pc=PUT, pend=cid, **k)

    def same_broker(self, s, i, p, room):
        """after a start, or a restart of the broker: nothing to do, Rewind, or refuse"""
        b, verdict = s[-1], self.verdict(s, p)
        held = () if self.r["relink"] else p[HELD]
        look = p[LOOK] if self.r["look_first"] else LATER
        if verdict is None:
            yield "compares: same", lambda: upd(p, chk=look, look=NO, held=held)
        elif verdict == "refuse":

            def fn():
                c = CONTENT[p[F_]]
                local = {e for e in b.log if e[3] >= b.low and e[0] != BLANK}
                known = b.low >= c.progress or any(e in local for e in c.entries)
                if self.r["refusals"] and not b.foreign and known:
                    raise Violation("R7 the archive's own broker is refused")
                return upd(p, pc=REFUSED, chk=NO, look=NO, plan=())

            yield "compares: another broker, refuses", fn
        elif room:
            yield (
                "compares: Rewind to %d" % verdict,
                lambda: self.stage(p, i, self.r["rewind"], (p[LOOK], verdict), chk=look, look=NO, held=held),
            )

    def flush(self, s, i, p):
        """copy, look at the lock again, upload, commit"""
        b, c = s[-1], CONTENT[p[F_]] or EMPTY
        alike = p[CHK] == b.mark or not self.r["recheck"]
        if p[PLAN]:
            mark, added = p[PLAN]
            key = (EPOCH[p[F_]], i, seqof(p[F_]), mark) if self.objects else None
            if not alike:
                return
            if key and key not in {o[0] for o in s[5]}:
                yield (
                    "puts data %s" % (key,),
                    lambda: ((*s[:5], tuple(sorted((*s[5], (key, 1, 0)))), *s[6:]), p),
                )
            else:
                yield (
                    "commits the flush of %s" % (ids(added),),
                    lambda: self.stage(
                        self.mixture(p, b, c), i, "P", (mark, added, key, b.low == 0), plan=()
                    ),
                )
        elif b.low > c.progress:
            if alike:
                yield "commits PhysGap up to %d" % b.low, lambda: self.stage(p, i, "Y", (p[CHK], b.low))
        else:
            log = b.log
            if p[HELD] and c.progress >= p[HELD][0][3]:
                log = p[HELD]
            added = tuple(e for e in log if e[3] >= c.progress)
            if added and added[0][3] == c.progress:
                yield "copies %s" % (ids(added),), lambda: upd(p, plan=(p[CHK], added))

    def mixture(self, p, b, c):
        """R6: what a flush makes live must be what some run of the broker had"""
        mark, added = p[PLAN]
        if not self.r["mixtures"] or b.foreign or mark < c.decided:
            return p
        after = c._replace(entries=c.entries + added, progress=added[-1][4])
        if not any(agrees(after, log, b.low) for log in (b.log, *b.pasts)):
            raise Violation("R6 a flush mixes two histories: %s" % (ids(after.entries),))
        return p

    def retention(self, s, i, p):
        """trim up to what a crash never loses, Retire what nothing names, delete it (grace protects readers only)"""
        f, objs, H = p[F_], s[5], s[4]
        c = CONTENT[f] or EMPTY
        below = [e for e in c.entries[: self.durable] if e[0] != BLANK and e[0] not in c.trimmed]
        if below:
            yield "trims up to %d" % below[-1][4], lambda: self.stage(p, i, "t", below[-1][4])
        retired = dict(RETIRED[f])
        for key, st, _ in objs:
            ever = any(key == k for _, k in c.objects)
            if st == 1 and key not in REFS[f] and key not in retired and (key[0] < EPOCH[f] or ever):
                yield "Retire of %s" % (key,), lambda key=key: self.stage(p, i, "R", key)
            if st == 1 and key in retired:

                def kill(key=key):
                    if key in references(CONTENT[H] or EMPTY):
                        raise Violation("R3 deletes %s, which a live run or a closed part names" % (key,))
                    return (*s[:5], tuple((k, 2 if k == key else a, t) for k, a, t in objs), *s[6:]), p

                yield "deletes %s" % (key,), kill
