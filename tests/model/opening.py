"""Steps of a process that reads the log: listing, folding, the end, proof, claiming an epoch, read-back."""
# ruff: noqa: C901, N806, PLR0915, UP031 (state letters as in README.md; a step relation reads best as one table)

from explore import Violation
from history import BAD, CHAIN, EPOCH, C, commit, on_chain, seqof
from process import CKP, CLAIM, END, FOLLOW, LIST, NONE, OPEN, PROOF, PUT, RB, READ, RUN, upd


class Opening:
    """Steps in every program counter but RUN."""

    def psucc(self, s, i, p):
        T, commits, cks, _net, H, _objs, _bud = s[:7]
        r, d = self.r, self.procs[i]
        pc, inc, f, _last, pend, t, mode, tb, cache, flag = p[:10]
        fresh = r["fresh_readers"]
        if pc == LIST:
            us = self.ckpts(s)

            def fn():
                if mode == PROOF and cks and cks[-1][0] >= seqof(pend):
                    return self.fenced(i, p, s, "proof: a checkpoint at or above my commit")
                b = T if fresh else NONE
                if f and (not us or us[-1][0] <= seqof(f)):  # of the fold that it has nothing was removed yet
                    return upd(p, pc=READ, tb=b, cache=0)
                if us:
                    if not us[-1][2]:
                        raise Violation("I2 opener stops at a checkpoint that cannot be read")
                    return upd(p, pc=READ, f=us[-1][1], tb=b, cache=0)
                return upd(p, pc=READ, f=0, tb=b, cache=0)

            yield "list checkpoints -> newest %s" % (us[-1][0] if us else "none"), fn
            agrees = mode == OPEN and cache and commits[seqof(cache)][0] == cache
            if agrees and (not fresh or (tb != NONE and T - tb <= r["R"] // 2)):
                yield (
                    "cached fold %d agrees with the bucket" % seqof(cache),
                    (lambda: upd(p, pc=READ, f=cache, tb=tb if fresh else NONE, cache=0)),
                )
        elif pc == READ:
            n = seqof(f) + 1
            bound = (mode == FOLLOW and (fresh or flag)) or (mode != FOLLOW and fresh)
            if bound and tb != NONE and T - tb > r["R"] // 2:
                yield (
                    "GET %d answered too late: start again" % n,
                    lambda: upd(p, pc=LIST, tb=NONE, flag=0),
                )
                return
            if n > self.N:
                if mode == PROOF:
                    yield "GET %d -> 404" % n, lambda: upd(p, pc=END, flag=0)
                return
            cid = commits[n][0]
            if mode == PROOF and r["proof_to_end"]:
                after = (
                    (lambda: self.fenced(i, p, s, "proof: something follows"))
                    if cid
                    else (lambda: upd(p, pc=END))
                )
                yield "GET %d -> %s" % (n, self.show(cid) if cid else "404"), after
                return
            if self.greedy and mode != FOLLOW:
                g = f
                while seqof(g) < self.N and commits[seqof(g) + 1][0]:
                    x = commits[seqof(g) + 1][0]
                    if C[x][6] != g or BAD[x]:
                        break
                    g = x
                if g != f and (seqof(g) == self.N or not commits[seqof(g) + 1][0]):
                    gone = 1 if seqof(H) > seqof(g) or not on_chain(g, H) else 0
                    if seqof(g) < self.N or mode == PROOF:
                        yield (
                            "GET %d .. %d -> 404" % (n, seqof(g) + 1),
                            lambda: upd(p, pc=END, f=g, t=t if mode == PROOF else T, flag=2 * gone),
                        )
                    return
            if cid:

                def fn():
                    if C[cid][6] != f or BAD[cid]:
                        if r["restart_on_mismatch"]:
                            return upd(p, pc=LIST, f=0, tb=NONE, flag=0)
                        raise Violation(
                            "I8 Corrupt on a healthy archive: commit %d does not fit the fold" % n
                        )
                    if mode == FOLLOW and not on_chain(cid, H):
                        raise Violation("I5 follower applies commit %d that is not in the history" % n)
                    return upd(p, f=cid)

                yield "GET %d -> %s" % (n, self.show(cid)), fn
            else:
                gone = 1 if seqof(H) > seqof(f) or not on_chain(f, H) else 0
                yield (
                    "GET %d -> 404" % n,
                    lambda: upd(p, pc=END, t=t if mode == PROOF else T, flag=2 * gone + (flag & 1)),
                )
        elif pc == END:
            us = self.ckpts(s)
            higher = bool(cks) and cks[-1][0] > seqof(f)

            def fn():
                if mode == PROOF and r["proof_to_end"]:
                    if cks and cks[-1][0] >= seqof(pend):
                        return self.fenced(i, p, s, "proof: a checkpoint at or above my commit")
                    return self.count(s, i, p, t)
                if higher and r["list_after_404"]:
                    if flag & 2 and not commits[seqof(f) + 1][0] and not any(c[0] > seqof(f) for c in us):
                        raise Violation("I2 commits removed and no usable checkpoint above %d" % seqof(f))
                    return upd(p, pc=LIST, f=0, tb=NONE, flag=0, t=t if mode == PROOF else 0)
                if flag & 2:
                    raise Violation(
                        "%s removed commits taken for the end at %d"
                        % ("I5" if mode == FOLLOW else "I6", seqof(f))
                    )
                if mode == FOLLOW:
                    return upd(p, pc=READ, tb=t, t=0, flag=1)
                if mode == PROOF:
                    n = seqof(pend)
                    if not (seqof(f) >= n and CHAIN[f][n] == pend):
                        return self.fenced(i, p, s, "proof failed")
                    return self.count(s, i, p, t)
                return upd(p, pc=CLAIM, t=0, flag=0, tb=t if r["fresh_readers"] else NONE)

            yield (
                "list checkpoints: %s"
                % ("one above, start again" if higher else "none above, this is the end"),
                fn,
            )
        elif pc == CLAIM:
            h = commits[seqof(f)]
            foreign = f != 0 and self.procs[C[f][1]]["wid"] != d["wid"]
            young = h[0] == f and T - h[1] < r["TW"]
            if foreign and young and not d.get("take_over"):
                yield "head is foreign and young: wait", lambda: upd(p, pc=READ)
            elif seqof(f) < self.N:
                cid = commit(seqof(f) + 1, i, inc, EPOCH[f] + 1, "E", None, f)
                yield (
                    "claims epoch %d at %d" % (EPOCH[f] + 1, seqof(f) + 1),
                    lambda: upd(p, pc=PUT, pend=cid, last=NONE),
                )
        elif pc == PUT:
            yield from self.puts(s, i, p)
        elif pc == RB:
            n = seqof(pend)
            cid = commits[n][0]

            def fn():
                if cid == pend:
                    return self.success(s, i, p, T)[1]
                opening = C[pend][4] == "E"
                same = cid and self.procs[C[cid][1]]["wid"] == d["wid"]
                if opening and (not cid or not same or r["retry_own"]):
                    return upd(p, pc=READ if cid else LIST, f=C[pend][6], pend=0, mode=OPEN, flag=0)
                if not r["fence"] and cid and C[cid][6] == C[pend][6]:
                    return upd(p, pc=RUN, f=cid, pend=0)
                return self.fenced(i, p, s, "412, other commit id")

            yield "read back %d -> %s" % (n, self.show(cid) if cid else "404"), fn
        elif pc == CKP:

            def fn():
                k = tuple(sorted((*cks, (seqof(f), f, True, (EPOCH[f], i, 1)))))
                st = (*s[:2], k, *s[3:])
                return st, upd(p, pc=RUN)

            if not any(c[0] == seqof(f) for c in cks):
                yield "puts manifest checkpoint %d" % seqof(f), fn
            else:
                yield "manifest exists", lambda: upd(p, pc=RUN)
        elif pc == RUN:
            yield from self.run(s, i, p)
