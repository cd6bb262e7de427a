"""TLS: terminated at the gateway's fronts, spoken to name servers and brokers.

A client that speaks TLS begins with byte 0x16, as RocketMQ's servers expect it; one that does not is served in the clear on the
same port (RocketMQ's *permissive* mode).
"""

from __future__ import annotations

import ssl

from tiered.broker.tls import client_context
from tiered.errors import Invalid
from tiered.settings import Gateway

HANDSHAKE = b"\x16"
"""First byte of a TLS connection; as the first byte of a length word it would mean a frame of 352 MiB."""


def server_context(settings: Gateway) -> ssl.SSLContext | None:
    """The context of the fronts, ``None`` without a certificate. Raises ``Invalid`` naming the setting."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_chain(context, "tls", settings.tls_certificate, settings.tls_key)
    return context if settings.tls_certificate else None


def upstream_context(settings: Gateway) -> ssl.SSLContext | None:
    """The context towards name servers and brokers, ``None`` without ``gateway.tls_upstream``.

    Without ``gateway.tls_upstream_ca`` certificates are not checked.
    """
    if not settings.tls_upstream:
        return None
    context = client_context(
        settings.tls_upstream_ca,
        refusal="the certificates in gateway.tls_upstream_ca cannot be read",
        trust_anyone=True,
    )
    # Only when asked for: a broker that takes certificates may refuse one it does not know.
    _load_chain(context, "tls_upstream", settings.tls_upstream_certificate, settings.tls_upstream_key)
    return context


def _load_chain(context: ssl.SSLContext, prefix: str, certificate: str, key: str) -> None:
    """Load what ``gateway.<prefix>_certificate`` and ``_key`` name; nothing if both are empty."""
    if key and not certificate:
        raise Invalid(
            f"gateway.{prefix}_key is set without gateway.{prefix}_certificate", hint="set both, or neither"
        )
    if not certificate:
        return
    try:
        context.load_cert_chain(certificate, key or None)
    except (OSError, ssl.SSLError) as error:
        raise Invalid(
            f"gateway.{prefix}_certificate or gateway.{prefix}_key cannot be used",
            certificate=certificate,
            key=key,
            found=error.strerror or str(error),
        ) from None
