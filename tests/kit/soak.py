"""``make soak``: a randomised campaign of faults, and at its end the question whether anything was lost, doubled or reordered.

``python -m tests.kit.soak --seconds N --seed S``: a broker writes all the time; daemon and broker are killed, the daemon at
numbered crash points too; the broker loses its tail; files expire; local state is deleted; a second daemon takes over while the
first is stopped; the store answers 503, hangs, cuts and dies. The same seed asks for the same actions; when they hit differs.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.kit import cache
from tests.kit.daemonproc import CRASHED, SMALL_FLUSHES, Daemon
from tests.kit.faultproxy import Action, Rule
from tests.kit.oracle import Verdict, compare, opened
from tests.kit.process import PATIENCE
from tests.kit.soaksources import Place, SoakSource, generated, place_of, real
from tiered.archive.read.verify import Verifier
from tiered.crashpoint import CrashPoint

UNAVAILABLE, FENCED, KILLED = 4, 7, -9
FAULTS: tuple[tuple[Rule, ...], ...] = (
    (Rule(Action.STATUS, 0.5, status=503),),
    (Rule(Action.STATUS, 0.5, method="PUT", status=500),),
    (Rule(Action.CUT_BEFORE_ANSWER, 0.6, method="PUT"),),
    (Rule(Action.SWALLOW, 0.4, method="PUT", times=3),),
    (Rule(Action.CUT_REQUEST, 0.5, after_bytes=300),),
    (Rule(Action.CUT_ANSWER, 0.5, after_bytes=30),),
    (Rule(Action.BLACK_HOLE, 0.5, times=4),),
    (Rule(Action.REFUSE, 0.6),),
    (Rule(Action.DELAY, 0.7, seconds=0.3),),
    (Rule(Action.THROTTLE, bytes_per_second=100_000),),
)
VARIANTS: tuple[dict[str, object], ...] = (
    {},
    {"dispatch.inline_bytes": 0, "dispatch.object_bytes": 65_536},
    {"archive.checkpoint_commits": 3},
    {"dispatch.group_commit_bytes": 1 << 20, "dispatch.block_bytes": 65_536},
)


class SoakError(Exception):
    """The campaign met something that must not happen."""


@dataclass(slots=True)
class Outcome:
    """What the campaign did and found."""

    seed: int
    seconds: float = 0.0
    kills: int = 0
    actions: Counter[str] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    written: int = 0
    epochs: int = 0
    commits: int = 0
    verdict: Verdict = field(default_factory=Verdict)
    damage: int = 0
    error: str = ""

    @property
    def good(self) -> bool:
        """Nothing lost, doubled, reordered, changed, invented or damaged, and no surprise on the way."""
        return not self.error and self.verdict.good and not self.damage and self.verdict.in_gaps == 0

    def facts(self) -> dict[str, Any]:
        """For the JSON report."""
        v = self.verdict
        return {
            "good": self.good, "seed": self.seed, "seconds": round(self.seconds, 1), "kills": self.kills,
            "messages_written": self.written, "messages": v.messages, "readable": v.readable, "lost": v.lost,
            "doubled": v.doubled, "reordered": v.reordered, "changed": v.changed, "invented": v.invented,
            "in_gaps": v.in_gaps, "damage": self.damage, "epochs": self.epochs, "commits": self.commits,
            "actions": dict(sorted(self.actions.items())),
            "action_seconds": {name: round(spent, 1) for name, spent in self.spent.items()},
            "details": v.details[:20], "error": self.error,
        }  # fmt: skip


class Campaign:
    """One broker, one archive, two daemons of which one owns it."""

    def __init__(self, work: Path, source: SoakSource, place: Place, seed: int) -> None:
        self.chance = random.Random(seed)
        self.source = source
        self.place = place
        self.outcome = Outcome(seed)
        self._owner, self._other = (
            Daemon(
                work, source.store, place.url, name=name, environment=place.environment, command=place.command,
                **{**SMALL_FLUSHES, **place.settings, "state.cache_bytes": 4 << 20},
            )
            for name in ("one", "two")
        )  # fmt: skip
        self._base = dict(self._owner.settings)
        self._expected: set[int] = {UNAVAILABLE}
        self._actions: dict[str, tuple[int, Callable[[], bool | None]]] = {
            "daemon killed": (6, self.kill_daemon),
            "daemon crashed at a point": (6, self.crash_daemon),
            "broker killed": (3, self.kill_broker),
            "broker lost its tail": (3, self.lose_tail),
            "broker lost its tail, daemon down": (2, self.lose_tail_unseen),
            "files expired": (3, self.expire),
            "local state deleted": (1, self.forget),
            "stopped over a take-over": (2, self.take_over),
            "quiet": (2, lambda: self.rest(0.5)),
        }
        if place.full is not None:
            self._actions |= {"disk full": (3, self.fill_disk)}
        if place.s3 is not None:
            self._actions |= {"store faults": (6, self.store_faults), "store died": (1, self.kill_store)}

    # ---- the whole

    def run(self, seconds: float, kills: int | None) -> Outcome:
        """Until ``seconds`` are over, or after so many kills; then everything must be there."""
        began = time.monotonic()
        try:
            self.source.write(self.chance)
            self.start()
            while time.monotonic() - began < seconds and (kills is None or self.outcome.kills < kills):
                name = self.chance.choices(
                    list(self._actions), [weight for weight, _ in self._actions.values()]
                )[0]
                if self.chance.random() < 0.75:  # else it is hit while it opens
                    self.wait_ready()
                before = time.monotonic()
                if self._actions[name][1]() is not False:
                    self.outcome.actions[name] += 1
                self.outcome.spent[name] += time.monotonic() - before
                self.rest(self.chance.random() * 0.4)
                self.revive()
            before = time.monotonic()
            self.finish()
            self.outcome.spent["finish"] = time.monotonic() - before
        except Exception as error:  # the report is the product
            self.outcome.error = f"{type(error).__name__}: {error}"[-3000:]
        finally:
            self._owner.kill()
            self._other.kill()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def finish(self) -> None:
        """Let everything arrive, then compare."""
        if self.place.s3 is not None:
            self.place.s3.proxy.set()
        end = self.source.settle()
        self.revive()
        self.wait_archived(end)
        if (code := self._owner.stop(60)) != 0:
            raise SoakError(f"the daemon ended with {code} at the end:\n{self._owner.output()[-2000:]}")
        archive = opened(self.place.direct_url)
        head = archive.state.head()
        assert head is not None
        self.outcome.written = self.source.messages
        self.outcome.epochs, self.outcome.commits = head.epoch, head.seq + 1
        self.outcome.verdict = compare(archive, self.source.oracle)
        report = Verifier(archive).run(deep=True)
        self.outcome.damage = len(report.damage)
        self.outcome.verdict.details += [f"{d.what} {d.key} {d.detail}" for d in report.damage]

    # ---- the daemon

    def start(self, *flags: str) -> None:
        """Start the owner, with one of several sets of settings."""
        self._owner.settings = {**self._base, **self.chance.choice(VARIANTS)}
        self._expected = {UNAVAILABLE}
        self._owner.start(*flags, ready=False)

    def revive(self, *flags: str) -> None:
        """Start the owner again if it ended in a way that is allowed."""
        if self._owner.alive:
            return
        code = self._owner.wait()
        if code not in self._expected | {KILLED, CRASHED}:
            raise SoakError(f"the daemon ended with {code}:\n{self._owner.output()[-2000:]}")
        if self._owner.said("Traceback"):
            raise SoakError(f"a traceback:\n{self._owner.output()[-3000:]}")
        self.start(*flags)

    def wait_ready(self, *flags: str) -> None:
        """Wait for the owner to archive, starting it again if it ends on the way; the broker writes on."""
        deadline = time.monotonic() + 60 * PATIENCE
        while not self._owner.ready():
            if time.monotonic() > deadline:
                raise SoakError(f"not ready in time:\n{self._owner.output()[-2000:]}")
            self.revive(*flags)
            self.rest(0.05)

    def wait_archived(self, end: int) -> None:
        """Wait for the owner to archive up to ``end``, starting it again as often as it takes."""
        deadline = time.monotonic() + 120 * PATIENCE
        while (self._owner.status().get("proven_offset") or 0) != end:
            if time.monotonic() > deadline:
                raise SoakError(
                    f"not archived up to {end} in time: {self._owner.status()}\n{self._owner.output()[-1500:]}"
                )
            self.revive()
            time.sleep(0.1)

    def rest(self, seconds: float) -> None:
        """Let the broker write for a while."""
        until = time.monotonic() + seconds
        while True:
            self.source.write(self.chance)
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))

    # ---- what happens

    def kill_daemon(self) -> None:
        """kill -9 at any moment."""
        self._owner.kill()
        self.outcome.kills += 1
        self.rest(self.chance.random())
        self.start()

    def crash_daemon(self) -> None:
        """End it at a numbered point, the first to the thirtieth time it comes there; or kill it if it never does."""
        self._owner.kill()
        self._owner.settings = {**self._base, **self.chance.choice(VARIANTS)}
        point = self.chance.choice(list(CrashPoint))
        self._owner.start(crash=point, times=self.chance.choice([1, 1, 2, 5, 30]), ready=False)
        until = time.monotonic() + 2.5
        while self._owner.alive and time.monotonic() < until:
            self.rest(0.1)
        self._owner.kill()
        self.outcome.kills += 1
        self.start()

    def kill_broker(self) -> None:
        """kill -9 and start: nothing that was written is lost."""
        self.source.restart()
        self.outcome.kills += 1

    def lose_tail(self) -> bool:
        """Power is lost under the running daemon."""
        lost = self.source.lose_tail(self.chance)
        self.outcome.kills += lost > 0
        return lost > 0

    def lose_tail_unseen(self) -> bool:
        """Power is lost while the daemon is down, and new records come before it is back."""
        self._owner.kill()
        self.outcome.kills += 1
        lost = self.source.lose_tail(self.chance)
        self.rest(self.chance.random() * 0.3)
        self.start()
        return lost > 0

    def expire(self) -> bool:
        """The broker deletes what is archived or held by the owner."""
        proven = int(self._owner.status().get("proven_offset") or 0)
        hold = Path(str(self._owner.settings["hold.directory"]))
        found = [path.stat() for path in hold.iterdir()] if hold.exists() else []
        return self.source.expire(proven, {(f.st_dev, f.st_ino) for f in found}) > 0

    def forget(self) -> None:
        """Everything local is deleted; the hold stays, as nobody could bring that back."""
        self._owner.kill()
        self.outcome.kills += 1
        shutil.rmtree(self._owner.state, ignore_errors=True)
        self.start()

    def take_over(self) -> bool:
        """SIGSTOP the owner in the middle, let the other take over, wake the first: it must be fenced."""
        self.wait_ready()
        if not self._all_here():
            return False  # each has its own hold: what only the owner's keeps, the other could never archive
        old = self._owner
        old.pause()
        self._owner, self._other = self._other, old
        self.start("--take-over")
        self.wait_ready("--take-over")
        old.resume()
        until = time.monotonic() + 60 * PATIENCE
        while old.alive and time.monotonic() < until:
            self.rest(0.1)
        code = None if old.alive else old.wait(1)
        if code not in (FENCED, UNAVAILABLE):
            raise SoakError(f"the stopped daemon woke and ended with {code}:\n{old.output()[-2000:]}")
        return True

    def _all_here(self) -> bool:
        """Whether everything that is not archived is in the broker's own files."""
        files = sorted(path.name for path in (self.source.store / "commitlog").iterdir())
        proven = self._owner.status().get("proven_offset")
        return proven is not None and int(files[0]) <= int(proven)

    def store_faults(self) -> None:
        """One or two kinds of faults for a moment, or nobody listening."""
        assert self.place.s3 is not None
        proxy = self.place.s3.proxy
        if self.chance.random() < 0.2:
            proxy.down()
            self.rest(self.chance.random())
            proxy.up()
            return
        proxy.set(*(rule for rules in self.chance.sample(FAULTS, 2) for rule in rules))
        self.rest(self.chance.random() * 2)
        proxy.set()

    def fill_disk(self) -> None:
        """The archive's disk has no space for a moment."""
        assert self.place.full is not None
        self.place.full.touch()
        self.rest(self.chance.random() * 1.5)
        self.place.full.unlink()

    def kill_store(self) -> None:
        """kill -9 of the S3 server; it comes back on its data."""
        assert self.place.s3 is not None
        self.place.s3.server.kill()
        self.outcome.kills += 1
        self.rest(self.chance.random())
        self.place.s3.server.start()


