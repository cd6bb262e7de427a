"""I7 for two supervised daemons, and for a command beside them: a timed model with urgent steps."""
# ruff: noqa: C901, N803 (as in log_protocol.py)

COMMAND = 2  # an owner of the head: a command that came, did its work and has ended


def pingpong(TW, gap, beat, respawn, lost=0, command=False):
    """Two healthy daemons of two hosts, clock ticks only when nothing is urgent. gap = longest silence of the source,
    beat = an idle writer shows that it lives after that many ticks without a sign (0: never), lost = so many beats in a row
    may be lost, respawn = the supervisor restarts a fenced daemon, command = one may come and claims the archive if its
    writer counts as gone. A beat is looked for by all who wait, and its writer looks for another's commit with it.
    Returns (fences for ever, most fences on a path without a cycle, states)."""
    # state: age of the last sign, its owner (0, 1 or COMMAND), each daemon: 'S' standby, 'R' believes it is the writer,
    # 'F' fenced; beats lost in a row
    init = (0, 0, ("R", "S"), 0)
    cap = max(TW, gap, beat * (lost + 1)) + 1
    seen, stack, edge = {init}, [init], {}
    while stack:
        s = stack.pop()
        age, owner, d, missed = s
        out = []
        urgent = False
        beats = beat and age >= beat * (missed + 1)
        if command and owner != COMMAND and age >= TW:
            out.append((0, (0, COMMAND, d, 0)))
        for i in (0, 1):
            if (
                d[i] == "S" and owner != i and (age >= TW or owner == COMMAND)
            ):  # take over; a goodbye needs no silence
                urgent = True
                out.append((0, (0, i, tuple("R" if j == i else d[j] for j in (0, 1)), 0)))
            if d[i] == "S" and owner == i:  # restart of the same writer never waits
                urgent = True
                out.append((0, (0, i, tuple("R" if j == i else d[j] for j in (0, 1)), 0)))
            if d[i] == "F" and respawn:
                urgent = True
                out.append((0, (age, owner, tuple("S" if j == i else d[j] for j in (0, 1)), missed)))
            if d[i] == "R":  # traffic may come at any tick, must by `gap`
                due = beats or age >= gap
                if owner == i:
                    if age > 0:
                        out.append((0, (0, i, d, 0)))
                    if beats and missed < lost and age < gap:
                        out.append((0, (age, i, d, missed + 1)))
                    urgent = urgent or bool(due)
                else:  # its commit meets 412, or its look another's commit: fenced
                    out.append((1, (age, owner, tuple("F" if j == i else d[j] for j in (0, 1)), missed)))
                    urgent = urgent or bool(due)
        if not urgent:
            out.append((0, (min(age + 1, cap), owner, d, missed)))
        edge[s] = out
        for _, x in out:
            if x not in seen:
                seen.add(x)
                stack.append(x)

    # a fence on a cycle: some fence edge whose target reaches its source
    def reach(a):
        r, st = {a}, [a]
        while st:
            for _, y in edge[st.pop()]:
                if y not in r:
                    r.add(y)
                    st.append(y)
        return r

    forever = any(w and a in reach(b) for a in edge for w, b in edge[a])
    some = any(w for a in edge for w, b in edge[a])
    return forever, some, len(seen)
