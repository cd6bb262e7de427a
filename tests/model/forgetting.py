"""A queue that comes and goes: generations, ``ForgetQueues``, who follows (DESIGN.md, "Queues that are gone", Q).

One queue of one topic. The broker writes records, deletes the topic, makes it anew, and may lose its newest records. A life of
the topic numbers its messages from 0, so that a record of another life than the last one archived begins a generation. The log
is taken as ``log_protocol.py`` shows it to be: a commit of the epoch in force lands at the end, any other one is fenced. What
is searched is what the line of commits, maintenance, a second writer and followers do in between. A state is (0, history,
broker, -, 0, budgets, process...).

An edit is ``(kind, generation, record, life)``: E OpenEpoch; A a record, beginning the generation where it is not the current
one; T TrimQueue of all that there is; W Rewind to the position ``record``; F ForgetQueues with the highest ``generation``.
"""
# ruff: noqa: N803 (N as in README.md)

from typing import NamedTuple

from explore import Violation

HISTORY, BROKER, BUDGETS, PROCS = 1, 2, 5, 6  # items of a state

RULES = {
    "number": True,  # Q2; mutation: False = a queue that the fold does not know begins with 1
    "look": True,  # Q5; mutation: False = a ForgetQueues is committed as it was planned
    "highest": True,  # Q1, Q5; mutation: False = the highest generation is not looked at
    "closed": True,  # Q1, Q5; mutation: False = closed parts are not looked at
    "carried": True,  # Q7; mutation: False = a checkpoint leaves the forgotten generation out, or who reads it ignores it
    "fence": True,  # M1; mutation: False = a superseded writer's commits land
    "births": True,  # not a rule: False = G1 is not looked at, so that it is seen what comes of it
    "lax": False,  # mutation: True = the fold does not check Q1 either
}


class Gone(NamedTuple):
    """A fold of the one queue. ``live``: ((record, generation), ...), ``closed`` likewise; ``archived``: records by position,
    as the marks tell; ``lives``: ((generation, life), ...) of the generations known; ``forgotten``: the head's number."""

    epoch: int = 0
    highest: int = 0  # 0: the queue is not known
    current: int = 0
    live: tuple = ()
    closed: tuple = ()
    lives: tuple = ()
    archived: tuple = ()
    forgotten: int = 0
    bad: str = ""


def apply(f, edit, rules):
    """The fold behind ``edit``; ``bad`` says why it is refused."""
    kind, generation, what, life = edit
    if kind == "E":
        return f._replace(epoch=f.epoch + 1)
    if kind == "T":
        return f._replace(live=(), closed=())
    if kind == "W":
        kept = set(f.archived[:what])
        live = tuple(x for x in f.live if x[0] in kept)
        f = f._replace(live=live, closed=f.closed + tuple(x for x in f.live if x[0] not in kept))
        if f.current and not any(g == f.current for _, g in live):
            f = f._replace(current=max((g for _, g in live), default=0))
        return f._replace(archived=f.archived[:what])
    if kind == "F":
        bad = ""
        if not f.highest or (f.highest != generation and rules["highest"]):
            bad = "ForgetQueues of another highest generation"
        if f.live or (f.closed and rules["closed"]):
            bad = "ForgetQueues of a queue with records"
        bad = "" if rules["lax"] else bad
        return f._replace(
            highest=0,
            current=0,
            live=(),
            closed=(),
            lives=(),
            forgotten=max(f.forgotten, generation),
            bad=bad,
        )
    if generation != f.current:
        before = f.highest or (f.forgotten if rules["number"] else 0)
        bad = "" if generation == before + 1 else f"generation {generation} behind {before}"
        f = f._replace(highest=generation, current=generation, lives=(*f.lives, (generation, life)), bad=bad)
    return f._replace(live=(*f.live, (what, generation)), archived=(*f.archived, what))


class Line(NamedTuple):
    """A process that writes. ``seen``: commits folded; ``planned``: edits on their way, in order; ``job``: the highest
    generation of a ``ForgetQueues`` that was planned and has no place yet."""

    epoch: int = 0
    seen: int = 0
    planned: tuple = ()
    job: int = 0
    fenced: bool = False


class Follower(NamedTuple):
    """``fold`` up to commit ``at``, begun at a checkpoint."""

    fold: Gone = None
    at: int = 0


