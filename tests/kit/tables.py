"""Tables of a scene's archive: its sealed files laid out where engines find them, and a catalog in a directory; and of an
archive on disk, by the command."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.assemble import KEYS
from tests.kit.command import Done, archive_once, tiered
from tests.kit.fetchscene import Scene
from tests.kit.pipeline import Crafted
from tiered.settings import Archive, Settings, State, Tables
from tiered.table.catalog import open_catalog
from tiered.table.keeping import TableKeeper, TableRound
from tiered.table.orders import EMBEDDED, KeptTables

QUIET = [
    word for value in ("web.port=-1", "log.level=error", "seal.enabled=true") for word in ("--set", value)
]


@dataclass
class Shelf:
    """``directory``: the archive as engines see it, and the state directory with the catalog."""

    scene: Scene
    directory: Path
    kept: KeptTables = field(default_factory=lambda: KeptTables(EMBEDDED, {}, "queues"))
    batch_files: int = 200

    @property
    def settings(self) -> Settings:
        """What names the archive."""
        return Settings(
            archive=Archive(url=f"file://{self.directory}/archive"),
            state=State(directory=str(self.directory / "state")),
            tables=Tables(batch_files=self.batch_files),
        )

    def lay_out(self) -> None:
        """Sealed files as the store has them now."""
        root = self.directory / "archive"
        stored = {item.key for item in self.scene.provider.list(KEYS.key("segment/"))}
        for path in list(root.rglob("*.parquet")):
            if str(path.relative_to(root)) not in stored:
                path.unlink()
        for key in stored:
            path = root / key
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(bytes(self.scene.provider.get(key).data))

    def keeper(self) -> TableKeeper:
        """As a process that starts now."""
        return TableKeeper(self.settings, KEYS, self.scene.daemon.log.reader.identity.archive_id, self.kept)

    def bring(self, state: Any = None, pause: Callable[[], None] = lambda: None) -> TableRound:
        """A round, over the archive as it is or was."""
        self.lay_out()
        return self.keeper().bring(state or self.scene.state, 2_000_000_000_000, pause)

    def catalog(self) -> Any:
        """Pyiceberg's own."""
        return open_catalog(self.kept, {}, self.settings.state_directory)

    def table(self, name: str) -> Any:
        """A table of it."""
        return self.catalog().load_table((self.kept.namespace, name))

    def rows(self, name: str) -> list[dict[str, Any]]:
        """What an engine sees."""
        found: list[dict[str, Any]] = self.table(name).scan().to_arrow().to_pylist()
        return found

    def files(self, name: str) -> list[str]:
        """Locations in the newest snapshot, as often as they are in it."""
        return sorted(task.file.file_path for task in self.table(name).scan().plan_files())


class SealedPlace:
    """A broker's store of a day long ago, and its archive, sealed."""

    def __init__(self, directory: Path, topic: str = "Orders") -> None:
        self.broker = Crafted(directory / "store", file_bytes=1 << 17)
        self.archive, self.state = f"file://{directory}/archive", directory / "state"
        self.sealed(topic)

    def sealed(self, topic: str, count: int = 20) -> None:
        """Messages of a topic are archived and sealed; tables that are kept are brought up to date."""
        for number in range(count):
            self.broker.send(topic, number % 2, b"%d" % number * 9)
        store, state = ("--store", self.broker.store), ("--set", f"state.directory={self.state}")
        assert archive_once(self.broker.store, self.archive, f"state.directory={self.state}").code == 0
        done = tiered("maintain", "--once", *store, "--archive", self.archive, *state, *QUIET)
        assert done.code == 0, done.err

    def table(self, verb: str, *words: object) -> Done:
        """``tiered table`` of it."""
        return tiered("table", verb, *words, "--archive", self.archive, "--state", self.state, "--json")

    def catalog(self, kept: KeptTables) -> Any:
        """Pyiceberg's own."""
        return open_catalog(kept, {}, str(self.state))

    def rows(self, name: str, kept: KeptTables | None = None) -> list[dict[str, Any]]:
        """What an engine sees."""
        kept = kept or KeptTables(EMBEDDED, {}, "rocketmq")
        table = self.catalog(kept).load_table((*kept.namespace.split("."), name))
        found: list[dict[str, Any]] = table.scan().to_arrow().to_pylist()
        return found
