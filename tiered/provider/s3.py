"""The driver for S3 and its relatives, over boto3; objects are read by a shorter way (``s3ranges``).

One call is one attempt: botocore's own retries are off, because a retry that hides a lost answer turns our own success into
"exists"; the ``Retrying`` wrapper does it in the open. The store's clock is the ``Date`` header of each answer.
"""

from __future__ import annotations

import email.utils
import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlencode

import botocore.exceptions as sdk
import urllib3.exceptions

from tiered.clock import Clock
from tiered.codec.types import Buffer
from tiered.errors import Conflict, Denied, Invalid, NotFound, TieredError, Unavailable
from tiered.provider.base import Capabilities, Fetched, Stored, UnfinishedUpload
from tiered.provider.body import JOIN_BYTES, CutStream, PartsStream, body_length, digest, joined, split
from tiered.provider.deleting import BATCH_KEYS, delete_each, deletes_one_by_one, not_deleted
from tiered.provider.naming import check_key, check_prefix, check_range
from tiered.provider.s3answers import (
    ForeignAnswer,
    Pages,
    StoreAnswers,
    of_range,
    require_listed,
    require_no_bytes,
    require_object,
)
from tiered.provider.s3client import (
    Boto3Error,
    from_transport,
    hashes_bodies,
    keys_of,
    make_client,
    make_session,
)
from tiered.provider.s3errors import RENEWABLE, Context, from_response, headers_of, status_of
from tiered.provider.s3lifecycle import harmful_rules, no_rules
from tiered.provider.s3lock import deletable_version, lock_arguments, require_lock
from tiered.provider.s3ranges import S3Ranges
from tiered.settings import Store

PAGE_KEYS = 1000
"""Keys per listing request, S3's own maximum."""

MAX_PARTS = 10_000
"""Parts of a multipart upload, S3's own maximum."""

RENEW_SECONDS = 1.0
"""Between two looks for other credentials, while the store refuses those that there are."""

_TOTAL = re.compile(r"bytes (?:\d+-\d+|\*)/(\d+)")
_FOREIGN = (
    sdk.BotoCoreError,
    sdk.ClientError,
    Boto3Error,
    urllib3.exceptions.HTTPError,
    OSError,
    ValueError,
)
Result = TypeVar("Result")

log = logging.getLogger("tiered.provider")


