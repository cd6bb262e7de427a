"""Which tenant a topic is of, and what that one may have, as settings say it. Values only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from tiered.errors import Invalid
from tiered.settings import Tenants
from tiered.text.values import BARE, SIZES, scaled

DEFAULT_TENANT = "default"
"""Whose topics neither a pattern nor a namespace gives to anybody."""

REMEMBERED = 65_536

_PREFIXES = ("%RETRY%", "%DLQ%")
_FORM = "write tenant=bytes/s requests/s, either of them, or unlimited: payments=64MiB/s 200/s"


@dataclass(frozen=True, slots=True)
class Allowance:
    """Stored bytes and requests a second; 0: no bound."""

    bytes_per_second: int = 0
    requests_per_second: int = 0

    @property
    def bounded(self) -> bool:
        """Whether there is anything to count against."""
        return bool(self.bytes_per_second or self.requests_per_second)


class TenantRules:
    """Thread-safe; answers are remembered, at most ``REMEMBERED`` of each kind. ``Invalid`` names the entry that is none."""

    def __init__(self, settings: Tenants) -> None:
        self._topics = [_named(entry) for entry in settings.topics]
        self._limits = [_limit(entry) for entry in settings.limits]
        self._default = Allowance(settings.bytes_per_second, settings.requests_per_second)
        self.burst_seconds = settings.burst_ms / 1000
        self.tenant_of = lru_cache(REMEMBERED)(self._tenant_of)
        self.allowance_of = lru_cache(REMEMBERED)(self._allowance_of)

    def _tenant_of(self, topic: str) -> str:
        """The tenant whose topic that is."""
        named = next((tenant for pattern, tenant in self._topics if fnmatchcase(topic, pattern)), None)
        return named or namespace_of(topic) or DEFAULT_TENANT

    def _allowance_of(self, tenant: str) -> Allowance:
        """What the tenant may have."""
        fitting = (allowance for pattern, allowance in self._limits if fnmatchcase(tenant, pattern))
        return next(fitting, self._default)


def namespace_of(topic: str) -> str:
    """RocketMQ's namespace of a topic (``INSTANCE%topic``, ``%RETRY%INSTANCE%group``); empty where it has none."""
    for prefix in _PREFIXES:
        topic = topic.removeprefix(prefix)
    namespace, sign, rest = topic.partition("%")
    return namespace if sign and rest else ""


def _named(entry: str) -> tuple[str, str]:
    """Pattern and tenant of an entry of ``tenants.topics``."""
    tenant, _, pattern = (part.strip() for part in entry.partition("="))
    if not tenant or not pattern:
        raise Invalid(
            "tenants.topics holds what names no tenant",
            key="tenants.topics", found=entry, hint="write tenant=pattern: payments=pay-*",
        )  # fmt: skip
    return pattern, tenant


def _limit(entry: str) -> tuple[str, Allowance]:
    pattern, _, text = entry.partition("=")
    words = text.split()
    if not pattern.strip() or not words:
        raise _not_a_limit(entry)
    return pattern.strip(), Allowance() if words == ["unlimited"] else _allowance(entry, words)


def _allowance(entry: str, words: Sequence[str]) -> Allowance:
    size = requests = 0
    for word in words:
        amount, sign, _ = word.lower().partition("/s")
        whole, each = scaled(amount, SIZES), scaled(amount, BARE)
        if whole is not None and whole >= 1 and not size and sign:
            size = int(whole)
        elif each is not None and each >= 1 and not requests and sign:
            requests = int(each)
        else:
            raise _not_a_limit(entry)
    return Allowance(size, requests)


def _not_a_limit(entry: str) -> Invalid:
    return Invalid("tenants.limits holds what is not a budget", key="tenants.limits", found=entry, hint=_FORM)
