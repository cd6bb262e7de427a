"""The driver for any file system fsspec knows: gcsfs, adlfs, hdfs, s3fs and the rest, installed by the operator.

What it can promise depends on the file system. Object stores with a conditional write (``mode="create"``) get it. Everything
else is written under a temporary name and moved, looks before it moves, and says ``create_only=False``: two writers could
both believe that they were first. fsspec tells no store time, so dates are this host's clock unless the answer has one.
"""

from __future__ import annotations

import email.utils
import errno
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import fsspec

from tiered.clock import Clock
from tiered.codec.types import Buffer
from tiered.errors import Conflict, Denied, Invalid, NotFound, TieredError, Unavailable
from tiered.provider.base import Capabilities, Fetched, Stored
from tiered.provider.body import joined
from tiered.provider.deleting import delete_each
from tiered.provider.fsspecparts import is_denial, is_refusal, response_of, s3_options
from tiered.provider.naming import (
    TEMP_PREFIX,
    check_key,
    check_prefix,
    check_range,
    segment_problem,
    slice_range,
)
from tiered.provider.s3errors import Context, from_response, headers_of, status_of
from tiered.provider.wrap import mark_after_unknown
from tiered.settings import Store

CREATES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"})
"""Object stores whose fsspec file system sends the store's own condition for ``mode="create"``."""

OBJECT_STORES = CREATES | frozenset({"memory", "oss", "oci", "r2", "tos", "obs"})
"""Where a write appears at once and no directories need to be made."""

SUFFIXES = frozenset({"s3", "s3a", "gs", "gcs", "file", "local", "memory"})
"""File systems that give the last bytes of an object when asked so."""

RENEW_SECONDS = 30.0
"""How old an opened file system must be to be opened anew when the store refuses who asks."""

_PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "gcs": "gcsfs",
    "az": "adlfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
}
_MODIFIED = ("LastModified", "last_modified", "mtime", "updated", "modified", "modification_time", "created")
_memory_lock = threading.Lock()  # fsspec's memory file system is one per process and has no lock of its own

Result = TypeVar("Result")