def soak(
    work: Path, seed: int, seconds: float, kills: int | None = None, *, s3: bool = False, broker: bool = False
) -> Outcome:
    """One campaign in an empty directory."""
    with ExitStack() as stack:
        place = stack.enter_context(place_of(work, seed, s3=s3))
        source: SoakSource = stack.enter_context(real(work) if broker else generated(work, seed))
        return Campaign(work, source, place, seed).run(seconds, kills)


def table(outcome: Outcome) -> Table:
    """The report for people."""
    made = Table("what", title=f"soak, seed {outcome.seed}: {outcome.seconds:.0f} s")
    made.add_column("count", justify="right")
    facts = outcome.facts()
    for name in ("kills", "messages_written", "messages", "commits", "epochs"):
        made.add_row(name.replace("_", " "), f"{facts[name]:,}")
    made.add_section()
    for name in ("lost", "doubled", "reordered", "changed", "invented", "in_gaps", "damage"):
        made.add_row(name.replace("_", " "), f"[{'red' if facts[name] else 'green'}]{facts[name]:,}")
    made.add_section()
    for name, count in facts["actions"].items():
        made.add_row(name, f"{count:,}")
    return made


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, help="end after so many kills")
    parser.add_argument(
        "--s3", action="store_true", help="insist on the S3 server (default: if it is installed)"
    )
    parser.add_argument("--posix", action="store_true", help="a directory as the store, no store faults")
    parser.add_argument(
        "--broker", action="store_true", help="a real RocketMQ broker writes; its tail is never lost"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    parser.add_argument("--keep", action="store_true", help="leave everything on disk and say where")
    options = parser.parse_args()
    s3 = options.s3 or (not options.posix and cache.installed("versitygw"))
    work, console = Path(tempfile.mkdtemp(prefix="tiered-soak-")), Console()
    console.print(
        f"soak for {options.seconds:.0f} s, seed {options.seed}, store {'S3 behind a fault proxy' if s3 else 'POSIX'}"
    )
    outcome = soak(work, options.seed, options.seconds, options.kills, s3=s3, broker=options.broker)
    console.print(table(outcome))
    for line in filter(None, [outcome.error, *outcome.verdict.details[:10]]):
        console.print(line, markup=False)
    console.print("[green]nothing lost, doubled or reordered" if outcome.good else "[red]FAILED")
    if options.json is not None:
        options.json.write_text(json.dumps(outcome.facts(), indent=2) + "\n")
    if options.keep or not outcome.good:
        console.print(f"kept in {work}")
    else:
        shutil.rmtree(work, ignore_errors=True)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