class Holder(NamedTuple):
    """Who names a generation by its number (a plan, a position): with the record that it began with."""

    generation: int = 0
    began: int = 0


class Forgetting:
    """``procs``: dicts; ``kind`` w, f or h. ``budgets``: records, deletions of the topic, lost tails, trims, crashes."""

    def __init__(self, procs, rules=None, N=9, budgets=(3, 2, 1, 2, 0), solo=False):
        self.r = {**RULES, **(rules or {})}
        self.procs, self.N, self.budgets, self.solo = procs, N, budgets, solo
        self._folds = {(): Gone()}

    def init(self):
        kinds = {"w": Line, "f": Follower, "h": Holder}
        start = [kinds[d["kind"]]() for d in self.procs]
        start[0] = Line(epoch=1, seen=1)
        return (0, (("E", 0, 0, 0),), ((), True, 1, 0), (), 0, self.budgets, *start)

    def fold(self, history):
        """The fold of a log."""
        if history not in self._folds:
            self._folds[history] = apply(self.fold(history[:-1]), history[-1], self.r)
        return self._folds[history]

    def goal(self, s):
        """The queue of a topic that is gone is forgotten; or the bounds are reached."""
        _, alive, *_ = s[BROKER]
        return alive or len(s[HISTORY]) >= self.N or not s[BUDGETS][3] or not self.fold(s[HISTORY]).highest

    def put(self, s, i, proc, **k):
        """``s`` with process ``i`` and the named items changed."""
        names = {"history": HISTORY, "broker": BROKER, "budgets": BUDGETS}
        items = list(s)
        for name, value in k.items():
            items[names[name]] = value
        if i is not None:
            items[PROCS + i] = proc
        return tuple(items)

    def spend(self, s, which):
        """The budgets with one less."""
        return tuple(n - (at == which) for at, n in enumerate(s[BUDGETS]))

    def land(self, s, i, w, edit):
        """A commit at the end of the log, and the invariants."""
        history = (*s[HISTORY], edit)
        before, after = self.fold(s[HISTORY]), self.fold(history)
        if after.bad:
            raise Violation(f"A6 the fold refuses the writer's own commit: {after.bad}")
        kind, generation, record, _ = edit
        if kind == "F" and (before.live or before.closed):
            raise Violation(f"G2 forgets a queue that has records: {before.live} {before.closed}")
        if kind == "A" and generation != before.current and self.r["births"]:
            births = [e for n, e in enumerate(s[HISTORY]) if e[0] == "A" and self.begins(s[HISTORY], n)]
            if any(e[1] == generation for e in births):
                raise Violation(f"G1 generation {generation} begins a second time, with record {record}")
        return self.put(s, i, w._replace(seen=len(history)), history=history)

    def begins(self, history, n):
        """Whether commit ``n`` begins a generation."""
        return history[n][1] != self.fold(history[:n]).current

    # ---- steps

    def succ(self, s):
        yield from self.broker(s)
        for i, d in enumerate(self.procs):
            steps = {"w": self.writer, "f": self.follower, "h": self.holder}[d["kind"]]
            for label, fn in steps(s, i, s[PROCS + i], d):
                yield f"{d.get('name', d['kind'])}: {label}", fn

    def broker(self, s):
        log, alive, life, ids = s[BROKER]
        records, deletions, tails, *_ = s[BUDGETS]
        if alive and records:
            made = ((*log, (ids, life)), alive, life, ids + 1)
            yield (
                f"broker: writes {ids}",
                lambda: self.put(s, None, None, broker=made, budgets=self.spend(s, 0)),
            )
        if alive and deletions:
            yield (
                "broker: deletes the topic",
                lambda: self.put(s, None, None, broker=(log, False, life, ids), budgets=self.spend(s, 1)),
            )
        if not alive and records:
            made = (log, True, life + 1, ids)
            yield "broker: makes the topic anew", lambda: self.put(s, None, None, broker=made)
        if tails and log:
            made = (log[:-1], alive, life, ids)
            yield (
                f"broker: loses {log[-1][0]}",
                lambda: self.put(s, None, None, broker=made, budgets=self.spend(s, 2)),
            )

    def writer(self, s, i, w, d):
        history = s[HISTORY]
        top = self.fold(history)
        if w.fenced:
            return
        if not w.epoch:
            after = w._replace(epoch=top.epoch + 1)
            if len(history) < self.N:
                yield f"opens epoch {after.epoch}", lambda: self.land(s, i, after, ("E", 0, 0, 0))
            return
        if s[BUDGETS][4]:
            yield "crashes", lambda: self.put(s, i, Line(), budgets=self.spend(s, 4))
        proven = self.fold(history[: w.seen])
        ahead = proven
        for edit in w.planned:
            ahead = apply(ahead, edit, self.r)
        superseded = top.epoch != w.epoch
        if w.planned and superseded and self.r["fence"]:
            yield "puts its next commit: 412, fenced", lambda: self.put(s, i, w._replace(fenced=True))
        elif w.planned and len(history) < self.N:
            after = w._replace(planned=w.planned[1:])
            yield f"commits {w.planned[0]}", lambda: self.land(s, i, after, w.planned[0])
        if len(w.planned) < 2:
            yield from self.plans(s, i, w, proven, ahead, d)

    def plans(self, s, i, w, proven, ahead, d):
        """What it puts in the line, or is about to."""
        log, alive, *_ = s[BROKER]
        shared = next(
            (n for n, r in enumerate(ahead.archived) if log[n : n + 1] == () or log[n][0] != r), None
        )
        if shared is not None and not w.planned:
            edit = ("W", 0, shared, 0)
            yield f"plans {edit}", lambda: self.put(s, i, w._replace(planned=(edit,)))
        if shared is None and len(log) > len(ahead.archived):
            record, life = log[len(ahead.archived)]
            generation = ahead.current
            if not generation or dict(ahead.lives)[generation] != life:
                generation = (ahead.highest or (ahead.forgotten if self.r["number"] else 0)) + 1
            edit = ("A", generation, record, life)
            yield f"plans {edit}", lambda: self.put(s, i, w._replace(planned=(*w.planned, edit)))
        if s[BUDGETS][3] and ahead.live + ahead.closed:
            edit = ("T", 0, 0, 0)
            after = w._replace(planned=(*w.planned, edit))
            yield "plans a trim", lambda: self.put(s, i, after, budgets=self.spend(s, 3))
        empty = not proven.live and not (proven.closed and self.r["closed"])
        if not alive and proven.highest and empty and not w.job:
            yield "plans to forget the queue", lambda: self.put(s, i, w._replace(job=proven.highest))
        if w.job:
            same = ahead.highest == w.job if self.r["highest"] else ahead.highest
            still = same and not ahead.live and not (ahead.closed and self.r["closed"])
            kept = (*w.planned, ("F", w.job, 0, 0)) if still or not self.r["look"] else w.planned
            yield "settles its ForgetQueues", lambda: self.put(s, i, w._replace(job=0, planned=kept))

    def follower(self, s, i, p, d):
        history = s[HISTORY]
        if p.fold is None:
            for n in range(1, len(history) + 1):
                found = self.fold(history[:n])
                if not self.r["carried"]:
                    found = found._replace(forgotten=0)
                yield f"begins at checkpoint {n - 1}", lambda f=found, n=n: self.put(s, i, Follower(f, n))
        elif p.at < len(history):
            yield f"folds {history[p.at]}", lambda: self.follow(s, i, p)

    def follow(self, s, i, p):
        found = apply(p.fold, s[HISTORY][p.at], self.r)
        if found.bad:
            raise Violation(f"G4 a follower takes a healthy archive for damaged: {found.bad}")
        if found != self.fold(s[HISTORY][: p.at + 1]):
            raise Violation("G4 a follower's fold is not the log's")
        return self.put(s, i, Follower(found, p.at + 1))

    def holder(self, s, i, p, d):
        f = self.fold(s[HISTORY])
        if not f.current:
            return
        births = [e for n, e in enumerate(s[HISTORY]) if e[0] == "A" and self.begins(s[HISTORY], n)]
        began = next(e[2] for e in reversed(births) if e[1] == f.current)
        if not p.generation:
            yield f"names generation {f.current}", lambda: self.put(s, i, Holder(f.current, began))
        elif p.generation == f.current:
            yield "looks it up", lambda: self.same(s, i, p, began)

    def same(self, s, i, p, began):
        if began != p.began:
            raise Violation(
                f"G3 generation {p.generation} began with {p.began}, and is found to begin with {began}"
            )
        return self.put(s, i, Holder())
