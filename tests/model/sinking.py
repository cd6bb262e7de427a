"""Sinks: ``SinkProgress`` and ``SinkMap`` on the log, destinations, and retention that waits (DESIGN.md, "Sinks", J).

One queue. The broker writes records and may lose its newest ones; a record is its number, and its place in the queue is where
it stands. The log is taken as ``log_protocol.py`` shows it to be: a commit of the epoch in force lands at the end, any other
one is fenced. A state is (0, history, world, -, 0, budgets, process...).

An edit is ``(kind, sink, place, looked, back, mapped)``: E OpenEpoch; A the record ``place``; W Rewind to ``place``; T
TrimQueue of the record at ``place``; P a sink's progress to ``place``, having accounted for rewinds up to commit ``looked``;
``back``: its step is BACK; its map ends at ``mapped``.
"""
# ruff: noqa: N803 (N as in README.md)

from typing import NamedTuple

from explore import Violation

HISTORY, WORLD, BUDGETS, PROCS = 1, 2, 5, 6  # items of a state

RULES = {
    "flush": True,  # J1; mutation: False = progress is committed ahead of the flush
    "back": True,  # J2; mutation: False = a row that goes back does not say so
    "account": True,  # J3; mutation: False = a sink is opened without looking for what the broker lost
    "tell": True,  # J3; mutation: False = what the broker lost is not reported
    "reopen": True,  # J3; mutation: False = a sink goes on over a rewind
    "heard": True,  # J3; mutation: False = messages are given before the archive has heard of the loss
    "own": True,  # mutation: False = where a destination keeps its position, the archive's counts all the same
    "map": True,  # J9; mutation: False = progress without its map
    "least": True,  # J7; mutation: False = retention goes by the required sink that is furthest
    "given": True,  # J7; mutation: False = what a sink will be given again after a rewind counts as given
    "look": True,  # J7; mutation: False = a trim is committed as it was planned
    "fence": True,  # M1; mutation: False = a superseded writer's commits land
    "shut": True,  # mutation: False = a destination takes messages of an earlier epoch's sink
}


class Known(NamedTuple):
    """What the archive says of a sink."""

    next: int
    looked: int
    mapped: int


class Fold(NamedTuple):
    """``archived``: records by place; below ``low`` they are trimmed; ``rewinds``: ((commit, place), ...)."""

    epoch: int = 0
    archived: tuple = ()
    low: int = 0
    rewinds: tuple = ()
    known: tuple = ()
    bad: str = ""


def apply(f, edit, number):
    """The fold behind commit ``number``; ``bad`` says why it is refused."""
    kind, sink, place, looked, back, mapped = edit
    if kind == "E":
        return f._replace(epoch=f.epoch + 1)
    if kind == "A":
        return f._replace(archived=(*f.archived, place))
    if kind == "T":
        return f._replace(low=place + 1)
    if kind == "W":
        return f._replace(
            archived=f.archived[:place], low=min(f.low, place), rewinds=(*f.rewinds, (number, place))
        )
    before, bad = f.known[sink], ""
    if before is not None and not back and (place, looked) < (before.next, before.looked):
        bad = f"SinkProgress goes back from {before.next} to {place}"
    if mapped != place:
        bad = f"SinkProgress to {place} with a map that ends at {mapped}"
    known = (*f.known[:sink], Known(place, looked, mapped), *f.known[sink + 1 :])
    return f._replace(known=known, bad=bad)


class There(NamedTuple):
    """A destination: records ``given``, in its order; the position that it keeps in step with them; the epoch that has it;
    records of which it was said that the broker lost them."""

    given: tuple = ()
    next: int = 0
    epoch: int = 0
    told: tuple = ()


class Open(NamedTuple):
    """A sink that is open. ``unheard``: nothing is given before its row is in the archive."""

    next: int
    looked: int
    back: bool = False
    unheard: bool = False


class Writer(NamedTuple):
    """``seen``: commits folded; ``job``: the place of a trim that was planned, -1: none."""

    epoch: int = 0
    seen: int = 0
    job: int = -1
    sinks: tuple = ()
    fenced: bool = False


