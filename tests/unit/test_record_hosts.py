"""Hosts as records have them: the short way for IPv4 takes what ``ipaddress`` takes and nothing else."""

from __future__ import annotations

import ipaddress
import random
import struct

import pytest

from tiered.codec.record.hosts import decode_host, encode_host
from tiered.errors import Invalid


def test_both_ways_say_the_same_of_any_address() -> None:
    chance = random.Random(1)
    for size in (8, 20):
        for packed in (bytes(size), b"\xff" * size, *(chance.randbytes(size) for _ in range(200))):
            host = decode_host(memoryview(packed))
            address, _, port = host.rpartition(":")
            assert ipaddress.ip_address(address.strip("[]")).packed == packed[:-4]
            assert struct.pack(">i", int(port)) == packed[-4:]
            assert encode_host(host) == packed


@pytest.mark.parametrize(
    "text",
    ["256.0.0.1:1", "01.2.3.4:1", "1.2.3:1", "1.2.3.4.5:1", "1.2.3.4", "1.2.3.4:", "1.2.3.4:9999999999", "1.2.3.4:x",
     "١.2.3.4:1", "1.2.3.4:1\n2", ""],
)  # fmt: skip
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(Invalid, match="not a host"):
        encode_host(text)


@pytest.mark.parametrize("text", ["1.2.3.4: 5", "1.2.3.4:+5", "[1.2.3.4]:5"])
def test_what_was_taken_before_still_is(text: str) -> None:
    assert encode_host(text) == bytes((1, 2, 3, 4, 0, 0, 0, 5))
