"""Orders of sinks: what is refused, what is secret, which topics are taken; and kinds by name."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tiered.errors import Invalid
from tiered.sink import kinds
from tiered.sink.kinds import find_kind
from tiered.sink.order import SinkOrder
from tiered.text.references import resolve


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a" * 61, "a\n", "a/b"])
def test_a_name_is_part_of_keys_and_of_labels(name: str) -> None:
    with pytest.raises(Invalid, match="field=name"):
        SinkOrder(name, "file")


def test_longest_and_shortest_names() -> None:
    assert [SinkOrder(name, "file").name for name in ("a", "a" * 60, "0-9")] == ["a", "a" * 60, "0-9"]


@pytest.mark.parametrize(
    "options", [{"sasl.password": "x"}, {"secret": "x"}, {"url": "http://u:p@h/"}, {"token": "x"}]
)
def test_a_secret_is_named_and_never_put(options: dict[str, str]) -> None:
    with pytest.raises(Invalid, match=f"options.{next(iter(options))}") as refused:
        SinkOrder("a", "http", options)
    assert "x" not in str(refused.value.fields.values())


def test_named_secrets_are_taken_and_resolved_where_it_runs(tmp_path: Path) -> None:
    held = tmp_path / "password"
    held.write_text("of a file\n")
    order = SinkOrder("a", "kafka", {"sasl.password": "env:P", "ssl.key.password": f"file:{held}"})
    assert [resolve(value, {"P": "of a variable"}) for value in order.options.values()] == [
        "of a variable",
        "of a file",
    ]
    assert resolve("file:///data/out", {}) == "file:///data/out"
    with pytest.raises(Invalid, match="not set"):
        resolve("env:P", {})
    with pytest.raises(Invalid, match="cannot be read"):
        resolve(f"file:{tmp_path}/other", {})


def test_options_are_bounded() -> None:
    with pytest.raises(Invalid, match="too long"):
        SinkOrder("a", "file", {"x": "y" * 32_768})


def test_topics_by_pattern_and_rocketmqs_own_by_their_very_name() -> None:
    order = SinkOrder("a", "file", topics=("Order*", "%RETRY%g"), exclude=("*-test",))
    assert order.takes("Orders", system=False)
    assert not order.takes("Orders-test", system=False)
    assert not order.takes("Bills", system=False)
    assert order.takes("%RETRY%g", system=True)
    assert not SinkOrder("a", "file").takes("%RETRY%g", system=True)
    for field in ("topics", "exclude"):
        with pytest.raises(Invalid, match=f"field={field}"):
            SinkOrder("a", "file", **{field: ("ok", " ")})  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="field=topics"):
        SinkOrder("a", "file", topics=())


def test_an_unknown_kind_comes_with_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("file", "x:Y", kinds.REGISTERED),
        EntryPoint("kafka", "tiered.no_such:Kind", kinds.REGISTERED),
        EntryPoint("theirs", "no.such:Kind", kinds.REGISTERED),
    ]

    def entry_points(group: str, name: str | None = None) -> list[EntryPoint]:
        return [p for p in points if p.group == group and name in (None, p.name)]

    monkeypatch.setattr(kinds, "entry_points", entry_points)
    with pytest.raises(Invalid, match=r"expected=file, kafka, theirs.*did you mean kafka") as refused:
        find_kind("kafak")
    assert refused.value.fields["found"] == "kafak"
    with pytest.raises(Invalid, match=r"which is not installed.*rocketmq-tiered\[kafka\]"):
        find_kind("kafka")
    with pytest.raises(Invalid, match=r"requires the package no, which.*documents of sink kind 'theirs'"):
        find_kind("theirs")
