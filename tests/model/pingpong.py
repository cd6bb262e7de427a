"""I7 for two supervised daemons: a timed model with urgent steps."""
# ruff: noqa: C901, N803 (as in log_protocol.py)


def pingpong(TW, gap, beat, respawn, rewait=True):
    """Two healthy daemons of two hosts, clock ticks only when nothing is urgent. gap = longest silence of the source,
    beat = an idle writer commits after that many ticks (0: never), respawn = the supervisor restarts a fenced daemon.
    Returns (fences for ever, most fences on a path without a cycle, states)."""
    # state: age of head, owner of the head (0, 1), each daemon: 'S' standby, 'R' believes it is the writer, 'F' fenced
    init = (0, 0, ("R", "S"))
    cap = max(TW, gap, beat) + 1
    seen, stack, edge = {init}, [init], {}
    while stack:
        s = stack.pop()
        age, owner, d = s
        out = []
        urgent = False
        for i in (0, 1):
            if d[i] == "S" and owner != i and age >= TW:  # take over
                urgent = True
                out.append((0, (0, i, tuple("R" if j == i else d[j] for j in (0, 1)))))
            if d[i] == "S" and owner == i:  # restart of the same writer never waits
                urgent = True
                out.append((0, (0, i, tuple("R" if j == i else d[j] for j in (0, 1)))))
            if d[i] == "F" and respawn:
                urgent = True
                out.append((0, (age, owner, tuple("S" if j == i else d[j] for j in (0, 1)))))
            if d[i] == "R":  # traffic may come at any tick, must by `gap`
                due = (beat and age >= beat) or age >= gap
                if owner == i:
                    if age > 0:
                        out.append((0, (0, i, d)))
                    urgent = urgent or bool(due)
                else:  # its commit meets 412: fenced
                    out.append((1, (age, owner, tuple("F" if j == i else d[j] for j in (0, 1)))))
                    urgent = urgent or age >= gap or bool(beat and age >= beat)
        if not urgent:
            out.append((0, (min(age + 1, cap), owner, d)))
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
