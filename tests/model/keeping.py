"""Law 3 beside a store that may answer for what it never keeps: read-back, the hold, and starts beside a bucket that lacks
commits. One writer; a commit holds one record."""
# ruff: noqa: C901 (a step relation reads best as one table)

from explore import Violation

RECORDS = 4


class Keeping:
    solo = False

    """A state is (0, bucket, in hand, puts in flight, 0, fold, hold and broker, faults, mode).

    ``bucket``: a commit's name or nothing, by number; a name is (number, record, incarnation, the name before it). ``fold``:
    name of the local head. ``in hand``: numbers that were answered for and not seen. ``hold``, ``broker``: the first record
    that each still has.
    Rules: ``see``: the hold waits for what is in hand; ``wait``: after a start, for commits that are gone before later ones.
    ``late``: lies that are kept in the end, after a start that believed the bucket.
    """

    def __init__(self, lies=2, crashes=2, late=0, **rules):
        self.lies, self.crashes, self.late = lies, crashes, late
        self.r = {"see": True, "wait": True, **rules}

    def init(self):
        return (0, (None,) * RECORDS, (), (), 0, None, (0, 0), (self.lies, self.crashes, self.late, 0), "run")

    def check(self, s):
        """No record is gone from broker and hold alike unless the bucket has it, or the very process has its commit in hand."""
        _, bucket, hand, _, _, fold, (hold, broker), _, mode = s
        for record in range(min(hold, broker)):
            name = self.at(fold, record)
            there = bucket[record] is not None
            if not there and not (mode == "run" and name is not None and record in hand):
                raise Violation(f"L3 record {record} is nowhere")
        return s

    @staticmethod
    def at(name, number):
        while name is not None and name[0] > number:
            name = name[3]
        return name if name is not None and name[0] == number else None

    def succ(self, s):
        _, bucket, hand, net, _, fold, (hold, broker), (lies, crashes, late, inc), mode = s
        r = self.r
        end = -1 if fold is None else fold[0]

        def state(**new):
            old = {
                "bucket": bucket, "hand": hand, "net": net, "fold": fold, "kept": (hold, broker),
                "faults": (lies, crashes, late, inc), "mode": mode,
            }  # fmt: skip
            v = {**old, **new}
            return self.check(
                (0, v["bucket"], v["hand"], v["net"], 0, v["fold"], v["kept"], v["faults"], v["mode"])
            )

        def stored(name):
            if bucket[name[0]] is not None:
                return bucket
            return (*bucket[: name[0]], name, *bucket[name[0] + 1 :])

        for name in net:
            rest = tuple(x for x in net if x != name)
            yield (
                f"late put {name[0]} arrives",
                lambda name=name, rest=rest: state(bucket=stored(name), net=rest),
            )
        if broker < RECORDS:
            yield "the broker deletes its oldest", lambda: state(kept=(hold, broker + 1))
        if mode == "start":
            yield "start", lambda: self.start(s, state)
        if mode != "run":
            return
        if crashes:
            yield "crash", lambda: state(mode="start", hand=(), faults=(lies, crashes - 1, late, inc + 1))
        gone = [n for n in range(end + 1) if bucket[n] != self.at(fold, n)]
        if hand:
            lost = [n for n in hand if bucket[n] is None]
            if any(bucket[n] not in (None, self.at(fold, n)) for n in hand):
                yield "fenced by its own late put", lambda: state(mode="start", hand=())
            elif lost:
                n = lost[0]
                yield f"put {n} again", lambda: state(bucket=stored(self.at(fold, n)))
            else:
                yield "all in hand was seen", lambda: state(hand=())
        if hold <= end and (not r["see"] or not hand) and not (r["wait"] and r["see"] and gone):
            yield "the hold lets go", lambda: state(kept=(hold + 1, broker))
        n = end + 1
        if n < RECORDS and n >= min(hold, broker):
            name = (n, n, inc, fold)
            if bucket[n] is None:
                yield f"put {n}", lambda: state(bucket=stored(name), fold=name, hand=(*hand, n))
                if lies:
                    less = (lies - 1, crashes, late, inc)
                    yield f"put {n}: a lie", lambda: state(fold=name, hand=(*hand, n), faults=less)
                    if late:
                        less2 = (lies - 1, crashes, late - 1, inc)
                        yield (
                            f"put {n}: a lie, and it is on its way",
                            lambda: state(fold=name, hand=(*hand, n), net=(*net, name), faults=less2),
                        )
            else:  # a late put of an earlier life: it is folded if it fits
                yield f"412 at {n}", lambda: state(mode="start", hand=())

    def start(self, s, state):
        """The fold is what the bucket says; where it lacks the end of it, begun anew if the rest is there; else refused."""
        _, bucket, _, _, _, fold, (hold, broker), _, _ = s
        end = -1 if fold is None else fold[0]
        if fold is not None and bucket[end] != fold:
            last = max((n for n in range(RECORDS) if bucket[n] is not None), default=-1)
            prefix = next((n for n in range(RECORDS) if bucket[n] is None), RECORDS) - 1
            if last > prefix:
                return state(mode="stopped")  # a hole before later commits: readers say so, repair mends it
            if prefix + 1 < min(hold, broker):
                return state(mode="refused")
            fold = bucket[prefix] if prefix >= 0 else None
            if fold is not None and any(bucket[n] != self.at(fold, n) for n in range(prefix)):
                raise Violation("I1 two histories in one bucket")
        head = -1 if fold is None else fold[0]
        while head + 1 < RECORDS and bucket[head + 1] is not None:
            if bucket[head + 1][3] != fold:
                raise Violation("I1 a commit that does not follow the one before it")
            fold, head = bucket[head + 1], head + 1
        return state(fold=fold, mode="run", hand=())

    def goal(self, s):
        """Everything is in the bucket, or somebody was told."""
        return s[8] in ("stopped", "refused") or all(s[1])


S = {
    "unkept": ("", lambda: Keeping()),
    "unkept-unseen": ("L3", lambda: Keeping(see=False)),
    "unkept-hole": ("L3", lambda: Keeping(wait=False)),
    "unkept-late": ("I1", lambda: Keeping(late=1)),
}
SHORT = tuple(S)
