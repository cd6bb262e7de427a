#!/usr/bin/env python3
"""Explicit-state model of the archive's protocol: the log, ``Rewind``, ageing, queues that go, sinks. Standard library only.

    python3 archive_model.py --list               scenarios and what each must show
    python3 archive_model.py NAME... [-t]         chosen scenarios (-t: print the trace of each violation)
    python3 archive_model.py --short              the set that `make test` runs
    python3 archive_model.py --all                every scenario and the two supervised daemons
    --seconds=N                                   give up on a scenario after N seconds: a surprise,
                                                  unless it has failed as expected by then
    --json                                        one JSON object a line instead of the table

Exit code 1 on a surprise. Breadth first over every interleaving, so a trace is a shortest one.
"""

import json
import sys

import ageing_scenarios
import forgetting_scenarios
import keeping
import log_scenarios
import rewind_scenarios
import saying
import sinking_scenarios
from explore import explore, progress
from pingpong import pingpong

SCENARIOS = {
    **log_scenarios.S,
    **rewind_scenarios.S,
    **ageing_scenarios.S,
    **forgetting_scenarios.S,
    **sinking_scenarios.S,
    **keeping.S,
    **saying.S,
}
SHORT = (
    "core-small",
    "solo",
    "mut-counted",
    "mut-fence",
    "mut-retire",
    "mut-floor",
    "mut-404",
    "hole-restart",
    *rewind_scenarios.SHORT,
    *ageing_scenarios.SHORT,
    *forgetting_scenarios.SHORT,
    *sinking_scenarios.SHORT,
    *keeping.SHORT,
    *saying.SHORT,
)
DAEMONS = (  # whether there may be a fence for ever, whether there may be one, and the daemons
    (False, False, {"TW": 3, "gap": 2, "beat": 0, "respawn": True}),
    (True, True, {"TW": 3, "gap": 5, "beat": 0, "respawn": True}),
    (False, True, {"TW": 3, "gap": 5, "beat": 0, "respawn": False}),
    (False, False, {"TW": 3, "gap": 5, "beat": 1, "respawn": True}),
    (True, True, {"TW": 0, "gap": 2, "beat": 0, "respawn": True}),
    (False, True, {"TW": 3, "gap": 50, "beat": 0, "respawn": False, "command": True}),
    (False, False, {"TW": 6, "gap": 50, "beat": 2, "respawn": True, "lost": 1, "command": True}),
    (True, True, {"TW": 6, "gap": 50, "beat": 2, "respawn": True, "lost": 2, "command": True}),
)


def run(name, seconds=None):
    """Search one scenario; a dict with its outcome and the traces of its violations."""
    expect, make = SCENARIOS[name]
    model = make()
    if model.solo and not expect:
        found, states, transitions, complete, took = progress(model, seconds)
    else:
        found, states, transitions, complete, took = explore(model, want=expect or None, seconds=seconds)
    return {
        "scenario": name,
        "expected": expect or None,
        "as_expected": expect in found if expect else complete and not found,
        "states": states,
        "transitions": transitions,
        "complete": complete,
        "seconds": round(took, 1),
        "violations": [v[0] for v in found.values()],
        "traces": [v[1] for v in found.values()],
    }


def show(result, traces):
    """One line of the table, then the traces if wanted."""
    verdict = "as expected" if result["as_expected"] else "UNEXPECTED"
    search = "complete" if result["complete"] else "stopped"
    print(
        f"{result['scenario']:<20} {verdict}  states {result['states']}  transitions {result['transitions']}  {search}"
        f"  {result['seconds']:.1f} s  {'; '.join(result['violations']) or 'no violation'}",
        flush=True,
    )
    for trace in result["traces"] if traces else ():
        for number, step in enumerate(trace, 1):
            print(f"    {number:2d} {step}")


def main(argv):
    """Run what the arguments name; 0, or 1 on a surprise, or 2 for a name that is none."""
    names = [a for a in argv if not a.startswith("-")]
    if "--list" in argv:
        for name, (expect, _) in SCENARIOS.items():
            print(
                f"{name:<20} {'violates ' + expect if expect else 'holds'}{'  (short)' if name in SHORT else ''}"
            )
        return 0
    names += SHORT if "--short" in argv else SCENARIOS if "--all" in argv else ()
    unknown = [n for n in names if n not in SCENARIOS]
    if unknown or not (names or "--pingpong" in argv):
        print(f"unknown scenario: {', '.join(unknown)}" if unknown else __doc__, file=sys.stderr)
        return 2
    seconds = next((float(a[10:]) for a in argv if a.startswith("--seconds=")), None)
    surprises = 0
    for name in names:
        result = run(name, seconds)
        surprises += not result["as_expected"]
        if "--json" in argv:
            print(json.dumps({k: v for k, v in result.items() if k != "traces"}), flush=True)
        else:
            show(result, "-t" in argv)
    if "--all" in argv or "--pingpong" in argv:
        for *expected, daemons in DAEMONS:
            forever, some, states = pingpong(**daemons)
            surprises += [forever, some] != expected
            print(f"two daemons {daemons}: fences for ever {forever}, any fence {some}, states {states}")
    if "--json" not in argv:
        print(f"{len(names) - surprises} passed, {surprises} failed")
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
