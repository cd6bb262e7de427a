"""JSON over HTTP with one of several servers, for registries that are servers: urllib3, which the S3 client has brought along.

It keeps connections, verifies certificates, and lets a stream be ended from another thread; clients of etcd and Kubernetes of
their own would be a dependency each for a handful of requests.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError
from urllib3.response import BaseHTTPResponse

from tiered.errors import Unavailable

MOST_ANSWER_BYTES = 64 * 1024 * 1024
MOST_LINE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """``body`` is empty where the server sent no object in JSON."""

    status: int
    body: Mapping[str, Any]


class JsonServers:
    """``what``: a noun for errors; ``seconds``: for connecting, and for each wait for bytes."""

    def __init__(
        self,
        what: str,
        urls: Sequence[str],
        seconds: float,
        *,
        context: ssl.SSLContext | None = None,
        advice: Callable[[str], str | None] = lambda found: None,
    ) -> None:
        """``urls``: servers that are asked in turn, from the last that answered on; ``advice``: what to do
        where none answers, by what was found."""
        self._advice = advice
        self._what = what
        self._urls = list(urls)
        self._seconds = seconds
        self._pool = urllib3.PoolManager(maxsize=1, retries=False, ssl_context=context)
        self._lock = threading.Lock()
        self._stream: BaseHTTPResponse | None = None
        self._closed = False

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> JsonAnswer:
        """``Unavailable`` if no server answers with a status below 500."""
        failure: object = "no server"
        for _ in range(len(self._urls)):
            try:
                answer = self._request(method, path, body, headers, self._seconds, whole=True)
                if answer.status < 500:
                    return JsonAnswer(answer.status, _object(answer.data[:MOST_ANSWER_BYTES]))
                failure = f"status {answer.status}: {bytes(answer.data[:200])!r}"
            except HTTPError as error:
                failure = error
            self._urls.append(self._urls.pop(0))
        servers, found = ", ".join(self._urls), str(failure)[:300]
        untrusted = "CERTIFICATE_VERIFY_FAILED" in found
        said = (
            f"the certificate of {self._what} is not trusted"
            if untrusted
            else f"{self._what} does not answer"
        )
        raise Unavailable(said, servers=servers, found=found, hint=self._advice(found))

    def lines(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        seconds: float,
    ) -> Iterator[Mapping[str, Any]]:
        """Objects that the server sends, a line each, until it ends, is silent for ``seconds``, or ``close``. Never raises."""
        try:
            answer = self._request(method, path, body, headers, seconds, whole=False)
        except HTTPError:
            return
        with self._lock:
            self._stream = answer
            closed = self._closed
        try:
            if answer.status == 200 and not closed:
                yield from _objects(answer)
        except HTTPError:  # silence, or a broken connection: whoever listens looks for itself then
            return
        finally:
            with self._lock:
                self._stream = None
            answer.close()

    def close(self) -> None:
        """End a stream, and let no other begin."""
        with self._lock:
            self._closed = True
            stream = self._stream
            if stream is not None:
                with suppress(Exception):  # it ends by itself
                    stream.shutdown()
        self._pool.clear()

    def _request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        headers: Mapping[str, str] | None,
        seconds: float,
        *,
        whole: bool,
    ) -> BaseHTTPResponse:
        return self._pool.request(
            method,
            self._urls[0] + path,
            body=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", **(headers or {})},
            timeout=urllib3.Timeout(connect=self._seconds, read=seconds),
            preload_content=whole,
        )


def _objects(answer: BaseHTTPResponse) -> Iterator[Mapping[str, Any]]:
    buffer = b""
    for piece in answer.stream(1 << 16):
        *lines, buffer = (buffer + piece).split(b"\n")
        if len(buffer) > MOST_LINE_BYTES:
            return
        for line in lines:
            yield _object(line)


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
