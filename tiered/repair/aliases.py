"""The aliases of a commit, from a later fold."""

from __future__ import annotations

import numpy as np

from tiered.archive.state.aliases import AliasRun, head_of, target_of, unpack_alias_run
from tiered.archive.state.keys import ALIAS, U8, queue_of, split_run_key
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.aliases import ALIAS_COLUMNS, RUN_COLUMNS, Aliases
from tiered.codec.format.edits import EditBatch


def alias_edits(later: ArchiveState, seq: int) -> list[EditBatch]:
    """The ``QueueAlias`` of commit ``seq``, if it had one, as far as a later fold still has its alias runs. Walks over all."""
    found: list[tuple[str, int, AliasRun]] = []
    for key, value in later.view.iterate(ALIAS):
        if head_of(value)["commit_seq"] == seq:
            queue, generation = split_run_key(key)
            run = unpack_alias_run(U8.unpack_from(key, len(key) - 8)[0], value)
            found.append((queue_of(queue).topic, generation, run))
    if not found:
        return []
    names = {name: number for number, name in enumerate(dict.fromkeys(name for name, _, _ in found))}
    targets = {
        key: number for number, key in enumerate(dict.fromkeys(t for *_, r in found for t in r.targets))
    }
    named = [target_of(key) for key in targets]
    runs = np.array([(names[name], g, run.first_offset, len(run.rows)) for name, g, run in found], np.int64)
    rows = np.concatenate([run.rows for *_, run in found])
    columns = {name: rows[name].astype(np.int64) for name in ALIAS_COLUMNS}
    columns["target"] = np.concatenate(
        [np.array([targets[key] for key in run.targets], np.int64)[run.rows["target"]] for *_, run in found]
    )
    made = Aliases(
        list(names),
        [queue.topic for queue, _ in named],
        [queue.queue_id for queue, _ in named],
        [generation for _, generation in named],
        {name: np.ascontiguousarray(runs[:, i]) for i, name in enumerate(RUN_COLUMNS)},
        columns,
    )
    return [made.edit()]
