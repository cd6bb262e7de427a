"""The kind *http*: its options, and how it is opened."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import urlsplit

from tiered.clock import SystemClock
from tiered.errors import Invalid, Unavailable
from tiered.settings import MIB
from tiered.sink.base import Sink
from tiered.sink.deadletters import dead_letters_of
from tiered.sink.kinds import SinkPlace
from tiered.sink.optionvalues import choice_of, known_options, needed, number_of, size_of
from tiered.sink.order import SinkOrder
from tiered.sink.webhook.requests import CONTENT_TYPES
from tiered.sink.webhook.sink import WebhookSettings, WebhookSink
from tiered.text.references import ENVIRONMENT, is_file_reference, resolve

OPTIONS = (
    "url", "format", "secret", "authorization", "request_bytes", "timeout_ms", "attempts", "ca_bundle", "dead_letters",
)  # fmt: skip


class WebhookKind:
    """``url``: where to post; ``secret``: what requests are signed with; ``authorization``: that header's value, both as
    ``env:NAME`` or ``file:PATH``; ``dead_letters``: a location for messages that the receiver refuses."""

    def check(self, order: SinkOrder) -> None:
        known_options(order, OPTIONS)
        given = order.options.get("authorization", "")
        if given and not given.startswith(ENVIRONMENT) and not is_file_reference(given):
            raise Invalid(
                "secrets do not belong into the bucket", field="options.authorization",
                hint="authorization=env:NAME or authorization=file:PATH, of the host that runs the daemon",
            )  # fmt: skip
        self._settings(order)
        dead_letters = dead_letters_of(order)
        if dead_letters is not None:
            dead_letters.close()

    def open(self, order: SinkOrder, place: SinkPlace) -> Sink:
        settings = self._settings(order)
        _reach(settings)
        return WebhookSink(settings, place, SystemClock(), dead_letters_of(order, make=True))

    def check_parts(self, order: SinkOrder) -> bool:
        """As of ``PartedKind``: requests of a queue come from one part."""
        return False

    def _settings(self, order: SinkOrder) -> WebhookSettings:
        ca_bundle = order.options.get("ca_bundle")
        if ca_bundle is not None and not Path(ca_bundle).is_file():
            raise Invalid("a file of certificates is not there", field="options.ca_bundle", found=ca_bundle)
        return WebhookSettings(
            url=_checked(resolve(needed(order, "url", "https://host/path"))),
            form=choice_of(order, "format", tuple(CONTENT_TYPES), "ndjson"),
            secret=resolve(order.options.get("secret", "")),
            authorization=resolve(order.options.get("authorization", "")),
            most_bytes=size_of(order, "request_bytes", MIB, least=1024, most=64 * MIB),
            timeout_seconds=number_of(order, "timeout_ms", 10_000, least=10, most=600_000) / 1000,
            attempts=number_of(order, "attempts", 5, least=1, most=100),
            ca_bundle=ca_bundle,
        )


def _reach(settings: WebhookSettings) -> None:
    """``Unavailable`` unless the receiver takes connections: one that is away is known before a message is written."""
    parts = urlsplit(settings.url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), settings.timeout_seconds).close()
    except OSError as error:
        raise Unavailable(
            "the receiver of a sink cannot be reached", url=settings.shown, found=error.strerror or str(error),
            hint="check the option url, and that the receiver runs and can be reached from here",
        ) from error  # fmt: skip


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good or parts.username or parts.password or parts.fragment or not url.isascii() or " " in url:
        raise Invalid(
            "the option url of a sink of kind http is not a URL that can be posted to", field="options.url",
            expected="http:// or https://, a host, no user, no fragment, no spaces", hint="url=https://host/path",
        )  # fmt: skip
    return url
