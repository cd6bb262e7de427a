"""The locks pin what pip asks for: also a package that another one wants with extras, or a newer release breaks the install."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[([^\]]*)\])?==", re.MULTILINE)
LOCKS = sorted(ROOT.glob("requirements*.lock"))


def pins(lock: Path) -> dict[str, set[str]]:
    """Extras with which each package is pinned."""
    return {
        str(canonicalize_name(name)): {part.strip() for part in extras.split(",") if part.strip()}
        for name, extras in PINNED.findall(lock.read_text())
    }


def wanted(pinned: dict[str, set[str]]) -> dict[str, set[str]]:
    """Extras with which the pinned packages that are installed here want each other."""
    found: dict[str, set[str]] = {}
    for name, extras in pinned.items():
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for line in lines:
            needs = Requirement(line)
            environments: list[dict[str, str]] = [{"extra": extra} for extra in (extras or {""})]
            if needs.extras and (
                needs.marker is None or any(needs.marker.evaluate(one) for one in environments)
            ):
                found.setdefault(str(canonicalize_name(needs.name)), set()).update(needs.extras)
    return found


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.name)
def test_what_is_wanted_with_extras_is_pinned_with_them(lock: Path) -> None:
    pinned = pins(lock)
    assert pinned
    lacking = {name: extras - pinned.get(name, set()) for name, extras in wanted(pinned).items()}
    assert {name: extras for name, extras in lacking.items() if extras} == {}


def test_one_is_wanted_so() -> None:
    assert wanted(pins(ROOT / "requirements-dev.lock")).get("coverage") == {"toml"}
