"""A small S3 in memory, over HTTP on loopback, whose every answer a test can bend: status, headers, body, timing, by request.

``bend`` sees each request and what does it: it may do it and change the answer, do it and say something else, or not do it.
``script`` is for the few things that happen below HTTP's answers (a close before the body is read), a word for each PUT. One
bucket; whatever it is called. What is answered when nothing is bent is what S3 answers: an ETag, a request id, XML.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tiered.clock import Clock, SystemClock
from tiered.errors import Conflict, Invalid, NotFound
from tiered.provider.memory import MemoryProvider
from tiered.settings import Store

CODES = {
    301: "PermanentRedirect",
    400: "AuthorizationHeaderMalformed",
    403: "SignatureDoesNotMatch",
    404: "NoSuchBucket",
    409: "ConditionalRequestConflict",
    412: "PreconditionFailed",
    500: "InternalError",
    503: "SlowDown",
}
"""S3's code for a status that a word of the script asks for."""


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked. ``key`` is empty for the bucket itself; header names are in lower case."""

    method: str
    key: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = field(repr=False)

    @property
    def verb(self) -> str:
        """``put``, ``get``, ``range``, ``head``, ``delete``, ``list``, ``delete_many``, ``begin``, ``part``, ``complete``,
        ``abort``, ``uploads``, ``lifecycle``, ``lock`` or ``bucket``."""
        if not self.key:
            special = {
                "uploads": "uploads",
                "lifecycle": "lifecycle",
                "object-lock": "lock",
                "delete": "delete_many",
            }
            plain = "list" if self.method == "GET" else "bucket"
            return next((special[name] for name in special if name in self.query), plain)
        if self.method == "GET":
            return "get" if self.headers.get("range", "bytes=0-") == "bytes=0-" else "range"
        if "uploadId" in self.query:
            return {"PUT": "part", "POST": "complete", "DELETE": "abort"}[self.method]
        return "begin" if self.method == "POST" else self.method.lower()


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered. ``length``: what ``Content-Length`` says, if it is not the truth; ``raw``: bytes that go out as they
    are behind ``Transfer-Encoding: chunked``; ``close``: the connection ends behind the answer (``status`` 0: without one).
    """

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    version: str = "HTTP/1.1"
    length: int | None = None
    raw: bytes | None = None
    close: bool = False

    def without(self, *names: str) -> Answer:
        """The same without some headers."""
        lower = {name.lower() for name in names}
        return replace(
            self, headers={name: text for name, text in self.headers.items() if name.lower() not in lower}
        )


Bend = Callable[[Request, Callable[[], Answer]], Answer]
"""Answers a request; the callable does it, and says what the store would answer."""


def xml(text: str, status: int = 200) -> Answer:
    """An answer of XML."""
    return Answer(status, {"Content-Type": "application/xml"}, f'<?xml version="1.0"?>{text}'.encode())


