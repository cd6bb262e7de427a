"""Read nodes as Lease objects of Kubernetes (coordination.k8s.io/v1), over the API server's HTTP.

A renewal writes the object anew, so that its resource version changes; who looks judges silence by that and by its own clock,
as Kubernetes' own leader election does. Names of objects are hashes: what a node says of itself is in an annotation. Idle cost:
one request for a renewal, two for a look and a watch.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote, urlencode

from tiered.archive.keys import ArchiveKeys
from tiered.clock import Clock
from tiered.codec.checksum import xxh3_64
from tiered.errors import Corrupt, Invalid, Unavailable
from tiered.membership.base import MOST_MEMBERS, Card, Member, Members, damaged, gone_after
from tiered.membership.bucket import DEFAULT_SECONDS, held, lost
from tiered.membership.sightings import Sightings
from tiered.membership.web import JsonAnswer, JsonServers

ASK_SECONDS = 5.0
PAUSE_SECONDS = 0.5
CARD, NODE = "rocketmq-tiered/card", "rocketmq-tiered/node"
"""Annotations: what a node says of itself; its name, for people."""
ARCHIVE = "rocketmq-tiered/archive"
"""The label by which leases of one archive are found."""
_API = "/apis/coordination.k8s.io/v1/namespaces/"


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API is, and how a pod shows who it is; by default as every pod has it."""

    url: str = "https://kubernetes.default.svc"
    token: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    authorities: Path = Path("/var/run/secrets/kubernetes.io/serviceaccount/ca.crt")

    def context(self) -> ssl.SSLContext | None:
        """``Invalid`` where there is no such file: this is no pod, or one without a service account."""
        if self.url.startswith("http:"):
            return None
        try:
            return ssl.create_default_context(cafile=str(self.authorities))
        except OSError as error:
            raise _no_pod(self.authorities, error) from None

    def authorization(self) -> str:
        """Read each time: the token is renewed in place."""
        try:
            return f"Bearer {self.token.read_text().strip()}"
        except OSError as error:
            raise _no_pod(self.token, error) from None


class KubernetesMembership:
    """Leases of one archive's nodes in ``namespace``. ``look_seconds``: how often it is looked at."""

    def __init__(
        self,
        namespace: str,
        keys: ArchiveKeys,
        clock: Clock,
        look_seconds: float,
        server: ApiServer | None = None,
    ) -> None:
        self._server = server or ApiServer()
        self._path = f"{_API}{quote(namespace)}/leases"
        self._archive = f"{xxh3_64(keys.root.encode()):016x}"
        self._clock = clock
        self._seen = Sightings(2 * look_seconds)
        self._rivals = Sightings(2 * look_seconds)
        self._servers: JsonServers | None = None
        self._version = ""

    def announce(self, card: Card, *, anew: bool = True) -> KubernetesLease:
        name = f"read-node-{self._archive}-{xxh3_64(card.name.encode()):016x}"
        found = self.ask("GET", name)
        if found.status == 200:
            self._check_free(found.body, card, anew=anew)
        lease = KubernetesLease(self, name, self._archive, self._clock)
        lease.take(card, found.body if found.status == 200 else None)
        return lease

    def members(self) -> Members:
        try:
            found = self.ask("GET", "", labelSelector=f"{ARCHIVE}={self._archive}", limit=str(MOST_MEMBERS))
            if found.status != 200:
                raise refused(found)
            items = {_name(item): item for item in found.body.get("items", ())}
            numbers = {name: _number(item) for name, item in items.items()}
            self._seen.look(numbers, self._clock.monotonic())
        except (Unavailable, Invalid):
            self._seen.failed()
            raise
        self._version = str(found.body.get("metadata", {}).get("resourceVersion", ""))
        there, troubles, silent = [], {}, {}
        for name, item in items.items():
            unrenewed = self._seen.unrenewed(name)
            try:
                card = _card(item)
            except Corrupt as error:
                troubles[_said_name(item)] = str(error)
                continue
            if unrenewed >= gone_after(card):
                silent[card.name] = unrenewed
            else:
                there.append(Member(card, numbers[name], unrenewed, self._age(item)))
        if found.body.get("metadata", {}).get("continue"):
            troubles["…"] = f"more than {MOST_MEMBERS} nodes have leases: delete those of nodes that are gone"
        return Members(tuple(there), troubles, silent)

    def wait(self, seconds: float, stop: threading.Event) -> None:
        if stop.is_set():
            return
        asked = {
            "watch": "1",
            "labelSelector": f"{ARCHIVE}={self._archive}",
            "resourceVersion": self._version,
            "timeoutSeconds": str(max(1, round(seconds))),
        }
        path = f"{self._path}?{urlencode(asked)}"
        headers = {"Authorization": self._server.authorization()}
        for _ in self._connected().lines("GET", path, None, headers, seconds):
            return
        stop.wait(min(seconds, PAUSE_SECONDS))

    def close(self) -> None:
        if self._servers is not None:
            self._servers.close()

    def ask(self, verb: str, name: str, body: Mapping[str, Any] | None = None, **asked: str) -> JsonAnswer:
        """An answer with status 200, 201, 404 or 409, others are raised."""
        path = self._path + (f"/{name}" if name else "") + (f"?{urlencode(asked)}" if asked else "")
        headers = {"Authorization": self._server.authorization()}
        answer = self._connected().ask(verb, path, body, headers)
        if answer.status in (200, 201, 404, 409):
            return answer
        raise refused(answer)

    def _connected(self) -> JsonServers:
        if self._servers is None:
            self._servers = JsonServers(
                "the Kubernetes API", [self._server.url], ASK_SECONDS, context=self._server.context()
            )
        return self._servers

    def _check_free(self, item: Mapping[str, Any], card: Card, *, anew: bool) -> None:
        """``Conflict`` while the name is another process's, as far as is known."""
        try:
            other = _card(item)
        except Corrupt:
            other = None
        if other is not None and (other.process == card.process or (anew and other.address == card.address)):
            return
        self._rivals.look({card.name: _number(item)}, self._clock.monotonic())
        holds = DEFAULT_SECONDS if other is None else gone_after(other)
        silent = self._rivals.unrenewed(card.name)
        if silent < holds:
            raise held(card.name, "unknown" if other is None else other.address, silent, holds)

    def _age(self, item: Mapping[str, Any]) -> float | None:
        """By the node's own clock and this one's: for people."""
        try:
            then = datetime.fromisoformat(item["spec"]["renewTime"])
            return self._clock.now_ms() / 1000 - then.timestamp()
        except (KeyError, TypeError, ValueError):
            return None


