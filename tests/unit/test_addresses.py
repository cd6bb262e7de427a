"""Addresses as operators write them."""

from __future__ import annotations

import pytest

from tiered.errors import Invalid
from tiered.text.addresses import split_address, split_addresses


@pytest.mark.parametrize(
    "address", ["", "host", "host:", ":1", "host:x", "host:0", "host:70000", "host:-1", "h:²", "h:" + "1" * 9]
)
def test_bad_addresses_are_named(address: str) -> None:
    with pytest.raises(Invalid, match="not an address") as caught:
        split_address(address, key="replay.broker_address")
    assert "replay.broker_address" in str(caught.value)


def test_good_addresses() -> None:
    assert split_address("broker:10911", key="k") == ("broker", 10911)
    assert split_address(" [::1]:10911 ", key="k") == ("::1", 10911)
    assert split_address("::1:2", key="k") == ("::1", 2)
    assert split_address("h:0", key="k", listening=True) == ("h", 0)
    assert split_addresses("a:1; b:2;", key="k") == (("a", 1), ("b", 2))
    with pytest.raises(Invalid, match="no address is given"):
        split_addresses(" ; ", key="k")
