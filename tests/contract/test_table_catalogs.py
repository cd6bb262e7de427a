"""Iceberg tables in catalogs that are servers: Iceberg's own REST catalog, and Glue as moto imitates it. Both are used by
``tiered table`` alone, as operators do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.kit.icebergrest import RestCatalog, rest_catalog
from tests.kit.s3server import REGION
from tests.kit.tables import SealedPlace
from tiered import crashpoint
from tiered.crashpoint import TablePoint
from tiered.table.iceberg import COMMIT
from tiered.table.orders import KeptTables

MESSAGES = 20


class Died(BaseException):
    """The process, at a crash point."""


@dataclass
class Desk:
    """An archive on disk, and tables of it in a namespace of their own. ``server``: the REST catalog, where it is that."""

    place: SealedPlace
    kept: KeptTables
    server: RestCatalog | None

    def enable(self) -> Any:
        properties = [f"{name}={value}" for name, value in self.kept.properties.items()]
        words = [word for each in properties for word in ("--property", each)]
        names = ("--catalog", self.kept.catalog, "--namespace", self.kept.namespace)
        return self.place.table("enable", "iceberg", *names, *words)

    def sync(self) -> Any:
        return self.place.table("sync", "--once")

    def load(self) -> Any:
        return self.place.catalog(self.kept).load_table((self.kept.namespace, "Orders"))

    def offsets(self, name: str = "Orders") -> list[tuple[int, int]]:
        """What an engine sees, by queue."""
        rows = self.place.rows(name, self.kept)
        return sorted((row["queue_id"], row["queue_offset"]) for row in rows)


WHOLE = sorted((number % 2, number // 2) for number in range(MESSAGES))


GLUE = pytest.param("glue", marks=pytest.mark.moto)
REST = pytest.param("rest", marks=pytest.mark.restcatalog)


@pytest.fixture(scope="module", params=[GLUE, REST])
def catalog(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, dict[str, str], RestCatalog | None]]:
    """What ``enable`` is told of it."""
    if request.param == "rest":
        with rest_catalog(tmp_path_factory.mktemp("rest")) as server:
            yield server.uri, {}, server
        return
    moto = request.getfixturevalue("moto")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in moto.environment().items():
            patch.setenv(name, value)
        warehouse = f"file://{tmp_path_factory.mktemp('glue')}"
        yield "glue", {"glue.endpoint": moto.endpoint, "glue.region": REGION, "warehouse": warehouse}, None


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> SealedPlace:
    return SealedPlace(tmp_path_factory.mktemp("place"))


@pytest.fixture
def desk(
    place: SealedPlace,
    catalog: tuple[str, dict[str, str], RestCatalog | None],
    request: pytest.FixtureRequest,
) -> Iterator[Desk]:
    uri, properties, server = catalog
    kept = KeptTables(uri, properties, request.node.originalname.removeprefix("test_")[:40])
    try:
        yield Desk(place, kept, server)
    finally:
        crashpoint.install(None)
        place.table("disable", kept.namespace)


def at_first(point: TablePoint, act: Callable[[], None]) -> None:
    """Something happens when the program first comes to a point."""
    reached: list[object] = []

    def hook(found: object) -> None:
        if found is point and not reached:
            reached.append(found)
            act()

    crashpoint.install(hook)


def die() -> None:
    raise Died


def test_enabled_followed_read_and_counted(desk: Desk, tmp_path: Path) -> None:
    desk.place = SealedPlace(tmp_path)
    (made,) = desk.enable().json
    assert (made["files"], made["added_files"], made["lag_commits"]) == (1, 1, 0)
    assert desk.offsets() == WHOLE
    assert desk.load().scan().count() == MESSAGES
    assert desk.load().current_snapshot().summary[COMMIT] == str(made["reflects_commit"])
    desk.place.sealed("Late")
    assert [(r["topic"], r["files"], r["lag_commits"]) for r in desk.place.table("list").json] == [
        ("Late", 1, 0), ("Orders", 1, 0),
    ]  # fmt: skip
    assert len(desk.offsets("Late")) == MESSAGES
    before = len(desk.load().snapshots())
    assert [row["added_files"] for row in desk.sync().json] == [0, 0]
    assert len(desk.load().snapshots()) == before, "a round that has nothing to do commits nothing"
    with desk.load().transaction() as change:
        change.set_properties({"gc.enabled": "true"})
    assert desk.sync().code == 0
    assert desk.load().properties["gc.enabled"] == "false"
    desk.place.catalog(desk.kept).drop_table((desk.kept.namespace, "Orders"))
    assert desk.sync().code == 0
    assert desk.offsets() == WHOLE


@pytest.mark.parametrize("point", list(TablePoint))
def test_killed(desk: Desk, point: TablePoint) -> None:
    """Between file and table: the next round brings it to an end, and no file is in it twice."""
    desk.kept = KeptTables(desk.kept.catalog, desk.kept.properties, f"killed_{point.name.lower()}")
    at_first(point, die)
    with pytest.raises(Died):
        desk.enable()
    crashpoint.install(None)
    done = desk.sync()
    assert done.code == 0, done.err
    assert (done.json[0]["files"], done.json[0]["lag_commits"]) == (1, 0)
    assert desk.offsets() == WHOLE
    desk.place.table("disable", desk.kept.namespace)


def test_raced(desk: Desk) -> None:
    """Another process is faster between look and commit: the catalog refuses the slower one, and no file is in it twice."""
    raced: list[int] = []
    at_first(TablePoint.BEFORE_TABLE, lambda: raced.append(desk.sync().code))
    done = desk.enable()
    assert (done.code, raced) == (0, [0]), done.err
    assert len(desk.load().snapshots()) == 1
    assert desk.offsets() == WHOLE


def test_foreign(desk: Desk) -> None:
    """A table of somebody else is refused, and stays as it was."""
    opened = desk.place.catalog(desk.kept)
    opened.create_namespace(desk.kept.namespace)
    opened.create_table((desk.kept.namespace, "Orders"), pa.schema([("a", pa.int64())]))
    before = desk.load().metadata
    done = desk.enable()
    assert done.code == 1
    assert "belongs to somebody else" in done.error["fields"]["found"]
    assert desk.load().metadata == before


@pytest.mark.parametrize("catalog", [REST], indirect=True)
def test_away(desk: Desk) -> None:
    """That a catalog is away is said, before and after its tables were made; nothing changes; the next round does it all."""
    assert desk.server is not None
    desk.server.kill()
    refused = desk.enable()
    assert (refused.code, "catalog of a table cannot do its work now" in refused.error["message"]) == (
        4,
        True,
    )
    assert desk.place.table("list").json == []
    desk.server.start()
    assert desk.enable().code == 0
    before = desk.load().metadata
    desk.server.kill()
    for verb in ("list", "sync --once"):
        done = desk.place.table(*verb.split())
        said = done.error["fields"]["found"]
        assert (done.code, desk.kept.name in said, "the next round tries again" in said) == (1, True, True)
    desk.server.start()
    assert desk.load().metadata == before
    assert desk.sync().code == 0
    assert desk.offsets() == WHOLE
