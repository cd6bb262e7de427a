"""An archive that ages: merge, trim, retire, grace, delete, removal of commits, readers (DESIGN.md, "Ageing").

The log is taken as ``log_protocol.py`` shows it to be: a commit of the epoch in force lands at the end, any other one is
fenced, or, where its number is free again, is created under it and does not count. What is searched here is what threads of one
process, processes of several epochs, and readers do to objects in between. A state is (0, history, commits, keys in the
store, 0, deletes in flight, fault budgets, process...); of each commit: 1 there, 0 removed, 2 another one's, and its age.
"""
# ruff: noqa: N803 (N as in README.md)

from typing import NamedTuple

from ageing_fold import fold, show
from ageing_writer import COMMITS, FAULTS, HISTORY, NET, PROCS, STORE, Writer, Writing
from explore import Violation

RULES = {
    "G": 1,  # grace and commit retention, in ticks
    "R": 2,
    "grace": True,  # D5; mutation: False = delete as soon as the Retire counts
    "counted": True,  # D1; mutation: False = a commit created under a freed number counts
    "by_retire": True,  # D1; mutation: False = delete what a listing shows and the fold does not know
    "own_epoch": True,  # D2, D3; mutation: False = a key of the epoch in force is an orphan, though a flush is on its way
    "deletes_first": True,  # D7; mutation: False = Deleted, then the deletes
    "settle": True,  # M4; mutation: False = a merge is committed as it was planned
    "put_first": True,  # M3; mutation: False = the commit before the object
    "inline": True,  # C2; mutation: False = the floor alone decides
    "inline_grace": True,  # C2, H11; mutation: False = removed as soon as nothing names it
    "looks": True,  # V1; mutation: False = gone means no message
    "proof_age": True,  # V2, H13; mutation: False = gone after a look means damage, however long ago the look
    "identity": True,  # "gone"; mutation: False = what lies under an inline key is not compared with the commit's id
    "lax": frozenset(),  # rules that the fold does not check
}


class Reader(NamedTuple):
    """``view``: commits folded; ``age`` of the proof that they were all; the record asked for and where the view has it."""

    phase: str = "closed"
    view: int = 0
    age: int = 0
    record: int = None
    key: tuple = None
    looked: bool = False


class Opener(NamedTuple):
    """Proves the end of the log, and sleeps before its ``OpenEpoch``."""

    seen: int = 0
    done: bool = False


