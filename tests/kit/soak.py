"""``make soak``: a randomised campaign of faults, and at its end the question whether anything was lost, doubled or reordered.

``python -m tests.kit.soak --seconds N --seed S``: a broker writes all the time; daemon and broker are killed, the daemon at
numbered crash points too; the broker loses its tail; files expire; local state is deleted; a second daemon takes over while the
first is stopped; the store answers 503, hangs, cuts and dies. The same seed asks for the same actions; when they hit differs.

All the while the archive ages, in a hurry (``hurried.py``): it is merged, sealed, trimmed, collected and scrubbed, its commits
are removed. Every minute, and at the end, everything that is in range must be there, byte for byte; a campaign in which some
kind of maintenance never happened has failed. On a store whose listing lags (``--lagging``) nothing may be deleted.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from rich.console import Console

from tests.kit import cache
from tests.kit.daemonproc import CRASHED
from tests.kit.hurried import WINDOW_MS
from tests.kit.oracle import Queue, Record, opened, store_time_ms
from tests.kit.process import PATIENCE
from tests.kit.soakdaemons import UNAVAILABLE, Daemons, SoakError
from tests.kit.soakreport import ALWAYS, DELETING, OF_OLD_DAYS, Outcome, Work, table
from tests.kit.soaksources import (
    STORE_FAULTS,
    THIRD_OF_DELETES,
    TRIMMED_TOPIC,
    Place,
    SoakSource,
    generated,
    place_of,
    real,
)
from tiered.clock import SystemClock
from tiered.crashpoint import AgeingPoint, CrashPoint, Point, SealPoint

REFUSED, FENCED = 3, 7
ROUND_SECONDS = 60.0
AGE_SECONDS = 3 * WINDOW_MS / 1000
AGEING_POINTS: tuple[Point, ...] = (*AgeingPoint, *SealPoint)
LAST_TRIES = 8
"""Daemons that are started at the end for maintenance that did not happen yet; each has ``AGE_SECONDS`` longer, and each task
that is due its turn."""
LONGEST_TRY_SECONDS = 60.0
MAINTAIN_SECONDS = 600.0
"""A hundred days to be sealed at once take a machine without time some minutes."""


class Campaign(Daemons):
    """One broker, one archive, two daemons of which one owns it, and what happens to them all."""

    def __init__(self, work: Path, source: SoakSource, place: Place, seed: int) -> None:
        super().__init__(work, source, place, random.Random(seed))
        self.outcome = Outcome(seed, work=Work((self._owner.log, self._other.log)))
        wanted = ALWAYS | (OF_OLD_DAYS if source.of_old_days else frozenset())
        self._wanted = wanted - DELETING if place.lags else wanted
        self._actions: dict[str, tuple[int, Callable[[], bool | None]]] = {
            "daemon killed": (6, self.kill_daemon),
            "daemon crashed at a point": (6, self.crash_daemon),
            "broker killed": (3, self.kill_broker),
            "broker lost its tail": (3, self.lose_tail),
            "broker lost its tail, daemon down": (2, self.lose_tail_unseen),
            "files expired": (3, self.expire),
            "local state deleted": (1, self.forget),
            "stopped over a take-over": (2, self.take_over),
            "maintained by the command": (2, self.maintain),
            "local disk full": (2, self.fill_local_disk),
            "left to age": (4, self.leave_to_age),
            "quiet": (2, lambda: self.rest(0.5)),
        }
        if place.full is not None:
            self._actions |= {"disk full": (3, self.fill_disk)}
        if place.s3 is not None:
            self._actions |= {
                "store faults": (6, self.store_faults),
                "store died": (1, self.kill_store),
                "a third of the deletes failed": (2, self.fail_deletes),
            }

    # ---- the whole

    def run(self, seconds: float, kills: int | None) -> Outcome:
        """Until ``seconds`` are over, comparisons not counted: on a machine without time there would be nothing else. Then
        everything must be there, and each kind of maintenance have happened. Or after so many kills: a sample, too short to ask
        for that."""
        began, comparing = time.monotonic(), 0.0
        try:
            self.source.write(self.chance)
            self.start()
            while kills is None or self.outcome.kills < kills:
                under_fire = time.monotonic() - began - comparing
                if under_fire >= seconds:
                    break
                if under_fire >= ROUND_SECONDS * (self.outcome.rounds + 1):
                    before = time.monotonic()
                    self.compare_all()
                    self.start()
                    comparing += time.monotonic() - before
                    self.outcome.spent["comparisons"] = comparing
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
            self.finish(ages=kills is None)
            self.outcome.spent["finish"] = time.monotonic() - before
        except Exception as error:  # the report is the product
            self.outcome.error = f"{type(error).__name__}: {error}"[-3000:]
        finally:
            self._owner.kill()
            self._other.kill()
        self.outcome.seconds = time.monotonic() - began
        return self.outcome

    def finish(self, *, ages: bool) -> None:
        """Let everything happen that did not yet (``ages``), and everything arrive; then compare."""
        self.place.set_faults()
        if ages:
            self.age()
        self.compare_all()

    def age(self) -> None:
        """Leave the archive to its daemons until each kind of maintenance was seen, and none is in trouble any more."""
        trouble: list[str] = []
        for tried in range(LAST_TRIES):
            self.wait_ready()
            began = time.monotonic()
            until = began + (2 + tried) * AGE_SECONDS
            while time.monotonic() < until or self._has_its_turn_to_come(began):
                self.rest(0.2)
                self.revive()
                self.outcome.silent = self.outcome.work.look().missing(self._wanted)
                trouble = self._trouble()
                if not self.outcome.silent and not trouble:
                    return
            self.stop()
            self.start()
        if trouble:
            raise SoakError(f"maintenance has trouble, and nothing is wrong any more: {trouble}")

    def _has_its_turn_to_come(self, since: float) -> bool:
        """Whether a task is due that had no turn since then: seconds say how long a daemon ran, not what it had time for."""
        waited = time.monotonic() - since
        tasks = self._owner.status().get("maintenance", {}).get("tasks", {})
        waits = any(task["due"] and task["last_turn_seconds_ago"] > waited for task in tasks.values())
        return waits and waited < LONGEST_TRY_SECONDS * PATIENCE

    def _trouble(self) -> list[str]:
        """What keeps the owner's maintenance from its work; but the scrub's pace, and that nothing may be deleted."""
        told = self._owner.status().get("maintenance")
        if told is None:
            return ["no answer"]
        return [
            f"{name}: {task['problem']}"
            for name, task in told["tasks"].items()
            if task["problem"]
            and not ("takes longer than" in task["problem"] or "is overdue" in task["problem"])
            and not (name == "gc" and self.place.lags)
        ]

    def compare_all(self) -> None:
        """Everything written so far arrives, the daemon ends, and the bucket is compared with what the broker held."""
        outcome = self.outcome
        end = self.source.settle()
        self.revive()
        self.wait_archived(end)
        self.stop()
        outcome.rounds += 1
        outcome.written = self.source.messages
        cutoff_ms = SystemClock().now_ms() - self.least_keep_ms

        def may_go(queue: Queue, record: Record) -> bool:
            return queue[0] == TRIMMED_TOPIC and store_time_ms(record) < cutoff_ms

        outcome.compare(opened(self.place.direct_url), self.source.oracle, may_go)
        if not outcome.sound:
            raise SoakError(f"in round {outcome.rounds} the archive is not what it must be")
        if self.place.lags and len(outcome.work.missing(DELETING)) < len(DELETING):
            raise SoakError(f"something was deleted from a store whose listing lags: {outcome.work.done}")
        if outcome.work.bugs:
            raise SoakError(f"maintenance met a bug: {outcome.work.bugs[0]}")

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
        self.draw_settings()
        ageing = self.chance.random() < 0.5
        at = self.chance.choice(AGEING_POINTS if ageing else tuple(CrashPoint))
        times = self.chance.choice([1, 1, 2, 3] if ageing else [1, 1, 2, 5, 30])
        self._owner.start(crash=at, times=times, ready=False)
        opened_by = time.monotonic() + 60 * PATIENCE
        while self._owner.alive and not self._owner.ready() and time.monotonic() < opened_by:
            self.rest(0.1)
        until = time.monotonic() + (2 * AGE_SECONDS if ageing else 2.5)
        while self._owner.alive and time.monotonic() < until:
            self.rest(0.1)
        self._note_crash(at)
        self._owner.kill()
        self.outcome.kills += 1
        self.start()

    def _note_crash(self, at: Point) -> None:
        if not self._owner.alive and self._owner.wait(1) == CRASHED:
            self.outcome.crashed[at.name] += 1

    def maintain(self) -> None:
        """``tiered maintain --once`` does what there is to do in place of the daemon; or ends at a numbered point."""
        self.wait_ready()
        self._owner.kill()
        self.draw_settings()
        at = self.chance.choice([None, *AGEING_POINTS])
        times = self.chance.choice([1, 1, 2])
        code = self._owner.maintain("--json", crash=at, times=times, seconds=MAINTAIN_SECONDS)
        if code not in (0, CRASHED, UNAVAILABLE) and not (code == REFUSED and self.place.lags):
            raise SoakError(f"tiered maintain ended with {code}:\n{self._owner.output()[-2000:]}")
        if at is not None:
            self._note_crash(at)
        self.outcome.kills += 1
        self.start()

    def leave_to_age(self) -> None:
        """Nothing happens to the daemon for as long as a whole round of maintenance takes."""
        self.rest(AGE_SECONDS)

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
        self.rest(self.chance.choice([0, 0, 8 * WINDOW_MS / 1000]))  # commits may be removed meanwhile
        self.revive("--take-over")
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
        self.place.set_faults(*(rule for rules in self.chance.sample(STORE_FAULTS, 2) for rule in rules))
        self.rest(self.chance.random() * 2)
        self.place.set_faults()

    def fail_deletes(self) -> None:
        """The store is too busy for one deletion in three, for a whole round of maintenance."""
        self.place.set_faults(*THIRD_OF_DELETES)
        self.rest(AGE_SECONDS)
        self.place.set_faults()

    def fill_disk(self) -> None:
        """The archive's disk has no space for a moment, or for as long as merging and sealing try more than once."""
        assert self.place.full is not None
        self.place.full.touch()
        self.rest(self.chance.random() * self.chance.choice([1.5, AGE_SECONDS]))
        self.place.full.unlink()

    def fill_local_disk(self) -> None:
        """The disk with the daemon's state, where days are put together that are being sealed, has no space for a while."""
        full = self._owner.state.with_name(self._owner.state.name + ".full")
        full.touch()
        self.rest(AGE_SECONDS / 2)
        full.unlink()

    def kill_store(self) -> None:
        """kill -9 of the S3 server; it comes back on its data."""
        assert self.place.s3 is not None
        self.place.s3.server.kill()
        self.outcome.kills += 1
        self.rest(self.chance.random())
        self.place.s3.server.start()


