"""Tiers, and the fixtures that hand out real counterparts.

A test that needs a real counterpart carries its marker: ``broker`` (RocketMQ jars) or ``s3server`` (versitygw). Where
the counterpart is not installed, the tier is *not run*: its tests are deselected and the end of the report names it
with the command that installs it. It is never a silent skip, and in CI (``CI`` set, or ``TIERED_REQUIRE_ALL=1``) it
is not allowed: there the counterpart is installed on the spot, and when that fails every test of the tier fails.
``readonly`` needs something of the machine that nothing installs; for the rest it is a tier like the others.
"""

from __future__ import annotations

import functools
import gc
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from tests.kit import cache, classarchive, drawn, kept, passedbefore, powercut, pysparks, readonly, rewriting
from tests.kit.broker import Broker, NameServer
from tests.kit.install import InstallError, install
from tests.kit.warm import WARM
from tiered.clock import ManualClock

INSTALLED = tuple(dict.fromkeys(counterpart.tier for counterpart in cache.COUNTERPARTS.values()))
GIVEN: Mapping[str, Callable[[], str | None]] = {
    "powercut": powercut.missing,
    "readonly": readonly.missing,
    "spark": pysparks.missing,
}
"""Tiers that the machine has or has not: why it has not."""
TIERS = (*INSTALLED, *GIVEN)
SHARING = (
    ("absent", "consumers", "go", "questions"),
    ("faults", "tools", "nodes", "tenants"),
    ("acl", "restarts", "sql", "tls"),
    ("49", "reset_49", "tools_49"),
)
"""Modules ``e2e/test_gateway_…`` that read from a far-behind scene of the session: those in a row run on one worker, so that
they share it; a row too long would be the last to end. Those with ``acl`` switch its broker over or kill it, and then it has
forgotten part of its key index."""
MOTO = (
    "test_provider_contract.py",
    "test_provider_object_lock.py",
    "test_provider_lifecycle.py",
    "test_table_catalogs.py",
)
"""Modules that share the session's moto, which takes longer to start than any of them takes of it."""
_ROWS = {
    **{f"test_gateway_{name}.py": f"row {number}" for number, row in enumerate(SHARING) for name in row},
    **dict.fromkeys(MOTO, "moto"),
}
_SPARK = Path(__file__).parent / "spark"
_SCENES = Path(__file__).parent / "scenes"
_NOT_RUN = pytest.StashKey[dict[str, tuple[int, str]]]()
_FAILED = pytest.StashKey[dict[str, str]]()


settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")  # how long one example takes says how busy the machine is


