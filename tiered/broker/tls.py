"""TLS towards brokers and name servers."""

from __future__ import annotations

import ssl

from tiered.errors import Invalid


def client_context(
    ca_file: str, *, refusal: str, hint: str | None = None, trust_anyone: bool = False
) -> ssl.SSLContext:
    """A context that checks certificates against ``ca_file`` or, if that is empty, against what the machine trusts.

    ``trust_anyone``: without ``ca_file`` certificates are not checked at all. Host names never are: brokers are known by
    address, and RocketMQ's certificates carry none. ``Invalid`` with the message ``refusal`` if the file cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except (OSError, ssl.SSLError) as error:
            raise Invalid(refusal, hint=hint, file=ca_file, found=error.strerror or str(error)) from None
    elif trust_anyone:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_default_certs()
    return context
