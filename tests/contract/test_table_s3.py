"""Iceberg tables over sealed files on a real S3 server: what ``[store]`` says reaches them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.aged import Stage, age
from tests.kit.assemble import KEYS
from tests.kit.fetchscene import scene
from tests.kit.s3server import S3Server
from tiered.clock import SystemClock
from tiered.provider.open import open_provider
from tiered.settings import Archive, Settings, State
from tiered.table.catalog import open_catalog
from tiered.table.keeping import TableKeeper
from tiered.table.orders import EMBEDDED, KeptTables
from tiered.table.place import file_access


@pytest.mark.s3server
def test_tables_of_an_archive_on_s3(s3_server: S3Server, tmp_path: Path) -> None:
    url = s3_server.url(s3_server.bucket(), "some/root")
    store = s3_server.store()
    with scene(tmp_path) as made:
        age(made, Stage.SEALED)
        there = open_provider(url, store, SystemClock())
        for stored in made.provider.list(KEYS.key("segment/")):
            there.put(stored.key, [made.provider.get(stored.key).data])
        there.close()
        settings = Settings(
            archive=Archive(url=url), store=store, state=State(directory=str(tmp_path / "state"))
        )
        kept = KeptTables(EMBEDDED, {}, "queues")
        keeper = TableKeeper(settings, KEYS, made.daemon.log.reader.identity.archive_id, kept)
        done = keeper.bring(made.state, 0, lambda: None)
        assert done.troubles == ()
        assert [(state.files, state.lag_commits) for state in done.states] == [(2, 0)] * 2
        messages = sum(q.messages for q in made.state.queues("Orders"))
    catalog: Any = open_catalog(kept, file_access(url, store), str(tmp_path / "state"))
    table = catalog.load_table(("queues", "Orders"))
    assert all(task.file.file_path.startswith("s3://") for task in table.scan().plan_files())
    assert len(table.scan().to_arrow()) == messages
