"""What a setting names: ``bucket``, ``etcd://host:port,…/prefix``, over TLS ``etcds://…``, ``kubernetes:namespace``. Imports no
driver."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tiered.errors import Invalid
from tiered.text.addresses import split_address

BUCKET, ETCD, KUBERNETES = "bucket", "etcd", "kubernetes"
_FORMS = "bucket, etcd://host:port,…/prefix, etcds://host:port,…/prefix (TLS) or kubernetes:namespace"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Registry:
    """``kind``: bucket, etcd, kubernetes; ``servers``: addresses; ``place``: below which prefix, or in which namespace;
    ``tls``: etcd is asked over it."""

    kind: str
    servers: tuple[tuple[str, int], ...] = ()
    place: str = ""
    tls: bool = False


def parse_membership(text: str, *, key: str) -> Registry | None:
    """``None`` for an empty one; ``Invalid`` names ``key``, the setting."""
    if not text:
        return None
    if text == BUCKET:
        return Registry(BUCKET)
    if text.startswith(("etcd://", "etcds://")):
        return _etcd(text, key)
    if text.startswith("kubernetes:"):
        place = text.removeprefix("kubernetes:")
        if not _LABEL.fullmatch(place):
            raise Invalid(f"{key} names no namespace", found=text[:200], expected="kubernetes:namespace")
        return Registry(KUBERNETES, place=place)
    raise Invalid(f"{key} names no membership", found=text[:200], expected=_FORMS)


def _etcd(text: str, key: str) -> Registry:
    scheme, _, place = text.partition("://")
    hosts, slash, prefix = place.partition("/")
    if "@" in hosts:
        raise Invalid(
            f"{key} must not hold credentials",
            hint=f"write {scheme}://host:port/prefix, and set etcd.user and etcd.password",
        )
    if not slash or not prefix.strip("/"):
        raise Invalid(
            f"{key} names no prefix", found=text[:200], expected=f"{scheme}://host:port,…/prefix",
            hint="for example etcd://127.0.0.1:2379/rocketmq-tiered",
        )  # fmt: skip
    servers = tuple(split_address(one, key=key) for one in hosts.split(","))
    return Registry(ETCD, servers, prefix.strip("/"), scheme == "etcds")