class Ageing(Writing):
    """``procs``: dicts; ``kind`` w, r or o. Of a writer ``can`` says what it does, with its bounds."""

    def __init__(self, procs, rules=None, history=(), N=7, late=0, crash=0, resend=0, solo=False):
        self.r = {**RULES, **(rules or {})}
        self.procs, self.N, self.solo = procs, N, solo
        self.faults, self.first = (late, crash, resend), tuple(history)
        self.cap = max(self.r["G"], self.r["R"])
        self.asof = any(d.get("asof") for d in procs)

    # ---- helpers

    def fold(self, history):
        return fold(history, self.r["lax"])

    def init(self):
        kinds = {"w": Writer, "r": Reader, "o": Opener}
        start = [d.get("start") or kinds[d["kind"]]() for d in self.procs]
        commits = tuple((1, self.cap) for _ in self.first)
        store = frozenset(e[1] for e in self.first if e[0] == "A" and e[1][0] == "d")
        if self.first:
            start[0] = Writer(epoch=1, seen=len(self.first), made=len(store))
        return (0, self.first, commits, store, 0, frozenset(), self.faults, *start)

    def there(self, s, key):
        """1: the object is there; 0: it is not; 2: another one is."""
        if key[0] == "i":
            return s[COMMITS][key[1]][0]
        return int(key in s[STORE])

    def check(self, s):
        """A1: what the newest fold refers to is there."""
        for key in self.fold(s[HISTORY]).refs:
            if self.there(s, key) != 1:
                raise Violation(f"A1 {show(key)} is referenced and gone")
        return s

    def put(self, s, i, proc, **k):
        """``s`` with process ``i`` and the named items changed."""
        names = {"history": HISTORY, "commits": COMMITS, "store": STORE, "net": NET, "faults": FAULTS}
        items = list(s)
        for name, value in k.items():
            items[names[name]] = value
        if i is not None:
            items[PROCS + i] = proc
        return tuple(items)

    def land(self, s, i, w, edit):
        """The commit of the epoch in force, at the end of the log."""
        history = (*s[HISTORY], edit)
        before, after = self.fold(s[HISTORY]), self.fold(history)
        if after.bad:
            raise Violation(f"A6 the fold refuses the writer's own commit: {after.bad}")
        if edit[0] == "M":
            rows = [({r for r, _ in f.live}, {(r, c) for r, c, _ in f.closed}) for f in (before, after)]
            if rows[0] != rows[1]:
                raise Violation(f"A2 a merge changes what is live or closed: {rows[0]} to {rows[1]}")
        if edit[0] == "D" and set(edit[1]) & s[STORE]:
            raise Violation(
                f"A5 the log says Deleted of {show(min(set(edit[1]) & s[STORE], key=str))}, which is there"
            )
        age = 0 if self.asof or edit[0] in "RTM" else self.cap
        return self.check(
            self.put(s, i, w._replace(seen=len(history)), history=history, commits=(*s[COMMITS], (1, age)))
        )

    def over(self, s, seq, ticks):
        """Whether a commit is older than that; one that was removed is. (Its number may be another's then, and younger.)"""
        kept, age = s[COMMITS][seq]
        return kept == 0 or age >= ticks

    def goal(self, s):
        """A5: nothing is left over, and nothing waits; or the bounds are reached."""
        f = self.fold(s[HISTORY])
        left = {k for k in s[STORE] if k not in f.refs}
        return len(s[HISTORY]) >= self.N or (not left and not f.retired)

    # ---- steps

    def succ(self, s):
        yield "tick", lambda: self.tick(s)
        for key in sorted(s[NET], key=str):
            yield (
                f"late delete of {show(key)} arrives",
                lambda key=key: self.delete(s, None, None, key, net=s[NET] - {key}),
            )
        for i, d in enumerate(self.procs):
            steps = {"w": self.writer, "r": self.reader, "o": self.opener}[d["kind"]]
            for label, fn in steps(s, i, s[PROCS + i], d):
                yield f"{d.get('name', d['kind'])}: {label}", fn

    def tick(self, s):
        commits = tuple((kept, min(age + 1, self.cap)) for kept, age in s[COMMITS])
        ps = [p._replace(age=min(p.age + 1, self.r["G"])) if isinstance(p, Reader) else p for p in s[PROCS:]]
        return (*s[:COMMITS], commits, *s[STORE:PROCS], *ps)

    def delete(self, s, i, w, key, **k):
        s2 = self.put(s, i, w, **{"store": s[STORE] - {key}, **k})
        if key in self.fold(s[HISTORY]).refs:
            raise Violation(f"A1 deletes {show(key)}, which the newest fold refers to")
        return s2

    def opener(self, s, i, p, d):
        if not p.seen:
            yield "proves the end, and sleeps", lambda: self.put(s, i, Opener(len(s[HISTORY])))
        elif not p.done and p.seen < len(s[COMMITS]) and s[COMMITS][p.seen][0] == 0:
            commits = (*s[COMMITS][: p.seen], (2, 0), *s[COMMITS][p.seen + 1 :])
            yield (
                f"wakes, its OpenEpoch is created under the free number {p.seen}",
                lambda: self.put(s, i, Opener(p.seen, done=True), commits=commits),
            )

    def reader(self, s, i, p, d):
        newest = len(s[HISTORY])
        top = self.fold(s[HISTORY])
        if p.phase == "closed":
            yield f"reads the log to {newest - 1}", lambda: self.put(s, i, Reader("open", newest))
        elif p.phase == "open":
            for record, key in self.fold(s[HISTORY][: p.view]).live:
                yield (
                    f"finds record {record} in {show(key)}",
                    lambda r=record, k=key: self.put(s, i, p._replace(phase="get", record=r, key=k)),
                )
        elif p.phase == "get":
            yield f"GET {show(p.key)}", lambda: self.answer(s, i, p, d, top)
        elif p.phase == "gone":
            yield "looks again", lambda: self.look(s, i, p, d, newest)

    def answer(self, s, i, p, d, top):
        there = self.there(s, p.key)
        if there == 1:
            return self.put(s, i, Reader("done"))
        if there == 2 and not self.r["identity"]:
            raise Violation(f"A3 serves record {p.record} from another object under {show(p.key)}")
        if not self.r["looks"]:
            if p.record in dict(top.live):
                raise Violation(f"A3 record {p.record} is live, and the reader says that there is none")
            return self.put(s, i, Reader("done"))
        if p.looked and (p.age < self.r["G"] or not self.r["proof_age"]):
            raise Violation(f"A3 {show(p.key)} is called damaged, and nothing is")
        return self.put(s, i, p._replace(phase="gone"))

    def look(self, s, i, p, d, newest):
        live = dict(self.fold(s[HISTORY]).live)
        if p.record in live:
            fixed = p.view if d.get("asof") else newest
            after = Reader("get", fixed, 0, p.record, live[p.record], True)
            return self.put(s, i, after)
        if d.get("asof") and not self.over(s, p.view, self.r["G"]):
            raise Violation(
                f"A3 commit {p.view - 1} was the head a grace ago, and cannot be read as of any more"
            )
        return self.put(s, i, Reader("done"))
