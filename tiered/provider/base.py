"""The driver port: seven verbs over whole objects, three errors.

Errors of every verb: ``NotFound``, ``Conflict`` (create-only put met an existing object) and ``Unavailable``
(wait and retry; for a put this means *unknown whether it happened*). Anything else a driver meets (credentials,
missing bucket, a bad region) is ``Invalid`` with the setting to fix. Foreign exceptions never leave a driver.

Keys are relative to the provider's root, segments separated by ``/``: no leading or trailing slash, no empty
or dot segments, each segment ≤ 100 bytes (DESIGN.md, "Object keys"). A key that breaks this is ``Invalid``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tiered.codec.types import Buffer
from tiered.errors import TieredError


@dataclass(frozen=True, slots=True)
class Stored:
    """What the store said about an object: ``date_ms`` is the *store's* clock (the answer's ``Date``), ``last_modified_ms``
    the object's own time when known (``head`` and ``list``; ``put`` may leave it equal to ``date_ms``)."""

    key: str
    length: int
    date_ms: int
    last_modified_ms: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Bytes of a range (not always ``bytes``), the object's full length when the store told it, and the store's clock at the
    answer.

    ``refused``: tries that ended with ``Unavailable`` before this one, absorbed on the way (``Retrying``). Who governs how much
    it asks for must hear of them, though it got its bytes.
    """

    data: Buffer
    object_length: int | None
    date_ms: int
    last_modified_ms: int | None = None
    refused: int = 0


class Root(Protocol):
    """A place that is more than a name: somebody has to make it before anything can be put there."""

    def create_root(self) -> None:
        """Make the root unless it is there. The creator of an archive does so; a put never does."""
        ...


class Mount(Root, Protocol):
    """A directory of a file system: it can go away and leave an empty one under its name, forgets in a power cut what was not
    synced, keeps what dead writers left, and has a clock of its own. Object stores do without all of this."""

    def make_durable(self, key: str) -> None:
        """Make an existing object survive a power cut: fsync of file and directory."""
        ...

    def guard(self, key: str, same: Callable[[bytes], bool]) -> None:
        """Have every access below the directory of ``key`` see first that ``key`` is there and ``same`` agrees to its bytes."""
        ...

    def bind(self, key: str, needs: Sequence[str]) -> list[str]:
        """Have ``key`` put only where ``needs`` are; those of them that are not there now."""
        ...

    def ask_clock(self, key: str) -> None:
        """Have times come from the file server's clock. ``key``: a place that may be written to."""
        ...

    def tidy(self, prefix: str) -> None:
        """Remove empty directories below ``prefix``, and a root that this process made."""
        ...

    def sweep(self, prefix: str) -> Iterator[int]:
        """Remove unfinished files, a day old, below ``prefix``, a slice at a time; how many went."""
        ...


class Cutter(Protocol):
    """A driver that can break off an upload half way, for the probe."""

    def put_cut(self, key: str, parts: Sequence[Buffer]) -> None:
        """Begin to put an object and lose the connection. Always raises ``Unavailable``, or ``Invalid``."""
        ...


class Locker(Protocol):
    """A store that can keep an object until a date, whoever asks to delete it."""

    def check_lock(self) -> None:
        """``Refused`` if the settings ask for that and this store, or this bucket, does not do it; ``Unavailable``."""
        ...


class Encryptor(Protocol):
    """A wrapper that encrypts what is put into an archive. ``root``: what stands before all its keys, with its slash."""

    def check(self, root: str) -> None:
        """Prove that the archive's key can be used, before an epoch is opened with it. ``Refused`` if it is the wrong one."""
        ...

    def open_epoch(self, root: str, archive_id: bytes, epoch: int) -> None:
        """Encrypt what is put from now on: this process has opened ``epoch``."""
        ...


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload in parts that was begun under ``key`` and is neither completed nor given up."""

    key: str
    upload_id: str


class Lifecycle(Protocol):
    """A store that deletes or moves objects by rules of its own."""

    def harmful_rules(self, prefix: str) -> Sequence[str]:
        """What these rules do to objects below ``prefix`` that the archive would miss, a line each. ``Invalid`` without the
        right to ask; ``Unavailable``."""
        ...


class Uploads(Protocol):
    """A store whose uploads in parts outlive their writers: what was sent is kept, and paid for, until somebody gives it up."""

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """Those whose key starts with ``prefix``."""
        ...

    def give_up(self, upload: UnfinishedUpload) -> None:
        """Have the store drop what was sent. One that is completed or gone by now is success."""
        ...


class Manners(Protocol):
    """A driver that knows its store's answers from a stranger's by what the store showed."""

    @property
    def shown(self) -> Sequence[str]:
        """What the answers so far have in common."""
        ...

    def expect(self, shown: Iterable[str]) -> None:
        """What an earlier process was ``shown`` is seen already."""
        ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a driver promises, which the probe tries to refute; and what it can do beside the verbs of a provider."""

    create_only: bool
    suffix_range: bool
    ordered_listing: bool
    multipart: bool
    root: Root | None = None
    mount: Mount | None = None
    cutter: Cutter | None = None
    locker: Locker | None = None
    uploads: Uploads | None = None
    lifecycle: Lifecycle | None = None
    encryptor: Encryptor | None = None
    manners: Manners | None = None
    delete_keys: int = 1
    """Keys that one request of ``delete_many`` takes."""


class Provider(Protocol):
    """An object store. Thread-safe. ``url`` names it for people, without secrets."""

    @property
    def url(self) -> str:
        """The archive's root as an URL, secrets left out."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """What this driver promises."""
        ...

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """Store the concatenated ``parts`` under ``key``, durably, whole or not at all.

        Raises ``Conflict`` if the key exists (create-only), ``Unavailable`` if the outcome is unknown. Large bodies may
        go up in several parts inside the driver; the object appears at once.
        """
        ...

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        """Bytes [start, start + length); both ``None``: all. ``start < 0`` with ``length=None``: the last ``-start`` bytes
        (all of a shorter object). A range past the end returns what there is, possibly nothing; ``NotFound`` if the
        object is absent."""
        ...

    def head(self, key: str) -> Stored:
        """Length and times of an object, or ``NotFound``."""
        ...

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """Objects whose key starts with ``prefix``, ascending by key (UTF-8 bytes), after ``start_after``. Temporary names
        are hidden."""
        ...

    def delete(self, key: str) -> None:
        """Delete; a missing key is success."""
        ...

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        """Delete up to ``Capabilities.delete_keys`` keys in one request (more, where that is 1, one after the other); a missing
        key is success. The keys that are not known to be gone, each with its error; an error of a whole request is raised, or
        is the very same for all of its keys."""
        ...

    def close(self) -> None:
        """Release connections. Further verbs are errors."""
        ...