class Sinking:
    """``sinks``: (keeps its position, required) of each; ``budgets``: records, lost tails, trims, crashes."""

    def __init__(self, sinks, writers=1, rules=None, N=9, budgets=(3, 1, 1, 1), solo=False):
        self.r = {**RULES, **(rules or {})}
        self.sinks, self.writers, self.N, self.budgets, self.solo = sinks, writers, N, budgets, solo
        self._folds = {(): Fold(known=(None,) * len(sinks))}

    def init(self):
        none = (None,) * len(self.sinks)
        first = Writer(epoch=1, seen=1, sinks=none)
        others = (Writer(sinks=none),) * (self.writers - 1)
        world = ((), 0, (There(),) * len(self.sinks))
        return (0, (("E", 0, 0, 0, False, 0),), world, (), 0, self.budgets, first, *others)

    def fold(self, history):
        """The fold of a log."""
        if history not in self._folds:
            self._folds[history] = apply(self.fold(history[:-1]), history[-1], len(history))
        return self._folds[history]

    def goal(self, s):
        """The archive knows that every sink has everything; or the bounds are reached."""
        f = self.fold(s[HISTORY])
        return len(s[HISTORY]) >= self.N or all(k is not None and k.next == len(f.archived) for k in f.known)

    def put(self, s, i, proc, **k):
        """``s`` with process ``i`` and the named items changed."""
        names = {"history": HISTORY, "world": WORLD, "budgets": BUDGETS}
        items = list(s)
        for name, value in k.items():
            items[names[name]] = value
        if i is not None:
            items[PROCS + i] = proc
        return tuple(items)

    def spend(self, s, which):
        """The budgets with one less."""
        return tuple(n - (at == which) for at, n in enumerate(s[BUDGETS]))

    # ---- commits and what must hold of them

    def commit(self, s, i, w, edit, after, **more):
        """The step of a commit: it lands, or its writer is fenced. ``after``: the writer behind it."""
        if self.fold(s[HISTORY]).epoch != w.epoch and self.r["fence"]:
            yield (
                f"puts {edit}: 412, fenced",
                lambda: self.put(s, i, w._replace(fenced=True, job=-1, sinks=())),
            )
        elif len(s[HISTORY]) < self.N:
            yield f"commits {edit}", lambda: self.land(s, i, after, edit, **more)

    def land(self, s, i, after, edit, **more):
        """A commit at the end of the log, and the invariants."""
        history = (*s[HISTORY], edit)
        f = self.fold(history)
        if f.bad:
            raise Violation(f"A6 the fold refuses the writer's own commit: {f.bad}")
        kind, sink, place, *_ = edit
        if kind == "T":
            for there, (_, required) in zip(s[WORLD][2], self.sinks, strict=True):
                if required and f.archived[place] not in there.given:
                    raise Violation(
                        f"K3 record {f.archived[place]} is trimmed, and a required sink never had it"
                    )
        if kind == "P":
            self.progressed(f, sink, s[WORLD][2][sink])
        return self.put(s, i, after._replace(seen=len(history)), history=history, **more)

    def progressed(self, f, sink, there):
        """What the archive says of a sink is true."""
        known = f.known[sink]
        missing = [r for r in f.archived[f.low : known.next] if r not in there.given]
        if missing or known.next > len(f.archived):
            raise Violation(f"K1 the archive says {known.next}, and the destination does not have {missing}")
        keeps, _ = self.sinks[sink]  # of others nobody knows what they were given behind the archive's word
        if keeps and all(number <= known.looked for number, _ in f.rewinds):
            hidden = [r for r in there.given if r not in f.archived and r not in there.told]
            if hidden:
                raise Violation(f"K4 the broker lost {hidden}, which the sink has had, and nobody says so")

    def give(self, s, i, after, sink, place):
        """A record comes to a destination, in one step with the position where that is kept there."""
        log, ids, theres = s[WORLD]
        there, (keeps, _) = theres[sink], self.sinks[sink]
        record = self.fold(s[HISTORY][: s[PROCS + i].seen]).archived[place]
        if keeps and record in there.given:
            raise Violation(f"K2 record {record} is there twice")
        made = there._replace(given=(*there.given, record), next=place + 1)
        return self.put(s, i, after, world=(log, ids, (*theres[:sink], made, *theres[sink + 1 :])))

    # ---- steps

    def succ(self, s):
        log, ids, theres = s[WORLD]
        records, tails, *_ = s[BUDGETS]
        if records:
            made = ((*log, ids), ids + 1, theres)
            yield (
                f"broker: writes {ids}",
                lambda: self.put(s, None, None, world=made, budgets=self.spend(s, 0)),
            )
        if tails and log:
            less = (log[:-1], ids, theres)
            yield (
                f"broker: loses {log[-1]}",
                lambda: self.put(s, None, None, world=less, budgets=self.spend(s, 1)),
            )
        for i in range(self.writers):
            for label, fn in self.writer(s, i, s[PROCS + i]):
                yield f"writer {'AB'[i]}: {label}", fn

    def writer(self, s, i, w):
        history, none = s[HISTORY], (None,) * len(self.sinks)
        if w.fenced:
            return
        if not w.epoch:
            after = Writer(epoch=self.fold(history).epoch + 1, sinks=none)
            if len(history) < self.N:
                edit = ("E", 0, 0, 0, False, 0)
                yield f"opens epoch {after.epoch}", lambda: self.land(s, i, after, edit)
            return
        if s[BUDGETS][3]:
            yield "crashes", lambda: self.put(s, i, Writer(sinks=none), budgets=self.spend(s, 3))
        f = self.fold(history[: w.seen])
        yield from self.archives(s, i, w, f)
        yield from self.trims(s, i, w, f)
        for sink in range(len(self.sinks)):
            yield from self.sink(s, i, w, f, sink)

    def archives(self, s, i, w, f):
        """The next record, or what the broker lost."""
        log, *_ = s[WORLD]
        shared = next((n for n, r in enumerate(f.archived) if log[n : n + 1] != (r,)), None)
        if shared is not None:
            yield from self.commit(s, i, w, ("W", 0, shared, 0, False, 0), w)
        elif len(log) > len(f.archived):
            yield from self.commit(s, i, w, ("A", 0, log[len(f.archived)], 0, False, 0), w)

    def trims(self, s, i, w, f):
        """A trim of the oldest record: planned, then settled where it takes its place."""
        if w.job < 0:
            if s[BUDGETS][2] and self.may_go(f, f.low):
                after = w._replace(job=f.low)
                yield f"plans to trim {f.low}", lambda: self.put(s, i, after, budgets=self.spend(s, 2))
        elif w.job == f.low < len(f.archived) and (self.may_go(f, w.job) or not self.r["look"]):
            yield from self.commit(s, i, w, ("T", 0, w.job, 0, False, 0), w._replace(job=-1))
        else:
            yield "gives its trim up", lambda: self.put(s, i, w._replace(job=-1))

    def may_go(self, f, place):
        """Whether retention may have what lies at a place."""
        had = []
        for known, (_, required) in zip(f.known, self.sinks, strict=True):
            if required:
                cuts = [
                    at for n, at in f.rewinds if known is not None and n > known.looked and self.r["given"]
                ]
                had.append(known is not None and min([known.next, *cuts]) > place)
        return place < len(f.archived) and (all(had) if self.r["least"] else any(had))

    def sink(self, s, i, w, f, sink):
        """What the runner of a sink does."""
        opened, there = w.sinks[sink], s[WORLD][2][sink]
        keeps, _ = self.sinks[sink]
        shut = keeps and there.epoch > w.epoch and self.r["shut"]
        if opened is None:
            if not shut:
                yield f"opens sink {sink}", lambda: self.opens(s, i, w, f, sink)
            return
        if shut:  # it finds out when it flushes
            yield f"sink {sink} is fenced", lambda: self.put(s, i, w._replace(fenced=True, job=-1, sinks=()))
            return
        if any(n > opened.looked for n, _ in f.rewinds) and self.r["reopen"]:
            yield f"closes sink {sink}", lambda: self.put(s, i, self.having(w, sink, None))
            return
        place = max(opened.next, f.low)
        if place < len(f.archived) and not opened.unheard:
            after = self.having(w, sink, opened._replace(next=place + 1))
            yield f"sink {sink} is given place {place}", lambda: self.give(s, i, after, sink, place)
        known = f.known[sink]
        said = opened.next if self.r["flush"] else min(opened.next + 1, len(f.archived))
        if known is None or (known.next, known.looked) != (said, opened.looked):
            back = opened.back and self.r["back"]
            mapped = said if self.r["map"] or known is None else known.mapped
            after = self.having(w, sink, opened._replace(back=False, unheard=False))
            yield from self.commit(s, i, w, ("P", sink, said, opened.looked, back, mapped), after)

    def having(self, w, sink, opened):
        """The writer with a sink changed."""
        return w._replace(sinks=(*w.sinks[:sink], opened, *w.sinks[sink + 1 :]))

    def opens(self, s, i, w, f, sink):
        """Where the destination is, held against the archive."""
        log, ids, theres = s[WORLD]
        there, known = theres[sink], f.known[sink]
        keeps, _ = self.sinks[sink]
        start = 0 if known is None else known.next
        if keeps and self.r["own"]:
            start = there.next
        cut = start
        if self.r["account"] and known is not None:
            cut = min([start, *(place for n, place in f.rewinds if n > known.looked)])
        made = there._replace(epoch=max(there.epoch, w.epoch) if keeps else 0)
        if cut < start:
            lost = {r for r in there.given if r not in f.archived and self.r["tell"]}
            made = made._replace(next=cut, told=tuple(sorted({*there.told, *lost})))
        news = known is not None and any(n > known.looked for n, _ in f.rewinds)
        unheard = known is None or (news and self.r["heard"])
        back = known is not None and cut < known.next
        after = self.having(w, sink, Open(cut, w.seen, back, unheard))
        return self.put(s, i, after, world=(log, ids, (*theres[:sink], made, *theres[sink + 1 :])))
