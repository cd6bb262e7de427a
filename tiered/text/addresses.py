"""Network addresses as operators write them."""

from __future__ import annotations

from tiered.errors import Invalid


def split_address(address: str, *, key: str, listening: bool = False) -> tuple[str, int]:
    """Host and port of ``host:port``; the last colon counts, as in RocketMQ, and an IPv6 host may stand in brackets.

    ``listening``: port 0 is one, too: any that is free. ``Invalid`` names ``key``, the setting that holds the address.
    """
    host, _, port = address.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not host or not (0 if listening else 1) <= number <= 65_535:
        raise Invalid(
            "not an address", key=key, found=address, expected="host:port", hint="for example 127.0.0.1:10911"
        )
    return host, number


def split_addresses(addresses: str, *, key: str) -> tuple[tuple[str, int], ...]:
    """Several addresses joined with ``;``, at least one. ``Invalid`` names ``key``."""
    found = tuple(split_address(part, key=key) for part in addresses.split(";") if part.strip())
    if not found:
        raise Invalid("no address is given", key=key, expected="host:port, several joined with ;")
    return found
