"""All tables of an archive, brought to what it shows: one round of it, and the task that does rounds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.maintenance import Done, Figures, Outlook, Turn
from tiered.archive.log.writer import CommitLog
from tiered.archive.state.listing import list_topics
from tiered.archive.state.view import ArchiveState
from tiered.clock import Clock
from tiered.codec.record.systemtopics import is_system_topic
from tiered.errors import TieredError
from tiered.settings import Settings
from tiered.table.catalog import catalog_errors, is_unreachable, open_catalog
from tiered.table.names import hashed_name, table_name
from tiered.table.orders import KeptTables, check_names, tables_in_force
from tiered.table.place import file_access, files_location
from tiered.table.progress import TablesProgress
from tiered.table.shown import ShownFile, shown_files

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from tiered.table.iceberg import IcebergTable, Reflected, TableState

Files = dict[str, ShownFile]
NOT_ASKED = "its catalog is away, and was not asked again in this round"


@dataclass(frozen=True, slots=True)
class TableRound:
    """What each table is after a round, or would be; and what could not be done, while the rest was. ``failed``: tables that
    are not what they should be. ``away``: their catalog did not answer, and was not asked about the rest."""

    states: tuple[TableState, ...]
    troubles: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    away: bool = False


class TableKeeper:
    """Rounds over the tables of one order. ``Invalid`` for one that this host must not follow."""

    def __init__(self, settings: Settings, keys: ArchiveKeys, archive_id: bytes, kept: KeptTables) -> None:
        self._settings = settings
        check_names(kept)
        self._keys = keys
        self._archive_id = archive_id
        self._kept = kept

    def look(self, state: ArchiveState) -> TableRound:
        """How each table is, with what a round would do. Nothing is changed."""
        return self._round(state, lambda table, wanted: table.look(wanted))

    def bring(self, state: ArchiveState, now_ms: int, pause: Callable[[], None]) -> TableRound:
        """Bring each table to what ``state`` shows; ``pause`` is called between tables."""
        expire_ms, batch_files = now_ms - self._settings.gc.grace_ms, self._settings.tables.batch_files

        def bring(table: IcebergTable, wanted: Reflected) -> TableState:
            pause()
            return table.bring(wanted, batch_files=batch_files, expire_ms=expire_ms)

        return self._round(state, bring)

    def _round(self, state: ArchiveState, act: Callable[[IcebergTable, Reflected], TableState]) -> TableRound:
        states: list[TableState] = []
        troubles: list[str] = []
        failed: list[str] = []
        away = False
        for table, wanted in self._tables(state):
            if away:
                troubles.append(f"{table.name}: {NOT_ASKED}")
                failed.append(table.name)
                continue
            try:
                with catalog_errors(self._kept.catalog):
                    found = act(table, wanted)
            except TieredError as error:
                troubles.append(f"{table.name}: {error}")
                failed.append(table.name)
                away = is_unreachable(error)
                continue
            states.append(found)
            if found.commit is not None and found.commit > wanted.commit:
                seen = f"{found.name} reflects commit {found.commit}, and this process knows {wanted.commit}"
                troubles.append(f"{seen}: it is left alone")
            if found.absent:
                failed.append(found.name)
                troubles.append(
                    f"{found.name}: {found.absent} sealed files are not there; tiered verify names them"
                )
        return TableRound(tuple(states), tuple(troubles), tuple(failed), away)

    def _tables(self, state: ArchiveState) -> Iterator[tuple[IcebergTable, Reflected]]:
        """Each table with what it is to show: those of topics that have sealed files, and those that have none any more."""
        kept, settings = self._kept, self._settings
        location = files_location(settings.archive.url, self._keys.root)
        catalog = open_catalog(
            kept, file_access(settings.archive.url, settings.store), settings.state_directory
        )
        from tiered.table.iceberg import IcebergTable, Reflected  # pyiceberg is there

        head = state.head()
        shown = shown_files(state, self.shows)
        for name, topic, files in self._groups(catalog, state, shown):
            table = IcebergTable(catalog, kept.namespace, name, self._archive_id, topic, location)
            placed = {location + path: file for path, file in files.items()}
            yield table, Reflected(-1 if head is None else head.seq, placed)

    def _groups(
        self, catalog: Catalog, state: ArchiveState, shown: dict[str, Files]
    ) -> Iterator[tuple[str, str | None, Files]]:
        """Name of a table, its topic, its files."""
        if self._kept.table:
            yield (
                self._kept.table,
                None,
                {path: file for files in shown.values() for path, file in files.items()},
            )
            return
        known = set(shown)
        with catalog_errors(self._kept.catalog):
            others = _names(catalog, self._kept.namespace) - set(map(table_name, known))
        emptied = frozenset(others)
        topics = (found.topic for found in list_topics(state.view)) if emptied else ()
        for topic in topics:
            name = table_name(topic)
            second = hashed_name(topic)
            mine = {name, second, name.lower(), second.lower()}  # as Glue and Hive keep names
            others -= mine
            if self.shows(topic) and not emptied.isdisjoint(mine):
                known.add(topic)
        head = state.head()
        if head is not None and head.forgotten.queues:
            known.update(filter(self.shows, self._forgotten(catalog, sorted(others))))
        # Of two that have one name, the one that can have no second comes first.
        for name, _, topic in sorted(
            (table_name(topic), topic == table_name(topic), topic) for topic in known
        ):
            yield name, topic, shown.get(topic, {})

    def _forgotten(self, catalog: Catalog, names: Sequence[str]) -> Iterator[str]:
        """Topics of tables that no topic of the archive is known by: it was deleted and forgotten, perhaps before a round saw
        that its files had gone. Whose a table is stands in the table; one that cannot be opened is somebody else's. Where one
        is not answered for, no more are asked for in this round: tables of known topics do not wait for them."""
        from tiered.table.iceberg import owned_topic

        namespace = tuple(self._kept.namespace.split("."))
        for name in names:
            try:
                with catalog_errors(self._kept.catalog):
                    topic = owned_topic(catalog, (*namespace, name), self._archive_id)
            except TieredError as error:
                if is_unreachable(error):
                    return
                continue
            if topic:
                yield topic

    def fits(self, state: ArchiveState) -> bool:
        """Whether the archive has a topic of these tables, sealed or not."""
        return any(self.shows(found.topic) for found in list_topics(state.view))

    def shows(self, topic: str) -> bool:
        """Whether a topic has its place in these tables: it fits a pattern; RocketMQ's own only where one is its very name."""
        patterns = self._kept.topics
        if is_system_topic(topic, cluster=self._keys.cluster, broker=self._keys.broker):
            return topic in patterns
        return any(fnmatchcase(topic, pattern) for pattern in patterns)