class S3Provider:
    """Objects of ``bucket`` whose keys start with ``root`` and a slash (``""``: all). Thread-safe.

    The client, and with it the search for credentials, is made at first use, and again when the store refuses the credentials
    and the search finds others: a file, or a token in a file, that another process has written anew.
    """

    def __init__(self, bucket: str, root: str, store: Store, clock: Clock) -> None:
        self._bucket = bucket
        self._root = f"{root}/" if root else ""
        self._store = store
        self._clock = clock
        self._client: Any = None
        self._direct: S3Ranges | None = None
        self._session: Any = None
        self._signed_with: tuple[str, ...] | None = None
        self._looked, self._found_others = -RENEW_SECONDS, False
        self._answers = StoreAnswers()
        self._lock = threading.Lock()
        self._closed = False
        self._one_by_one = False

    @property
    def url(self) -> str:
        """``s3://bucket/root?endpoint=…&region=…``."""
        options = {"endpoint": self._store.endpoint, "region": self._store.region}
        query = urlencode({name: value for name, value in options.items() if value}, safe=":/")
        return f"s3://{self._bucket}/{self._root}".rstrip("/") + (f"?{query}" if query else "")

    @property
    def capabilities(self) -> Capabilities:
        """All of them; the probe finds the servers that only pretend."""
        return Capabilities(
            create_only=True,
            suffix_range=True,
            ordered_listing=True,
            multipart=True,
            cutter=self,
            locker=self,
            uploads=self,
            lifecycle=self,
            manners=self._answers,
            delete_keys=1 if self._store.object_lock else BATCH_KEYS,
        )

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """See ``Provider.put``. Above ``store.multipart_bytes`` it goes up in parts; the completion is create-only."""
        name = self._name(key)
        length = body_length(parts)
        condition = {"IfNoneMatch": "*"} if create_only else {}
        if length > self._store.multipart_bytes:
            response = self._put_multipart(key, name, parts, length, condition)
        else:
            body = joined(parts) if length <= JOIN_BYTES or len(parts) == 1 else PartsStream(parts)
            arguments = {**self._checksum(parts), **self._placement(name), **condition}
            response = self._call(
                "put", key, "put_object", Key=name, Body=body, ContentLength=length, **arguments
            )
        date_ms = self._date_ms(response)
        return Stored(key, length, date_ms, date_ms)

    def put_cut(self, key: str, parts: Sequence[Buffer]) -> None:
        """For the probe: announce ``parts`` create-only, send half, drop the connection. Always ``Unavailable``."""
        name = self._name(key)
        hashed = self._guard("put", key, lambda: hashes_bodies(self._connected()))
        body = CutStream(parts, whole_passes=int(hashed))
        arguments = {**self._checksum(parts), **self._placement(name)}
        length = body_length(parts)
        self._call(
            "put", key, "put_object", Key=name, Body=body, ContentLength=length, IfNoneMatch="*", **arguments
        )
        raise Unavailable("the cut upload was answered", key=key, url=self.url)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        name = self._name(key)
        first, count = check_range(key, start, length)
        if count == 0:
            found = self.head(key)
            return Fetched(b"", found.length, found.date_ms, found.last_modified_ms)
        return self._guard("get", key, lambda: self._fetch(name, first, count))

    def head(self, key: str) -> Stored:
        """See ``Provider.head``. A missing bucket looks like a missing object here: HEAD has no body to tell."""
        response = self._call("head", key, "head_object", Key=self._name(key))
        date_ms = self._date_ms(response)
        return Stored(
            key, int(response["ContentLength"]), date_ms, _ms(response.get("LastModified"), date_ms)
        )

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """See ``Provider.list``. One request per 1,000 keys, made as the iteration goes on."""
        self._check_open()
        arguments: dict[str, Any] = {"Prefix": self._root + check_prefix(prefix)}
        if start_after is not None:
            arguments["StartAfter"] = self._root + start_after
        remaining, pages = limit, Pages("Contents", "NextContinuationToken")
        while remaining is None or remaining > 0:
            page_keys = PAGE_KEYS if remaining is None else min(PAGE_KEYS, remaining)
            page = self._call("list", prefix, "list_objects_v2", MaxKeys=page_keys, **arguments)
            date_ms = self._date_ms(page)
            entries = page.get("Contents", ())
            token = self._next(prefix, pages, page, arguments)
            for entry in entries:
                yield Stored(
                    entry["Key"][len(self._root) :],
                    int(entry["Size"]),
                    date_ms,
                    _ms(entry.get("LastModified"), date_ms),
                )
            if remaining is not None:
                remaining -= len(entries)
            if token is None:
                return
            arguments["ContinuationToken"] = token

    def delete(self, key: str) -> None:
        """See ``Provider.delete``. With Object Lock it is ``Refused`` until the object's date (``s3lock``)."""
        name, version = self._name(key), {}
        try:
            if self._store.object_lock:
                head = self._call("head", key, "head_object", Key=name)
                version = deletable_version(head, key, self._date_ms(head))
            self._call("delete", key, "delete_object", Key=name, **version)
        except NotFound:
            return

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        """See ``Provider.delete_many``. A store without that request, and one that locks objects, deletes one after another."""
        if self._store.object_lock or self._one_by_one or len(keys) == 1:
            return delete_each(self.delete, keys)
        names = {self._name(key): key for key in keys}
        asked = {"Objects": [{"Key": name} for name in names], "Quiet": False}
        try:
            answer = self._call("delete", keys[0], "delete_objects", Delete=asked)
        except Invalid as error:
            if not deletes_one_by_one(error):
                raise
            self._one_by_one = True
            return delete_each(self.delete, keys)
        return not_deleted(answer, names, self._context("delete", keys[0]))

    def check_lock(self) -> None:
        """See ``Locker``."""
        if not self._store.object_lock:
            return
        try:
            answer = self._call("get", "", "get_object_lock_configuration")
        except Denied as error:
            error.hint = f"{error.hint}; s3:GetBucketObjectLockConfiguration, too"
            raise
        except (NotFound, Invalid) as error:
            require_lock(error, self.url)
        else:
            require_lock(answer, self.url)

    def harmful_rules(self, prefix: str) -> Sequence[str]:
        try:
            answer = self._call("get", prefix, "get_bucket_lifecycle_configuration")
        except (Invalid, NotFound) as error:
            if no_rules(error):
                return []
            raise
        return harmful_rules(answer.get("Rules", ()), self._root + prefix)

    def unfinished(self, prefix: str) -> Iterator[UnfinishedUpload]:
        """See ``Uploads.unfinished``. One request per 1,000."""
        arguments: dict[str, Any] = {"Prefix": self._root + check_prefix(prefix)}
        pages = Pages("Uploads", "NextKeyMarker")
        while True:
            page = self._call("list", prefix, "list_multipart_uploads", MaxUploads=PAGE_KEYS, **arguments)
            after = self._next(prefix, pages, page, arguments)
            for entry in page.get("Uploads", ()):
                yield UnfinishedUpload(entry["Key"][len(self._root) :], entry["UploadId"])
            if after is None:
                return
            arguments["KeyMarker"] = after
            arguments["UploadIdMarker"] = page.get("NextUploadIdMarker", "")

    def give_up(self, upload: UnfinishedUpload) -> None:
        arguments = {"Key": self._name(upload.key), "UploadId": upload.upload_id}
        try:
            self._connected().abort_multipart_upload(Bucket=self._bucket, **arguments)
        except sdk.ClientError as error:
            if status_of(error.response) != 404:
                self._raise("delete", upload.key, error)
        except _FOREIGN as error:
            self._raise("delete", upload.key, error)

    def close(self) -> None:
        """Release pooled connections. Further verbs are errors."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None:
            client.close()

    # --- requests

    def _next(
        self, prefix: str, pages: Pages, page: Mapping[str, Any], asked: Mapping[str, Any]
    ) -> str | None:
        """Where the next page begins, of a listing that is the store's; ``None``: there is none."""
        try:
            return pages.following(page, asked)
        except ForeignAnswer as error:
            self._raise("list", prefix, error)

    def _fetch(self, name: str, first: int, count: int | None) -> Fetched:
        whole = first == 0 and count is None
        asked = {
            "Range": _range(first, count)
        }  # of all of it, too: by Content-Range it is seen whether all came
        client = self._connected()
        found = None if self._direct is None else self._direct.get(name, asked)
        if found is None:
            try:
                response = client.get_object(Bucket=self._bucket, Key=name, **asked)
            except sdk.ClientError as error:
                if status_of(error.response) != 416:
                    raise
                # The range starts at or behind the end: an answer, not an error.
                told = _TOTAL.match(headers_of(error.response).get("content-range", ""))
                total = int(told[1]) if told else None
                require_no_bytes(first, count, total)
                return Fetched(b"", total, self._date_ms(error.response))
            with response["Body"] as body:
                found = response, body.read()
        response, data = found
        date_ms = self._date_ms(response)
        modified_ms = _ms(response.get("LastModified"), date_ms)
        stated = response.get("ContentRange")
        if stated is None and (not data or (whole and self._answers.counts_all)):
            page = client.list_objects_v2(Bucket=self._bucket, Prefix=name, MaxKeys=1)
            require_listed(page, name, len(data))
        if stated is None and whole:
            require_object(data)
            return Fetched(data, len(data), date_ms, modified_ms)
        self._answers.counts_all |= whole
        if stated is None:  # all of it came, or what was asked for without a word of that
            stated = int(client.head_object(Bucket=self._bucket, Key=name)["ContentLength"])
        return Fetched(*of_range(first, count, data, stated), date_ms, modified_ms)

    def _put_multipart(
        self, key: str, name: str, parts: Sequence[Buffer], length: int, condition: Mapping[str, str]
    ) -> Any:
        algorithm = {"ChecksumAlgorithm": self._store.checksum} if self._store.checksum else {}
        asked = {**algorithm, **self._placement(name)}
        upload = self._call("put", key, "create_multipart_upload", Key=name, **asked)
        at = {"Key": name, "UploadId": upload["UploadId"]}
        part_bytes = max(self._store.multipart_bytes, -(-length // MAX_PARTS))
        done = []
        try:
            for number, piece in enumerate(split(parts, part_bytes), start=1):
                checksum = self._checksum(piece)
                answer = self._call(
                    "put", key, "upload_part", PartNumber=number, Body=PartsStream(piece), **at, **checksum
                )
                done.append({"PartNumber": number, "ETag": answer["ETag"], **checksum})
            return self._call(
                "put", key, "complete_multipart_upload", MultipartUpload={"Parts": done}, **at, **condition
            )
        except TieredError:
            # After an unknown completion this does nothing (the upload is gone) or settles that it never happens. What it
            # leaves behind is found by key and id ("unfinished"), or removed by the bucket's lifecycle rule.
            with suppress(TieredError):
                self._call("put", key, "abort_multipart_upload", **at)
            raise

    def _checksum(self, parts: Sequence[Buffer]) -> dict[str, str]:
        # Summed here and not by the SDK, which needs a native extra for CRC32C and would wrap the body in chunks.
        algorithm = self._store.checksum
        return {f"Checksum{algorithm}": digest(algorithm, parts)} if algorithm else {}

    def _placement(self, name: str) -> dict[str, Any]:
        wanted: dict[str, Any] = {
            "ServerSideEncryption": self._store.sse,
            "SSEKMSKeyId": self._store.sse_kms_key_id,
            "StorageClass": self._store.storage_class,
        }
        wanted |= lock_arguments(self._store, name, self._clock.now_ms())
        return {argument: value for argument, value in wanted.items() if value}

    def _call(self, verb: str, key: str, operation: str, **arguments: Any) -> Any:
        return self._guard(
            verb, key, lambda: getattr(self._connected(), operation)(Bucket=self._bucket, **arguments)
        )

    def _guard(self, verb: str, key: str, request: Callable[[], Result]) -> Result:
        try:
            return request()
        except _FOREIGN as error:
            self._raise(verb, key, error)
        except RecursionError:  # botocore asks again and again where a redirect without a region leads to
            hint = (
                "correct store.region and store.endpoint (https, not http?): they must name the S3 API itself"
            )
            raise Invalid(
                "the store redirects without saying where to", key=key, url=self.url, hint=hint
            ) from None

    def _context(self, verb: str, key: str) -> Context:
        secrets = (self._store.access_key_id, self._store.secret_access_key, self._store.session_token)
        return Context(verb, key, self.url, secrets)

    def _raise(self, verb: str, key: str, error: Exception) -> NoReturn:
        context = self._context(verb, key)
        if isinstance(error, sdk.ClientError):
            mapped = from_response(error.response, context)
            if isinstance(mapped, Denied) and self._renew(error.response):
                found = mapped.fields.get("found")
                log.warning("the store refused the credentials: others were found", extra={"found": found})
                again = "the store refused credentials that have been renewed since"
                mapped = Unavailable(again, key=key, url=self.url, found=found)
            if isinstance(mapped, Conflict) and verb != "put":
                mapped = Unavailable(f"the store cannot {verb} now", key=key, url=self.url, found="412")
        else:
            mapped = from_transport(error, context, self._store)
        # The foreign text may carry a credential or a signed address, so it is not chained.
        raise mapped from None

    # --- the client

    def _connected(self) -> Any:
        client = self._client
        if client is None:
            with self._lock:
                self._check_open()
                if self._client is None:
                    made = make_client(self._store, self._searched(), self._answers)
                    if self._store.engine != "boto3":
                        self._direct = S3Ranges(made, self._session, self._bucket, self._answers)
                    self._client = made
                client = self._client
        return client

    def _searched(self) -> Any:
        """The session with the credentials in use. The lock is held. None is kept without: a client would never find any."""
        if self._session is None:
            session = make_session(self._store)
            self._signed_with = keys_of(session)
            self._session = session
        return self._session

    def _renew(self, response: Mapping[str, Any]) -> bool:
        """Whether there are other credentials than those that the store refused: they are taken from now on."""
        code = str(response.get("Error", {}).get("Code") or "")
        if code not in RENEWABLE and not (code.isdigit() or not code):
            return False
        with self._lock:
            now = self._clock.monotonic()
            if self._closed or now - self._looked < RENEW_SECONDS:
                return self._found_others  # refused with the old ones, while another thread looked
            self._looked, self._found_others = now, False
            with suppress(*_FOREIGN):
                session = make_session(self._store)
                keys = keys_of(session)
                if keys != self._signed_with:
                    # The old client is left to those who are still asking by it.
                    self._session, self._signed_with, self._client = session, keys, None
                    self._found_others = True
            return self._found_others

    def _date_ms(self, response: Mapping[str, Any]) -> int:
        """The answer's ``Date``; the host's own clock for a server that sends none."""
        text = headers_of(response).get("date")
        if text:
            try:
                return round(email.utils.parsedate_to_datetime(text).timestamp() * 1000)
            except ValueError:
                pass
        return self._clock.now_ms()

    def _name(self, key: str) -> str:
        self._check_open()
        return self._root + check_key(key)

    def _check_open(self) -> None:
        if self._closed:
            raise Invalid("the provider is closed", url=self.url)


def _range(first: int, count: int | None) -> str:
    if first < 0:
        return f"bytes={first}"
    return f"bytes={first}-" + ("" if count is None else str(first + count - 1))


def _ms(moment: datetime | None, default: int) -> int:
    return default if moment is None else round(moment.timestamp() * 1000)
