"""Sections are valid when they exist; every declaration is complete."""

from __future__ import annotations

import dataclasses

import pytest

from tiered.daemon.config import keys, section_types
from tiered.errors import Invalid
from tiered.settings import STARS, Dispatch, Log, Settings, Source, Store, Web, shown


def test_defaults_are_valid_and_documented() -> None:
    Settings()
    for key, field in keys().items():
        meta = field.metadata
        assert meta["doc"], key
        assert not meta["doc"].endswith("."), key
        if isinstance(field.default, int) and not isinstance(field.default, bool):
            assert meta["low"] is not None, f"{key} has no lower bound"
            assert "ms" in key.split("_") or meta["unit"] != "ms", f"{key}: the unit is not in the name"
            assert not key.endswith("_bytes") or meta["unit"] == "bytes", key


def test_sections_are_frozen_and_named_after_their_table() -> None:
    for name, kind in section_types().items():
        assert kind.__name__.lower() == name
        assert dataclasses.is_dataclass(kind)
        assert kind.__doc__
    with pytest.raises(dataclasses.FrozenInstanceError):
        Web().port = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "key", "bound"),
    [
        (lambda: Web(port=70_000), "web.port", "65535"),
        (lambda: Source(poll_interval_ms=0), "source.poll_interval_ms", "1 ms"),
        (lambda: Log(format="xml"), "log.format", "console, json"),
        (lambda: Dispatch(threads=True), "dispatch.threads", "whole number"),
        (lambda: Store(path_style=1), "store.path_style", "true or false"),  # type: ignore[arg-type]
        (lambda: Source(exclude_topics=(1,)), "source.exclude_topics", "list of strings"),  # type: ignore[arg-type]
    ],
)
def test_a_broken_bound_names_key_and_bound(make: object, key: str, bound: str) -> None:
    with pytest.raises(Invalid) as caught:
        make()  # type: ignore[operator]
    assert key in str(caught.value)
    assert bound in str(caught.value)
    assert caught.value.hint


def test_a_wrong_secret_is_not_repeated() -> None:
    with pytest.raises(Invalid) as caught:
        Store(secret_access_key=b"very-secret")  # type: ignore[arg-type]
    assert "very-secret" not in str(caught.value)
    assert shown(keys()["store.secret_access_key"], "x") == STARS


def test_directories_stand_beside_the_store() -> None:
    settings = Settings(source=Source(store_dir="/data/store/"))
    assert settings.commitlog_directories == ("/data/store/commitlog",)
    assert settings.hold_directory == "/data/store.tiered-hold"
    assert settings.state_directory == "/data/store.tiered"
    several = Settings(source=Source(commitlog_dirs="/a/log, /b/log/"))
    assert several.commitlog_directories == ("/a/log", "/b/log")
    assert several.hold_directory == "/a/log.tiered-hold"
    assert Settings().hold_directory == Settings().state_directory == ""
    assert Settings().commitlog_directories == ()
