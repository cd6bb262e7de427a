"""Workers of pytest-xdist share what compiling the tests costs, where no byte code of them lies here yet.

Each worker collects every module, all in the same order at the same time, and pytest's own compiler, which makes assertions
tell what they compared, takes most of a fresh collection's time. So each begins to import at a place of its own: what one
compiled the others find. Imported is what would be anyway; a module that cannot be imported says so when it is collected.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest


def own_order(modules: Sequence[Path], worker: int, workers: int) -> list[Path]:
    """All of them, from this worker's place on."""
    first = len(modules) * worker // workers
    return [*modules[first:], *modules[:first]]


def asked_for(config: pytest.Config) -> list[Path]:
    """Modules of tests in the folders that are named on the command line; of a run of single modules none."""
    places = [(config.invocation_params.dir / str(word)).resolve() for word in config.args]
    return sorted(file for place in places if place.is_dir() for file in place.rglob("test_*.py"))


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """In a worker: import in an order of its own, then collect."""
    given: dict[str, Any] | None = getattr(session.config, "workerinput", None)
    if given is not None:
        number = int(given["workerid"].removeprefix("gw"))
        for module in own_order(asked_for(session.config), number, given["workercount"]):
            if session.config.hook.pytest_ignore_collect(collection_path=module, config=session.config):
                continue
            name = ".".join(module.relative_to(session.config.rootpath).with_suffix("").parts)
            with contextlib.suppress(Exception):
                importlib.import_module(name)
    return (yield)
