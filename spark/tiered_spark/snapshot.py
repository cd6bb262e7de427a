"""Archives opened for a scan: each one fold, at the end of its log or as it was."""

from __future__ import annotations

import functools
import logging
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.encryption.provider import encrypted
from tiered.archive.keys import ArchiveKeys, Area
from tiered.archive.read.find import SHOWN, shown_archives
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.view import View
from tiered.archive.state.keys import object_key
from tiered.archive.state.values import ObjectState, unpack_object
from tiered.archive.state.view import ArchiveState
from tiered.clock import SystemClock
from tiered.codec.record.systemtopics import is_system_topic
from tiered.errors import Corrupt, Invalid, NotFound, Refused
from tiered.model import ObjectRef
from tiered.provider.base import Provider
from tiered.provider.open import located, open_provider
from tiered.settings import Encryption, Fetch, Store
from tiered.text.settingvalues import convert
from tiered_spark.choice import Choice, key_prefixes, scope_of
from tiered_spark.errors import by_option
from tiered_spark.keptfolds import KeptFolds
from tiered_spark.options import Options, matches
from tiered_spark.roots import archives_below

log = logging.getLogger("tiered.spark")

TABLE_CACHE_BYTES = Fetch().table_cache_bytes
MAX_ARCHIVES = 10_000
"""Of one scan: the fold of each is kept while it is planned."""


@dataclass(frozen=True, slots=True)
class ArchivePlace:
    """An archive of one broker. ``url`` without secrets: credentials come from the store's own chain, on every machine."""

    url: str
    cluster: str
    broker: str
    archive_id: bytes

    def __str__(self) -> str:
        return f"{self.url} {self.cluster}/{self.broker}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One archive at one commit. ``reader`` goes on from there; a snapshot never changes. ``newest``: the end of its log, if
    that was looked at to open it."""

    place: ArchivePlace
    reader: ArchiveReader
    view: View
    newest: View | None = None

    @property
    def commit(self) -> int:
        """The last commit that is in it; -1 for an empty log."""
        return _number(self.view)

    def follow(self) -> Snapshot:
        """The same archive at the end of its log as it is now; of one opened as it was, the same."""
        return replace(self, view=self.reader.follow())

    def shows(self, topic: str, options: Options) -> bool:
        """Whether a topic is one of those that the options name."""
        place = self.place
        hidden = not options.system_topics and is_system_topic(
            topic, cluster=place.cluster, broker=place.broker
        )
        return not hidden and options.takes(topic)

    def choice(self, options: Options, queue_ids: frozenset[int] | None = None) -> Choice:
        """The queues that the options' topics mean, with one of these ids."""
        return Choice(key_prefixes(options, queue_ids), partial(self.shows, options=options), queue_ids)

    def object(self, ref: ObjectRef) -> ObjectState:
        """An object that a run names."""
        return self.objects((ref,))[0]

    def objects(self, refs: Sequence[ObjectRef]) -> list[ObjectState]:
        """``object`` of many, at once."""
        found = self.view.state.view.get_many([object_key(ref) for ref in refs])
        return [_known(ref, value) for ref, value in zip(refs, found, strict=True)]


def _known(ref: ObjectRef, value: bytes | None) -> ObjectState:
    if value is None:
        raise Corrupt("a run names an object that the fold does not know", object=ref)
    return unpack_object(ref, value)


class Requests:
    """Counts what this process asks its stores for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests = self._bytes = 0

    def request(self, verb: str, outcome: str, bytes_sent: int, bytes_received: int, seconds: float) -> None:
        """See ``RequestObserver``."""
        with self._lock:
            self._requests += 1
            self._bytes += bytes_received

    def so_far(self) -> tuple[int, int]:
        """Requests, and bytes received."""
        with self._lock:
            return self._requests, self._bytes


requests = Requests()
folds = KeptFolds()


@functools.lru_cache(maxsize=16)
def shared_provider(url: str) -> Provider:
    """The store, kept while this process lives: executors read many partitions of it. Encrypted archives are opened by the key
    that this process's environment names: no key, and no name of one, travels with a plan."""
    opened = open_provider(url, Store(), SystemClock(), observer=requests)
    return encrypted(opened, encryption_of(os.environ))  # noqa: TID251 - secrets must not travel with the plan


def encryption_of(environment: Mapping[str, str]) -> Encryption:
    """The section ``encryption`` by the variables that the daemon has for it, ``TIERED_ENCRYPTION_KEY_FILE`` and the others."""
    named = {f: f"TIERED_ENCRYPTION_{f.name.upper()}" for f in fields(Encryption)}
    given = {
        f.name: convert(f"encryption.{f.name}", f, environment[name], where=name)
        for f, name in named.items()
        if name in environment
    }
    return Encryption(**given)


def open_objects(place: ArchivePlace, cache_bytes: int = TABLE_CACHE_BYTES) -> ObjectReader:
    """The objects of an archive, without its fold: what a task reads."""
    keys = ArchiveKeys(place.cluster, place.broker)
    return ObjectReader(shared_provider(place.url), keys, place.archive_id, cache_bytes=cache_bytes)


