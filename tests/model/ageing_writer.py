"""Steps of a process that writes an archive that ages, or did (DESIGN.md, "Ageing": M, D, C)."""
# ruff: noqa: C901 (a step relation reads best as one table)

from typing import NamedTuple

from ageing_fold import last_named, show

HISTORY, COMMITS, STORE, NET, FAULTS, PROCS = 1, 2, 3, 5, 6, 7  # items of a state


class Writer(NamedTuple):
    """``seen``: commits folded. ``flush``: object put, its run not committed. ``job``: (moves, object, put?) of a merge.

    ``listed``: keys about to be retired; ``gave``: keys made and given up. Of mutations:
    ``todo``, keys to delete after their Deleted; ``false``, edits that do not count and are taken for counted."""

    epoch: int = 0
    seen: int = 0
    made: int = 0
    flush: tuple = None
    job: tuple = None
    listed: frozenset = None
    gave: frozenset = frozenset()
    todo: frozenset = frozenset()
    false: tuple = ()
    fenced: bool = False


class Writing:
    """Steps of a ``Writer``, in force or superseded."""

    def writer(self, s, i, w, d):
        history = s[HISTORY]
        top, room = self.fold(history), len(history) < self.N
        late, crash, resend = s[FAULTS]
        if w.fenced:
            return
        if not w.epoch:
            if room and (history or i == 0):
                yield (
                    f"opens epoch {top.epoch + 1}",
                    lambda: self.land(s, i, w._replace(epoch=top.epoch + 1), ("E", None, None)),
                )
            return
        f = self.fold(history[: w.seen] + w.false)
        if crash:
            yield "crashes", lambda: self.put(s, i, Writer(), faults=(late, crash - 1, resend))
        if "G" in d["can"]:
            yield from self.sweep(s, i, w, f, late)
        if "X" in d["can"]:
            yield from self.remove(s, i, w, f)
        if w.job and not w.job[2] and self.r["put_first"]:
            moves, key, _ = w.job
            yield (
                f"puts {show(key)}",
                lambda: self.put(s, i, w._replace(job=(moves, key, True)), store=s[STORE] | {key}),
            )
        if "a" in d["can"] and not w.flush and w.made < d["made"]:
            key = ("d", w.epoch, w.made)
            yield (
                f"puts {show(key)} of a flush",
                lambda: self.put(s, i, w._replace(flush=key, made=w.made + 1), store=s[STORE] | {key}),
            )
        if "R" in d["can"] and w.listed is None and (top.epoch == w.epoch or w.false):
            found = self.garbage(s, w, f)
            if found:
                yield "lists garbage", lambda: self.put(s, i, w._replace(listed=found))
        if top.epoch != w.epoch:
            yield from self.superseded(s, i, w)
            return
        if "m" in d["can"] and not w.job and w.made < d["made"]:
            moves = tuple((r, 0, k) for r, k in f.live) + tuple(f.closed)
            key = ("d", w.epoch, w.made)
            fresh = {e[1] for e in history if e[0] == "A"}
            if moves and (d.get("again") or any(k in fresh for *_, k in moves)):
                yield (
                    f"plans a merge of {[r for r, *_ in moves]}",
                    lambda: self.put(s, i, w._replace(job=(moves, key, False), made=w.made + 1)),
                )
        if room:
            yield from self.commits(s, i, w, f, d)

    def superseded(self, s, i, w):
        """Its next commit; all that it may still do without one is above."""
        n = w.seen + len(w.false)
        if n >= len(s[COMMITS]) or s[COMMITS][n][0] == 1:
            yield (
                "puts its next commit: 412, fenced",
                lambda: self.put(s, i, Writer(w.epoch, w.seen, fenced=True)),
            )
        elif s[COMMITS][n][0] == 0:
            after, edit = Writer(w.epoch, w.seen, fenced=True), None
            if not self.r["counted"] and w.job and w.job[2]:
                edit, after = ("M", w.job[1], w.job[0]), w._replace(job=None)
            elif not self.r["counted"] and w.listed:
                edit, after = ("R", tuple(sorted(w.listed)), None), w._replace(listed=None)
            elif not self.r["counted"]:
                return
            commits = (*s[COMMITS][:n], (2, 0), *s[COMMITS][n + 1 :])
            after = after._replace(false=(*w.false, edit)) if edit else after
            yield (
                f"creates a commit under the free number {n}",
                lambda: self.put(s, i, after, commits=commits),
            )

    def commits(self, s, i, w, f, d):
        can, history = d["can"], s[HISTORY]
        done = [e[0] for e in history]
        if w.flush:
            yield "commits its flush", lambda: self.land(s, i, w._replace(flush=None), ("A", w.flush, None))
        if "i" in can and f.records < d["records"]:
            inline = ("i", len(history), 0)
            yield "commits a record inline", lambda: self.land(s, i, w, ("A", inline, None))
        if "W" in can and done.count("W") < d.get("rewinds", 1) and f.live:
            at = f.live[-1][0]
            yield f"Rewind to record {at}", lambda: self.land(s, i, w, ("W", at, None))
        if "T" in can and done.count("T") < d.get("trims", 1) and f.live:
            at = f.live[0][0]
            yield f"trims record {at}", lambda: self.land(s, i, w, ("T", at, None))
        if "F" in can and len(f.floors) < d.get("floors", 1):
            yield f"moves the floor to {len(history)}", lambda: self.land(s, i, w, ("R", (), len(history)))
        if w.job and (w.job[2] or not self.r["put_first"]):
            yield "settles its merge", lambda: self.settle(s, i, w, f)
        if w.listed is not None:
            names = frozenset(k for k in w.listed if k not in f.refs and k not in dict(f.retired))
            after = w._replace(listed=None, gave=w.gave - names)
            edit = ("R", tuple(sorted(names, key=str)), None)
            if names:
                yield (
                    f"Retire of {[show(k) for k in edit[1]]}",
                    lambda: self.land(s, i, after, edit),
                )
            else:
                yield "finds nothing left to retire", lambda: self.put(s, i, after)
        gone = {k for k, r in f.retired if self.over(s, r, self.r["G"])}
        if self.r["deletes_first"]:
            gone = {k for k in gone if k not in s[STORE]}
        if "D" in can and gone:
            after = w._replace(todo=frozenset() if self.r["deletes_first"] else frozenset(gone))
            edit = ("D", tuple(sorted(gone, key=str)), None)
            yield f"Deleted {[show(k) for k in edit[1]]}", lambda: self.land(s, i, after, edit)

    def settle(self, s, i, w, f):
        """M4: what is still as planned is merged, the rest dropped; a merge of nothing is given up."""
        moves, key, put = w.job
        if self.r["settle"]:
            live, closed = dict(f.live), {(r, c): k for r, c, k in f.closed}
            moves = tuple(m for m in moves if (closed.get(m[:2]) if m[1] else live.get(m[0])) == m[2])
        if not moves:
            return self.put(s, i, w._replace(job=None, gave=w.gave | {key}))
        after = self.land(s, i, w._replace(job=None), ("M", key, moves))
        return after if put else self.put(after, None, None, store=after[STORE] | {key})

    def garbage(self, s, w, f):
        """D2: objects without references, and orphans."""
        retired = dict(f.retired)
        named = {k for k in f.known if k[0] != "i" and k not in f.refs and k not in retired}
        ours = {
            k for k in s[STORE]
            if k not in f.known and k not in retired and not (w.job and k == w.job[1])
            and (k[1] < w.epoch or k in w.gave or not self.r["own_epoch"])
        }  # fmt: skip
        return frozenset(named | ours)

    def sweep(self, s, i, w, f, late):
        """Deletes: of what a Retire names that this process takes for counted, in force or not."""
        due = {k for k, r in f.retired if not self.r["grace"] or self.over(s, r, self.r["G"])} | w.todo
        if not self.r["by_retire"]:
            due |= {k for k in s[STORE] if k not in f.known and k not in (w.flush, w.job and w.job[1])}
        faults = (late - 1, *s[FAULTS][1:])
        for key in sorted(due & s[STORE], key=str):
            after = w._replace(todo=w.todo - {key})
            yield f"deletes {show(key)}", lambda key=key, after=after: self.delete(s, i, after, key)
            if late and key not in s[NET]:
                yield (
                    f"deletes {show(key)}: no answer, in flight",
                    lambda key=key, after=after: self.put(s, i, after, net=s[NET] | {key}, faults=faults),
                )

    def remove(self, s, i, w, f):
        """C2: commits below the floor, by whoever knows of it."""
        for n in range(1, f.floor):
            moved = next(seq for floor, seq in f.floors if floor > n)
            if s[COMMITS][n][0] != 1 or not self.over(s, moved, self.r["R"]):
                continue
            key = ("i", n, 0)
            if self.r["inline"] and key in f.refs:
                continue
            last = last_named(s[HISTORY][: w.seen], self.r["lax"], key)
            if self.r["inline_grace"] and last is not None and not self.over(s, last, self.r["G"]):
                continue
            commits = (*s[COMMITS][:n], (0, self.cap), *s[COMMITS][n + 1 :])
            yield (
                f"removes commit {n}",
                lambda commits=commits: self.check(self.put(s, i, w, commits=commits)),
            )
