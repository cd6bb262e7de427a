"""What an operator wants replicated, and where to: one sink's standing order, without a secret in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

from tiered.errors import Invalid
from tiered.text.references import ENVIRONMENT, is_file_reference

NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,58}[a-z0-9])?\Z")
MAX_OPTIONS_BYTES = 32 * 1024
"""Most that names and values of a sink's options take together: an order is one small object."""

_SECRET = re.compile(r"secret|passw(or)?d|credential|(token|api[._-]?key)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SinkOrder:
    """What is replicated where. ``options`` are the kind's own; what is secret in them is named, ``env:NAME`` or ``file:PATH``
    of the host that runs the sink (``resolve``), and never stands here.

    ``topics``, ``exclude``: shell patterns of topics; RocketMQ's own only where a pattern of ``topics`` is the very name.
    ``in_order``: all messages in the broker's order, not just those of each queue.
    ``required``: retention waits for it. ``from_start``: from the archive's first message on, else from its end of that moment.
    """

    name: str
    kind: str
    options: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()
    required: bool = False
    from_start: bool = True
    in_order: bool = False

    def __post_init__(self) -> None:
        if NAME.match(self.name) is None:
            raise Invalid(
                "a sink's name has lower case letters, digits and '-' between them, at most 60",
                field="name", found=ascii(self.name), hint="for example orders-to-kafka",
            )  # fmt: skip
        if not self.kind:
            raise Invalid("a sink has a kind", field="kind", found="''", hint="tiered sink add --help")
        _check_patterns("topics", self.topics)
        if not self.topics:
            raise Invalid(
                "a sink of no topic", field="topics", hint="name topics, or leave it out: all of them"
            )
        _check_patterns("exclude", self.exclude)
        _check_options(self.options)

    def takes(self, topic: str, *, system: bool) -> bool:
        """Whether messages of a topic are replicated; ``system``: it is one of RocketMQ's own."""
        if any(fnmatchcase(topic, pattern) for pattern in self.exclude):
            return False
        if system:
            return topic in self.topics
        return any(fnmatchcase(topic, pattern) for pattern in self.topics)


def _check_patterns(name: str, patterns: tuple[str, ...]) -> None:
    if not all(pattern.strip() for pattern in patterns):
        raise Invalid("a pattern of topics is empty", field=name, hint="remove it, or name a topic")


def _check_options(options: Mapping[str, str]) -> None:
    size = 0
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str) or not name.strip():
            raise Invalid(
                "an option is a name and a text", field="options", found=ascii((name, type(value).__name__))
            )
        size += len(name.encode()) + len(value.encode())
        named = value.startswith(ENVIRONMENT) or is_file_reference(value)
        if value and _SECRET.search(name) and not named:
            raise Invalid(
                "secrets do not belong into the bucket", field=f"options.{name}",
                hint=f"{name}=env:NAME or {name}=file:PATH, of the host that runs the daemon",
            )  # fmt: skip
        if "://" in value and _password(value):
            raise Invalid(
                "a URL must not hold a password", field=f"options.{name}",
                hint=f"give the whole URL as {name}=env:NAME or {name}=file:PATH",
            )  # fmt: skip
    if size > MAX_OPTIONS_BYTES:
        raise Invalid(
            "a sink's options are too long",
            field="options",
            found=size,
            expected=f"≤ {MAX_OPTIONS_BYTES} bytes",
        )


def _password(url: str) -> bool:
    try:
        return bool(urlsplit(url).password)
    except ValueError:
        return False
