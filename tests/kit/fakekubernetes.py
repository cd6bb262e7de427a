"""The part of a Kubernetes API server that leases need: objects with resource versions, conflicts, lists and watches, tokens.

It does what the API's documentation promises and no more: one counter of versions, 409 for a write that names another version
than the object has, 401 for a wrong token, 403 for another namespace, lists by label, and watches from a version on, an event a
line. It is not a Kubernetes.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

TOKEN = "token-of-the-service-account"
NAMESPACE = "read-nodes"
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


class FakeKubernetes:
    """``url``: where it listens; ``objects``: leases by name; ``away``: it answers 503; ``asked``: verbs in order."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[int, str, dict[str, Any]]] = []
        self.version = 100
        self.changed = threading.Condition()
        self.away = False
        self.token = TOKEN
        self.asked: list[str] = []
        self.written: list[dict[str, Any]] = []
        self.url = ""
        self.closed = False

    def put(self, kind: str, item: dict[str, Any]) -> dict[str, Any]:
        """Store an object as of a new version, and tell those who watch. Under ``changed``."""
        self.version += 1
        item["metadata"] = {**item["metadata"], "resourceVersion": str(self.version), "namespace": NAMESPACE}
        item["metadata"].setdefault("uid", f"uid-{self.version}")
        name = item["metadata"]["name"]
        if kind == "DELETED":
            self.objects.pop(name, None)
        else:
            self.objects[name] = item
        self.events.append((self.version, kind, json.loads(json.dumps(item))))
        self.changed.notify_all()
        return item


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: FakeKubernetes

    def log_message(self, *words: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def do_PUT(self) -> None:
        self._answer("PUT")

    def do_DELETE(self) -> None:
        self._answer("DELETE")

    def _answer(self, verb: str) -> None:
        parts = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        self.api.asked.append("WATCH" if "watch" in asked else verb)
        if self.api.away:
            self._say(503, _status(503, "ServiceUnavailable", "away"))
        elif self.headers.get("Authorization") != f"Bearer {self.api.token}":
            self._say(401, _status(401, "Unauthorized", "Unauthorized"))
        elif not parts.path.startswith(_LEASES):
            self._say(
                403, _status(403, "Forbidden", "leases is forbidden: User cannot do that in the namespace")
            )
        elif "watch" in asked:
            self._watch(asked)
        else:
            with self.api.changed:
                self._say(*self._do(verb, parts.path[len(_LEASES) :].strip("/"), asked, body))

    def _do(
        self, verb: str, name: str, asked: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        objects = self.api.objects
        if verb == "GET" and not name:
            found = [item for item in objects.values() if _chosen(item, asked)]
            return 200, {
                "kind": "LeaseList",
                "metadata": {"resourceVersion": str(self.api.version)},
                "items": found,
            }
        if verb == "POST":
            self.api.written.append(body)
            if body["metadata"]["name"] in objects:
                return 409, _status(409, "AlreadyExists", "already exists")
            if "resourceVersion" in body["metadata"]:
                return 400, _status(
                    400, "BadRequest", "resourceVersion should not be set on objects to be created"
                )
            return 201, self.api.put("ADDED", body)
        there = objects.get(name)
        if there is None:
            return 404, _status(404, "NotFound", f"leases {name} not found")
        if verb == "GET":
            return 200, there
        if verb == "PUT":
            self.api.written.append(body)
            if body["metadata"].get("resourceVersion") != there["metadata"]["resourceVersion"]:
                return 409, _status(409, "Conflict", "the object has been modified")
            body["metadata"]["uid"] = there["metadata"]["uid"]
            return 200, self.api.put("MODIFIED", body)
        wanted = body.get("preconditions", {}).get("resourceVersion")
        if wanted not in (None, there["metadata"]["resourceVersion"]):
            return 409, _status(409, "Conflict", "the ResourceVersion in the precondition does not match")
        self.api.put("DELETED", there)
        return 200, _status(200, "", "")

    def _watch(self, asked: dict[str, str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        after, end = int(asked["resourceVersion"]), time.monotonic() + float(asked["timeoutSeconds"])
        try:
            while time.monotonic() < end and not self.api.closed and not self.api.away:
                with self.api.changed:
                    found = [
                        event for event in self.api.events if event[0] > after and _chosen(event[2], asked)
                    ]
                    if not found:
                        self.api.changed.wait(0.05)
                for version, kind, item in found:
                    after = version
                    self._chunk(json.dumps({"type": kind, "object": item}).encode() + b"\n")
            self._chunk(b"")
        except OSError:  # whoever listened has gone
            self.close_connection = True

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        self.wfile.flush()

    def _say(self, status: int, body: dict[str, Any]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _chosen(item: dict[str, Any], asked: dict[str, str]) -> bool:
    wanted = asked.get("labelSelector", "")
    name, _, value = wanted.partition("=")
    return not wanted or item["metadata"].get("labels", {}).get(name) == value


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "reason": reason, "message": message}


@contextmanager
def fake_kubernetes() -> Iterator[FakeKubernetes]:
    """Listening for the block, on a free loopback port."""
    api = FakeKubernetes()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"api": api}))
    server.daemon_threads = True
    api.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.closed = True
        server.shutdown()
        server.server_close()
        thread.join(10)
