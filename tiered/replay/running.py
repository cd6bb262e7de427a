"""Replay at work: the watch, the questions about groups and the drain, each a service with a connection of its own.

Whatever goes wrong in here is counted, shown and tried again with growing pauses; nothing of it reaches what archives.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from tiered.broker.client import RemotingClient
from tiered.broker.questions import Broker, BrokerFacts
from tiered.clock import Clock
from tiered.errors import TieredError, Unavailable
from tiered.metrics import Metrics
from tiered.replay.broker import broker_of, check_suitable
from tiered.replay.drain import Drain
from tiered.replay.groups import Groups
from tiered.replay.ledger import Ledger
from tiered.replay.report import summary
from tiered.replay.watch import Watch
from tiered.service import AGAIN, Next, Service, pause
from tiered.settings import MIB, Settings
from tiered.store import MessageStore

log = logging.getLogger("tiered.replay")

DIRECTORY = "replay"
"""Below ``state.directory``."""
IDLE_SECONDS = 0.5
FULL_SECONDS = 0.1
GROUPS_SECONDS = 1.0
MOST_GROUPS = 1000
"""Rows of groups on ``/status``; ``tiered replay status`` has all."""
FETCH_BUDGET_BYTES = 32 * MIB
FETCH_THREADS = 4
"""The archiver's process is not the gateway: replay reads with little."""


class ReplayServices:
    """Made, then ``start``ed; ``status`` from any thread."""

    def __init__(self, settings: Settings, clock: Clock, metrics: Metrics, state: Path) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._directory = state / DIRECTORY
        self._ledger = Ledger(self._directory, clock)
        order_file = Path(settings.source.store_dir, "config", "consumerOrderInfo.json")
        self._groups = Groups(settings.replay.groups, clock, order_file=order_file)
        self._clients: list[RemotingClient] = []
        self._problems: dict[str, str] = {}
        self._opened = False
        self._opening = threading.Lock()
        self._stores = ExitStack()
        self._store: MessageStore | None = None
        self._watch = Watch(
            self._broker(), self._ledger, self._groups, self._directory, clock, metrics, check=self._check
        )
        self._drain = Drain(
            self._broker(), self._ledger, self._groups, self._archive, clock, metrics, settings.replay,
            check=self._require,
        )  # fmt: skip
        self._asking = self._broker()

    def services(self) -> tuple[Service, ...]:
        """The loops, not started."""
        steps: tuple[tuple[str, Callable[[], Next]], ...] = (
            ("replay-watch", self._look),
            ("replay-groups", self._learn),
            ("replay-drain", self._send),
        )
        return tuple(
            Service(name, self._guarded(name, step), self._clock, metrics=self._metrics)
            for name, step in steps
        )

    def start(self, stack: ExitStack) -> None:
        """Start the loops; ``stack`` ends them, then closes everything."""
        services = self.services()
        stack.callback(self.close)
        for service in services:
            service.start()
            stack.callback(service.join, 2.0)
        for service in services:
            stack.callback(service.stop, drain=False)

    def close(self) -> None:
        """Close connections, the archive and the ledger."""
        for client in self._clients:
            client.close()
        self._stores.close()
        self._ledger.close()

    def status(self) -> Mapping[str, object]:
        """The part of ``/status`` that speaks of replay."""
        facts = self._watch.facts
        return {
            "broker": self._settings.replay.broker_address,
            "version": facts.version_name if facts is not None else None,
            "last_look_ms": self._watch.looked_ms,
            "groups": [asdict(row) for row in self._watch.roster[:MOST_GROUPS]],
            "problems": [*self._problems.values(), *self._drain.troubles()],
            **(summary(self._ledger.books()) if self._opened else {}),
        }

    # ---- steps

    def _look(self) -> Next:
        self._open_ledger()
        self._watch.step()
        return pause(self._settings.replay.poll_ms / 1000)

    def _learn(self) -> Next:
        for group in self._groups.due(self._watch.seen):
            self._groups.learn(self._asking, group)
        return pause(GROUPS_SECONDS)

    def _send(self) -> Next:
        self._open_ledger()
        if self._drain.step():
            return AGAIN
        return pause(FULL_SECONDS if self._drain.waits_for_groups else IDLE_SECONDS)

    def _guarded(self, name: str, step: Callable[[], Next]) -> Callable[[], Next]:
        """Every failure becomes ``Unavailable``: counted, shown, tried again. Said when it is new, and when it is over."""

        def run() -> Next:
            try:
                done = step()
            except TieredError as error:
                self._tell(name, str(error))
                if isinstance(error, Unavailable):
                    raise
                raise Unavailable(error.message, hint=error.hint, **error.fields) from error
            except Exception as error:
                if name not in self._problems:
                    log.exception("replay met a bug; archiving goes on", extra={"part": name})
                self._tell(name, f"unexpected {type(error).__name__}: {error}")
                raise Unavailable("replay met a bug", part=name, found=type(error).__name__) from error
            if self._problems.pop(name, None) is not None:
                log.info("replay works again", extra={"part": name})
                self._metrics.replay_problem.labels(name).set(0)
            return done

        return run

    def _tell(self, name: str, what: str) -> None:
        if self._problems.get(name) != what:
            log.warning(
                "replay cannot do its work now; archiving goes on", extra={"part": name, "error": what}
            )
        self._problems[name] = what
        self._metrics.replay_problem.labels(name).set(1)

    # ---- parts

    def _require(self, facts: BrokerFacts) -> None:
        source = self._settings.source
        check_suitable(facts, source.cluster, source.broker)

    def _check(self, facts: BrokerFacts) -> None:
        self._require(facts)
        log.info(
            "watching POP groups",
            extra={"broker": facts.name, "version": facts.version_name, "kv_offsets": facts.kv},
        )

    def _broker(self) -> Broker:
        broker = broker_of(self._settings.replay, self._clock)
        self._clients.append(broker.client)
        return broker

    def _open_ledger(self) -> None:
        with self._opening:
            if not self._opened:
                try:
                    self._directory.mkdir(parents=True, exist_ok=True)
                except OSError as error:
                    raise Unavailable(
                        "the directory of the replay ledger cannot be made", path=str(self._directory),
                        found=error.strerror or str(error), hint="let the daemon's user write to state.directory",
                    ) from error  # fmt: skip
                self._ledger.open()
                self._opened = True

    def _archive(self) -> MessageStore:
        """The archive, opened when something is owed for the first time."""
        if self._store is None:
            fetch = replace(
                self._settings.fetch,
                budget_bytes=min(self._settings.fetch.budget_bytes, FETCH_BUDGET_BYTES),
                threads=min(self._settings.fetch.threads, FETCH_THREADS),
            )
            settings = replace(self._settings, fetch=fetch)
            with ExitStack() as stack:
                store = MessageStore.open(settings, self._clock, self._metrics, stack=stack, name=DIRECTORY)
                self._stores.push(stack.pop_all())
            self._store = store
        return self._store