class KubernetesLease:
    """See ``Lease``. Each write names the version that it replaces, so that two never both succeed."""

    def __init__(self, membership: KubernetesMembership, name: str, archive: str, clock: Clock) -> None:
        self._membership = membership
        self._name = name
        self._archive = archive
        self._clock = clock
        self._card: Card | None = None
        self._item: Mapping[str, Any] = {}
        self._over = False

    def take(self, card: Card, item: Mapping[str, Any] | None) -> None:
        """Create the object, or write it in the place of ``item``. ``Conflict``: another process was faster."""
        wanted = self._object(card, item)
        verb, name = ("POST", "") if item is None else ("PUT", self._name)
        answer = self._membership.ask(verb, name, wanted)
        if answer.status not in (200, 201):
            raise held(card.name, "unknown", 0.0, gone_after(card))
        self._card, self._item = card, answer.body

    def renew(self, card: Card) -> None:
        if self._over:
            raise lost(card.name)
        answer = self._membership.ask("PUT", self._name, self._object(card, self._item))
        if answer.status in (404, 409):  # written by somebody else, or by this process, unheard
            answer = self._again(card)
        self._card, self._item = card, answer.body

    def leave(self) -> None:
        if self._over:
            return
        self._over = True
        version = self._item.get("metadata", {}).get("resourceVersion")
        only = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"resourceVersion": version}}
        self._membership.ask("DELETE", self._name, only)

    def _again(self, card: Card) -> JsonAnswer:
        found = self._membership.ask("GET", self._name)
        there = found.body if found.status == 200 else None
        if there is not None and there.get("spec", {}).get("holderIdentity") != card.process:
            self._lose(card)
        verb, name = ("POST", "") if there is None else ("PUT", self._name)
        answer = self._membership.ask(verb, name, self._object(card, there))
        if answer.status not in (200, 201):
            self._lose(card)
        return answer

    def _lose(self, card: Card) -> NoReturn:
        self._over = True
        raise lost(card.name)

    def _object(self, card: Card, item: Mapping[str, Any] | None) -> dict[str, Any]:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        metadata: dict[str, Any] = {
            "name": self._name,
            "labels": {ARCHIVE: self._archive},
            "annotations": {CARD: json.dumps(card.fields(), sort_keys=True), NODE: card.name},
        }
        if item:
            metadata["resourceVersion"] = item["metadata"]["resourceVersion"]
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": metadata,
            "spec": {
                "holderIdentity": card.process,
                "leaseDurationSeconds": max(1, card.lease_ms // 1000),
                "renewTime": now,
            },
        }


def refused(answer: JsonAnswer) -> Invalid | Unavailable:
    """An answer of the API that is none, as one of the tree."""
    said = str(answer.body.get("message", ""))[:200]
    if answer.status == 403:
        return Invalid(
            "the service account may not do this with leases", found=said,
            hint="apply deploy/kubernetes-nodes.yaml: Role and RoleBinding for leases",
        )  # fmt: skip
    hint = "the service account's token is not valid (any more)" if answer.status == 401 else None
    return Unavailable(
        "the Kubernetes API does not do what it is asked", hint=hint, status=answer.status, found=said
    )


def _no_pod(file: Path, error: OSError) -> Invalid:
    return Invalid(
        "the service account of the pod cannot be read", found=f"{file}: {error.strerror}",
        hint="kubernetes:… works in a pod with a service account (automountServiceAccountToken)",
    )  # fmt: skip


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])


def _number(item: Mapping[str, Any]) -> int:
    """A resource version means nothing but that it is another one."""
    return xxh3_64(str(item["metadata"].get("resourceVersion")).encode())


def _said_name(item: Mapping[str, Any]) -> str:
    """How people find a node whose card cannot be read."""
    return str((item["metadata"].get("annotations") or {}).get(NODE, _name(item)))


def _card(item: Mapping[str, Any]) -> Card:
    name = _name(item)
    try:
        fields = json.loads(item["metadata"]["annotations"][CARD])
        node = str(fields["name"])
    except (KeyError, TypeError, ValueError) as error:
        raise damaged(f"lease {name}", repr(error)[:100]) from None
    if not name.endswith(f"-{xxh3_64(node.encode()):016x}"):
        raise damaged(f"lease {name}", f"the card of {node[:100]}")
    return Card.parse(fields, name=node, where=f"lease {name}")