def _names(catalog: Catalog, namespace: str) -> set[str]:
    """Tables of a namespace; none if it is not there."""
    from pyiceberg.exceptions import NoSuchNamespaceError

    try:
        return {identifier[-1] for identifier in catalog.list_tables(tuple(namespace.split(".")))}
    except NoSuchNamespaceError:
        return set()


class Tabling:
    """The task. A turn is a round over all tables that are kept: nothing is committed to the archive. An order that is given or
    dropped counts from the next round on."""

    name = "table"

    def __init__(self, log: CommitLog, clock: Clock, settings: Settings) -> None:
        self._log = log
        self._clock = clock
        self._settings = settings
        self._next = clock.monotonic()
        self.progress = TablesProgress(clock)

    def due(self, now: float) -> bool:
        """An interval after the last round ended."""
        return now >= self._next

    def plan(self) -> Outlook:
        """See ``Task``. A catalog that is away does not keep other tasks from their plans."""
        rounds, troubles, _ = self._rounds(lambda keeper: keeper.look(self._log.frozen()))
        states = [state for each in rounds for state in each.states]
        troubles += [trouble for each in rounds for trouble in each.troubles]
        waiting = [state for state in states if state.lag_commits]
        said = f"{len(waiting)} of {len(states)} tables are behind" if states else "no table is kept"
        return Outlook(
            int(bool(waiting or troubles)),
            "; ".join([said, *troubles]),
            figures(states),
            tuple(map(row, waiting)),
        )

    def run_once(self, turn: Turn) -> Done:
        """A round."""
        rounds, troubles, away = self._rounds(
            lambda keeper: keeper.bring(self._log.frozen(), self._clock.now_ms(), lambda: turn.spend(0))
        )
        troubles += [trouble for each in rounds for trouble in each.troubles]
        self._next = self._clock.monotonic() + self._settings.tables.interval_ms / 1000
        states = [state for each in rounds for state in each.states]
        failed = [*away, *(name for each in rounds for name in each.failed)]
        head = self._log.proven().head()
        self.progress.count(
            -1 if head is None else head.seq, (s for s in states if s.name not in failed), failed
        )
        done = {name: n for name, n in figures(states).items() if name.startswith(("added", "removed")) and n}
        return Done(False, done, "; ".join(troubles) or None)

    def _rounds(
        self, act: Callable[[TableKeeper], TableRound]
    ) -> tuple[list[TableRound], list[str], list[str]]:
        """Rounds, troubles, and namespaces whose catalog did not answer."""
        reader = self._log.reader
        rounds, troubles, away = [], [], []
        silent = list[tuple[str, Mapping[str, str]]]()
        for stored in tables_in_force(reader.provider, reader.keys, reader.identity.archive_id):
            kept, where = stored.tables, (stored.tables.catalog, stored.tables.properties)
            if where in silent:
                troubles.append(f"{kept.name}: {NOT_ASKED}")
                away.append(kept.namespace)
                continue
            try:
                found = act(TableKeeper(self._settings, reader.keys, reader.identity.archive_id, kept))
            except TieredError as error:
                troubles.append(f"{kept.name}: {error}")
                away.append(kept.namespace)
                unreachable = is_unreachable(error)
            else:
                rounds.append(found)
                unreachable = found.away
            if unreachable:
                silent.append(where)
        return rounds, troubles, away


def figures(states: Sequence[TableState]) -> Figures:
    """Of several tables together."""
    sums: Counter[str] = Counter()
    for state in states:
        sums.update(
            files=state.files,
            added_files=state.added,
            removed_files=state.removed,
            partial_files=state.partial,
        )
    worst = max((state.lag_commits for state in states), default=0)
    return {"tables": len(states), **sums, "lag_commits": worst}


def row(state: TableState) -> Figures:
    """A table as programs and people see it."""
    return {
        "table": state.name, "topic": state.topic or None, "files": state.files, "reflects_commit": state.commit,
        "lag_commits": state.lag_commits, "added_files": state.added, "removed_files": state.removed,
        "partial_files": state.partial, "absent_files": state.absent,
    }  # fmt: skip
