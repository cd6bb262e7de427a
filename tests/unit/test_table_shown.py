"""Which sealed files a fold shows: random histories, against what their runs say one by one."""

from __future__ import annotations

import random

from tests.kit.histories import History
from tiered.table.shown import shown_files


def test_files_of_level_two_with_live_runs_and_no_others() -> None:
    seen = cut = 0
    for seed in range(60):
        history = History(random.Random(seed))
        for _ in range(30):
            history.step()
        state = history.state
        topics: dict[str, set[str]] = {}  # of segments that hold several, which only random histories have
        rows: dict[str, int] = {}
        whole: dict[str, int] = {}
        for run in state.runs_all():
            item = state.object(run.object)
            assert item is not None
            if item.level == 2 and item.path:
                content = history.contents[run.id.commit_seq, run.id.index]
                live = {content[offset].number for offset in range(run.start, run.end)}
                topics.setdefault(item.path, set()).add(run.queue.topic)
                rows[item.path] = rows.get(item.path, 0) + len(live)
                whole[item.path] = whole.get(item.path, 0) + run.rows
        found = shown_files(state, lambda topic: True)
        files = {path: file for each in found.values() for path, file in each.items()}
        assert files.keys() == rows.keys()
        assert all(topic in topics[path] for topic, each in found.items() for path in each)
        for path, file in files.items():
            assert rows[path] <= file.rows <= whole[path]
            cut += file.rows < whole[path]
        assert shown_files(state, lambda topic: topic == "topic-1").keys() <= {"topic-1"}
        seen += len(files)
    assert seen > 50
    assert cut >= 5
