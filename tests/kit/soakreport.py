"""What a randomised campaign did and found, and what the logs of its daemons say of their maintenance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.table import Table

from tests.kit.oracle import MayGo, Oracle, Verdict, compare
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View

ALWAYS = frozenset(
    {"merge merged_runs", "gc named_keys", "gc deleted_keys", "gc moved_floors", "gc removed_commits"}
    | {"checkpoint written", "scrub reading_objects", "scrub listing_objects"}
)
"""Work that a campaign without has proven nothing about ageing."""
DELETING = frozenset(name for name in ALWAYS if name.startswith("gc "))
OF_OLD_DAYS = frozenset({"seal written_files", "retain trimmed_queues"})
"""The same, where the broker's messages are of days that are over."""
SHOWN_TROUBLES = 20


@dataclass
class Work:
    """What daemons wrote to their logs, added up. ``bugs``: tracebacks; ``troubles``: what was not possible, and how often."""

    logs: tuple[Path, ...]
    done: Counter[str] = field(default_factory=Counter)
    bugs: list[str] = field(default_factory=list)
    troubles: Counter[str] = field(default_factory=Counter)
    _read: dict[Path, int] = field(default_factory=dict)
    _report: list[str] = field(default_factory=list)

    def look(self) -> Work:
        """Take in the lines that are whole by now."""
        for log in self.logs:
            if not log.exists():
                continue
            with log.open("rb") as file:
                file.seek(self._read.get(log, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[log] = self._read.get(log, 0) + len(whole)
            for line in whole.decode(errors="replace").splitlines():
                self._take(line)
        return self

    def missing(self, wanted: Iterable[str]) -> list[str]:
        """What of this was never done."""
        return sorted(name for name in wanted if not self.done[name])

    def _take(self, line: str) -> None:
        if line.startswith('{"time"'):
            self._report = []  # a kill cut it
        if line == "{" or self._report:  # of many lines: what ``tiered maintain --json`` says at its end
            self._report.append(line)
            if line != "}":
                return
            line, self._report = "".join(self._report), []
        try:
            said = json.loads(line[line.index("{") :])
        except ValueError:  # a line that a kill cut, or words for people
            if "Traceback (most recent call last)" in line:
                self.bugs.append(line)
            return
        if not isinstance(said, dict):
            return
        if "traceback" in said:
            self.bugs.append(line)
        if "message" not in said:
            self._take_reports(said)
        elif said["message"] == "maintenance":
            self._add(str(said["task"]), said)
        elif said["message"] == "checkpoint written":
            self.done["checkpoint written"] += 1
        elif "error" in said and "task" in said:
            self.troubles[f"{said['task']}: {str(said['error'])[:120]}"] += 1

    def _take_reports(self, said: dict[str, Any]) -> None:
        """What was done, by task."""
        for task, report in said.items():
            if isinstance(report, dict) and "turns" in report:
                self._add(task, report)
                for trouble in report.get("troubles", []):
                    self.troubles[f"{task}: {str(trouble)[:120]}"] += 1

    def _add(self, task: str, figures: dict[str, Any]) -> None:
        for name, value in figures.items():
            if isinstance(value, int) and not isinstance(value, bool):
                self.done[f"{task} {name}"] += value


@dataclass(slots=True)
class Outcome:
    """What the campaign did and found. ``rounds``: times that everything was compared; ``crashed``: points at which a daemon
    ended; ``silent``: maintenance that never happened."""

    seed: int
    seconds: float = 0.0
    kills: int = 0
    rounds: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    crashed: Counter[str] = field(default_factory=Counter)
    work: Work = field(default_factory=lambda: Work(()))
    silent: list[str] = field(default_factory=list)
    written: int = 0
    epochs: int = 0
    commits: int = 0
    floor: int = 0
    levels: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    damage: int = 0
    error: str = ""

    def compare(self, archive: View, oracle: Oracle, may_go: MayGo) -> None:
        """Look at the whole archive: what it holds, whether that is what the broker held, and each of its bytes."""
        head = archive.state.head()
        assert head is not None
        self.epochs, self.commits, self.floor = head.epoch, head.seq + 1, head.floor
        needed = [item for item in archive.state.objects() if item.references]
        self.levels = Counter(f"objects of level {item.level}" for item in needed)
        self.verdict = compare(archive, oracle, may_go=may_go)
        report = Verifier(archive).run(deep=True)
        self.damage = len(report.damage)
        self.verdict.details += [f"{d.what} {d.key} {d.detail}" for d in report.damage]
        self.work.look()

    @property
    def sound(self) -> bool:
        """Nothing lost, doubled, reordered, changed, invented or damaged, nor called so by the scrub."""
        found = self.damage + self.work.done["scrub damage"] + self.verdict.in_gaps
        return self.verdict.good and not found

    @property
    def good(self) -> bool:
        """Sound, no surprise on the way, and whatever ages an archive was done."""
        return self.sound and not self.error and not self.silent and not self.work.bugs

    def facts(self) -> dict[str, Any]:
        """For the JSON report."""
        v = self.verdict
        return {
            "good": self.good, "seed": self.seed, "seconds": round(self.seconds, 1), "kills": self.kills, "rounds": self.rounds,
            "messages_written": self.written, "messages": v.messages, "readable": v.readable, "trimmed": v.trimmed,
            "lost": v.lost, "doubled": v.doubled, "reordered": v.reordered, "changed": v.changed, "invented": v.invented,
            "in_gaps": v.in_gaps, "damage": self.damage, "epochs": self.epochs, "commits": self.commits, "floor": self.floor,
            "levels": dict(sorted(self.levels.items())), "actions": dict(sorted(self.actions.items())),
            "action_seconds": {name: round(spent, 1) for name, spent in self.spent.items()},
            "crashed_at": dict(sorted(self.crashed.items())),
            "maintenance": {name: n for name, n in sorted(self.work.done.items()) if n},
            "never_done": self.silent, "bugs": self.work.bugs[:5],
            "troubles": dict(self.work.troubles.most_common(SHOWN_TROUBLES)),
            "details": v.details[:20], "error": self.error,
        }  # fmt: skip


def table(outcome: Outcome) -> Table:
    """The report for people."""
    made = Table("what", title=f"soak, seed {outcome.seed}: {outcome.seconds:.0f} s")
    made.add_column("count", justify="right")
    facts = outcome.facts()
    for name in ("kills", "rounds", "messages_written", "messages", "trimmed", "commits", "floor", "epochs"):
        made.add_row(name.replace("_", " "), f"{facts[name]:,}")
    for name, count in facts["levels"].items():
        made.add_row(name, f"{count:,}")
    made.add_section()
    for name in ("lost", "doubled", "reordered", "changed", "invented", "in_gaps", "damage"):
        made.add_row(name.replace("_", " "), f"[{'red' if facts[name] else 'green'}]{facts[name]:,}")
    for part in ("actions", "crashed_at", "maintenance"):
        made.add_section()
        for name, count in facts[part].items():
            made.add_row(name.replace("_", " "), f"{count:,}")
    made.add_section()
    for name in facts["never_done"]:
        made.add_row(name.replace("_", " "), "[red]never")
    return made