class FsspecProvider:
    """Objects as files below ``location`` of an fsspec file system. Thread-safe as far as the file system is."""

    def __init__(
        self, protocol: str, location: str, options: Mapping[str, Any], store: Store, clock: Clock
    ) -> None:
        self._protocol = protocol
        self._location = location
        self._options = dict(options)
        self._store = store
        self._clock = clock
        self._system: Any = None
        self._made = 0.0
        self._base = ""
        self._lock = threading.Lock()
        self._closed = False

    @property
    def url(self) -> str:
        """``fsspec+PROTO://location``, options left out."""
        return f"fsspec+{self._protocol}://{self._location}"

    @property
    def capabilities(self) -> Capabilities:
        """Create-only where the file system passes the condition on; see the module."""
        create_only = self._protocol in CREATES or self._protocol == "memory"
        return Capabilities(
            create_only=create_only, suffix_range=True, ordered_listing=True, multipart=False, root=self
        )

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """See ``Provider.put``. Its ``Conflict`` may be our own: many of these libraries retry inside without saying so."""
        path = self._path(key)
        data = joined(parts)
        try:
            answer = self._guard("put", key, lambda: self._write(path, data, create_only))
        except Conflict as conflict:
            mark_after_unknown(conflict)
            raise
        except Denied:
            raise
        except Unavailable as unavailable:
            if create_only and self._is_there(key):
                refused = Conflict("an object is there already", key=key, url=self.url)
                mark_after_unknown(refused)
                raise refused from unavailable
            raise
        date_ms = self._date_ms(answer)
        return Stored(key, len(data), date_ms, date_ms)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        """See ``Provider.get``. A suffix range first asks for the length where the file system may not take one.

        ``last_modified_ms`` stays unknown: the file system's clock is not the one that ``date_ms`` is of.
        """
        path = self._path(key)
        first, count = check_range(key, start, length)
        if count == 0:
            return self._nothing(key)
        if first < 0 and self._protocol not in SUFFIXES:
            return self._last(key, -first)
        end = None if count is None else first + count
        try:
            data = self._guard(
                "get", key, lambda: self._connected().cat_file(path, start=first or None, end=end)
            )
        except Unavailable:
            raise
        except Invalid:
            return self._nothing_after(key, first)
        whole = first == 0 and count is None
        return Fetched(bytes(data), len(data) if whole else None, self._clock.now_ms())

    def head(self, key: str) -> Stored:
        path = self._path(key)
        info = self._guard("head", key, lambda: self._info(path))
        if info.get("type") == "directory":
            raise NotFound("no such object", key=key, url=self.url)
        return self._stored(key, info)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """See ``Provider.list``. fsspec lists a directory whole, so this costs its whole length whatever the limit."""
        above, _, _ = check_prefix(prefix).rpartition("/")
        path = self._path(above) if above else self._root()
        try:
            found = self._guard("list", prefix, lambda: self._find(path))
        except NotFound:
            return iter(())
        after = b"" if start_after is None else start_after.encode()
        entries = sorted(
            (key.encode(), info)
            for key, info in self._keys(found)
            if key.startswith(prefix) and key.encode() > after
        )
        return (self._stored(key.decode(), info) for key, info in entries[:limit])

    def delete(self, key: str) -> None:
        path = self._path(key)
        with suppress(NotFound):
            self._guard("delete", key, lambda: self._connected().rm_file(path))

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        return delete_each(self.delete, keys)

    def create_root(self) -> None:
        """Make the root's directory where the file system has directories, unless it is there; what holds it must be."""
        if self._protocol in OBJECT_STORES:
            return

        def make() -> None:
            system, root = self._connected(), self._root()
            if not system.isdir(root):
                system.mkdir(root, create_parents=False)

        self._guard("put", "", make)

    def close(self) -> None:
        """Further verbs are errors. Sessions of the file system end with it."""
        with self._lock:
            self._closed = True
            system, self._system = self._system, None
        session = getattr(system, "_s3", None)
        if session is not None:
            with suppress(*_FOREIGN):
                system.close_session(system.loop, session)

    # --- the file system's verbs

    def _write(self, path: str, data: bytes, create_only: bool) -> Any:
        system = self._connected()
        if self._protocol == "memory":
            with _memory_lock:
                return system.pipe_file(path, data, mode="create" if create_only else "overwrite")
        if self._protocol in CREATES:
            return system.pipe_file(path, data, mode="create" if create_only else "overwrite")
        if self._protocol in OBJECT_STORES:
            if create_only and system.exists(path):
                raise FileExistsError(errno.EEXIST, "exists", path)
            return system.pipe_file(path, data)
        if not system.isdir(
            self._root()
        ):  # an empty mount point, perhaps: nothing is made there but by ``create_root``
            raise FileNotFoundError(errno.ENOENT, "the archive's root is gone", self._root())
        directory = path.rpartition("/")[0]
        temporary = f"{directory}/{TEMP_PREFIX}{uuid.uuid4().hex}"
        try:
            system.makedirs(directory, exist_ok=True)
            system.pipe_file(temporary, data)
            if create_only and system.exists(path):
                raise FileExistsError(errno.EEXIST, "exists", path)
            system.mv(temporary, path)
        finally:
            with suppress(*_FOREIGN):
                if system.exists(temporary):
                    system.rm_file(temporary)
        return None

    def _info(self, path: str) -> Mapping[str, Any]:
        system = self._connected()
        system.invalidate_cache(path)
        info: Mapping[str, Any] = system.info(path)
        return info

    def _find(self, path: str) -> Mapping[str, Mapping[str, Any]]:
        system = self._connected()
        system.invalidate_cache()
        found = system.find(path, detail=True)
        return found if isinstance(found, Mapping) else {}  # adlfs answers an empty list where nothing is

    def _keys(self, found: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        start = f"{self._root()}/"
        for path, info in found.items():
            key = path[len(start) :] if path.startswith(start) else ""
            if info.get("type") == "file" and key and not any(map(segment_problem, key.split("/"))):
                yield key, info

    def _last(self, key: str, count: int) -> Fetched:
        """The last ``count`` bytes, as a plain range: objects never change, so that the length still holds when it is read."""
        length = self.head(key).length
        begin = max(0, length - count)
        if not length:
            return self._nothing(key)
        return replace(self.get(key, begin, length - begin), object_length=length)

    def _is_there(self, key: str) -> bool:
        """Asked when a put ended without an answer: a server that refuses a large body by its condition may hang up before
        it has read all of it, and aiohttp tells that as a connection that broke, however often it is tried."""
        with suppress(TieredError):
            self.head(key)
            return True
        return False

    def _nothing(self, key: str) -> Fetched:
        found = self.head(key)
        return Fetched(b"", found.length, found.date_ms)

    def _nothing_after(self, key: str, first: int) -> Fetched:
        """After a refused read: no bytes, if the range starts behind the end; the refusal was right otherwise."""
        found = self.head(key)
        begin, end = slice_range(first, None, found.length)
        if begin < end:
            raise Unavailable("the store refused a range inside the object", key=key, url=self.url)
        return Fetched(b"", found.length, found.date_ms)

    # --- shared

    def _connected(self) -> Any:
        system = self._system
        if system is None:
            with self._lock:
                self._check_open()
                if self._system is None:
                    self._system = self._make()
                system = self._system
        return system

    def _renew(self) -> None:
        """Have the next request open the file system anew, every now and then: its credentials may have been renewed."""
        with self._lock:
            if self._protocol != "memory" and self._clock.monotonic() - self._made >= RENEW_SECONDS:
                self._system = None

    def _make(self) -> Any:
        self._made = self._clock.monotonic()
        try:
            options = s3_options(self._store, self.url) if self._protocol in ("s3", "s3a") else self._options
            system = fsspec.filesystem(
                self._protocol, use_listings_cache=False, skip_instance_cache=True, **options
            )
        except (ImportError, ValueError) as error:
            package = _PACKAGES.get(self._protocol, f"the package that provides {self._protocol}")
            raise Invalid(
                f"fsspec cannot open {self._protocol}://",
                found=str(error)[:200],
                hint=f"install {package} beside this program, or correct archive.url",
            ) from None
        except TypeError as error:
            raise Invalid(
                "the file system does not take these options",
                found=str(error)[:200],
                hint="correct archive.url",
            ) from None
        if hasattr(system, "retries"):
            system.retries = 1  # repeated openly by the wrapper instead
        return system

    def _root(self) -> str:
        if not self._base:
            system = self._guard("open", "", self._connected)
            self._base = str(system._strip_protocol(f"{self._protocol}://{self._location}")).rstrip("/")
        return self._base

    def _path(self, key: str) -> str:
        self._check_open()
        return f"{self._root()}/{check_key(key)}"

    def _check_open(self) -> None:
        if self._closed:
            raise Invalid("the provider is closed", url=self.url)

    def _stored(self, key: str, info: Mapping[str, Any]) -> Stored:
        now_ms = self._clock.now_ms()
        moment = next((info[name] for name in _MODIFIED if info.get(name) is not None), None)
        return Stored(
            key, int(info.get("size") or 0), now_ms, now_ms if moment is None else _moment_ms(moment, now_ms)
        )

    def _date_ms(self, answer: Any) -> int:
        text = headers_of(answer).get("date") if isinstance(answer, dict) else None
        with suppress(ValueError, TypeError):
            if text:
                return round(email.utils.parsedate_to_datetime(text).timestamp() * 1000)
        return self._clock.now_ms()

    def _guard(self, verb: str, key: str, request: Callable[[], Result]) -> Result:
        try:
            return request()
        except TieredError:
            raise
        except Exception as error:  # noqa: BLE001 - a door: every file system has exceptions of its own
            mapped = self._mapped(verb, key, error)
            if isinstance(mapped, Denied):
                self._renew()
            raise mapped from None

    def _mapped(self, verb: str, key: str, error: Exception) -> TieredError:
        store = self._store
        context = Context(
            verb, key, self.url, (store.access_key_id, store.secret_access_key, store.session_token)
        )
        response = response_of(error)
        if response is not None and status_of(response) != 416:
            return from_response(response, context)
        where = {"key": key, "url": self.url, "found": f"{type(error).__name__} {context.clean(str(error))}"}
        if isinstance(error, FileExistsError):
            return Conflict("the key exists", key=key, url=self.url)
        if isinstance(error, FileNotFoundError | NotADirectoryError | IsADirectoryError):
            if verb != "put":
                return NotFound("no such object", key=key, url=self.url)
            hint = "create the bucket or directory, or correct archive.url"
            return Invalid("a directory or bucket of the archive is missing", hint=hint, **where)
        if is_denial(error):
            return Denied(f"the store refuses to {verb}", hint="check the file system's credentials", **where)
        refused = response is not None or getattr(error, "errno", None) == errno.EINVAL or is_refusal(error)
        passing = isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _NETWORKED
        if passing and not refused:
            return Unavailable(f"the store cannot {verb} now", **where)
        return Invalid(
            f"the file system refuses to {verb}", hint="correct archive.url and the store section", **where
        )


_NETWORKED = frozenset(
    {"aiohttp", "aiobotocore", "botocore", "azure", "google", "gcsfs", "requests", "urllib3", "paramiko"}
)
_FOREIGN = (OSError, ValueError, RuntimeError, AttributeError)


def _moment_ms(moment: Any, default: int) -> int:
    if isinstance(moment, datetime):
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if isinstance(moment, int | float):
        return round(moment * 1000)
    with suppress(ValueError, TypeError):
        return _moment_ms(datetime.fromisoformat(str(moment)), default)
    return default