def soak(
    work: Path,
    seed: int,
    seconds: float,
    kills: int | None = None,
    *,
    s3: bool = False,
    broker: bool = False,
    lags: bool = False,
) -> Outcome:
    """One campaign in an empty directory."""
    with ExitStack() as stack:
        place = stack.enter_context(place_of(work, seed, s3=s3 or lags, lags=lags))
        source: SoakSource = stack.enter_context(real(work) if broker else generated(work, seed, seconds))
        return Campaign(work, source, place, seed).run(seconds, kills)


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
    parser.add_argument(
        "--lagging", action="store_true", help="the S3 server's listing lags: nothing may be deleted"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report there, too")
    parser.add_argument("--keep", action="store_true", help="leave everything on disk and say where")
    options = parser.parse_args()
    s3 = options.s3 or options.lagging or (not options.posix and cache.installed("versitygw"))
    work, console = Path(tempfile.mkdtemp(prefix="tiered-soak-")), Console()
    console.print(
        f"soak for {options.seconds:.0f} s, seed {options.seed}, store {'S3 behind a fault proxy' if s3 else 'POSIX'}"
    )
    outcome = soak(
        work, options.seed, options.seconds, options.kills, s3=s3, broker=options.broker, lags=options.lagging
    )
    console.print(table(outcome))
    for line in filter(None, [outcome.error, *outcome.verdict.details[:10], *outcome.work.bugs[:3]]):
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