def error(status: int, code: str, message: str = "fake") -> Answer:
    """An error as S3 tells it."""
    return xml(f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>", status)


class FakeS3:
    """Serves one bucket; see the module.

    Words of ``script`` (for PUT and POST; ``script_all``: for whatever comes): ``ok``; ``lost`` (stored, closed without an
    answer); ``early`` (closed before the body is read, not stored); ``412-early`` (refused from the headers alone, then
    closed); ``409``, ``503`` … (that status with S3's code for it, not stored); ``503-stored`` (stored, then 503); ``ignore``
    (as a server that does not know If-None-Match); ``short`` (a GET's body breaks off half way).
    """

    def __init__(self, clock: Clock | None = None, bend: Bend | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.objects = MemoryProvider("fake", self.clock)
        self.bend = bend
        self.script: deque[str] = deque()
        self.script_all: deque[str] = deque()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.asked: list[Request] = []
        self.bodies_read = 0
        self._uploads: dict[str, tuple[str, dict[int, bytes]]] = {}
        self._numbers = itertools.count(1)
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )

    @property
    def endpoint(self) -> str:
        """``http://127.0.0.1:port``."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def store(self, **changes: Any) -> Store:
        """The ``store`` section that reaches it, patient for two seconds."""
        options = {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "toy",
            "secret_access_key": "toy-secret",
        }
        return Store(**{**options, "read_timeout_ms": 2000, **changes})

    @contextmanager
    def running(self) -> Iterator[FakeS3]:
        """Serve until the end of the block."""
        self._thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    @contextmanager
    def bent(self, bend: Bend) -> Iterator[FakeS3]:
        """Answer by ``bend`` within the block."""
        before, self.bend = self.bend, bend
        try:
            yield self
        finally:
            self.bend = before

    # --- what is answered

    def next_word(self, method: str, *, peek: bool = False) -> str:
        """The script's word for this request."""
        for script in (self.script_all, self.script if method in ("PUT", "POST") else deque[str]()):
            if script:
                return script[0] if peek else script.popleft()
        return "ok"

    def answer(self, request: Request, word: str) -> Answer:
        """The answer to a request whose body was read."""
        status, _, region = word.partition(" in ")
        if status.isdigit():
            told = error(int(status), CODES.get(int(status), "Odd"))
            if region:  # S3 names it where the bucket lies in another one than was asked
                told.headers["x-amz-bucket-region"] = region
            return told
        if word == "ignore":
            request.headers.pop("if-none-match", None)
        found = self.act(request) if self.bend is None else self.bend(request, lambda: self.act(request))
        if word == "lost":
            return Answer(0, close=True)
        if word.endswith("-stored"):
            status = int(word.removesuffix("-stored"))
            return error(status, CODES.get(status, "Odd"))
        if word == "short":
            return replace(found, body=found.body[: len(found.body) // 2], length=len(found.body), close=True)
        return found

    def act(self, request: Request) -> Answer:
        """Do what is asked, and what S3 answers then."""
        try:
            found: Answer = getattr(self, f"on_{request.verb}")(request)
        except Conflict:
            found = error(412, "PreconditionFailed")
        except NotFound:
            found = error(404, "NoSuchKey")
        except Invalid as refused:
            found = error(400, "InvalidRequest", str(refused))
        number = f"{next(self._numbers):016X}"
        return replace(found, headers={"x-amz-request-id": number, "Server": "AmazonS3", **found.headers})

    def on_put(self, request: Request) -> Answer:
        self.objects.put(request.key, [request.body], create_only=request.headers.get("if-none-match") == "*")
        return Answer(headers={"ETag": _etag(request.body)})

    def on_head(self, request: Request) -> Answer:
        found = self.objects.get(request.key)
        stated = {
            "ETag": _etag(bytes(found.data)),
            "Content-Type": "binary/octet-stream",
            "Accept-Ranges": "bytes",
        }
        stated["Last-Modified"] = formatdate((found.last_modified_ms or 0) // 1000, usegmt=True)
        return Answer(200, stated, bytes(found.data))

    def on_get(self, request: Request) -> Answer:
        return self.on_range(request) if "range" in request.headers else self.on_head(request)

    def on_range(self, request: Request) -> Answer:
        whole = self.on_head(request)
        first, _, last = request.headers["range"].removeprefix("bytes=").partition("-")
        size = len(whole.body)
        begin, end = (
            (int(first), min(int(last or size - 1) + 1, size)) if first else (max(0, size - int(last)), size)
        )
        if begin >= size:
            return replace(error(416, "InvalidRange"), headers={"Content-Range": f"bytes */{size}"})
        stated = {**whole.headers, "Content-Range": f"bytes {begin}-{end - 1}/{size}"}
        return Answer(206, stated, whole.body[begin:end])

    def on_delete(self, request: Request) -> Answer:
        self.objects.delete(request.key)
        return Answer(204)

    def on_delete_many(self, request: Request) -> Answer:
        gone = [unescape(name.decode()) for name in re.findall(rb"<Key>(.*?)</Key>", request.body)]
        for key in gone:
            self.objects.delete(key)
        rows = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in gone)
        return xml(f"<DeleteResult>{rows}</DeleteResult>")

    def on_list(self, request: Request) -> Answer:
        limit = int(request.query.get("max-keys") or 1000)
        after = request.query.get("continuation-token") or request.query.get("start-after")
        prefix = request.query.get("prefix", "")
        found = list(self.objects.list(prefix, start_after=after, limit=limit + 1))
        more = len(found) > limit
        rows = "".join(
            f"<Contents><Key>{escape(each.key)}</Key><Size>{each.length}</Size>"
            f"<LastModified>{datetime.fromtimestamp(each.last_modified_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S.000Z}</LastModified>"
            "</Contents>"
            for each in found[:limit]
        )
        token = (
            f"<NextContinuationToken>{escape(found[limit - 1].key)}</NextContinuationToken>" if more else ""
        )
        about = (
            f"<Name>bucket</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(found[:limit])}</KeyCount>"
        )
        space = "http://s3.amazonaws.com/doc/2006-03-01/"
        return xml(
            f'<ListBucketResult xmlns="{space}">{about}<IsTruncated>{str(more).lower()}</IsTruncated>{token}{rows}'
            "</ListBucketResult>"
        )

    def on_begin(self, request: Request) -> Answer:
        upload = f"upload{next(self._numbers)}"
        self._uploads[upload] = (request.key, {})
        return xml(
            "<InitiateMultipartUploadResult><Bucket>bucket</Bucket>"
            f"<Key>{escape(request.key)}</Key><UploadId>{upload}</UploadId></InitiateMultipartUploadResult>"
        )

    def on_part(self, request: Request) -> Answer:
        if request.query["uploadId"] not in self._uploads:
            return error(404, "NoSuchUpload")
        self._uploads[request.query["uploadId"]][1][int(request.query["partNumber"])] = request.body
        return Answer(headers={"ETag": _etag(request.body)})

    def on_complete(self, request: Request) -> Answer:
        if request.query["uploadId"] not in self._uploads:
            return error(404, "NoSuchUpload")
        parts = self._uploads[request.query["uploadId"]][1]
        body = b"".join(parts[number] for number in sorted(parts))
        self.objects.put(request.key, [body], create_only=request.headers.get("if-none-match") == "*")
        del self._uploads[request.query["uploadId"]]
        return xml(
            f"<CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>{escape(request.key)}</Key>"
            f"<ETag>{escape(_etag(body))}</ETag></CompleteMultipartUploadResult>"
        )

    def on_abort(self, request: Request) -> Answer:
        gone = self._uploads.pop(request.query["uploadId"], None)
        return error(404, "NoSuchUpload") if gone is None else Answer(204)

    def on_uploads(self, request: Request) -> Answer:
        rows = "".join(
            f"<Upload><Key>{escape(key)}</Key><UploadId>{upload}</UploadId></Upload>"
            for upload, (key, _) in self._uploads.items()
            if key.startswith(request.query.get("prefix", ""))
        )
        return xml(
            f"<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>{rows}</ListMultipartUploadsResult>"
        )

    def on_lifecycle(self, request: Request) -> Answer:
        return error(404, "NoSuchLifecycleConfiguration")

    def on_lock(self, request: Request) -> Answer:
        return error(404, "ObjectLockConfigurationNotFoundError")

    def on_bucket(self, request: Request) -> Answer:
        return Answer()


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: Any) -> None:
        """A client that hung up is none of a test's business."""


def _handler(fake: FakeS3) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 5

        def log_message(self, *_: Any) -> None:
            pass

        def handle_expect_100(self) -> bool:
            return fake.next_word(self.command, peek=True) in _EARLY or super().handle_expect_100()

        def do_PUT(self) -> None:
            url = urlsplit(self.path)
            key = unquote(url.path.lstrip("/").partition("/")[2])
            headers = {name.lower(): value for name, value in self.headers.items()}
            fake.requests.append((self.command, key, headers))
            word = fake.next_word(self.command)
            if word in _EARLY:
                # As versitygw sometimes does: refuse from the headers alone and close over the unread body.
                self.close_connection = True
                if word == "412-early":
                    self.give(error(412, CODES[412]))
                return
            length = int(headers.get("content-length") or 0)
            body = self.rfile.read(length)
            if len(body) < length:
                self.close_connection = True
                return
            fake.bodies_read += 1
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            request = Request(self.command, key, query, headers, body)
            fake.asked.append(request)
            self.give(fake.answer(request, word))

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):
                return self.do_PUT
            raise AttributeError(name)

        def give(self, answer: Answer) -> None:
            self.close_connection = self.close_connection or answer.close or answer.version == "HTTP/1.0"
            if not answer.status:
                return
            stated = {"Date": formatdate(fake.clock.now_ms() / 1000, usegmt=True), **answer.headers}
            if answer.raw is not None:
                stated["Transfer-Encoding"] = "chunked"
            elif answer.version == "HTTP/1.1" and answer.status != 204:
                stated["Content-Length"] = str(len(answer.body) if answer.length is None else answer.length)
            lines = [
                f"{answer.version} {answer.status} Fake",
                *(f"{name}: {text}" for name, text in stated.items()),
            ]
            sent = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
            if self.command != "HEAD" and answer.status != 204:
                sent += answer.body if answer.raw is None else answer.raw
            self.wfile.write(sent)

    return Handler


_EARLY = ("early", "412-early")
