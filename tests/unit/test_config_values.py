"""Sizes, times, flags and lists as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.daemon.config import keys
from tiered.daemon.values import convert, size_in_bytes
from tiered.errors import Invalid

SIZE, TIME, FLAG, LIST, RATE = (
    "dispatch.group_commit_bytes",
    "source.poll_interval_ms",
    "store.path_style",
    "source.exclude_topics",
    "store.max_bytes_per_second",
)


def value(key: str, raw: object) -> object:
    return convert(key, keys()[key], raw, where="a test")


@pytest.mark.parametrize(
    ("key", "raw", "wanted"),
    [
        (SIZE, 5, 5),
        (SIZE, "5", 5),
        (SIZE, "32MiB", 32 << 20),
        (SIZE, "32 mib", 32 << 20),
        (SIZE, "1.5KiB", 1536),
        (SIZE, "10MB", 10_000_000),
        (SIZE, "1_000", 1000),
        (TIME, "500ms", 500),
        (TIME, "1s", 1000),
        (TIME, "1.5s", 1500),
        (TIME, "2m", 120_000),
        (TIME, "1h", 3_600_000),
        (TIME, "7d", 604_800_000),
        (RATE, "10MiB", 10 << 20),
        (RATE, "10MiB/s", 10 << 20),
        ("hold.max_disk_percent", "70%", 70),
        ("web.port", "-1", -1),
        (FLAG, True, True),
        (FLAG, "off", False),
        (FLAG, "YES", True),
        (LIST, ["a*", "b"], ("a*", "b")),
        (LIST, "a*, b,", ("a*", "b")),
        (LIST, "", ()),
        ("source.start", 1700000000000, "1700000000000"),
        ("archive.url", "", ""),
    ],
)
def test_accepted(key: str, raw: object, wanted: object) -> None:
    got = value(key, raw)
    assert got == wanted
    assert type(got) is type(wanted)


@pytest.mark.parametrize(
    ("key", "raw"),
    [
        (SIZE, "32M"),
        (SIZE, "1K"),
        (SIZE, "0.3B"),
        (SIZE, "MiB"),
        (SIZE, "1 2"),
        (SIZE, "1__0"),
        (SIZE, 1.5),
        (SIZE, True),
        (SIZE, ""),
        (SIZE, "9" * 50),
        (SIZE, "٣"),
        (TIME, "1 fortnight"),
        (TIME, "0.0001s"),
        (FLAG, "maybe"),
        (FLAG, 1),
        (LIST, [1]),
        (LIST, 1),
        ("archive.url", 5),
        ("archive.url", ["a"]),
        ("web.port", "1s"),
    ],
)
def test_refused_with_key_place_and_value(key: str, raw: object) -> None:
    with pytest.raises(Invalid) as caught:
        value(key, raw)
    assert key in caught.value.message
    assert caught.value.fields["where"] == "a test"
    assert caught.value.hint


def test_a_bad_secret_is_not_repeated() -> None:
    with pytest.raises(Invalid) as caught:
        value("store.secret_access_key", ["tiger"])
    assert "tiger" not in str(caught.value)


def test_size_of_a_flag() -> None:
    assert size_in_bytes("--body-bytes", "4KiB") == 4096
    for bad in ("4Q", "-1", "", "0.5B"):
        with pytest.raises(Invalid, match="--body-bytes"):
            size_in_bytes("--body-bytes", bad)


@given(
    st.sampled_from(sorted(keys())),
    st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.none()),
)
def test_any_value_converts_or_is_invalid(key: str, raw: object) -> None:
    try:
        got = value(key, raw)
    except Invalid:
        return
    assert type(got) is type(keys()[key].default)