@by_option()
def find_archives(options: Options) -> list[tuple[str, str, ArchiveKeys]]:
    """The URL that the options name, that of its root, and keys of every archive, none of them opened. Errors as of
    ``open_snapshots``."""
    found = []
    for url in dict.fromkeys(options.archives):
        # Executors have an environment of their own: the endpoint that this one names travels with the plan.
        here = archives_below(shared_provider(url), located(url, Store()))
        mine = [
            (url, root, keys)
            for root, keys in here
            if matches(keys.cluster, options.clusters) and matches(keys.broker, options.brokers)
        ]
        if not mine:
            raise NotFound(
                "no archive is here",
                hint="check the options archive, cluster and broker; tiered status shows what a daemon archives to",
                option="archive",
                archive=url,
                found=shown_archives([(keys.cluster, keys.broker) for _, keys in here]),
            )
        found += mine
    if len(found) > MAX_ARCHIVES:
        raise Refused(
            "these are more archives than one query may read",
            expected=f"at most {MAX_ARCHIVES}",
            found=len(found),
            hint="name fewer of them with the options cluster and broker",
        )
    return found


@by_option()
def open_snapshots(options: Options, *, begun: bool = True, keep: bool = False) -> list[Snapshot]:
    """Every archive that the options name, once, at the first URL that has it; of one URL two folders may not have the same.

    Those that have no commit yet are left out, with a warning: they have no message. ``begun=False``: they are there, too.
    ``keep``: for callers that follow none of them and will soon ask again, of the end of the log or of what just was.
    ``NotFound`` if an URL has no archive, none matches, or none has a commit; ``Refused`` if they are too many; ``Corrupt`` for
    one that has lost its commits.
    """
    by_id: dict[bytes, Snapshot] = {}
    named: dict[bytes, str] = {}
    for name, url, keys in find_archives(options):
        opened = _open(shared_provider(url), url, keys, options, keep=keep)
        first = by_id.setdefault(opened.place.archive_id, opened)
        if named.setdefault(opened.place.archive_id, name) == name and first is not opened:
            raise Refused(
                "two folders below one URL hold the same archive: one of them is a copy",
                archive=name,
                found=f"{first.place}, {opened.place}",
                hint="name the root of the one to read",
            )
    found = list(by_id.values())
    waiting = [snapshot for snapshot in found if snapshot.view.head is None]
    if len(waiting) == len(found):
        raise NotFound(
            "the archive has no commit yet" if len(found) == 1 else "none of these archives has a commit yet",
            archive=_shown(waiting),
            hint="start `tiered run`, or wait for its first message",
        )
    if waiting:
        log.warning("no commit yet, nothing is read of: %s", _shown(waiting))
        found = [snapshot for snapshot in found if not begun or snapshot.view.head is not None]
    if options.as_of_commit is not None and len(found) > 1:
        names = ", ".join(str(s.place) for s in found)
        raise Invalid(
            "asOfCommit is a commit of one archive",
            found=names,
            hint="name one with cluster and broker, or use asOfTimestamp",
        )
    return found


def _open(provider: Provider, url: str, keys: ArchiveKeys, options: Options, *, keep: bool) -> Snapshot:
    newest = None
    if keep and options.as_of_ms is None:
        found = folds.at_end(provider, keys, options.topics, scope_of(options), TABLE_CACHE_BYTES)
        if found is not None:
            reader, newest = found
            if options.as_of_commit in (None, _number(newest)):
                return _snapshot(url, keys, reader, newest, newest)
    store = PartialStore(scope_of(options))
    reader = ArchiveReader(provider, keys, store, table_cache_bytes=TABLE_CACHE_BYTES)
    try:
        view = reader.at(options.as_of_commit, time_ms=options.as_of_ms)
    except NotFound as error:
        error.fields.setdefault("archive", f"{url} {keys.cluster}/{keys.broker}")
        raise
    if view.head is None:
        view = _without_commits(provider, keys, reader)
    return _snapshot(url, keys, reader, view, newest)


def _snapshot(
    url: str, keys: ArchiveKeys, reader: ArchiveReader, view: View, newest: View | None
) -> Snapshot:
    place = ArchivePlace(url, keys.cluster, keys.broker, view.identity.archive_id)
    return Snapshot(place, reader, view, newest)


def _number(view: View) -> int:
    """The last commit in a view; -1 for an empty log."""
    return -1 if view.head is None else view.head.seq


def _without_commits(provider: Provider, keys: ArchiveKeys, reader: ArchiveReader) -> View:
    """The view of an archive that seems to have no commit. ``Corrupt`` if it has objects: the first that a writer puts behind
    the identity is a commit, so commits were there, and whatever they named would be no rows."""
    made = next((area for area in Area if _any(provider, keys.prefix(area))), None)
    if made is None:
        return reader.view
    view = reader.at()  # the first commit may have come meanwhile
    if view.head is None:
        raise Corrupt(
            "the archive has objects and no commit: its log is lost",
            key=keys.prefix(made),
            hint="restore the keys below commit/ and checkpoint/ from a copy of the bucket; broker=… reads other archives",
        )
    return view


def _any(provider: Provider, prefix: str) -> bool:
    return next(iter(provider.list(prefix, limit=1)), None) is not None


def _shown(snapshots: Sequence[Snapshot]) -> str:
    names = [str(snapshot.place) for snapshot in snapshots[:SHOWN]]
    return ", ".join([*names, "…"] if len(snapshots) > SHOWN else names)


def past(snapshot: Snapshot, options: Options, commit: int) -> ArchiveState:
    """The fold of its archive as it was, of what the options mean. ``NotFound`` if the log does not go back so far."""
    store = PartialStore(scope_of(options))
    snapshot.view.log.fold_until(store, commit)
    return ArchiveState(store.snapshot())
