"""Sizes, times, flags and lists as people write them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.cli.options import flags
from tiered.daemon.config import env_name, keys, load
from tiered.errors import Invalid
from tiered.text.settingvalues import convert
from tiered.text.values import size_bytes

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
        (LIST, '["a*"]', ("a*",)),
        (LIST, " ['a*', \"b\",] ", ("a*", "b")),
        (LIST, "[]", ()),
        (LIST, '["[ab]*"]', ("[ab]*",)),
        (LIST, "[!c-e],[ab]*", ("[!c-e]", "[ab]*")),
        ("gateway.web_listen", "[::1]:9478", "[::1]:9478"),
        ("store.secret_access_key", "[1]", "[1]"),
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
        (LIST, "[1]"),
        (LIST, '[["a"]]'),
        ("source.commitlog_dirs", '["/a", "/b"]'),
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
    assert size_bytes("--body-bytes", "4KiB") == 4096
    assert size_bytes("--bytes-per-day", "2.3TiB") == round(2.3 * 2**40), "as sizes are shown"
    for bad in ("4Q", "-1", "", "0.5B"):
        with pytest.raises(Invalid, match="--body-bytes"):
            size_bytes("--body-bytes", bad)


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


LISTS = [key for key, field in keys().items() if isinstance(field.default, tuple)]
ENTRIES = {"fetch.topic_storage_levels": ("p*=FORCE", "q=DISABLE")}


def loaded(layer: str, key: str, text: str, tmp_path: Path) -> object:
    """A list as one layer gives it: the file in TOML, the others as text."""
    section, name = key.split(".")
    if layer == "file":
        (tmp_path / "t.toml").write_text(f"[{section}]\n{name} = {text}\n")
        found = load(tmp_path / "t.toml")
    elif layer == "environment":
        found = load(env={env_name(key): text})
    else:
        found = load(flags=flags(sets=[f"{key}={text}"]))
    return getattr(getattr(found.settings, section), name)


@pytest.mark.parametrize("layer", ["file", "environment", "flag"])
@pytest.mark.parametrize("key", LISTS)
def test_a_list_means_the_same_in_every_layer(key: str, layer: str, tmp_path: Path) -> None:
    first, second = ENTRIES.get(key, ("p*", "q"))
    assert loaded(layer, key, json.dumps([first]), tmp_path) == (first,)
    assert loaded(layer, key, json.dumps([first, second]), tmp_path) == (first, second)
    commas = f"{first}, {second}"
    assert loaded(layer, key, json.dumps(commas) if layer == "file" else commas, tmp_path) == (first, second)


@pytest.mark.parametrize("layer", ["file", "environment", "flag"])
@pytest.mark.parametrize("key", LISTS)
def test_a_pattern_that_can_match_nothing_is_refused(key: str, layer: str, tmp_path: Path) -> None:
    """A shell takes quotes away, a manifest leaves too many: what is left would be a class of characters, or match no name."""
    for text in ("[p*]", "[ab]", '["p*]', "'p*'", '"p*",q', "p[*", "p]", "[p,q]*", "p[]"):
        with pytest.raises(Invalid) as caught:
            loaded(layer, key, json.dumps(text) if layer == "file" else text, tmp_path)
            pytest.fail(f"taken: {text}")
        assert key in caught.value.message, text
        assert "quotes" in str(caught.value), text
