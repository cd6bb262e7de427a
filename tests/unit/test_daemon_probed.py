"""A start asks a store what it has not told before: once for each address, way there and version, and again after a month."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.storefakes import Ignoring, Scripted
from tiered.clock import ManualClock
from tiered.daemon import probed
from tiered.daemon.probed import MAX_STORES, PROBED_FILE, expect_as_probed, probe_once
from tiered.errors import Refused
from tiered.metrics import Metrics
from tiered.provider.base import Capabilities
from tiered.provider.memory import MemoryProvider
from tiered.provider.s3answers import StoreAnswers
from tiered.provider.wrap import Wrapped
from tiered.settings import Archive, Settings, Store

DAY = 86_400.0
SETTINGS = Settings(archive=Archive(url="s3://bucket/p"))


class Starts:
    """Starts with one state directory; ``asked``: requests that the last one cost."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.clock = ManualClock(1_700_000_000_000)
        self.metrics = Metrics()
        self.asked = -1

    def start(self, settings: Settings = SETTINGS, fake: type[Wrapped] = Wrapped) -> tuple[str, ...]:
        store = Scripted(fake(MemoryProvider("", self.clock)), [])
        try:
            return probe_once(store, settings, self.clock, self.metrics, self.state, "C/b/")
        finally:
            self.asked = len(store.calls)


@pytest.fixture
def starts(tmp_path: Path) -> Starts:
    return Starts(tmp_path)


def with_store(**changes: Any) -> Settings:
    return replace(SETTINGS, store=Store(**changes))


def test_a_known_store_is_asked_nothing_until_a_month_is_over(starts: Starts) -> None:
    starts.start()
    assert starts.asked > 200
    for _ in range(2):
        starts.clock.advance(14 * DAY)
        starts.start()
        assert starts.asked == 0
    starts.clock.advance(3 * DAY)
    starts.start()
    assert starts.asked > 200
    starts.start()
    assert starts.asked == 0


@pytest.mark.parametrize(
    "other",
    [
        replace(SETTINGS, archive=Archive(url="s3://other/p")),
        with_store(endpoint="http://127.0.0.1:9"),
        with_store(engine="boto3"),
        with_store(path_style=False),
        with_store(region="eu-west-1"),
    ],
    ids=["bucket", "endpoint", "engine", "path_style", "region"],
)
def test_another_store_is_probed_and_the_first_is_still_known(starts: Starts, other: Settings) -> None:
    starts.start()
    starts.start(other)
    assert starts.asked > 200
    for settings in (SETTINGS, other):
        starts.start(settings)
        assert starts.asked == 0


def test_another_version_of_the_program_probes_again(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    starts.start()
    monkeypatch.setattr(probed, "__version__", "99.0")
    starts.start()
    assert starts.asked > 200


def test_other_credentials_are_no_other_store_and_are_not_written_down(starts: Starts) -> None:
    starts.start(with_store(secret_access_key="hush"))
    starts.start(with_store(secret_access_key="hush-hush"))
    assert starts.asked == 0
    assert "hush" not in (starts.state / PROBED_FILE).read_text()


def test_a_clock_set_back_and_an_interval_of_nothing_probe_again(starts: Starts) -> None:
    starts.start()
    starts.clock = ManualClock(1_600_000_000_000)
    starts.start()
    assert starts.asked > 200
    starts.start(replace(SETTINGS, archive=replace(SETTINGS.archive, probe_interval_ms=0)))
    assert starts.asked > 200


def test_a_refused_store_is_probed_at_every_start_and_an_accepted_one_still_told(starts: Starts) -> None:
    for _ in range(2):
        with pytest.raises(Refused, match="accept_weak_store"):
            starts.start(fake=Ignoring)
        assert starts.asked > 10
    accepted = replace(SETTINGS, archive=replace(SETTINGS.archive, accept_weak_store=True))
    told = starts.start(accepted, fake=Ignoring)
    assert any(sentence.startswith("create-only: ") for sentence in told)
    starts.metrics = Metrics()
    assert starts.start(accepted) == told
    assert starts.asked == 0
    assert starts.metrics.value("tiered_probe_refuted", promise="create-only") == 1
    with pytest.raises(Refused):
        starts.start()


@pytest.mark.parametrize(
    "text", ["", "s3://bucket/p 0.1\n", "[]", '{"x": {"findings": [{}], "probed_ms": 1}}']
)
def test_a_file_of_another_form_is_no_knowledge(starts: Starts, text: str) -> None:
    (starts.state / PROBED_FILE).write_text(text)
    starts.start()
    assert starts.asked > 200
    starts.start()
    assert starts.asked == 0


def test_what_the_store_showed_is_expected_by_the_next_process(starts: Starts) -> None:
    class Shown(Wrapped):
        answers = StoreAnswers()

        @property
        def capabilities(self) -> Capabilities:
            return replace(self.inner.capabilities, manners=self.answers)

    Shown.answers.expect(["GetObject 404"])
    starts.start(fake=Shown)
    Shown.answers = StoreAnswers()
    later = Shown(MemoryProvider("", starts.clock))
    expect_as_probed(later, with_store(region="eu-west-1"), starts.state)
    assert Shown.answers.shown == []
    expect_as_probed(later, SETTINGS, starts.state)
    assert Shown.answers.shown == ["GetObject 404"]


def test_so_many_stores_are_remembered_and_no_more(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    report = probed.probe(MemoryProvider("", starts.clock), starts.clock)
    monkeypatch.setattr(probed, "probe", lambda *_, **__: report)
    sizes = []
    for number in range(2 * MAX_STORES):
        starts.start(replace(SETTINGS, archive=Archive(url=f"s3://bucket/{number:02}")))
        starts.clock.advance(1)
        sizes.append((starts.state / PROBED_FILE).stat().st_size)
    assert sizes[MAX_STORES - 1] == sizes[-1] > sizes[MAX_STORES - 2]