def _all_required() -> bool:
    return bool(os.environ.get("CI")) or os.environ.get("TIERED_REQUIRE_ALL") == "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Files named before their folder would say the same, but pytest from 9 on collects both as the folder alone."""
    parser.addoption(
        "--first",
        default="",
        metavar="NAME,NAME",
        help="modules test_NAME.py that come before the others, in this order",
    )
    drawn.pytest_addoption(parser)
    kept.pytest_addoption(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Fresh books for this run. An interrupt that a background shell made us ignore is heard again: tests send some."""
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        and threading.current_thread() is threading.main_thread()
    ):
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[_NOT_RUN] = {}
    config.stash[_FAILED] = {}
    passedbefore.pytest_configure(config)
    drawn.pytest_configure(config)
    kept.pytest_configure(config)
    config.pluginmanager.register(rewriting, "rewriting")
    WARM.enabled = True
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(_Workers(config), "tiers-workers")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Modules that import PySpark cannot even be collected without it: named as *not run*, where that is allowed."""
    if collection_path.parent != _SPARK or not collection_path.name.startswith("test_"):
        return None
    why = pysparks.missing()
    if why is None or _all_required():
        return None
    count = len(re.findall(r"^ *def test_", collection_path.read_text(), re.MULTILINE))
    before = config.stash[_NOT_RUN].get("spark", (0, ""))[0]
    config.stash[_NOT_RUN]["spark"] = (before + count, why)
    return True


def _tiers(item: pytest.Item) -> list[str]:
    names = {marker.name for marker in item.iter_markers()}
    return [tier for tier in TIERS if tier in names]


def put_first(items: list[pytest.Item], names: Sequence[str]) -> None:
    """Tests of these modules first, in this order; all else as it was."""
    ranks = {f"test_{name}.py": rank for rank, name in enumerate(names)}
    items.sort(key=lambda item: ranks.get(item.path.name, len(ranks)))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Look at the tiers of what is left after ``-m`` and ``-k``: install, or take out and remember."""
    put_first(items, config.getoption("first").split(","))
    missing: dict[str, str] = {}
    tiers = {item: _tiers(item) for item in items}
    needed = {tier for of in tiers.values() for tier in of}
    for tier, why_absent in GIVEN.items():
        why = why_absent() if tier in needed else None
        if why is not None and _all_required():
            config.stash[_FAILED][tier] = f"cannot be had: {why}"
        elif why is not None:
            missing[tier] = why
    for tier in INSTALLED:
        absent = [
            c.name for c in cache.COUNTERPARTS.values() if c.tier == tier and not cache.installed(c.name)
        ]
        if not absent or tier not in needed:
            continue
        if _all_required():
            try:
                for name in absent:
                    install(name)
            except InstallError as error:
                config.stash[_FAILED][tier] = f"could not be installed: {error}"
        else:
            missing[tier] = f"{', '.join(absent)} not installed in {cache.root()} → make test-install"
    if "broker" not in missing and "broker" in needed:
        for version in (cache.ROCKETMQ_5, cache.ROCKETMQ_4):
            classarchive.make(version)
    if not missing:
        return
    out = {item for item in items if any(tier in missing for tier in tiers[item])}
    for tier, why in missing.items():
        config.stash[_NOT_RUN][tier] = (sum(tier in tiers[item] for item in out), why)
    items[:] = [item for item in items if item not in out]
    config.hook.pytest_deselected(items=list(out))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Coverage rests while Hypothesis works: its examples pass the same lines hundreds of times, at twice the price; and in all
    seeded histories of a test but the first. Scenes are marked, for a ring that has them and a part of other folders."""
    if item.path.parent == _SCENES:
        item.add_marker("scene")
    if is_hypothesis_test(getattr(item, "obj", None)) or drawn.follows_another(item):
        item.add_marker("no_cover")


def pytest_collection_finish() -> None:
    """What all tests of a process share is made once for all. botocore reads its descriptions of S3, 0.1 s, for each session
    anew; and each full collection of garbage would go through all modules and tests, which are none.
    Scenes make so many objects that looking for cycles after each 700, as is usual, takes a twentieth of the time."""
    if botocore := sys.modules.get("botocore"):
        botocore.session.create_loader = functools.cache(botocore.loaders.create_loader)
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """A tier that had to be there and is not, nor could be installed, fails, test by test."""
    for tier in _tiers(item):
        if why := item.config.stash[_FAILED].get(tier):
            pytest.fail(f"tier {tier!r} is required here and {why}", pytrace=False)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Hand the books to the controlling process when this is a worker of pytest-xdist; a run left empty is fine."""
    output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["tiers_not_run"] = session.config.stash[_NOT_RUN]
    elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash[_NOT_RUN]:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name each tier that was not run, how many tests that was, and the way out."""
    for tier, (count, why) in config.stash[_NOT_RUN].items():
        line = f"NOT RUN: tier {tier!r} ({count} tests): {why}"
        terminalreporter.write_line(line, yellow=True, bold=True)


def scope(nodeid: str) -> str:
    """Tests of one scope run on one worker, one after the other."""
    module = nodeid.partition("::")[0]
    folder, _, name = module.rpartition("/")
    if folder.rpartition("/")[2] == "fault":
        return nodeid
    return _ROWS.get(name, module)


class _Workers:
    """What runs in the controlling process of pytest-xdist only."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Every worker collects everything, so any worker's books are complete."""
        self._config.stash[_NOT_RUN].update(getattr(node, "workeroutput", {}).get("tiers_not_run", {}))

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Any:
        """Keep a module on one worker, with its servers and whatever else it makes once, and modules that share a scene, too;
        only tests of faults, long ones that share nothing, are dealt out one by one.

        ``xdist_group`` would say the same, but pytest 9.2 ignores it (pytest-xdist issue 1386), and silently: each
        worker would start its own broker.
        """
        from xdist.scheduler import LoadScopeScheduling  # late: the plugin may be absent

        if config.getoption("dist") != "loadgroup":
            return None

        class ByServer(LoadScopeScheduling):  # type: ignore[misc]
            def _split_scope(self, nodeid: str) -> str:
                return scope(nodeid)

        return ByServer(config, log)


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock(1_700_000_060_000)


@pytest.fixture
def store(clock: ManualClock) -> Any:
    """An empty store in memory that counts what it is asked (``tests.kit.assemble.Counting``)."""
    from tests.kit.assemble import memory

    return memory(clock)


@pytest.fixture(scope="session")
def rocketmq() -> str:
    """Version of the newest RocketMQ of the tests; its jars are there."""
    return cache.ROCKETMQ_5


@pytest.fixture(scope="module")
def name_server(rocketmq: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NameServer]:
    """A running name server, one per module."""
    with NameServer(rocketmq, tmp_path_factory.mktemp("namesrv")) as server:
        yield server


@pytest.fixture(scope="module")
def broker(
    rocketmq: str, name_server: NameServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Broker]:
    """A running broker with small files, one per module. A test that kills it starts it again."""
    with Broker(rocketmq, tmp_path_factory.mktemp("broker"), name_server) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Any]:
    """A running versitygw (``tests.kit.s3server.S3Server``); take a bucket of your own with ``bucket()``."""
    from tests.kit.s3server import versitygw  # late: boto3 is slow to import and most tests need none

    with versitygw() as server:
        yield server


@pytest.fixture(scope="session")
def moto() -> Iterator[Any]:
    """A running moto (``tests.kit.s3server.S3Server``); take a bucket of your own with ``bucket()``."""
    from tests.kit.s3server import moto_server  # late: boto3 is slow to import and most tests need none

    with moto_server() as server:
        yield server
