"""Whom a Java client asks for a queue, by its route and by the replica that the last answer suggested.

Written after what RocketMQ's clients 4.9 and 5.5 do (``findBrokerAddressInSubscribe``, ``updatePullFromWhichNode``): the id
that was suggested, else the number above it, else the first entry of their hash table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

MASTER = 0


def brokers_of(route: bytes, name: str) -> dict[int, str]:
    """Addresses by id of the broker ``name`` in a route, whose ids may be bare, as RocketMQ's own JSON has them."""
    text = re.sub(r"([{,]\s*)(-?\d+)(\s*:)", r'\1"\2"\3', route.decode())
    found = [data for data in json.loads(text)["brokerDatas"] if data["brokerName"] == name]
    return {int(number): address for data in found for number, address in data["brokerAddrs"].items()}


def in_hash_order(brokers: Mapping[int, str]) -> list[int]:
    """The ids as ``java.util.HashMap<Long, String>`` gives them, entries of one bucket as they came."""
    size = 16
    while len(brokers) > size * 3 // 4:
        size *= 2

    def bucket(number: int) -> int:
        low = (number ^ (number >> 32)) & 0xFFFF_FFFF
        return (low ^ (low >> 16)) & (size - 1)

    return sorted(brokers, key=bucket)


def whom_to_ask(brokers: Mapping[int, str], suggested: int) -> str:
    """The address that a pull goes to."""
    if suggested in brokers:
        return brokers[suggested]
    if suggested != MASTER and suggested + 1 in brokers:
        return brokers[suggested + 1]
    return brokers[in_hash_order(brokers)[0]]
