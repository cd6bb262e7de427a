"""Read nodes in etcd, over its JSON gateway: a key for each, bound to a lease of etcd's own, which is kept alive.

A node that falls silent is removed by etcd when its lease ends, by etcd's clock; a reader's clock has no part in it. Who looks
reads all keys below a prefix, and watches it in between. Idle cost: two requests for a renewal, two for a look and a watch.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any, NoReturn
from urllib.parse import quote, unquote

from tiered.archive.keys import ArchiveKeys
from tiered.errors import Conflict, Corrupt, Unavailable
from tiered.membership.base import MOST_MEMBERS, Card, Member, Members, damaged
from tiered.membership.bucket import held, lost
from tiered.membership.etcdclient import EtcdAccess, EtcdClient

PAUSE_SECONDS = 0.5


class EtcdMembership:
    """Nodes of one archive, below ``<prefix>/<cluster>/<broker>/``."""

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        prefix: str,
        keys: ArchiveKeys,
        access: EtcdAccess = EtcdAccess(),  # noqa: B008  (a frozen value)
    ) -> None:
        self._client = EtcdClient(servers, access)
        self._ask = self._client.ask
        self._prefix = f"{prefix}/{keys.root}"
        self._revision = 0

    def announce(self, card: Card, *, anew: bool = True) -> EtcdLease:
        key = self._prefix + quote(card.name, safe="")
        there = self._ask("kv/range", {"key": _coded(key)}).get("kvs")
        condition: dict[str, Any] = {"key": _coded(key), "target": "CREATE", "create_revision": "0"}
        if there:
            _check_free(there[0], card, key, anew=anew)
            revision = there[0]["mod_revision"]
            condition = {"key": _coded(key), "target": "MOD", "mod_revision": revision}
        lease = EtcdLease(self._ask, key, card)
        lease.take(condition)
        return lease

    def members(self) -> Members:
        found = self._ask(
            "kv/range",
            {
                "key": _coded(self._prefix),
                "range_end": _coded(_end(self._prefix)),
                "limit": str(MOST_MEMBERS),
            },
        )
        self._revision = int(found["header"]["revision"])
        there, troubles = [], {}
        for pair in found.get("kvs", ()):
            key = _decoded(pair["key"])
            name = unquote(key.removeprefix(self._prefix))
            try:
                there.append(Member(_card(pair, name, key), int(pair["mod_revision"]), 0.0))
            except Corrupt as error:
                troubles[name] = str(error)
        if found.get("more"):
            troubles["…"] = (
                f"etcd has more than {MOST_MEMBERS} nodes below {self._prefix}: delete those that are gone"
            )
        return Members(tuple(there), troubles)

    def wait(self, seconds: float, stop: threading.Event) -> None:
        if stop.is_set():
            return
        watched = {
            "key": _coded(self._prefix),
            "range_end": _coded(_end(self._prefix)),
            "start_revision": str(self._revision + 1),
        }
        for line in self._client.lines("watch", {"create_request": watched}, seconds):
            result = line.get("result", {})
            if result.get("events"):
                return
            if result.get("canceled"):
                break
        stop.wait(
            min(seconds, PAUSE_SECONDS)
        )  # silence, a broken connection, or a watch that etcd does not give: no look at once, again and again

    def close(self) -> None:
        self._client.close()


class EtcdLease:
    """See ``Lease``. The key goes with the lease of etcd that it is bound to."""

    def __init__(self, ask: Any, key: str, card: Card) -> None:
        self._ask = ask
        self._key = key
        self._card = card
        self._id: str | None = None
        self._over = False

    def take(self, condition: Mapping[str, Any]) -> None:
        """Put the key if ``condition`` holds. ``Conflict``: another process was faster."""
        seconds = max(1, ceil(self._card.lease_ms / 1000))
        granted = str(self._ask("lease/grant", {"TTL": str(seconds), "ID": "0"})["ID"])
        put = {"key": _coded(self._key), "value": _coded(json.dumps(self._card.fields())), "lease": granted}
        done = self._ask(
            "kv/txn", {"compare": [{**condition, "result": "EQUAL"}], "success": [{"requestPut": put}]}
        )
        if not done.get("succeeded"):
            self._ask("lease/revoke", {"ID": granted})
            raise held(self._card.name, "unknown", 0.0, seconds)
        self._id = granted

    def renew(self, card: Card) -> None:
        if self._over or self._id is None:
            raise lost(card.name)
        changed, self._card = card != self._card, card
        kept = self._ask("lease/keepalive", {"ID": self._id}).get("result", {})
        if (
            int(kept.get("TTL", "0")) <= 0
        ):  # etcd was away, or this process slept: the key has gone with the lease
            self._take_again()
            return
        key = _coded(self._key)
        put = {"key": key, "value": _coded(json.dumps(card.fields())), "lease": self._id}
        then = [{"requestPut": put}] if changed else []
        mine = {"key": key, "target": "LEASE", "lease": self._id, "result": "EQUAL"}
        if not self._ask("kv/txn", {"compare": [mine], "success": then}).get("succeeded"):
            self._lose()

    def leave(self) -> None:
        if not self._over:
            self._over = True
            self._revoke()

    def _take_again(self) -> None:
        self._id = None
        try:
            self.take({"key": _coded(self._key), "target": "CREATE", "create_revision": "0"})
        except Conflict:
            self._lose()
        except Unavailable:
            self._id = "1"  # of no lease: the next renewal finds that it is gone, and tries again
            raise

    def _lose(self) -> NoReturn:
        self._over = True
        self._revoke()
        raise lost(self._card.name)

    def _revoke(self) -> None:
        if self._id is not None:
            try:
                self._ask("lease/revoke", {"ID": self._id})
            except Unavailable as error:
                if error.fields.get("status") != 404:  # it has ended by itself
                    raise


def _check_free(pair: Mapping[str, Any], card: Card, key: str, *, anew: bool) -> None:
    """``Conflict`` while the key is another process's: etcd removes it when that one is silent."""
    try:
        other = _card(pair, card.name, key)
    except Corrupt:
        raise held(card.name, "unknown", 0.0, card.lease_ms / 1000) from None
    if other.process != card.process and not (anew and other.address == card.address):
        raise held(card.name, other.address, 0.0, other.lease_ms / 1000)


def _card(pair: Mapping[str, Any], name: str, key: str) -> Card:
    try:
        fields = json.loads(_decoded(pair.get("value", "")))
    except ValueError as error:
        raise damaged(key, str(error)[:100]) from None
    if not isinstance(fields, dict):
        raise damaged(key, repr(fields)[:100])
    return Card.parse(fields, name=name, where=key)


def _coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode("utf-8", "replace")


def _end(prefix: str) -> str:
    """The first key behind all that begin with ``prefix``, which ends with a slash."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
